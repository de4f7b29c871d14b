from __future__ import annotations

import pytest

from heliograph.failover import ends_watch
from heliograph.failover.ends_watch import EndsWatch
from heliograph.model import TopicName, TopicPartition

AT = TopicPartition(topic=TopicName("orders"), partition=0)


def test_a_stable_offset_behind_the_end_is_an_open_transaction() -> None:
    watch = EndsWatch({AT: (10, 7)})

    assert "a transaction is open in orders on A" in watch.sentence("A", 30)


def test_records_written_between_the_two_questions_are_no_open_transaction() -> None:
    watch = EndsWatch({AT: (10, 10)})

    watch.see({AT: (12, 14)})

    assert watch.sentence("A", 30).startswith("producers still write to A after 30 s: orders")


def test_ends_are_still_after_a_while_without_a_move(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 100.0
    monkeypatch.setattr(ends_watch, "monotonic_s", lambda: now_s)
    watch = EndsWatch({AT: (10, 10)})
    now_s = 101.9
    early = watch.is_still

    now_s = 102.0
    still = watch.is_still
    watch.see({AT: (11, 11)})

    assert (early, still, watch.is_still) == (False, True, False)
