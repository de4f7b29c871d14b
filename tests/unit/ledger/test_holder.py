"""How long another process's lease lasts, by the one clock that cannot jump."""

from __future__ import annotations

import os
import uuid

import pytest

from heliograph.ledger.entries import LeaseEntry
from heliograph.ledger.holder import HolderWatch, is_gone, is_here
from heliograph.processes import new_signature
from tests.unit.test_processes import ended_child


def test_a_lease_that_was_never_seen_is_over_and_there_is_none_to_take() -> None:
    assert HolderWatch().left_s <= 0
    assert HolderWatch().expired is None


@pytest.mark.parametrize("skew_ms", [0, 3_600_000, -3_600_000])
def test_a_lease_lasts_from_when_it_was_seen_whatever_the_holders_clock_says(
    skew_ms: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(monkeypatch)
    watch = HolderWatch()
    first, second = lease(at_ms=10_000_000 + skew_ms), lease(at_ms=10_000_001 + skew_ms)

    renewed = [watch.see(first)]
    at_first = watch.left_s
    clock.mono_s += 3
    renewed.append(watch.see(first))
    unrenewed = watch.left_s
    renewed.append(watch.see(second))

    assert (at_first, unrenewed, watch.left_s) == (15.0, 12.0, 15.0)
    assert renewed == [False, False, True]


def test_a_lease_is_over_when_it_was_not_renewed_for_its_whole_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = Clock(monkeypatch)
    watch = HolderWatch()
    watch.see(lease(at_ms=1))

    clock.mono_s += 14.9
    lasts = watch.expired is None
    clock.mono_s += 0.1

    assert lasts
    assert watch.expired == lease(at_ms=1)


def test_the_lease_of_another_holder_lasts_from_its_own_first_sight(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = Clock(monkeypatch)
    watch = HolderWatch()
    watch.see(lease(at_ms=1))
    clock.mono_s += 5

    is_renewal = watch.see(lease(author="second", at_ms=1))

    assert not is_renewal
    assert watch.left_s == 15.0
    assert watch.holder == lease(author="second", at_ms=1)


def test_a_lease_that_was_let_go_is_over_until_it_is_renewed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Clock(monkeypatch)
    watch = HolderWatch()

    watch.see(lease(at_ms=1))
    watch.expire()
    watch.see(lease(at_ms=1))
    let_go = watch.left_s
    watch.see(lease(at_ms=2))

    assert let_go <= 0
    assert watch.left_s == 15.0


def test_a_holder_of_this_machine_is_known_to_run_or_to_be_gone() -> None:
    ours = lease(author=new_signature(), pid=os.getpid(), at_ms=1)
    gone = lease(author=new_signature(), pid=ended_child(), at_ms=1)

    assert (is_here(ours), is_gone(ours)) == (True, False)
    assert (is_here(gone), is_gone(gone)) == (False, True)


def test_of_a_holder_elsewhere_or_of_an_earlier_version_nothing_is_known() -> None:
    """Two containers may share a host's name and have pids of their own: 7 is alive in each."""
    for pid in (os.getpid(), ended_child()):
        other = lease(author=uuid.uuid4().hex, pid=pid, at_ms=1)

        assert not is_here(other)
        assert not is_gone(other)


def lease(*, author: str = "first", pid: int = 7, at_ms: int) -> LeaseEntry:
    return LeaseEntry(
        author=author, host="box", pid=pid, at_ms=at_ms, lease_ms=15_000, slot_count=1
    )


class Clock:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.mono_s = 500.0
        monkeypatch.setattr("heliograph.ledger.holder.monotonic_s", lambda: self.mono_s)
