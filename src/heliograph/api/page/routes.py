"""The page, the parts of it that are fetched again, its two files. Driver only; begin here.

`/` without a token is a form that asks for one, where the server asks for tokens at all. The script
keeps it for its tab and sends it as any client does: there is no cookie, so no other page can make
a browser act. Only what is served under `/page` and `/` is HTML; every action is a verb of `/v1`.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, Depends, Query, Request, Response

from heliograph.api.access import Caller
from heliograph.api.asking import AboutGroup, AboutTopic, topic_why
from heliograph.api.page.groups_view import groups_view
from heliograph.api.page.look import Look, Looks
from heliograph.api.page.render import FILES, POLICY, file_bytes, rendered
from heliograph.api.page.slow import Slow, groups, verdicts
from heliograph.api.page.view import Chosen, LiveView, Wanted, choose, live_view
from heliograph.api.state import AnyCaller, ApiState, Looking, State
from heliograph.health.verdict import FlowVerdict
from heliograph.inspect.groups import GroupsStatus

routes: Final = APIRouter(include_in_schema=False)

_PAGE_MAX: Final = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class PageState:
    """What all browsers share."""

    looks: Looks
    cutover: Slow[list[FlowVerdict]]
    groups: Slow[GroupsStatus]


def page_state(state: ApiState) -> PageState:
    turn = asyncio.Lock()
    return PageState(
        looks=Looks(state),
        cutover=Slow(state, verdicts, turn),
        groups=Slow(state, groups, turn),
    )


async def _page_of(request: Request) -> PageState:
    found = request.app.state.page
    assert isinstance(found, PageState)
    return found


async def _wanted(
    search: Annotated[str, Query(max_length=249, description="Part of a topic's name.")] = "",
    flow: Annotated[str, Query(max_length=512, description="Only this flow.")] = "",
    lane_state: Annotated[
        Literal["", "starting", "copying", "idle", "waiting", "paused", "stalled"],
        Query(alias="state", description="Only lanes in this state."),
    ] = "",
    page: Annotated[int, Query(ge=1, le=_PAGE_MAX, description="Of the lanes.")] = 1,
) -> Wanted:
    return Wanted(search=search, flow=flow, state=lane_state, page=page)


Page = Annotated[PageState, Depends(_page_of)]
Asked = Annotated[Wanted, Depends(_wanted)]


@routes.get("/")
async def page(state: State, caller: AnyCaller, shared: Page, wanted: Asked) -> Response:
    """The whole page; without a token only what asks for one."""
    live = None if caller is None else await _live(state, shared, caller, wanted)
    text = await state.off_loop(lambda: rendered("page.html", live=live))
    return _html(text)


@routes.get("/page/live")
async def live(state: State, caller: Looking, shared: Page, wanted: Asked) -> Response:
    """All that changes by itself."""
    found = await _live(state, shared, caller, wanted)
    return _html(await state.off_loop(lambda: rendered("live.html", live=found)))


@routes.get("/page/cutover")
async def cutover(state: State, caller: Looking, shared: Page) -> Response:
    """Whether flows may be cut over, by what both clusters say."""
    answer = shared.cutover.now()
    visible = state.visible(caller)
    found = [each for each in answer.found or () if each.flow in visible]
    return _html(rendered("cutover.html", answer=answer, flows=found))


@routes.get("/page/groups")
async def consumer_groups(state: State, caller: Looking, shared: Page) -> Response:
    """Consumer groups on both sides."""
    answer = shared.groups.now()
    visible = state.visible(caller)

    def made() -> str:
        found = None if answer.found is None else groups_view(answer.found, visible)
        return rendered("groups.html", answer=answer, found=found)

    return _html(await state.off_loop(made))


@routes.get("/page/why")
async def why(
    state: State, caller: Looking, topic: AboutTopic, group: AboutGroup = None
) -> Response:
    """Why a topic is mirrored or not."""
    found = await topic_why(state, caller, topic, group)
    return _html(rendered("why.html", found=found))


@routes.get("/page/page.css")
async def style() -> Response:
    return _file("page.css")


@routes.get("/page/page.js")
async def script() -> Response:
    return _file("page.js")


async def _live(state: ApiState, shared: PageState, caller: Caller, wanted: Wanted) -> LiveView:
    look: Look = await shared.looks.now()
    visible = state.visible(caller)
    chosen: Chosen = await state.off_loop(choose, look, visible, wanted)
    # Histories belong to the driver's loop; they are values.
    histories = {at.lane: state.live.history(at.lane) for at in chosen.lanes}
    operations = state.operations.all
    return await state.off_loop(live_view, look, caller, wanted, chosen, histories, operations)


def _html(text: str) -> Response:
    headers: dict[str, Any] = {"Content-Security-Policy": POLICY, "Vary": "Accept, Authorization"}
    return Response(text, media_type="text/html", headers=headers)


def _file(name: str) -> Response:
    return Response(file_bytes(name), media_type=FILES[name])
