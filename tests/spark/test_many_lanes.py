"""Thousands of lanes in a slot: beats come on time. `python -m bench.lanes` tries many more."""

from __future__ import annotations

import asyncio

from bench.lanes import pretend

from heliograph.config.schema import EngineConfig


def test_slots_are_heard_in_time_while_they_are_handed_thousands_of_lanes() -> None:
    beats = asyncio.run(pretend(5_000, seconds=3.0))

    assert beats.lost == 0
    assert beats.silent_ms_max < EngineConfig().lease_ms_max / 4
