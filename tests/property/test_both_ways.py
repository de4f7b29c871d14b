"""A group that changes sides between two clusters which are both written skips nothing."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from heliograph.groups.both_ways import unread_from
from heliograph.ledger.both_ways import earlier_of
from heliograph.ledger.runs import Run
from heliograph.ledger.translate import LaneEnd, OffsetMap, Unsafe
from heliograph.ledger.view import LaneRecord, LedgerView
from heliograph.model import TopicPartition
from tests.kit.lane_records import TOPIC, head, runs, start

AT = TopicPartition(topic=TOPIC, partition=0)
SIDES = ("A", "B")


@dataclass(slots=True)
class Side:
    """A log of records by where they were written, and the lane that brings the other's here."""

    name: str
    log: list[tuple[str, int]] = field(default_factory=list)
    brought: list[tuple[int, int]] = field(default_factory=list)
    """Of the lane's positions: offsets in the other log, and here."""
    read_to: int = 0
    """Of the other log."""

    def view(self) -> LedgerView:
        """The lane's ledger, with a run for each record: the map as it is, not how it is packed."""
        view = LedgerView()
        view.apply(start())
        if self.brought:
            rows = [(at, *offsets) for at, offsets in enumerate(self.brought)]
            view.apply(runs(*rows))
        end = self.brought[-1][1] + 1 if self.brought else 0
        view.apply(head(len(self.brought), self.read_to, end))
        return view

    def lane(self) -> tuple[LaneRecord, LaneEnd]:
        record = self.view().lane(TOPIC, 0)
        assert record is not None
        end = self.brought[-1][1] + 1 if self.brought else 0
        place = LaneEnd(
            position=len(self.brought), source_next_offset=self.read_to, target_next_offset=end
        )
        return record, place


events = st.lists(
    st.tuples(st.sampled_from(["write", "mirror"]), st.sampled_from(SIDES), st.integers(1, 4)),
    max_size=25,
)


def played(script: list[tuple[str, str, int]]) -> tuple[Side, Side]:
    sides = {name: Side(name) for name in SIDES}
    for what, name, count in script:
        here, other = sides[name], sides["B" if name == "A" else "A"]
        if what == "write":
            first = sum(origin == name for origin, _ in here.log)
            here.log += [(name, first + number) for number in range(count)]
            continue
        for offset in range(other.read_to, min(other.read_to + count, len(here.log))):
            if here.log[offset][0] == name:
                other.brought.append((offset, len(other.log)))
                other.log.append(here.log[offset])
            other.read_to = offset + 1
    return sides["A"], sides["B"]


@given(events, st.integers(0, 60))
def test_what_lies_before_its_new_place_was_read_at_the_old_one(
    script: list[tuple[str, str, int]], offset: int
) -> None:
    here, there = played(script)
    offset = min(offset, len(here.log))
    record, end = there.lane()
    place = OffsetMap(record, end).to_target(offset)
    assert not isinstance(place, Unsafe)

    unread = unread_from(here.view(), [(AT, offset)])[AT, offset]
    assert unread is not None
    found = earlier_of(record.runs, place.offset, unread)

    assert set(there.log[:found]) <= set(here.log[:offset])
    assert found <= place.offset
    if all(origin == here.name for origin, _ in there.log):
        assert found == place.offset


def test_records_that_the_flow_brought_are_no_reason_to_go_back() -> None:
    brought = (Run(position=0, source_offset=0, target_offset=0),)
    view = LedgerView()
    view.apply(start())
    view.apply(runs(*((each.position, each.source_offset, each.target_offset) for each in brought)))
    record = view.lane(TOPIC, 0)
    assert record is not None

    assert earlier_of(record.runs, 90, 40) == 90
