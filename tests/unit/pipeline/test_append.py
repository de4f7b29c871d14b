"""Compare-and-append of staged batches, against a cluster in memory that obeys a broker's rules."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from heliograph.errors import BrokerUnreachable, PipelineRefused
from heliograph.model import TopicName, TopicPartition
from heliograph.pipeline import append as appending
from heliograph.pipeline.append import PartToAppend, append_part
from heliograph.pipeline.notes import PartEnd
from heliograph.pipeline.packing import Columns, TargetTopics
from heliograph.pipeline.staging import Folder, Piece, Stager
from heliograph.wire.batch import SEQUENCES, Stamp
from tests.kit.fake_cluster import Asked, FakeCluster
from tests.kit.fake_log import FakeLog
from tests.kit.fake_records import append_foreign

AT = TopicPartition(topic=TopicName("out"), partition=0)
STAMP = Stamp(1_000, 0)


class Killed(BaseException):
    """The process is gone."""


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(appending, "_RETRY_S", 0.001)
    monkeypatch.setattr(appending, "_RETRY_S_MAX", 0.002)
    monkeypatch.setattr(appending, "_AHEAD_S_MAX", 0.02)
    monkeypatch.setattr(appending, "_GIVE_UP_S", 0.3)


def pieces_of(folder: Path, *counts: int) -> tuple[Piece, ...]:
    """One staged batch for each count."""
    found: list[Piece] = []
    topics = TargetTopics(partition_counts={"out": 1}, default_topic="out")
    for task, count in enumerate(counts):
        stager = Stager(Folder(str(folder)), topics, task)
        values: list[bytes | None] = [b"%d-%d" % (task, number) for number in range(count)]
        stager.add(
            Columns(
                topics=None,
                partitions=None,
                timestamps_ms=None,
                keys=None,
                values=values,
                headers=None,
            )
        )
        found += [piece for part in stager.finish() for piece in part.pieces]
    return tuple(found)


def cluster_of() -> tuple[FakeCluster, FakeLog]:
    cluster = FakeCluster()
    return cluster, cluster.create("out")


def part_of(pieces: tuple[Piece, ...], position: int = 0, offset: int = 0) -> PartToAppend:
    start = PartEnd(topic="out", partition=0, position=position, offset=offset)
    return PartToAppend(start=start, pieces=pieces)


def append(cluster: FakeCluster, folder: Path, part: PartToAppend) -> PartEnd:
    return asyncio.run(append_part(cluster, STAMP, Folder(str(folder)), part))


def own(log: FakeLog) -> list[tuple[int, int]]:
    """Sequence and count of the pipeline's batches."""
    return [
        (header.base_sequence, header.record_count)
        for header in log.headers()
        if header.producer_id == STAMP.producer_id
    ]


def test_all_pieces_are_appended_in_order(tmp_path: Path) -> None:
    cluster, log = cluster_of()

    end = append(cluster, tmp_path, part_of(pieces_of(tmp_path, 3, 4, 5)))

    assert own(log) == [(0, 3), (3, 4), (7, 5)]
    assert (end.position, end.offset) == (12, 12)


def test_what_is_there_is_not_appended_again(tmp_path: Path) -> None:
    cluster, log = cluster_of()
    part = part_of(pieces_of(tmp_path, 3, 4, 5))
    append(cluster, tmp_path, part_of(part.pieces[:2]))
    append_foreign(log, 2)

    end = append(cluster, tmp_path, part)
    again = append(cluster, tmp_path, part)

    assert own(log) == [(0, 3), (3, 4), (7, 5)]
    assert (end.position, end.offset) == (again.position, again.offset) == (12, 14)


def test_a_broker_that_forgot_the_producer_is_not_believed(tmp_path: Path) -> None:
    cluster, log = cluster_of()
    part = part_of(pieces_of(tmp_path, 3, 4))
    append(cluster, tmp_path, part_of(part.pieces[:1]))
    log.expire_producers()

    append(cluster, tmp_path, part)

    assert own(log) == [(0, 3), (3, 4)]


def test_positions_go_on_past_the_last_sequence(tmp_path: Path) -> None:
    cluster, log = cluster_of()
    position = SEQUENCES - 2
    part = part_of(pieces_of(tmp_path, 4, 1), position=position)

    end = append(cluster, tmp_path, part)

    assert own(log) == [(SEQUENCES - 2, 4), (2, 1)]
    assert end.position == position + 5
    assert append(cluster, tmp_path, part) == end


