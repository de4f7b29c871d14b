"""A source whose files were damaged while it was down: seen, shown, never mirrored as if whole."""

from __future__ import annotations

import itertools
import signal
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

import pytest

from heliograph.model import StallReason
from heliograph.wire.batch import BatchHeader, parse_header
from heliograph_tools.localkafka.cluster import ClusterSpec, LocalCluster, local_clusters
from tests.kit.inside import InsideMirror, running_inside
from tests.kit.mirror import Route, lasting_topic, route, write_config
from tests.kit.records import end_offsets, numbered, produce, read_all

_ROTTEN: Final = "rotten"
_CUT: Final = "cut"
_PARTED: Final = "parted"
_SOUND: Final = "sound"
_BATCHES: Final = 5
_PER_BATCH: Final = 10
_WRITTEN: Final = _BATCHES * _PER_BATCH


@pytest.fixture(scope="module")
def way(pair: dict[str, LocalCluster], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Route]:
    """A source of its own: one byte of one batch changed before the mirror ever saw it, and a topic
    that lost its end, and got another, while no mirror ran."""
    folder = tmp_path_factory.mktemp("damaged")
    spec = ClusterSpec(alias="old", jvm_options=("-XX:TieredStopAtLevel=1",))
    with local_clusters([spec], root=folder / "clusters") as made:
        old = made["old"]
        for name in (_ROTTEN, _CUT, _PARTED, _SOUND):
            lasting_topic(old, name)
            for number in range(_BATCHES):
                produce(old, name, numbered(_PER_BATCH, start=number * _PER_BATCH))
        clusters = {"old": old, "to": pair["B"]}
        before = write_config(
            folder / "before.properties", clusters, {"old->to": {"topics": _PARTED}}
        )
        with closing(InsideMirror(before)) as mirror:
            mirror.catch_up()
            mirror.settle()
        old.kill_broker(0, signal.SIGTERM)
        _change_a_byte(_segment(old, _ROTTEN), batch=2)
        _cut_off(_segment(old, _PARTED), batch=3)
        old.start_broker(0)
        # By number these fit: the lane's next offset is among them.
        produce(old, _PARTED, numbered(40, start=5_000))
        topics = f"{_ROTTEN}, {_CUT}, {_PARTED}, {_SOUND}"
        config = write_config(folder / "mm2.properties", clusters, {"old->to": {"topics": topics}})
        with running_inside(config):
            yield route(config, ("old", old), ("to", pair["B"]))


def _segment(cluster: LocalCluster, topic: str) -> Path:
    (segment,) = (cluster.broker(0).folder / "log" / f"{topic}-0").glob("*.log")
    return segment


def _batches(segment: Path) -> list[tuple[int, BatchHeader]]:
    """Where in the file each batch begins."""
    content, at = memoryview(segment.read_bytes()), 0
    found: list[tuple[int, BatchHeader]] = []
    while (header := parse_header(content[at:])) is not None:
        found.append((at, header))
        at += header.size_bytes
    assert [header.record_count for _, header in found] == [_PER_BATCH] * _BATCHES
    return found


def _change_a_byte(segment: Path, *, batch: int) -> None:
    at, header = _batches(segment)[batch]
    content = bytearray(segment.read_bytes())
    content[at + header.size_bytes // 2] ^= 0x01
    segment.write_bytes(content)


def _cut_off(segment: Path, *, batch: int) -> None:
    """Lose this batch and all behind it, as a disk that never wrote them would have.

    Indexes and snapshots go too: a broker makes them anew from what the file holds.
    """
    at, _ = _batches(segment)[batch]
    segment.write_bytes(segment.read_bytes()[:at])
    derived = (segment.parent.glob(f"*.{kind}") for kind in ("index", "timeindex", "snapshot"))
    for path in itertools.chain.from_iterable(derived):
        path.unlink()


def _assert_others_go_on(way: Route, start: int) -> None:
    produce(way.source, _SOUND, numbered(20, start=start))
    assert way.assert_arrives(_SOUND) >= _WRITTEN + 20


def test_a_batch_that_changed_on_the_brokers_disk_stalls_its_lane_and_is_not_mirrored(
    way: Route,
) -> None:
    said = way.await_stall(_ROTTEN, StallReason.CORRUPT_BATCH)

    assert f"offset {2 * _PER_BATCH}: checksum does not match" in said
    _assert_others_go_on(way, start=1_000)
    (mirrored,) = read_all(way.target, way.renamed(_ROTTEN)).values()
    before = [rec.value for rec in numbered(2 * _PER_BATCH)]
    assert [rec.value for rec in mirrored] == before


def test_a_log_that_lost_its_end_stalls_its_lane_and_stays_as_it_was_mirrored(
    way: Route,
) -> None:
    assert way.assert_arrives(_CUT) == _WRITTEN
    way.source.kill_broker(0, signal.SIGTERM)
    _cut_off(_segment(way.source, _CUT), batch=3)
    way.source.start_broker(0)

    said = way.await_stall(_CUT, StallReason.LOG_TRUNCATED)
    # Others than were there before, up to behind the lane's offset: by number they would fit.
    produce(way.source, _CUT, numbered(40, start=5_000))

    assert "30" in said and "50" in said
    _assert_others_go_on(way, start=2_000)
    (mirrored,) = read_all(way.target, way.renamed(_CUT)).values()
    assert [rec.value for rec in mirrored] == [rec.value for rec in numbered(_WRITTEN)]
    assert end_offsets(way.source, _CUT) == {0: 3 * _PER_BATCH + 40}


def test_a_log_that_lost_its_end_and_grew_again_while_no_mirror_ran_stalls_its_lane(
    way: Route,
) -> None:
    said = way.await_stall(_PARTED, StallReason.LOG_TRUNCATED)

    assert "parts from what was mirrored at offset 30, before 50" in said
    _assert_others_go_on(way, start=3_000)
    (mirrored,) = read_all(way.target, way.renamed(_PARTED)).values()
    assert [rec.value for rec in mirrored] == [rec.value for rec in numbered(_WRITTEN)]
    assert end_offsets(way.source, _PARTED) == {0: 3 * _PER_BATCH + 40}
