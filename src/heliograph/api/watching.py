"""The routes about how flows fare: verdict, alarms and their silences, canary. Driver only."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Annotated, Any, Final

from fastapi import APIRouter, Body, Path, Query, Response
from pydantic import Field

from heliograph.api.access import Caller, Role
from heliograph.api.bodies import Body as Model
from heliograph.api.bodies import FlowProblem, flow_problems
from heliograph.api.problems import ApiProblem
from heliograph.api.responses import json_of
from heliograph.api.state import ApiState, Known, Looking, OnlyFlow, State, require
from heliograph.clock import now_ms
from heliograph.config.choice import choose
from heliograph.health.listing import AlarmRow, FlowAlarms, Kept, alarms_of, kept_in
from heliograph.health.note import Silence
from heliograph.health.reading import read_verdicts
from heliograph.health.silencing import NoSuchAlarm, lift, silence, with_id
from heliograph.health.verdict import FlowVerdict
from heliograph.ledger.canary_note import CanaryNote, Track, canary_note
from heliograph.model import FlowId
from heliograph.takeover.pending import pending_adoptions

routes: Final = APIRouter()

_Id = Annotated[str, Path(pattern="^[0-9a-f]{10}$", description="Ten hexadecimal digits.")]


class ReasonBody(Model):
    word: str
    text: str


class CutoverBody(Model):
    ready: bool
    reasons: list[str]
    """Why not yet."""
    remarks: list[str]
    """What is left to do, and does not stand in the way."""


class VerdictBody(Model):
    flow: str
    verdict: str
    """`healthy`, `behind`, `stalled` or `losing`."""
    reasons: list[ReasonBody]
    cutover: CutoverBody


class VerdictsBody(Model):
    at_ms: int
    flows: list[VerdictBody]


class SilenceBody(Model):
    id: str
    flow: str
    alarm: str
    who: str
    at_ms: int
    until_ms: int
    why: str
    lifted_by: str | None


class AlarmBody(Model):
    id: str
    flow: str
    alarm: str
    """A kind, with a colon and a subject where it has one: `lag:orders`."""
    state: str
    """`open` or `ended`."""
    text: str
    """As it was when the alarm was raised."""
    raised_ms: int
    ended_ms: int | None
    silenced: SilenceBody | None


class AlarmsBody(Model):
    at_ms: int
    alarms: list[AlarmBody]
    silences: list[SilenceBody]
    """Those that hold."""
    problems: list[FlowProblem]


class NewSilenceBody(Model):
    """How long, and why."""

    until_ms: int | None = Field(default=None, ge=0, le=2**53)
    for_s: int | None = Field(default=None, ge=1, le=10**9)
    """How long it holds, instead of `until_ms`."""
    why: str = Field(default="", max_length=512)


class TrackBody(Model):
    flow: str
    """Whose canaries these are; in a chain also those of flows before this one."""
    source: str
    sequence: int
    sent_ms: int
    seen_ms: int
    latency_ms: int | None
    hop_ms: int | None
    """Of that, the part over this flow."""
    seen: int
    missing: int
    late: int
    repeated: int
    gaps: list[int]
    counts: list[int]
    """Canaries in each bucket of latency, as `latency_counts` of a lane."""
    recent: list[int]
    """Latencies of the last ones, in ms."""


class CanaryBody(Model):
    flow: str
    enabled: bool
    at_ms: int | None
    """None before the first was sent, as the others."""
    topic: str | None
    sequence: int | None
    sent_ms: int | None
    waiting_ms: int | None
    """When the oldest was sent that has not arrived."""
    late_s: float | None
    problem: str | None
    tracks: list[TrackBody]


class CanariesBody(Model):
    at_ms: int
    canaries: list[CanaryBody]
    problems: list[FlowProblem]


@routes.get("/v1/verdict", response_model=VerdictsBody)
async def verdict(state: State, caller: Looking, flow: OnlyFlow = None) -> Response:
    """One word for each flow, and whether it may be cut over; both clusters are asked, which takes
    seconds."""
    wanted = [str(one) for one in sorted(state.visible(caller, flow))]

    def read() -> list[FlowVerdict]:
        if not wanted:
            return []
        config = choose(state.live.config, flows=wanted)
        # A loop of its own: the driver's answers beats meanwhile.
        return asyncio.run(read_verdicts(config, pending_adoptions(config)))

    async with state.asking:
        found = await state.off_loop(read)
    return json_of(VerdictsBody(at_ms=now_ms(), flows=[_verdict(each) for each in found]))


@routes.get("/v1/alarms", response_model=AlarmsBody)
async def alarms(
    state: State,
    caller: Looking,
    flow: OnlyFlow = None,
    history: Annotated[bool, Query(description="Also the last that have ended.")] = False,
) -> Response:
    """Alarms that are open, and the silences that hold."""
    at_ms = now_ms()
    found, problems = await state.of_ledgers(state.visible(caller, flow), kept_in)
    listed = [alarms_of(found[of], of, at_ms) for of in sorted(found)]
    shown = [each if history else each.without_history() for each in listed]
    return json_of(
        AlarmsBody(
            at_ms=at_ms,
            alarms=[_alarm(each, row) for each in shown for row in each.alarms],
            silences=[_silence(each.flow, one) for each in shown for one in each.silences],
            problems=flow_problems(problems),
        )
    )


_ANSWERS: Final[dict[int | str, dict[str, Any]]] = {
    201: {"model": SilenceBody, "description": "The silence, which is in the ledger."}
}


@routes.post("/v1/alarms/{alarm}/silence", status_code=201, response_model=None, responses=_ANSWERS)
async def silence_alarm(
    alarm: _Id, state: State, caller: Known, asked: Annotated[NewSilenceBody, Body()]
) -> Response:
    """Tell no one of this alarm for a while; as `heliograph silence`."""
    if (asked.for_s is None) == (asked.until_ms is None):
        raise ApiProblem(400, "a silence needs its end: send until_ms or for_s")
    until_ms = now_ms() + 1000 * asked.for_s if asked.for_s is not None else asked.until_ms
    flow = await _flow_of(
        state, caller, lambda of, kept: with_id(kept[0].alarms, of, alarm) is not None
    )
    made = await silence(
        state.live.ledgers,
        state.live.config,
        flow,
        alarm,
        who=caller.name,
        why=asked.why,
        until_ms=until_ms or 0,
    )
    state.trail.changed(caller, "silence", flow, f"alarm={made.alarm} silence={made.id}")
    answer = json_of(_silence(str(flow), made))
    answer.status_code = 201
    return answer


@routes.delete("/v1/silences/{silence}", response_model=SilenceBody)
async def lift_silence(silence: _Id, state: State, caller: Known) -> Response:
    """End a silence now; as `heliograph silence --lift`."""
    flow = await _flow_of(
        state, caller, lambda _, kept: any(each.id == silence for each in kept[1])
    )
    over = await lift(state.live.ledgers, flow, silence, caller.name)
    state.trail.changed(caller, "lift", flow, f"silence={over.id}")
    return json_of(_silence(str(flow), over))


@routes.get("/v1/canary", response_model=CanariesBody)
async def canary(state: State, caller: Looking, flow: OnlyFlow = None) -> Response:
    """How the canaries of each flow fare."""
    found, problems = await state.of_ledgers(state.visible(caller, flow), canary_note)
    return json_of(
        CanariesBody(
            at_ms=now_ms(),
            canaries=[_canary(state, of, found[of]) for of in sorted(found)],
            problems=flow_problems(problems),
        )
    )


async def _flow_of(
    state: ApiState, caller: Caller, is_there: Callable[[FlowId, Kept], bool]
) -> FlowId:
    """The flow that has what is asked for; 403 where the caller may not operate it."""
    found, _ = await state.of_ledgers(state.visible(caller), kept_in)
    for of in sorted(found):
        if is_there(of, found[of]):
            require(caller, Role.OPERATE, of)
            return of
    raise NoSuchAlarm("no flow has an alarm or a silence of this id")


def _verdict(found: FlowVerdict) -> VerdictBody:
    return VerdictBody(
        flow=str(found.flow),
        verdict=found.word.value,
        reasons=[ReasonBody(word=each.word.value, text=each.text) for each in found.reasons],
        cutover=CutoverBody(
            ready=found.cutover.is_ready,
            reasons=list(found.cutover.reasons),
            remarks=list(found.cutover.remarks),
        ),
    )


def _alarm(of: FlowAlarms, row: AlarmRow) -> AlarmBody:
    return AlarmBody(
        id=row.id,
        flow=of.flow,
        alarm=row.alarm,
        state=row.state,
        text=row.text,
        raised_ms=row.raised_ms,
        ended_ms=row.ended_ms,
        silenced=None if row.silenced is None else _silence(of.flow, row.silenced),
    )


def _silence(flow: str, silence: Silence) -> SilenceBody:
    return SilenceBody(
        id=silence.id,
        flow=flow,
        alarm=silence.alarm,
        who=silence.who,
        at_ms=silence.at_ms,
        until_ms=silence.until_ms,
        why=silence.why,
        lifted_by=None if silence.lifted is None else silence.lifted.who,
    )


def _canary(state: ApiState, flow: FlowId, note: CanaryNote | None) -> CanaryBody:
    enabled = state.live.config.flow(flow).canary.enabled
    return CanaryBody(
        flow=str(flow),
        enabled=enabled,
        at_ms=None if note is None else note.at_ms,
        topic=None if note is None else note.topic or None,
        sequence=None if note is None or note.sequence < 0 else note.sequence,
        sent_ms=None if note is None else note.sent_ms,
        waiting_ms=None if note is None else note.waiting_ms,
        late_s=None if note is None or not enabled else round(note.late_s(now_ms()), 1),
        problem=None if note is None else note.problem or None,
        tracks=[] if note is None else [_track(each) for each in note.tracks],
    )


def _track(track: Track) -> TrackBody:
    return TrackBody.model_validate(track)
