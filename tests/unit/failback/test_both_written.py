from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pytest

from heliograph.failback.both_written import has_shared_map
from heliograph.ledger.locations import LaneLocation
from heliograph.ledger.reverse import exchanged
from heliograph.ledger.runs import LooseRuns, Run, Runs
from heliograph.ledger.view import LaneRecord
from heliograph.model import ClusterAlias, FlowId, LaneId, TopicName, TopicPartition
from tests.kit.entries import start_entry

AT: Final = TopicPartition(topic=TopicName("orders"), partition=0)


def lane(
    runs: Sequence[tuple[int, int, int]], position: int, *, forgotten: int = 0
) -> LaneLocation:
    found = Runs([Run(position=p, source_offset=s, target_offset=t) for p, s, t in runs])
    if forgotten:
        anchors = [run for run in found if run.position < forgotten]
        found.coarsen(LooseRuns.of(anchors), forgotten)
    return LaneLocation(
        lane=LaneId(flow=FlowId(source=ClusterAlias("A"), target=ClusterAlias("B")), source=AT),
        target=AT,
        record=LaneRecord(head=None, runs=found, losses=(), starts=(start_entry("orders"),)),
        position=position,
        exact=True,
        source_next_offset=0,
        target_next_offset=0,
        foreign_records=0,
    )


BACK: Final = [(0, 0, 0), (10, 14, 10)]
"""With four offsets of its source between that hold no record: an aborted transaction."""
THERE: Final = [(0, 0, 0), (10, 10, 14), (20, 20, 29)]


@pytest.mark.parametrize("forgotten", [0, 20])
def test_lanes_of_a_round_trip_share_their_map_also_where_offsets_hold_no_record(
    forgotten: int,
) -> None:
    runs = [Run(position=p, source_offset=s, target_offset=t) for p, s, t in BACK]
    assert list(map(exchanged, runs)) == list(lane(THERE, 40).record.runs)[:2]

    assert has_shared_map(lane(THERE, 40, forgotten=forgotten), lane(BACK, 20))


@pytest.mark.parametrize(
    ("there", "back"),
    [
        pytest.param(lane([(0, 0, 0)], 10), lane([(0, 10, 10)], 5), id="both brought records"),
        pytest.param(lane([(0, 0, 0)], 0), lane([(0, 0, 0)], 7), id="only the way back did"),
        pytest.param(lane([(0, 0, 0)], 7), lane([(0, 0, 0)], 0), id="only the flow did"),
        pytest.param(lane([(0, 0, 0)], 0), lane([(0, 0, 0)], 0), id="neither did"),
    ],
)
def test_lanes_that_began_by_themselves_share_none(there: LaneLocation, back: LaneLocation) -> None:
    assert not has_shared_map(there, back)
