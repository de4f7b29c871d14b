"""`heliograph status`: how every lane is, from any process. Runs on the driver."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import Annotated, Final

import typer
from pydantic import BeforeValidator
from rich.console import Group, RenderableType
from rich.live import Live
from rich.text import Text as Styled

from heliograph.cli.decision_tables import DecisionDocument
from heliograph.cli.document import At, Document, OrNull, Text
from heliograph.cli.options import AsJson, File, OnlyFlows
from heliograph.cli.output import EXIT_FAILED, EXIT_STALLED, remarks, results
from heliograph.cli.pipelines import PipelineDocument, is_any_stalled, pipeline_table
from heliograph.cli.tables import (
    STALLED,
    WAITING,
    TopicRow,
    ago,
    lag_words,
    new_table,
    number_or_unknown,
    overrun_words,
    states,
    topic_table,
)
from heliograph.clock import now_ms
from heliograph.config.choice import choose
from heliograph.config.load import load_config
from heliograph.config.schema import MirrorConfig
from heliograph.decisions.orders import LaneOrders
from heliograph.decisions.words import decision_words
from heliograph.inspect.flow_status import (
    EXCLUDED,
    FENCED,
    PAUSED,
    FlowStatus,
    LaneStatus,
    MirrorStatus,
)
from heliograph.inspect.status import StatusReader
from heliograph.inspect.waiting import FOR_ADOPT, NOT_EMPTY, WaitingLane
from heliograph.lag.figures import Seconds, json_seconds
from heliograph.lag.folding import known_sum
from heliograph.ledger.canary_note import CanaryNote
from heliograph.ledger.drill_note import LastDrill
from heliograph.ledger.entries import RELEASED
from heliograph.ledger.locations import all_topics
from heliograph.model import FlowId
from heliograph.takeover.pending import pending_adoptions
from heliograph.words import counted

_SAMPLE_S: Final = 1.0
_TOLD: Final = (RELEASED, FOR_ADOPT, NOT_EMPTY, PAUSED, EXCLUDED, FENCED)
"""States whose detail says what to do, and is the same for all lanes of a topic."""
_NAMED_MAX: Final = 5

STATUS_HELP: Final = """Show how far every lane has come, and how far behind it is.

A lane is one source partition and its target partition. All figures are read from the clusters, so
the command works from any machine that reaches them, while the mirror runs and after it ended.
What a cluster does not answer is shown as a question mark. With --watch, --json prints one
document a line.

Lanes that wait are shown too: for `heliograph adopt`, for their topic to be created, or for a
driver to begin them.

Exits with 1 when a cluster cannot be reached or --topic names a topic that no flow mirrors, and
with 3 when a lane or pipeline is stalled, a lane waits for an operator, or no driver mirrors a flow
that is neither fenced nor released.

Examples:

  heliograph status mm2.properties

  heliograph status mm2.properties --watch

  heliograph status mm2.properties --topic orders --lanes --json
