"""One lane with a transform, carried by one slot after another, each killed somewhere.

Resume, layout, map, ledger and its store are the real ones, over clusters in memory that obey the
broker's rules. What a slot does between two awaits is done here step by step, so that a test can
end it anywhere.
"""

from __future__ import annotations

import random
import struct
from dataclasses import dataclass, field, replace

from crc32c import crc32c

from heliograph.config.transforms import TransformConfig
from heliograph.copy.chunk import OutgoingBatch, prepare_chunk
from heliograph.copy.flow import FetchLimits, Flow
from heliograph.copy.found import Found, ResumePoint
from heliograph.copy.lane import CarriedLane
from heliograph.copy.resume import find_resume_points
from heliograph.copy.sources import _writer_of
from heliograph.errors import InvariantError
from heliograph.ledger.runs import Runs
from heliograph.ledger.store import LedgerStore
from tests.kit.batches import Record, batch_of, records_of
from tests.kit.fake_log import Refusal
from tests.unit.copy.resume_kit import FLOW, LEDGER, SPEC, Stage, flow_entry

FETCH_BYTES = 450
PER_BATCH = 7


class Killed(Exception):
    """The slot is no more."""


@dataclass(slots=True)
class ReplayedLane:
    transforms: tuple[TransformConfig, ...]
    seed: int
    stage: Stage = field(default_factory=Stage)
    late: list[OutgoingBatch] = field(default_factory=list)
    """Batches that a killed slot had sent and that the target has not taken up yet."""
    lives: int = 0
    limits: FetchLimits = field(default_factory=FetchLimits)
    random: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)

    def fill(self, count: int) -> None:
        """Each value is its own source offset."""
        for start in range(0, count, PER_BATCH):
            numbers = range(start, min(start + PER_BATCH, count))
            records = [Record(offset=n - start, value=b"%d" % n) for n in numbers]
            batch = bytearray(batch_of(*records))
            # Written by no producer, as far as the source cares.
            batch[43:57] = b"\xff" * 14
            self.stage.read.hold([*self._kept(), _resealed(batch, start)])

    def _kept(self) -> list[bytes]:
        return [each.content for each in self.stage.read._batches]

    async def live(self, *, kill_chance: float, delivers_late: bool = False) -> bool:
        """One slot, until it has copied all; False where it was killed before."""
        self.lives += 1
        store = LedgerStore(self.stage.target, LEDGER)
        try:
            if self.lives == 1:
                await store.write([flow_entry()])
            return await self._carry(store, kill_chance, delivers_late)
        except (Killed, Refusal):
            return False
        finally:
            await store.close()

    async def _carry(self, store: LedgerStore, kill_chance: float, delivers_late: bool) -> bool:
        limits = replace(self.limits, transforms=self.transforms)
        lane = CarriedLane(SPEC, Flow(FLOW, self.stage.source, self.stage.target, store, limits))
        found: dict[CarriedLane, Found] = {}
        await find_resume_points(lane.flow, [lane], found.__setitem__)
        point = found[lane]
        if isinstance(point, InvariantError) and str(point).startswith(Killed.__name__):
            raise Killed  # a resume takes it for a bug of its own
        assert isinstance(point, ResumePoint), point
        running = lane.run_from(
            point.cursor,
            identical=False,
            target_topic_id=point.target_topic_id,
            written_until=point.written_until,
            ahead=point.ahead,
            letters=point.letters,
        )
        lane.enter(running)
        self._deliver_late()
        stamp = lane.flow.stamp
        assert stamp is not None
        while fetched := self.stage.read.read(running.cursor.next_offset, FETCH_BYTES):
            chunk = prepare_chunk(
                memoryview(bytearray(fetched)),
                running.cursor,
                stamp,
                make_writer=_writer_of(lane, running),
            )
            assert chunk.failed is None and chunk.corrupt is None, chunk
            if chunk.letters:
                topic = limits.letters_topic
                assert topic is not None
                await lane.flow.letter_box.write(SPEC, topic, running.letters, chunk.letters)
            runs, end_position = running.runs_to_write(chunk)
            self._kill(kill_chance)
            if runs:
                await store.write(lane.ledger_entries(running, runs, end_position))
            if delivers_late and self.random.random() < kill_chance:
                self.late = list(chunk.batches)
                raise Killed
            self._kill(kill_chance)
            lane.enqueue(running, chunk, runs, 0)
            for batch in chunk.batches:
                running.outgoing.popleft()
                lane.settle(running, batch, self.stage.written.append(bytes(batch.view)))
                self._kill(kill_chance / 2)
            if self.random.random() < 0.2:
                await store.write([lane.head()])
        return True

    def _kill(self, chance: float) -> None:
        if self.random.random() < chance:
            raise Killed

    def _deliver_late(self) -> None:
        """The target takes up what a dead slot had sent, after its successor looked at the log."""
        late, self.late = self.late, []
        for batch in late:
            self.stage.written.append(bytes(batch.view))

    def copied(self) -> list[int]:
        """The source offset of each record of the target, in its order."""
        numbers: list[int] = []
        for each in self.stage.written._batches:
            numbers += [int((rec.value or b"").split(b"/")[0]) for rec in records_of(each.content)]
        return numbers

    async def map(self) -> Runs:
        store = LedgerStore(self.stage.target, LEDGER)
        try:
            await store.catch_up()
            record = store.view.begun_lane(SPEC.id.source.topic, 0)
            assert record is not None
            return record.runs
        finally:
            await store.close()


def _resealed(batch: bytearray, base_offset: int) -> bytes:
    struct.pack_into(">q", batch, 0, base_offset)
    struct.pack_into(">I", batch, 17, crc32c(bytes(batch[21:])))
    return bytes(batch)
