"""Handlers of MirrorMaker 1: what they may return, and what they are told of the rest."""

from __future__ import annotations

from typing import Any

import pytest

from heliograph.config.transforms import TransformConfig
from heliograph.errors import TransformUnusable
from heliograph.transform.lane import LaneTransform
from heliograph.transform.record import Where

WHERE = Where("orders", "orders", 0)
MODULE = "tests.unit.transform.functions"


def through(name: str, args: str | None = None, count: int = 3) -> Any:
    config = TransformConfig(name="handler", kind="handler", function=f"{MODULE}:{name}", args=args)
    made = LaneTransform.of([config], WHERE)
    assert made is not None
    return made.apply(range(count), [(0, None, b"v%d" % each, ()) for each in range(count)])


def test_a_class_is_made_with_its_args_and_drops_and_changes_records() -> None:
    done = through("Handler", "2", count=4)

    assert [content and content[2] for content in done.contents] == [
        None,
        b"handled v1",
        None,
        b"handled v3",
    ]


def test_a_function_gets_the_args_behind_the_record() -> None:
    assert through("fanned_out", "1").contents == [
        (0, None, b"v%d" % each, ()) for each in range(3)
    ]
    assert through("fanned_out", "0").contents == [None] * 3


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("fanned_out", "returned 2 records for one, where a lane carries none or one"),
        ("routed", "sent the record to elsewhere-0, where a lane keeps topic and partition"),
        ("number", "returned int, not a Record"),
    ],
)
def test_what_a_lane_cannot_carry_fails_that_record_and_names_the_pipeline(
    name: str, sentence: str
) -> None:
    done = through(name)

    assert set(done.failed) == {0, 1, 2}
    assert sentence in str(done.failed[0])


def test_a_class_that_cannot_be_made_is_said_before_any_record() -> None:
    with pytest.raises(TransformUnusable, match="cannot be made: ValueError"):
        through("Handler", "many")
