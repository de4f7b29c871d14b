"""Rows straight into the target, for a pipeline that is declared deterministic. Runs on executors.

Nothing is staged: each task has a producer of its own, and what it computes goes to the target
while the next rows come. A task that is tried again computes the same rows, finds in the logs how
many of them are there, checks that they are the same, and appends the rest.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import AsyncGenerator, Collection, Coroutine, Mapping
from contextlib import aclosing
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from heliograph.broker.cluster import Cluster, open_cluster
from heliograph.clock import monotonic_s
from heliograph.errors import BrokerError, PipelineRefused
from heliograph.model import TopicName, TopicPartition
from heliograph.pipeline.append import (
    Seen,
    append_batches,
    before_retry,
    find_end,
    retried,
    seen_of,
)
from heliograph.pipeline.notes import PartEnd
from heliograph.pipeline.packing import Packer, Sealed, TargetTopics
from heliograph.wire.batch import SEQUENCES, Stamp, parse_header

if TYPE_CHECKING:
    from heliograph.config.schema import ClusterConfig

T = TypeVar("T")
_WAITING: Final = 8
"""Batches of a partition that are sealed and not sent, before the task waits."""
_GIVE_UP_S: Final = 120.0


class DirectPacker(Packer):
    """Sealed batches go to an appender at once."""

    def __init__(
        self, topics: TargetTopics, task: int, appender: DirectAppender, *, at_ms: int
    ) -> None:
        super().__init__(topics, task, at_ms=at_ms)
        self._appender = appender

    def sealed(self, target: TopicPartition, batch: Sealed) -> None:
        self._appender.put(target, batch)


class DirectAppender:
    """All partitions that one task appends to, on an event loop of its own. `close` when done."""

    def __init__(
        self, cluster: ClusterConfig, stamp: Stamp, starts: Mapping[TopicPartition, PartEnd]
    ) -> None:
        """`starts` are of all partitions that may be written to."""
        self._stamp, self._starts = stamp, starts
        self._parts: dict[TopicPartition, _Part] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="append", daemon=True)
        self._thread.start()
        self._target: Cluster | None = None
        try:
            self._target = self._call(_opened(cluster, {at.topic for at in starts}))
        except BaseException:
            self.close()
            raise

    def put(self, at: TopicPartition, batch: Sealed) -> None:
        """Waits while too much is on its way. Raises `MirrorError`."""
        self._call(self._put(at, batch))

    def finish(self) -> list[PartEnd]:
        """Wait until all is there; where each partition is then. Raises `PipelineRefused` where
        another try wrote to a partition that this one has no rows for."""
        ends = [self._call(part.finish()) for _, part in sorted(self._parts.items())]
        others = {at: start for at, start in self._starts.items() if at not in self._parts}
        if self._target is not None:
            self._call(require_untouched(self._target, self._stamp, others))
        return ends

    def close(self) -> None:
        for part in self._parts.values():
            self._call(part.cancel())
        if self._target is not None:
            self._call(_closed(self._target))
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _put(self, at: TopicPartition, batch: Sealed) -> None:
        if at not in self._parts and self._target is not None:
            self._parts[at] = _Part(self._target, self._stamp, self._starts[at])
        await self._parts[at].put(batch)

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()


class _Part:
    """One target partition: what is sealed and not yet acknowledged. On the appender's loop."""

    def __init__(self, target: Cluster, stamp: Stamp, start: PartEnd) -> None:
        self._target, self._stamp, self._start = target, stamp, start
        self._waiting: asyncio.Queue[Sealed | None] = asyncio.Queue(_WAITING)
        self._unsettled: deque[Sealed] = deque()
        """Sent again after a failure."""
        self._settled_position = start.position
        self._is_over = False
        self._task = asyncio.create_task(self._run(), name=f"append {start.target}")

    async def put(self, batch: Sealed | None) -> None:
        putting = asyncio.ensure_future(self._waiting.put(batch))
        await asyncio.wait([putting, self._task], return_when=asyncio.FIRST_COMPLETED)
        if not putting.done():
            putting.cancel()
            self._task.result()  # raises why it has ended

    async def finish(self) -> PartEnd:
        await self.put(None)
        return await self._task

    async def cancel(self) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])

    async def _run(self) -> PartEnd:
        give_up_s, tries = monotonic_s() + _GIVE_UP_S, 0
        while True:
            before = self._settled_position
            try:
                seen: dict[int, Seen] = {}
                found = await find_end(self._target, self._stamp, self._start, seen)
                async with aclosing(self._missing(found, seen)) as batches:
                    return await append_batches(
                        self._target, self._stamp, found, batches, self._settled
                    )
            except BrokerError as exc:
                if self._settled_position > before:
                    give_up_s, tries = monotonic_s() + _GIVE_UP_S, 0
                if not exc.retriable or monotonic_s() > give_up_s:
                    raise
                tries += 1
                await before_retry(self._target, {self._start.target.topic}, tries)

    async def _missing(self, found: PartEnd, seen: Mapping[int, Seen]) -> AsyncGenerator[Sealed]:
        """What is not there yet: first what was not acknowledged, then what comes."""
        position, again = self._settled_position, list(self._unsettled)
        while True:
            if again:
                sealed = again.pop(0)
            else:
                taken = None if self._is_over else await self._waiting.get()
                if taken is None:
                    self._is_over = True
                    if position < found.position:
                        raise self._is_other(f"{found.position - position} rows fewer")
                    return
                sealed = taken
                self._unsettled.append(sealed)
            after = position + sealed.record_count
            if position >= found.position:
                yield sealed
            elif after > found.position or not _is_same(sealed, seen.get(position)):
                raise self._is_other("other rows")
            else:
                self._settled(after)
            position = after

    def _settled(self, position: int) -> None:
        while self._settled_position < position:
            self._settled_position += self._unsettled.popleft().record_count

    def _is_other(self, what: str) -> PipelineRefused:
        return _other(self._start.target, what)


def _other(at: TopicPartition, what: str) -> PipelineRefused:
    return PipelineRefused(
        f"{at}: the pipeline is declared deterministic, and another try makes {what} than are in "
        "the log. Take `deterministic` back for what follows, and give it another name to write "
        "all of it again"
    )


async def require_untouched(
    target: Cluster, stamp: Stamp, starts: Mapping[TopicPartition, PartEnd]
) -> None:
    """Raises `PipelineRefused` where the producer wrote behind these."""

    async def look() -> None:
        answers = await target.last_sequences(list(starts), stamp.producer_id)
        for at, answer in answers.items():
            if isinstance(answer, BrokerError):
                raise answer
            if answer >= 0 and (answer + 1 - starts[at].position) % SEQUENCES:
                raise _other(at, "fewer rows")

    if starts:
        await retried(target, {at.topic for at in starts}, look)


def _is_same(sealed: Sealed, there: Seen | None) -> bool:
    """Whether a batch of the log holds the same records; one that a broker compressed anew is
    believed."""
    view = memoryview(sealed.batch)
    header = parse_header(view)
    if there is None or header is None or there.record_count != header.record_count:
        return False
    return there.compression != header.compression or there == seen_of(header, view)


async def _opened(cluster: ClusterConfig, topics: Collection[TopicName]) -> Cluster:
    target = open_cluster(cluster, "producer")
    try:
        await retried(target, topics, partial(target.refresh, topics))
    except BaseException:
        target.close()
        raise
    return target


async def _closed(target: Cluster) -> None:
    target.close()