"""


class _Fence(Document):
    at_ms: int
    why: str


class _FailedOver(_Fence):
    topic: str


class _Holder(Document):
    host: str
    pid: int
    at_ms: int
    slot_count: int


class _Standby(Document):
    host: str
    pid: int
    at_ms: int


JsonSeconds = Annotated[Seconds, BeforeValidator(json_seconds)]
Ids = Annotated[
    tuple[str, ...], BeforeValidator(lambda found: tuple(decision.id for decision in found))
]


class LagDocument(Document):
    """As `/v1/lanes` has it, as far as the clusters show it."""

    motion: str
    source_records_per_s: float | None
    catch_up_s: JsonSeconds
    trend: str | None
    overrun_s: JsonSeconds
    overrun_by: OrNull


class _Lane(Document):
    topic: str = At("lane.source.topic")
    partition: int = At("lane.source.partition")
    target_topic: str = At("target.topic")
    state: str
    detail: OrNull
    position: int
    position_is_exact: bool
    source_start_offset: int | None
    source_next_offset: int
    source_end_offset: int | None
    target_next_offset: int
    lag_records: int | None
    lag_s: float | None
    records_per_s: float | None
    lag: LagDocument | None
    offsets: str
    mapped_because: OrNull
    lost_records: int
    foreign_records: int
    noted_ms: int | None
    decisions: Ids = At("decided.decisions")


class _Waiting(Document):
    topic: str = At("lane.source.topic")
    partition: int = At("lane.source.partition")
    target_topic: str = At("target.topic")
    state: str
    detail: OrNull
    lag_records: int | None


class _Flow(Document):
    flow: Text
    problem: OrNull
    fence: _Fence | None
    failed_over: tuple[_FailedOver, ...]
    carried_by: _Holder | None = At("holder")
    slots_why: OrNull
    standbys: tuple[_Standby, ...]
    config_problem: OrNull
    mirrored_records: int | None
    lag_records: int | None
    lost_records: int | None
    foreign_records: int | None
    dead_letters: int
    last_drill: LastDrill | None
    canary: CanaryNote | None
    decisions: tuple[DecisionDocument, ...] = At("orders.standing")
    lanes: tuple[_Lane, ...]
    waiting: tuple[_Waiting, ...]
    pipelines: tuple[PipelineDocument, ...]


class StatusDocument(Document):
    at_ms: int
    unreachable: dict[str, str]
    flows: tuple[_Flow, ...]


def status(
    file: File,
    watch: Annotated[
        bool, typer.Option("--watch", "-w", help="Refresh every second until Ctrl-C.")
    ] = False,
    topic: Annotated[
        list[str] | None,
        typer.Option("--topic", help="Only this source topic; repeatable."),
    ] = None,
    lanes: Annotated[
        bool, typer.Option("--lanes", help="One row per lane, not only one per topic.")
    ] = False,
    flow: OnlyFlows = None,
    as_json: AsJson = False,
) -> None:
    config = choose(load_config(file), flows=flow or ())
    try:
        found = asyncio.run(_show(config, topic or [], watch=watch, lanes=lanes, as_json=as_json))
    except KeyboardInterrupt:
        raise typer.Exit from None
    code = exit_code(found, unmatched(found, topic or []))
    if code:
        raise typer.Exit(code)


def exit_code(found: MirrorStatus, unmatched_topics: Sequence[str] = ()) -> int:
    """What was not read comes first: what was says nothing about it."""
    if found.unreachable or unmatched_topics or any(flow.problem for flow in found.flows):
        return EXIT_FAILED
    if any(lane.is_stalled for lane in found.lanes):
        return EXIT_STALLED
    if any(lane.needs_operator for flow in found.flows for lane in flow.waiting):
        return EXIT_STALLED
    if is_any_stalled(found.flows):
        return EXIT_STALLED
    return EXIT_STALLED if any(flow.lacks_driver for flow in found.flows) else 0


def unmatched(found: MirrorStatus, topics: Sequence[str]) -> list[str]:
    """Those of `topics` that no flow mirrors; none where a flow could not be read."""
    if found.unreachable or not all(flow.is_known for flow in found.flows):
        return []
    mirrored = {lane.lane.source.topic for flow in found.flows for lane in flow.every}
    return [name for name in topics if name not in mirrored]


async def _show(
    config: MirrorConfig, topics: Sequence[str], *, watch: bool, lanes: bool, as_json: bool
) -> MirrorStatus:
    reader = StatusReader(config, all_topics(topics), pending_adoptions(config))
    try:
        found = await reader.read()
        await asyncio.sleep(_SAMPLE_S if found.lanes else 0)
        found = await reader.read() if found.lanes else found
        for name in unmatched(found, topics):
            remarks().print(f"no flow mirrors a source topic {name}", soft_wrap=True)
        if watch:
            await _watch(reader, found, lanes=lanes, as_json=as_json)
        elif as_json:
            StatusDocument.of(found).print()
        else:
            results().print(rendered(found, lanes=lanes))
        return found
    finally:
        await reader.close()


async def _watch(reader: StatusReader, found: MirrorStatus, *, lanes: bool, as_json: bool) -> None:
    console = results()
    if as_json or not console.is_terminal:
        while True:
            if as_json:
                StatusDocument.of(found).print(indent=None)
            else:
                console.print(rendered(found, lanes=lanes))
            await asyncio.sleep(_SAMPLE_S)
            found = await reader.read()
    shown = rendered(found, lanes=lanes, worst_first=True)
    with Live(shown, console=console, auto_refresh=False) as screen:
        while True:
            await asyncio.sleep(_SAMPLE_S)
            found = await reader.read()
            screen.update(rendered(found, lanes=lanes, worst_first=True), refresh=True)


def rendered(found: MirrorStatus, *, lanes: bool, worst_first: bool = False) -> RenderableType:
    """Topics, lanes in trouble, a line a flow; the other way round where only the beginning is
    seen, on a screen that does not scroll."""
    parts: list[RenderableType] = [Styled(text, style="red") for text in found.unreachable.values()]
    parts += [
        Styled(f"{flow.flow}: {flow.problem}")
        for flow in found.flows
        if flow.problem and flow.problem not in found.unreachable.values()
    ]
    rows = [row for flow in found.flows for row in topic_rows(flow)]
    shown = [lane for lane in found.lanes if lanes or lane.is_stalled]
    waiting = [lane for flow in found.flows for lane in flow.waiting]
    sections: list[list[RenderableType]] = [
        [topic_table(rows, remarks=True)] if rows else [],
        [_lane_table(shown)] if shown else [],
        [_waiting_table(waiting)] if waiting and lanes else [],
        [pipeline_table(found.flows)] if any(flow.pipelines for flow in found.flows) else [],
        [Styled(flow_line(flow)) for flow in found.flows],
    ]
    for section in reversed(sections) if worst_first else sections:
        if section:
            parts += ["", *section] if parts else section
    return Group(*parts)


def topic_rows(flow: FlowStatus) -> Iterator[TopicRow]:
    topics: defaultdict[str, list[LaneStatus]] = defaultdict(list)
    waiting: defaultdict[str, list[WaitingLane]] = defaultdict(list)
    for lane in flow.lanes:
        topics[lane.lane.source.topic].append(lane)
    for later in flow.waiting:
        waiting[later.lane.source.topic].append(later)
    for topic in sorted({*topics, *waiting}):
        lanes, later_ones = topics[topic], waiting[topic]
        every: tuple[LaneStatus | WaitingLane, ...] = (*lanes, *later_ones)
        yield TopicRow(
            flow=flow.flow,
            topic=topic,
            lanes=len(every),
            state=states(lane.state for lane in every),
            mirrored=sum(lane.position for lane in lanes),
            lag_records=known_sum([lane.lag_records for lane in every]),
            lag_s=None if later_ones else _longest([lane.lag_s for lane in lanes]),
            records_per_s=_sum_rates(lanes),
            remarks=_remarks(lanes, later_ones),
        )


def flow_line(flow: FlowStatus) -> str:
    if not flow.is_known:
        return f"{flow.flow}: unknown, its target was not read"
    every = flow.every
    counts = Counter(lane.state.partition(":")[0] for lane in every)
    notable = [f"{counts[state]} {state}" for state in (STALLED, WAITING) if counts[state]]
    parts = [
        counted(len(every), "lane") + (f" ({', '.join(notable)})" if notable else ""),
        f"{flow.mirrored_records:,} mirrored",
        f"lag {lag_words([lane.lag_records for lane in flow.to_mirror])}",
        f"lost {flow.lost_records:,}",
        *([f"{flow.foreign_records:,} foreign"] if flow.foreign_records else []),
        *([counted(flow.dead_letters, "dead letter")] if flow.dead_letters else []),
    ]
    alone = [each.topic for each in flow.failed_over]
    named = f"{', '.join(alone[:_NAMED_MAX])}{' …' if alone[_NAMED_MAX:] else ''}"
    left = f"; failed over alone: {named}" if alone else ""
    drilled = "" if flow.last_drill is None else f"; {drill_words(flow.last_drill)}"
    canary = "" if flow.canary is None else f"; {canary_words(flow.flow, flow.canary)}"
    return f"{flow.flow}: {', '.join(parts)}; {_carrier(flow)}{left}{drilled}{canary}"


def canary_words(flow: FlowId, note: CanaryNote) -> str:
    """`canary 41 ms`, or how late it is."""
    track, late_s = note.track(str(flow)), note.late_s(now_ms())
    if late_s > note.interval_s / 2:
        return f"canary late by {late_s:,.0f} s{f' ({note.problem})' if note.problem else ''}"
    if track is None or track.latency_ms is None:
        return "canary under way"
    missing = f", {track.missing:,} missing" if track.missing else ""
    return f"canary {track.latency_ms:,} ms{missing}"


def drill_words(last: LastDrill) -> str:
    if last.verdict == "pass":
        return f"last drill passed {ago(last.at_ms)}"
    return f"last drill, {ago(last.at_ms)}, {last.sentence}"


def _lane_table(lanes: Sequence[LaneStatus]) -> RenderableType:
    table = new_table(
        [
            ("lane", "left"),
            ("state", "left"),
            ("position", "right"),
            ("source start", "right"),
            ("next", "right"),
            ("end", "right"),
            ("lag", "right"),
            ("target next", "right"),
            ("offsets", "left"),
            ("remarks", "left"),
        ]
    )
    for lane in lanes:
        remarks = [
            lane.detail,
            *limits_of(lane.decided),
            lane.mapped_because,
            *overrun_words([lane.lag]),
            f"lost {lane.lost_records:,}" if lane.lost_records else "",
            f"{lane.foreign_records:,} foreign" if lane.foreign_records else "",
            "" if lane.position_is_exact else "position from the ledger, may be old",
        ]
        table.add_row(
            str(lane.lane),
            Styled(lane.state, style="red" if lane.is_stalled else ""),
            f"{lane.position:,}",
            number_or_unknown(lane.source_start_offset),
            f"{lane.source_next_offset:,}",
            number_or_unknown(lane.source_end_offset),
            number_or_unknown(lane.lag_records),
            f"{lane.target_next_offset:,}",
            lane.offsets,
            "; ".join(remark for remark in remarks if remark),
        )
    return table


def _waiting_table(lanes: Sequence[WaitingLane]) -> RenderableType:
    table = new_table([("lane", "left"), ("state", "left"), ("lag", "right"), ("remarks", "left")])
    for lane in lanes:
        table.add_row(str(lane.lane), lane.state, number_or_unknown(lane.lag_records), lane.detail)
    return table


def _carrier(flow: FlowStatus) -> str:
    standbys = ", ".join(f"{each.host} (pid {each.pid})" for each in flow.standbys)
    unfollowed = f"; {flow.config_problem}" if flow.config_problem else ""
    return f"{_leader(flow)}{f'; standby: {standbys}' if standbys else ''}{unfollowed}"


def _leader(flow: FlowStatus) -> str:
    if flow.fence is not None:
        left = (
            ""
            if flow.holder is None
            else f", {flow.holder.host} (pid {flow.holder.pid}) is stopping"
        )
        return f"fenced{left}: {flow.fence.why}"
    if flow.orders.stopped is not None:
        return decision_words(flow.orders.stopped)
    if flow.holder is None:
        return "not running" if flow.producer else "never run"
    why = f"; {flow.slots_why}" if flow.slots_why else ""
    seen = ago(flow.holder.at_ms)
    return f"mirrored by {flow.holder.host} (pid {flow.holder.pid}), seen {seen}{why}"


def _remarks(lanes: Sequence[LaneStatus], waiting: Sequence[WaitingLane]) -> str:
    lost = sum(lane.lost_records for lane in lanes)
    foreign = sum(lane.foreign_records for lane in lanes)
    kinds = {lane.mapped_because.partition(":")[0] for lane in lanes if lane.mapped_because}
    offsets = f"mapped ({', '.join(sorted(kinds))})" if kinds else "identical"
    # How offsets went says nothing about a lane that cannot go on.
    goes_on = [lane for lane in lanes if not lane.is_stalled and lane.state != RELEASED]
    every: tuple[LaneStatus | WaitingLane, ...] = (*lanes, *waiting)
    details = sorted({each.detail for each in every if each.state in _TOLD})
    parts = [
        *details[:1],
        *sorted({words for lane in lanes for words in limits_of(lane.decided)}),
        f"offsets {offsets}" if goes_on else "",
        *overrun_words(lane.lag for lane in lanes),
        f"lost {lost:,}" if lost else "",
        f"{foreign:,} foreign" if foreign else "",
    ]
    return "; ".join(part for part in parts if part)


def limits_of(orders: LaneOrders) -> tuple[str, ...]:
    """What was decided about a lane besides its state."""
    if not orders.is_carried:
        return ()
    placed = () if orders.placed is None else (orders.placed,)
    return tuple(decision_words(each) for each in (*orders.limits, *placed))


def _longest(found: Sequence[float | None]) -> float | None:
    known = [seconds for seconds in found if seconds is not None]
    return max(known, default=0.0) if len(known) == len(found) else None


def _sum_rates(lanes: Sequence[LaneStatus]) -> float | None:
    rates = [lane.records_per_s for lane in lanes if lane.records_per_s is not None]
    return sum(rates) if rates else None
