"""The route that says why a topic is mirrored or not. Driver only."""

from __future__ import annotations

import asyncio
from typing import Annotated, Final

from fastapi import APIRouter, Query, Response

from heliograph.api.access import Caller
from heliograph.api.responses import json_of
from heliograph.api.state import ApiState, Looking, OnlyFlow, State
from heliograph.inspect.why_document import WhyDocument
from heliograph.inspect.why_reading import Why, read_why
from heliograph.model import TopicName
from heliograph.takeover.pending import pending_adoptions

routes: Final = APIRouter()

_GROUP_CHARS_MAX: Final = 512


AboutTopic = Annotated[str, Query(min_length=1, max_length=249, description="A source topic.")]
AboutGroup = Annotated[
    str | None,
    Query(min_length=1, max_length=_GROUP_CHARS_MAX, description="Also about this group."),
]


@routes.get("/v1/why", response_model=WhyDocument)
async def why(
    state: State,
    caller: Looking,
    topic: AboutTopic,
    group: AboutGroup = None,
    flow: OnlyFlow = None,
) -> Response:
    """Why a topic is mirrored or not; both clusters are asked, which takes seconds."""
    return json_of(WhyDocument.of(await topic_why(state, caller, topic, group, flow)))


async def topic_why(
    state: ApiState, caller: Caller, topic: str, group: str | None, flow: str | None = None
) -> Why:
    visible = sorted(state.visible(caller, flow))
    config, values = state.live.config, state.values

    def read() -> Why:
        # A loop of its own: the driver's answers beats meanwhile.
        return asyncio.run(
            read_why(
                config,
                TopicName(topic),
                pairs=visible,
                group=group,
                adoptions=pending_adoptions(config),
                values=values,
            )
        )

    async with state.asking:
        return await state.off_loop(read)
