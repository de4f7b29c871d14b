"""What must hold: while lanes run, and once everything is well again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from heliograph.copy.lane import CarriedLane
from heliograph.ledger.translate import Exact, LaneEnd, OffsetMap
from heliograph.model import Copying, Idle, Paused, Stalled, StallReason, Starting
from tests.sim.slots import SimSlot
from tests.sim.truth import Copied, Violation
from tests.sim.world import TOPIC, World

SILENT_S_MAX: Final[dict[str, float]] = {"copying": 15.0, "starting": 100.0}
"""How long a lane may say so without getting anywhere. An answer that is overdue shows after five
seconds, a look at that is taken every second; a question that nobody answers is given up after 30.
"""


_AFTER_A_LOSS: Final = (StallReason.TOPIC_RECREATED, StallReason.TARGET_UNREACHABLE)
"""What a lane may go on showing whose target lost records: its log tells of more than it has, so
the driver begins nothing behind it, or the lane waits for followers to show the rest."""


@dataclass(slots=True)
class _Seen:
    mark: tuple[object, ...]
    since_s: float


class Watch:
    """Lanes that say that they go on, and do not."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, int], _Seen] = {}

    def forget(self) -> None:
        """The time has jumped, and nothing could move meanwhile."""
        self._seen.clear()

    def look(self, slot: SimSlot, partition: int, at_s: float) -> None:
        lane, key = slot.lane(partition), (slot.name, partition)
        if slot.bug is not None:
            raise Violation(f"{slot.name}: a bug: {slot.bug!r}") from slot.bug
        state = lane.state()
        if isinstance(state, Stalled) and state.reason is StallReason.BUG:
            raise Violation(f"{slot.name}: {lane.spec.id}: {state.detail}")
        if slot.is_frozen or not isinstance(state, Copying | Starting):
            self._seen.pop(key, None)
            return
        reached, running = lane.reached, lane.running
        cursor = -1 if running is None else running.cursor.next_offset
        mark = (id(lane), state.kind, reached.position, reached.source_next_offset, cursor)
        seen = self._seen.get(key)
        if seen is None or seen.mark != mark:
            self._seen[key] = _Seen(mark, at_s)
        elif at_s - seen.since_s > SILENT_S_MAX[state.kind]:
            raise Violation(
                f"{lane.spec.id}: {state.kind} for {at_s - seen.since_s:.0f} s at position "
                f"{reached.position}, source offset {reached.source_next_offset}, no reason shown"
            )


def is_at_rest(lane: CarriedLane) -> bool:
    """Whether nothing will change by itself."""
    state = lane.state()
    if isinstance(state, Stalled):
        return not state.retrying or state.reason in (
            StallReason.TARGET_LOST_RECORDS,
            StallReason.LEDGER_UNUSABLE,
        )
    return isinstance(state, Idle) and lane.is_drained


def behind(world: World, partition: int) -> list[int]:
    """Committed records of the source that are not copied and not noted as lost."""
    truth, log = world.truth[partition], world.source_log(partition)
    record = world.record(partition)
    losses = () if record is None else record.losses
    last = truth.copied[-1].written if truth.copied else None
    first = 0 if record is None else record.starts[-1].source_offset
    if last is not None and last.topic_number == truth.topic_number:
        first = max(0, last.offset + 1)
    return [
        offset
        for offset, written in truth.source.items()
        if offset >= max(first, log.start)
        and offset < log.last_stable_offset
        and written.is_committed
        and not any(loss.lost.start <= offset < loss.lost.end for loss in losses)
    ]


def check_rest(world: World, partition: int, lane: CarriedLane) -> None:
    """Nothing fails any more: the copy is whole, or the lane says why it is not."""
    truth, state, where = world.truth[partition], lane.state(), f"{TOPIC}-{partition}"
    if isinstance(state, Stalled):
        if state.reason is StallReason.LOG_TRUNCATED:
            if not truth.source_lost and not (truth.target_lost and truth.topic_number):
                raise Violation(f"{where}: {state.detail}, and the source lost nothing")
            return
        if state.reason is StallReason.TARGET_LOST_RECORDS:
            if not truth.target_lost:
                raise Violation(f"{where}: {state.detail}, and the target lost nothing")
            return
        if truth.target_lost and state.reason in _AFTER_A_LOSS:
            return
        if state.reason is StallReason.UNEXPLAINED_LOG and world.tells_nothing_of(partition):
            return
        raise Violation(f"{where}: at rest, {state.reason}: {state.detail}")
    if not isinstance(state, Idle | Paused):
        raise Violation(f"{where}: {state.kind} at position {lane.reached.position}, not at rest")
    if truth.gaps:
        raise Violation(f"{where}: {truth.gaps} records are missing on the target, and it is idle")
    if isinstance(state, Idle) and (missing := behind(world, partition)):
        raise Violation(f"{where}: idle, and {len(missing)} records from {missing[0]} on wait")
    check_map(world, partition, lane)


def check_map(world: World, partition: int, lane: CarriedLane) -> None:
    """Every record that was copied from the present source topic, in both directions; one that the
    target has deleted since may seem to have been before its place, never behind it."""
    record, reached = world.record(partition), lane.reached
    truth = world.truth[partition]
    if record is None or not truth.copied:
        return
    end = LaneEnd(
        position=reached.position,
        source_next_offset=reached.source_next_offset,
        target_next_offset=reached.target_next_offset,
    )
    offsets, first = OffsetMap(record, end), record.runs.exact_from
    gone_before = world.target_log(partition).start
    for copied in _since(truth.copied, first):
        if copied.written.topic_number != truth.topic_number:
            continue
        there = offsets.to_target(copied.written.offset)
        is_gone = copied.target_offset < gone_before
        if is_gone and isinstance(there, Exact) and there.offset <= copied.target_offset:
            # Where it lay beside others' nobody may have seen. To read on there skips nothing.
            continue
        back = offsets.to_source(copied.target_offset)
        if there != Exact(offset=copied.target_offset):
            raise Violation(
                f"{TOPIC}-{partition}: source offset {copied.written.offset} is at "
                f"{copied.target_offset} of the target, and translates to {there}"
            )
        if back != Exact(offset=copied.written.offset):
            raise Violation(
                f"{TOPIC}-{partition}: target offset {copied.target_offset} is source offset "
                f"{copied.written.offset}, and translates to {back}"
            )
    for loss in record.losses:
        inside = [
            each.written.offset
            for each in truth.copied
            if loss.lost.start <= each.written.offset < loss.lost.end
            and each.written.topic_number == truth.topic_number
        ]
        if inside and record.starts[-1].source_topic_id is not None and truth.topic_number == 0:
            raise Violation(
                f"{TOPIC}-{partition}: offset {inside[0]} is noted as lost, and is there"
            )


def _since(copied: list[Copied], position: int) -> list[Copied]:
    return [each for each in copied if each.position >= position]
