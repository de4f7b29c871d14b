"""What is kept of a campaign: pieces, their sums, rows of a pipeline, lines of a log."""

from __future__ import annotations

import json
from pathlib import Path

from tests.campaign.piped import check_rows
from tests.campaign.play import Played, unaccounted
from tests.campaign.results import add_piece, next_operation, pieces_in
from tests.campaign.truth import Sent, Truth
from tests.campaign.world import Size
from tests.kit.records import Rec

_SIZE = Size(brokers=3, drivers=2)


def _played(operations: int, worst_s: float) -> Played:
    return Played(
        seed=7,
        operations=operations,
        kinds=("cut",),
        workloads=("plain",),
        outcomes={"cut": {"ok": operations}},
        lag_s={"cut": {"records": 3, "median": 0.1, "worst": worst_s}},
    )


def test_pieces_follow_each_other_and_are_summed(tmp_path: Path) -> None:
    path = tmp_path / "soak" / "seed-7.json"
    line = {"s": 1.0, "what": "operation", "index": 0, "kind": "cut", "outcome": "ok"}

    assert next_operation(path) == 0
    add_piece(path, _played(40, 2.5), 0, _SIZE, [line, {"what": "undo"}])
    assert next_operation(path) == 40
    add_piece(path, _played(60, 1.5), 40, _SIZE, [line])

    whole = json.loads(path.read_text())
    assert next_operation(path) == 100
    assert (whole["operations"], whole["outcomes"]) == (100, {"cut": {"ok": 100}})
    assert whole["worst_lag_s"] == {"cut": 2.5}
    assert [piece["size"]["brokers"] for piece in pieces_in(path)] == [3, 3]
    assert len((tmp_path / "soak" / "seed-7.operations.jsonl").read_text().splitlines()) == 2


def _row(sent: Sent) -> Rec:
    key, value, headers, timestamp_ms = sent.content
    return Rec(key=key, value=value, headers=headers, timestamp_ms=timestamp_ms, offset=0)


def test_rows_of_a_pipeline_are_wanted_once_each_and_no_others() -> None:
    truth = Truth()
    one, two, other = (truth.new("A", "t", 0, key=None, value=b"v" * 60) for _ in range(3))
    wanted = [one.content, two.content]

    assert check_rows(wanted, [_row(two), _row(one)]) == []
    assert [each.check for each in check_rows(wanted, [_row(two)])] == ["lost-write"]
    assert [each.check for each in check_rows(wanted, [_row(one), _row(two), _row(two)])] == [
        "duplicate"
    ]
    assert [each.check for each in check_rows(wanted, map(_row, (one, two, other)))] == ["phantom"]


def test_an_error_says_what_happens_next_or_is_told() -> None:
    fine = "2026 ERROR A->B: not mirrored: no broker answers; trying again\n2026 INFO all is well\n"
    bad = ["2026 ERROR A->B: it is over", "Traceback (most recent call last):"]

    assert unaccounted(fine + "\n".join(bad)) == bad
