"""Values that cross processes, and are keys of everything the driver knows of lanes."""

from __future__ import annotations

import pickle
import subprocess
import sys
from dataclasses import asdict, replace

from heliograph.model import ClusterAlias, FlowId, LaneId, TopicName, TopicPartition

LANE = LaneId(
    flow=FlowId(source=ClusterAlias("A"), target=ClusterAlias("B")),
    source=TopicPartition(topic=TopicName("orders"), partition=3),
)


def test_the_hash_of_a_lane_is_that_of_its_process_and_never_travels() -> None:
    """A text hashes differently in each process: a kept hash would lose the lane in every dict."""
    known = {LANE: 1, LANE.flow: 2}
    there = (
        "import pickle, sys; lane = pickle.loads(sys.stdin.buffer.read());"
        "same = type(lane)(flow=type(lane.flow)(source='A', target='B'), source=lane.source);"
        "assert hash(lane) == hash(same) and hash(lane.flow) == hash(same.flow);"
        "sys.stdout.buffer.write(pickle.dumps(lane))"
    )

    back = subprocess.run(
        [sys.executable, "-c", there], input=pickle.dumps(LANE), capture_output=True, check=True
    ).stdout

    assert known[pickle.loads(back)] == 1
    assert known[pickle.loads(back).flow] == 2


def test_a_kept_hash_is_no_part_of_the_value() -> None:
    hash(LANE)

    other = replace(LANE, source=replace(LANE.source, partition=4))

    assert asdict(LANE).keys() == {"flow", "source"}
    assert "_hash" not in repr(LANE)
    assert {LANE: "three", other: "four"}[replace(other)] == "four"
    assert other > LANE
