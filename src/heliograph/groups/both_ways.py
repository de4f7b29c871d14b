"""The map of a flow whose target takes writes too, which come back by another. Runs on the driver.

`ledger.both_ways` says why a group then has two places on the target, and goes on at the earlier.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from heliograph.ledger.both_ways import earlier_of
from heliograph.ledger.flow_map import Asked, FlowMap, Lanes, Progress
from heliograph.ledger.locate import anchor_of, source_next_offset
from heliograph.ledger.service import LedgerService
from heliograph.ledger.translate import LaneEnd, OffsetMap, Translated, Unsafe
from heliograph.ledger.view import LaneRecord, LedgerView
from heliograph.model import FlowId

Unread = Mapping[Asked, int | None]


class BothWaysMap:
    """A `FlowMap` whose translations take the way back into account."""

    def __init__(
        self,
        flow: FlowId,
        back: FlowId,
        there: FlowMap,
        ledgers: LedgerService,
        has_begun: Callable[[], bool],
    ) -> None:
        """`has_begun`: whether the way back has a ledger; to read none would wait for one."""
        self._flow, self._back, self._there = flow, back, there
        self._ledgers, self._has_begun = ledgers, has_begun

    def moved(self, since: Progress) -> tuple[Lanes, Progress]:
        return self._there.moved(since)

    def translate(self, asked: Iterable[Asked]) -> tuple[Lanes, Mapping[Asked, Translated]]:
        lanes, found = self._there.translate(asked)
        if not found or not self._has_begun():
            return lanes, found
        # Asked after the offsets were committed: what came to the source since lies behind them.
        unread = self._ledgers.ask(self._back, lambda view: unread_from(view, found))
        return lanes, self._ledgers.ask(self._flow, lambda view: _earlier(view, found, unread))


def unread_from(back: LedgerView, asked: Iterable[Asked]) -> dict[Asked, int | None]:
    """For each offset of the source, up to where the target's own records are there before it, as
    an offset of the target; None where nothing safe can be said. Lanes of the way back that have
    not begun are left out: they brought nothing."""
    found: dict[Asked, int | None] = {}
    for at, offset in asked:
        record = back.begun_lane(at.topic, at.partition)
        if record is not None:
            place = OffsetMap(record, _end_of(record)).to_source(offset)
            found[at, offset] = None if isinstance(place, Unsafe) else place.offset
    return found


def _end_of(record: LaneRecord) -> LaneEnd:
    """As the ledger has it; a lane that is further by now has brought more than this says."""
    anchor = anchor_of(record)
    return LaneEnd(
        position=anchor.position,
        source_next_offset=source_next_offset(record, anchor.position),
        target_next_offset=anchor.target_offset,
    )


def _earlier(
    view: LedgerView, found: Mapping[Asked, Translated], unread: Unread
) -> dict[Asked, Translated]:
    answers: dict[Asked, Translated] = {}
    for asked, place in found.items():
        if asked not in unread:
            answers[asked] = place
            continue
        at, start = asked[0], unread[asked]
        record = view.begun_lane(at.topic, at.partition)
        if start is None or record is None:
            continue
        offset = earlier_of(record.runs, place.offset, start)
        answers[asked] = replace(place, offset=offset)
    return answers
