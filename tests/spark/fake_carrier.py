"""A carrier that counts pretend records: Spark, link and lease are the things under test."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from heliograph.copy.flow import FetchLimits
from heliograph.engine.task import Clusters
from heliograph.model import (
    Copying,
    FlowId,
    Idle,
    Lane,
    LaneId,
    LaneProgress,
    LaneState,
    Paused,
    SlotFigures,
)

TICK_S = 0.02
JOURNAL_VARIABLE = "HELIOGRAPH_TEST_JOURNAL"
"""A folder: each fake carrier writes `monotonic time, pid, lane` there for each pretend record."""


class FakeCarrier:
    """One pretend record of 100 bytes per lane and tick."""

    def __init__(self, clusters: Clusters, bytes_max: int) -> None:
        self._clusters, self._bytes_max = clusters, bytes_max
        self._lanes: dict[LaneId, LaneProgress] = {}
        self._specs: dict[LaneId, Lane] = {}
        self._limited: set[str] = set()
        self._closed = asyncio.Event()
        self._draining = False
        self.discarded: set[LaneId] = set()
        self.limits: Mapping[FlowId, FetchLimits] = {}
        self.looks = 0
        folder = os.environ.get(JOURNAL_VARIABLE)
        self._journal = Path(folder, f"{os.getpid()}.log") if folder else None

    def add(self, lanes: Iterable[Lane]) -> None:
        for lane in lanes:
            if self._specs.get(lane.id) == lane:
                continue
            self._specs[lane.id] = lane
            state: LaneState = Paused() if lane.paused else Copying()
            self._lanes[lane.id] = LaneProgress(
                lane=lane.id,
                state=state,
                position=0,
                source_next_offset=0,
                source_end_offset=1_000,
                source_start_offset=0,
                target_next_offset=0,
            )

    async def remove(self, ids: Iterable[LaneId]) -> tuple[LaneProgress, ...]:
        removed = [self._lanes.pop(lane_id) for lane_id in ids if lane_id in self._lanes]
        for progress in removed:
            del self._specs[progress.lane]
        await asyncio.sleep(0.1)
        return tuple(replace(progress, state=Idle()) for progress in removed)

    def discard(self, ids: Iterable[LaneId]) -> None:
        self.discarded = set(ids)

    async def look_for_fences(self) -> None:
        self.looks += 1

    def pause(self, ids: Iterable[LaneId]) -> None:
        self._set_state(ids, Paused())

    def resume(self, ids: Iterable[LaneId]) -> None:
        self._set_state(ids, Copying())

    def limit(self, ids: Iterable[LaneId], limits: tuple[str, ...]) -> None:
        for lane_id in ids:
            self._specs[lane_id] = replace(self._specs[lane_id], limits=limits)

    def use(self, clusters: Clusters, limits: Mapping[FlowId, FetchLimits], bytes_max: int) -> None:
        self._clusters, self.limits, self._bytes_max = clusters, limits, bytes_max

    def throttle(self, limit: str, bytes_per_s: int | None) -> None:
        (self._limited.discard if bytes_per_s is None else self._limited.add)(limit)

    def progress(self) -> tuple[LaneProgress, ...]:
        return tuple(self._lanes.values())

    def changes(self) -> tuple[LaneProgress, ...]:
        return self.progress()

    def figures(self) -> SlotFigures:
        return SlotFigures()

    async def drain(self) -> None:
        self._draining = True
        await asyncio.sleep(0.1)
        self._set_state(self._lanes, Idle())

    async def close(self) -> None:
        self._closed.set()

    async def run(self) -> None:
        while not self._closed.is_set():
            if not self._draining:
                self._carry()
            await asyncio.sleep(TICK_S)

    def _is_free(self, lane_id: LaneId) -> bool:
        return not self._limited.intersection(self._specs[lane_id].limits)

    def _carry(self) -> None:
        for lane_id, progress in self._lanes.items():
            if isinstance(progress.state, Copying) and self._is_free(lane_id):
                self._lanes[lane_id] = replace(
                    progress,
                    position=progress.position + 1,
                    records=progress.records + 1,
                    bytes=progress.bytes + 100,
                )
                if self._journal is not None:
                    with self._journal.open("a", encoding="utf-8") as journal:
                        journal.write(f"{time.monotonic()} {os.getpid()} {lane_id}\n")

    def _set_state(self, ids: Iterable[LaneId], state: LaneState) -> None:
        for lane_id in ids:
            if lane_id in self._lanes:
                self._lanes[lane_id] = replace(self._lanes[lane_id], state=state)


class BrokenCarrier(FakeCarrier):
    """Has a bug that shows after the first lane."""

    async def run(self) -> None:
        while not self._lanes:
            await asyncio.sleep(TICK_S)
        raise ValueError("pretend bug")
