"""Runs that are repeated do not overlap, and a signal between two ends them at once."""

from __future__ import annotations

import logging
import threading
import time

import pytest

from heliograph.driver.schedule import next_start, run_every
from heliograph.driver.stop import StopRequest
from heliograph.errors import EngineError


def test_starts_are_counted_from_the_first_and_those_under_way_left_out() -> None:
    assert [next_start(elapsed_s, 10.0) for elapsed_s in (0.0, 9.9, 10.0, 35.0)] == [1, 1, 2, 4]


def test_a_long_run_is_not_overlapped_and_the_last_code_counts(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    stop, began_s = StopRequest(), time.monotonic()
    starts: list[float] = []

    def run() -> int:
        starts.append(time.monotonic() - began_s)
        if len(starts) == 1:
            time.sleep(0.5)
            return 3
        if len(starts) == 2:
            raise EngineError("Spark does not start")
        stop.make()
        return 0

    code = run_every(0.2, run, stop, failed=1)

    assert code == 0
    assert starts[1] >= 0.6
    assert starts[2] >= 0.8
    assert "2 starts left out" in caplog.text
    assert "Spark does not start" in caplog.text
    assert "next start at" in caplog.text


def test_a_request_between_two_runs_ends_the_wait_at_once() -> None:
    stop = StopRequest()
    told: list[str] = []
    threading.Timer(0.1, stop.make).start()
    began_s = time.monotonic()

    code = run_every(3_600, lambda: 3, stop, failed=1, on_wait=told.append)

    assert code == 3
    assert time.monotonic() - began_s < 5
    assert told[0].startswith("next start at")