@pytest.mark.parametrize("seed", range(30))
def test_killed_anywhere_and_tried_again_every_row_is_there_once(tmp_path: Path, seed: int) -> None:
    """Between any two requests the process dies, the answer is lost, others write, or the broker
    forgets."""
    drawn = random.Random(seed)
    cluster, log = cluster_of()
    part = part_of(pieces_of(tmp_path, *(drawn.randint(1, 9) for _ in range(12))))

    def trouble(asked: Asked) -> None:
        match drawn.randrange(12):
            case 0 | 1:
                raise Killed
            case 2:
                raise BrokerUnreachable("cut")
            case 3:
                append_foreign(log, 1)
            case 4 if asked.name != "produce":
                # Not while batches with today's timestamps are under way: see `_REMEMBERED_MS`.
                log.expire_producers()

    cluster.before = trouble
    for _ in range(400):
        try:
            append(cluster, tmp_path, part)
        except (Killed, BrokerUnreachable):
            continue
        break
    cluster.before = lambda _: None
    append(cluster, tmp_path, part)

    counts = [piece.record_count for piece in part.pieces]
    starts = [sum(counts[:index]) for index in range(len(counts))]
    assert own(log) == list(zip(starts, counts, strict=True))


def test_two_that_append_the_same_at_once_leave_it_once(tmp_path: Path) -> None:
    cluster, log = cluster_of()
    part = part_of(pieces_of(tmp_path, *range(1, 13)))

    async def both() -> tuple[PartEnd, PartEnd]:
        folder = Folder(str(tmp_path))
        return await asyncio.gather(
            append_part(cluster, STAMP, folder, part), append_part(cluster, STAMP, folder, part)
        )

    first, second = asyncio.run(both())

    assert [count for _, count in own(log)] == list(range(1, 13))
    assert first.position == second.position == 78


def test_records_that_only_the_leader_has_are_waited_for(tmp_path: Path) -> None:
    cluster, log = cluster_of()
    part = part_of(pieces_of(tmp_path, 3, 4))
    append(cluster, tmp_path, part_of(part.pieces[:1]))
    log.unreplicated = 3

    with pytest.raises(Exception, match="followers lack"):
        append(cluster, tmp_path, part)
    log.unreplicated = 0

    assert append(cluster, tmp_path, part).position == 7


def test_other_rows_under_the_same_name_are_refused(tmp_path: Path) -> None:
    cluster, _ = cluster_of()
    append(cluster, tmp_path, part_of(pieces_of(tmp_path, 5)))

    with pytest.raises(PipelineRefused, match="no staged batch ends there"):
        append(cluster, tmp_path, part_of(pieces_of(tmp_path, 3, 4)))


def test_a_log_that_has_more_than_was_staged_is_refused(tmp_path: Path) -> None:
    cluster, _ = cluster_of()
    pieces = pieces_of(tmp_path, 3, 4)
    append(cluster, tmp_path, part_of(pieces))

    with pytest.raises(PipelineRefused, match="no staged batch ends there"):
        append(cluster, tmp_path, part_of(pieces[:1]))


def test_a_log_that_lost_its_beginning_is_refused(tmp_path: Path) -> None:
    cluster, log = cluster_of()
    pieces = pieces_of(tmp_path, 3, 4)
    append(cluster, tmp_path, part_of(pieces[:1]))
    append_foreign(log, 5)
    log.delete_before(5)

    with pytest.raises(PipelineRefused, match="cannot be told"):
        append(cluster, tmp_path, part_of(pieces))


def test_a_staged_file_that_was_damaged_is_not_sent(tmp_path: Path) -> None:
    cluster, log = cluster_of()
    (piece,) = pieces_of(tmp_path, 3)
    file = tmp_path / piece.file
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)

    with pytest.raises(Exception, match="checksum"):
        append(cluster, tmp_path, part_of((piece,)))
    file.write_bytes(content[:-1])
    with pytest.raises(PipelineRefused, match="damaged"):
        append(cluster, tmp_path, part_of((piece,)))

    assert not log.headers()
