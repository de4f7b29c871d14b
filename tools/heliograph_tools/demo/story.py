"""What happens around the mirror while it runs: writers, a group that moves, the check. Runs on the
driver, on a thread beside the mirror."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from heliograph.clock import monotonic_s
from heliograph.config.schema import MirrorConfig
from heliograph.errors import LocalClusterError
from heliograph.inspect.status import StatusReader
from heliograph.model import FlowId
from heliograph_tools.demo.moving import GROUP, Half, Moved, finish, move, read_half
from heliograph_tools.demo.reading import Comparison, compare
from heliograph_tools.demo.topics import PAYMENTS, TOPICS, record_counts
from heliograph_tools.demo.writing import Writer, compact, create_topics
from heliograph_tools.localkafka.cluster import LocalCluster

log = logging.getLogger("heliograph")

_CATCH_UP_S_MAX: Final = 120.0
_LOOK_S: Final = 0.5
_FIRST_HALF: Final = 0.5


class Story:
    """Prepared before the mirror starts; then `run` goes on beside it."""

    def __init__(self, source: LocalCluster, target: LocalCluster, records: int) -> None:
        self.comparisons: list[Comparison] = []
        self.moved: Moved | None = None
        self.aborted_records = 0
        self.stop = threading.Event()
        """Somebody does not want to see the end."""
        self._source, self._target = source, target
        self._counts = record_counts(records)
        self._writers: list[Writer] = []
        self._half: Half | None = None

    def prepare(self) -> None:
        """Topics with a backlog, one of them compacted, and a group in the middle of one."""
        create_topics(self._source)
        self._writers = [Writer(self._source, topic) for topic in TOPICS]
        self._write(lambda writer, count: writer.write(int(count * _FIRST_HALF)))
        for writer in self._writers:
            if writer.topic.compacted and not compact(self._source, writer):
                log.info("%s: the brokers did not compact it in time", writer.topic.name)
        self._half = read_half(self._source, PAYMENTS.name)
        log.info(
            "group %s has read %s records of %s on %s",
            GROUP,
            f"{self._half.records:,}",
            PAYMENTS.name,
            self._source.alias,
        )

    def run(self, config: MirrorConfig, flow: FlowId, seconds: float) -> None:
        """Until the check is done, or somebody does not want to see it."""
        half = self._half
        if half is None:
            raise LocalClusterError("the demo was started before it was prepared")
        log.info("producers go on writing to %s for %.0f s", self._source.alias, seconds)
        with ThreadPoolExecutor(1) as beside:
            writing = beside.submit(self._write_rest, seconds)
            topic, offsets = move(config, flow, half, self._target)
            log.info("group %s moves to %s: %s", GROUP, self._target.alias, _places(half, offsets))
            writing.result()
        asyncio.run(self._caught_up(config))
        if self.stop.is_set():
            return
        self.moved = finish(self._source, self._target, half, topic, offsets)
        log.info("group %s has read the rest on %s", GROUP, self._target.alias)
        for each in TOPICS:
            name = f"{flow.source}.{each.name}"
            self.comparisons.append(compare(self._source, each.name, self._target, name))
            log.info("compared %s: %s records", each.name, f"{self.comparisons[-1].records:,}")

    @property
    def is_equal(self) -> bool:
        return (
            bool(self.comparisons)
            and all(each.is_equal for each in self.comparisons)
            and self.moved is not None
            and not (self.moved.lost or self.moved.repeated)
        )

    def _write(self, work: Callable[[Writer, int], None]) -> None:
        with ThreadPoolExecutor(len(self._writers)) as pool:
            list(pool.map(work, self._writers, (self._counts[w.topic.name] for w in self._writers)))
        self.aborted_records = sum(writer.aborted_records for writer in self._writers)

    def _write_rest(self, seconds: float) -> None:
        def rest(writer: Writer, count: int) -> None:
            writer.write_slowly(count - int(count * _FIRST_HALF), seconds, self.stop)

        self._write(rest)

    async def _caught_up(self, config: MirrorConfig) -> None:
        reader = StatusReader(config)
        expected = sum(topic.partitions for topic in TOPICS)
        deadline_s = monotonic_s() + _CATCH_UP_S_MAX
        try:
            while not self.stop.is_set():
                lanes = (await reader.read()).lanes
                if len(lanes) == expected and all(lane.lag_records == 0 for lane in lanes):
                    return
                if monotonic_s() > deadline_s:
                    raise LocalClusterError(
                        f"the mirror did not catch up in {_CATCH_UP_S_MAX:.0f} s"
                    )
                await asyncio.sleep(_LOOK_S)
        finally:
            await reader.close()


def _places(half: Half, offsets: dict[int, int]) -> str:
    return ", ".join(
        f"partition {number} at {half.committed[number]:,} is {at:,} there"
        for number, at in sorted(offsets.items())
    )
