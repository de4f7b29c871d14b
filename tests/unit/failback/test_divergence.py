"""What becomes of a topic whose histories have parted, or have not."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from heliograph.errors import WireError
from heliograph.failback.divergence import (
    Beginning,
    Choice,
    PartitionDivergence,
    Resolution,
    TopicDivergence,
    beginning,
    recorded,
    treatment,
    undecided,
)
from heliograph.failback.outputs import FIND_PARTS
from heliograph.model import TopicId, TopicName

AN_ID = TopicId("0b9e2c1e-9a47-4c66-8d0e-3f1f4b8f7f11")
WHOLE = PartitionDivergence(
    partition=0,
    source_start=0,
    source_end=100,
    target_start=20,
    target_end=130,
    position=100,
    source_offset=100,
    target_offset=100,
    is_identical=True,
)
PARTED = replace(WHOLE, partition=1, source_end=140, unmirrored_records=40, note="a note")
STRANGE = replace(
    PARTED, position=None, source_offset=0, unmirrored_records=140, is_identical=False
)


def topic(*partitions: PartitionDivergence, **others: Any) -> TopicDivergence:
    ids: dict[str, Any] = {"source_topic_id": AN_ID, "target_topic_id": AN_ID, **others}
    return TopicDivergence(topic=TopicName("orders"), partitions=partitions, **ids)


@pytest.mark.parametrize(
    ("parting", "choice", "preserve", "wanted"),
    [
        (topic(WHOLE), Choice.NONE, True, Resolution.CONTINUE),
        (topic(WHOLE), Choice.RESYNC, True, Resolution.CONTINUE),
        (topic(WHOLE), Choice.WIPE, True, Resolution.WIPE),
        (topic(WHOLE, PARTED), Choice.NONE, True, None),
        (topic(WHOLE, PARTED), Choice.RESYNC, True, Resolution.RECREATE),
        (topic(WHOLE, PARTED), Choice.RESYNC, False, Resolution.APPEND),
        (topic(WHOLE, PARTED, is_seedable=False), Choice.RESYNC, True, Resolution.APPEND),
        (topic(replace(PARTED, is_identical=False)), Choice.RESYNC, True, Resolution.APPEND),
        (topic(STRANGE, is_recreated=True), Choice.RESYNC, True, Resolution.APPEND),
        (topic(STRANGE, source_topic_id=None), Choice.NONE, True, Resolution.NEW),
        (topic(STRANGE, target_topic_id=None), Choice.WIPE, True, Resolution.LEAVE),
    ],
)
def test_a_topic_is_deleted_only_where_that_was_chosen_and_nothing_else_keeps_its_offsets(
    parting: TopicDivergence, choice: Choice, preserve: bool, wanted: Resolution | None
) -> None:
    assert treatment(parting, choice, preserve=preserve) is wanted


def test_only_topics_that_have_parted_wait_for_a_choice() -> None:
    topics = [topic(WHOLE), topic(PARTED)]

    assert undecided(topics, Choice.NONE) == (topics[1],)
    assert undecided(topics, Choice.RESYNC) == ()


@pytest.mark.parametrize(
    ("partition", "chosen", "preserve", "wanted"),
    [
        (WHOLE, Resolution.CONTINUE, True, (100, 100, None, True)),
        (PARTED, Resolution.APPEND, False, (100, 100, None, True)),
        (PARTED, Resolution.RECREATE, True, (100, 100, 100, True)),
        (PARTED, Resolution.WIPE, True, (0, 20, 20, False)),
        (PARTED, Resolution.WIPE, False, (0, 20, None, False)),
        (STRANGE, Resolution.APPEND, True, (0, 20, None, False)),
        (replace(STRANGE, source_end=0), Resolution.CONTINUE, True, (0, 20, 20, False)),
    ],
)
def test_a_lane_back_begins_at_the_parting_or_where_the_present_primary_begins(
    partition: PartitionDivergence,
    chosen: Resolution,
    preserve: bool,
    wanted: tuple[int, int, int | None, bool],
) -> None:
    position, source_offset, seed_to, keeps_map = wanted

    found = beginning(topic(partition), partition, chosen, preserve=preserve)

    assert found == Beginning(
        position=position, source_offset=source_offset, seed_to=seed_to, keeps_map=keeps_map
    )


def test_partitions_that_only_one_side_has_are_left_to_the_flow() -> None:
    missing = replace(WHOLE, target_start=None, target_end=None)

    assert beginning(topic(missing), missing, Resolution.CONTINUE, preserve=True) is None
    assert beginning(topic(WHOLE), WHOLE, Resolution.LEAVE, preserve=True) is None


def test_what_was_found_survives_the_ledger() -> None:
    parting = topic(
        WHOLE,
        PARTED,
        replace(STRANGE, source_start=None, source_end=None),
        is_recreated=True,
        replication_factor=3,
        configs={"retention.ms": "-1"},
        is_seedable=False,
    )

    stored = json.loads(json.dumps(FIND_PARTS.part.dump(recorded(parting))))

    assert FIND_PARTS.part.load("failback/1/find/orders", stored).topic("orders") == parting


@pytest.mark.parametrize("broken", [{}, {"partitions": [[1]]}, {"partitions": 7}])
def test_a_part_that_cannot_be_decoded_is_named(broken: dict[str, Any]) -> None:
    part = {**FIND_PARTS.part.dump(recorded(topic(WHOLE))), **broken} if broken else {}

    with pytest.raises(
        WireError, match=r"cannot decode ledger record memo\|failback/1/find/orders"
    ):
        FIND_PARTS.part.load("failback/1/find/orders", part)


def test_tables_name_the_cluster_that_alone_has_a_topic() -> None:
    assert Resolution.LEAVE.text("A") == "keep (only on A)"
    assert Resolution.RECREATE.text("A") == "recreate from divergence point"
