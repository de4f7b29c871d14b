"""What becomes of records in a lane with transforms: kept, changed, dropped, failed."""

from __future__ import annotations

from typing import Any

import pytest

from heliograph.config.transforms import PredicateConfig, TransformConfig
from heliograph.errors import TransformUnusable
from heliograph.transform.lane import LaneTransform, Transformed
from heliograph.transform.record import Where
from heliograph.wire.opened import Content

WHERE = Where("orders", "A.orders", 3)
FUNCTIONS = "tests.unit.transform.functions"


def content(value: bytes | None, *headers: tuple[str, bytes | None]) -> Content:
    return 1_700_000_000_000, b"k", value, headers


def step(kind: str, **fields: Any) -> TransformConfig:
    return TransformConfig.model_validate({"name": "t", "kind": kind, **fields})


def function(name: str, kind: str = "columns") -> TransformConfig:
    return step(kind, function=f"{FUNCTIONS}:{name}")


def applied(*steps: TransformConfig, to: list[Content]) -> Transformed:
    transform = LaneTransform.of(steps, WHERE)
    assert transform is not None
    return transform.apply(range(10, 10 + len(to)), to)


GIVEN = [content(b"one"), content(b"test"), content(b"two", ("h", None)), content(b"")]


def test_a_function_that_returns_its_batch_changes_nothing() -> None:
    assert applied(function("same"), to=GIVEN) == Transformed([*GIVEN])


def test_a_mask_drops_records_and_leaves_the_others_as_they_are() -> None:
    done = applied(function("no_tests"), to=GIVEN)

    assert done == Transformed([GIVEN[0], None, GIVEN[2], GIVEN[3]])


def test_a_batch_with_fewer_rows_says_by_offset_which_they_are() -> None:
    done = applied(function("upper_kept"), to=GIVEN)

    assert done.contents == [
        content(b"ONE"),
        None,
        content(b"TWO", ("h", None)),
        content(b""),
    ]


def test_a_function_on_one_record_changes_or_drops_it() -> None:
    done = applied(function("marked", "record"), to=[content(b"x"), content(None)])

    assert done == Transformed([content(b"x", ("seen", b"10")), None])


@pytest.mark.parametrize(
    ("name", "kind", "why"),
    [
        ("twice", "columns", "each becomes none or one"),
        ("numbers", "columns", "not of bytes or text"),
        ("short_mask", "columns", "returned a mask of"),
        ("nothing", "columns", "returned NoneType, not a RecordBatch or a boolean mask"),
        ("elsewhere", "record", "a record stays in its lane"),
        ("text", "record", "returned str as value"),
    ],
)
def test_what_cannot_be_a_successor_fails_each_record(name: str, kind: str, why: str) -> None:
    done = applied(function(name, kind), to=GIVEN)

    assert done.contents == [None] * 4
    assert all(why in str(done.failed[row]) for row in range(4))


def test_rows_that_change_places_fail_until_each_is_alone() -> None:
    assert applied(function("backwards"), to=GIVEN[:1]).failed == {}
    assert applied(function("backwards"), to=GIVEN) == Transformed([*GIVEN])


def test_a_function_that_raises_fails_the_record_it_cannot_take_and_no_other() -> None:
    given = [*GIVEN, content(b"bad"), *GIVEN]

    done = applied(function("picky"), to=given)

    assert done.contents == [*GIVEN, None, *GIVEN]
    assert {row: str(each) for row, each in done.failed.items()} == {
        4: "transform t: ValueError: a bad value"
    }


def test_connects_classes_do_what_they_do_to_bytes() -> None:
    has_h = PredicateConfig(kind="HasHeaderKey", text="h")
    given = [content(b"x", ("h", b"1"), ("h", b"2")), content(None)]

    inserted = applied(step("InsertHeader", headers=("h",), literal="3"), to=given)
    dropped = applied(step("DropHeaders", headers=("h", "other")), to=given)
    filtered = applied(step("Filter", predicate=has_h), to=given)
    kept = applied(step("Filter", predicate=has_h.model_copy(update={"negate": True})), to=given)
    tombstone = PredicateConfig(kind="RecordIsTombstone")
    alive = applied(step("Filter", predicate=tombstone), to=given)

    assert inserted.contents == [
        content(b"x", ("h", b"1"), ("h", b"2"), ("h", b"3")),
        content(None, ("h", b"3")),
    ]
    assert dropped.contents == [content(b"x"), content(None)]
    assert filtered.contents == [None, given[1]]
    assert kept.contents == [given[0], None]
    assert alive.contents == [given[0], None]


def test_a_predicate_of_names_means_the_targets_name_and_a_lane_without_steps_is_not_opened() -> (
    None
):
    """As in MirrorMaker 2, whose records have the target's topic when a transform sees them."""
    of_source = PredicateConfig(kind="TopicNameMatches", text="orders")
    of_target = PredicateConfig(kind="TopicNameMatches", text=r"A\.orders")

    assert LaneTransform.of([step("Filter", predicate=of_source)], WHERE) is None
    assert LaneTransform.of([step("Filter", predicate=of_target)], WHERE) is not None
    assert LaneTransform.of([step("Filter", topics=("payments",))], WHERE) is None
    assert LaneTransform.of([step("Filter", topics=("ord.*",))], WHERE) is not None
    assert LaneTransform.of([step("Filter")], Where("heartbeats", "A.heartbeats", 0)) is None


def test_a_transform_sees_what_the_one_before_it_made() -> None:
    done = applied(
        function("upper_kept"),
        step("InsertHeader", headers=("h",), literal="é"),
        to=[content(b"test"), content(b"x")],
    )

    assert done.contents == [None, content(b"X", ("h", "é".encode()))]


@pytest.mark.parametrize("name", ["absent", "no_function"])
def test_a_function_that_is_not_there_is_told_before_any_record_passes(name: str) -> None:
    with pytest.raises(TransformUnusable, match=name):
        LaneTransform.of([function(name)], WHERE)


def test_what_was_decided_before_stays_so_unless_the_function_insists() -> None:
    transform = LaneTransform.of([function("no_tests")], WHERE)
    assert transform is not None

    done = transform.apply_as_decided(range(4), GIVEN, [False, True, True, None])

    assert done.contents == [None, None, GIVEN[2], GIVEN[3]]


def test_a_header_that_names_a_cluster_is_known_however_its_mirror_frames_it() -> None:
    names_b = PredicateConfig(kind="HeaderNames", text="cluster-b", headers=("p", "q"))
    framed = b"\x00\x00\x00\x09cluster-b\x00\x06orders"
    given = [
        content(b"bare", ("p", b"cluster-b")),
        content(b"framed", ("x", b""), ("q", framed)),
        content(b"another cluster", ("p", b"cluster-a"), ("q", None)),
        content(b"another header", ("r", b"cluster-b")),
        content(b"of several hops", ("p", b"cluster-a"), ("p", b"cluster-b")),
        content(b"none"),
    ]

    done = applied(step("Filter", predicate=names_b), to=given)

    assert done == Transformed([None, None, given[2], given[3], None, given[5]])
