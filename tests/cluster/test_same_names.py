"""Two clusters that take writes under one name: each record once on both, nothing comes back."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

from heliograph.config.load import load_config
from heliograph.config.sections import IDENTITY_POLICY
from heliograph.inspect.dry_run import plan_flows
from heliograph_tools.localkafka.cluster import LocalCluster
from tests.kit.clusters import TopicNames
from tests.kit.headers import batch_headers
from tests.kit.inside import InsideMirror
from tests.kit.mirror import RECORDS_ONLY, lasting_topic, write_config
from tests.kit.records import NewRec, end_offsets, numbered, produce, read_all
from tests.kit.topics import force_compaction, wait_until

Pair = dict[str, LocalCluster]
_PARTITIONS: Final = 2
_BOTH_WAYS: Final = ("A->B", "B->A")
_SECONDS: Final = 60.0


def both_ways(tmp_path: Path, pair: Pair, topic: str) -> Path:
    rules = {"replication.policy.class": IDENTITY_POLICY, "topics": topic}
    return write_config(tmp_path / "mm2.properties", pair, dict.fromkeys(_BOTH_WAYS, rules))


def written(cluster: LocalCluster, topic: str) -> Counter[tuple[int, bytes | None]]:
    """Each record's partition and value, and how often it is there."""
    found = read_all(cluster, topic)
    return Counter((number, each.value) for number, some in found.items() for each in some)


def wanted(*records: list[NewRec]) -> Counter[tuple[int, bytes | None]]:
    return Counter((each.partition, each.value) for some in records for each in some)


@contextmanager
def steadily(cluster: LocalCluster, topic: str, records: list[NewRec]) -> Iterator[None]:
    """Write them a few at a time while the block runs, and the rest at its end."""
    stop = threading.Event()
    left = list(records)

    def write() -> None:
        while left:
            some, left[:] = left[:20], left[20:]
            produce(cluster, topic, some, linger_ms=2, batch_records_max=7)
            if not stop.is_set():
                time.sleep(0.05)

    writer = threading.Thread(target=write, daemon=True)
    writer.start()
    try:
        yield
    finally:
        stop.set()
        writer.join(_SECONDS)


def test_each_record_is_once_on_both_sides_while_both_are_written_and_mirrors_die(
    pair: Pair, topic: TopicNames, tmp_path: Path
) -> None:
    name = topic("shared")
    for cluster in pair.values():
        lasting_topic(cluster, name, partitions=_PARTITIONS)
    file = both_ways(tmp_path, pair, name)
    ours, theirs = (numbered(1_500, partitions=_PARTITIONS, start=at) for at in (0, 10_000))

    with steadily(pair["A"], name, ours), steadily(pair["B"], name, theirs):
        for _ in range(3):
            # Ends at once, with batches under way and nothing noted.
            with closing(InsideMirror(file)) as mirror:
                mirror.reconcile()
                time.sleep(1.0)
    with closing(InsideMirror(file)) as mirror:
        mirror.catch_up(2 * _PARTITIONS)
        there = wanted(ours, theirs)
        for cluster in pair.values():
            wait_until(lambda c=cluster: written(c, name) == there, f"all in {cluster.alias}")  # type: ignore[misc]
        before = [end_offsets(cluster, name) for cluster in pair.values()]
        time.sleep(1.0)

        assert mirror.stalls == []
        assert all(
            at.source_next_offset == at.source_end_offset for at in mirror.slots.progress().values()
        )

    assert [end_offsets(cluster, name) for cluster in pair.values()] == before
    assert [written(cluster, name) for cluster in pair.values()] == [there, there]


def test_headers_end_a_loop_and_keep_out_what_another_mirror_brought(
    pair: Pair, topic: TopicNames, tmp_path: Path
) -> None:
    """With `loop.prevention = none`, so that nothing else could."""
    name = topic("stamped")
    for cluster in pair.values():
        lasting_topic(cluster, name)
    rules = {
        "replication.policy.class": IDENTITY_POLICY,
        "topics": name,
        "loop.prevention": "none",
        "provenance.write": "ours",
        "provenance.drop": "ours, __replicator_id",
    }
    ids = {f"{alias}.provenance.id": each.cluster_id for alias, each in pair.items()}
    file = write_config(
        tmp_path / "mm2.properties",
        pair,
        dict.fromkeys(_BOTH_WAYS, rules),
        top={**RECORDS_ONLY, **ids},
    )
    framed = b"\x00\x16" + pair["A"].cluster_id.encode() + b"\x06orders"
    ours, theirs = numbered(30), numbered(30, start=100)
    brought = [replace(each, headers=(("__replicator_id", framed),)) for each in ours[:10]]
    produce(pair["A"], name, ours)
    produce(pair["B"], name, [*brought, *theirs], batch_records_max=7)

    with closing(InsideMirror(file)) as mirror:
        mirror.catch_up(2)
        wait_until(lambda: len(read_all(pair["A"], name)[0]) == 60, "all in A")
        wait_until(lambda: len(read_all(pair["B"], name)[0]) == 70, "all in B")
        mirror.catch_up(2)
        assert mirror.stalls == []

    there = {alias: read_all(cluster, name)[0] for alias, cluster in pair.items()}
    assert written(pair["A"], name) == wanted(ours, theirs)
    assert written(pair["B"], name) == wanted(brought, theirs, ours)
    assert told_of_ids(file) == []
    right = pair["A"].cluster_id
    file.write_text(file.read_text().replace(right, right[::-1]))
    assert len(told_of_ids(file)) == len(_BOTH_WAYS)
    stamps = [dict(each.headers).get("ours") for each in there["A"]]
    assert stamps == [None] * 30 + [pair["B"].cluster_id.encode()] * 30


def told_of_ids(file: Path) -> list[str]:
    notes = [note for each in plan_flows(load_config(file)) for note in each.notes]
    return [note.text for note in notes if note.topic == "A.provenance.id"]


def test_compaction_leaves_the_producer_of_every_batch_a_mirror_wrote(
    pair: Pair, topic: TopicNames, tmp_path: Path
) -> None:
    """Also of one whose records are all gone: a broker keeps the header of a producer's last."""
    name = topic("compacted")
    for cluster in pair.values():
        lasting_topic(cluster, name)
    rules = {"replication.policy.class": IDENTITY_POLICY, "topics": name}
    back = write_config(tmp_path / "back.properties", pair, {"B->A": rules})
    produce(pair["B"], name, numbered(90, keys=9), batch_records_max=10, linger_ms=50)
    with closing(InsideMirror(back)) as mirror:
        mirror.catch_up(1)
    mirrored = {each.producer_id for each in batch_headers(pair["A"], name)}
    produce(pair["A"], name, numbered(9, start=900, keys=9), settings={"enable.idempotence": True})

    force_compaction(pair["A"], name)
    file = both_ways(tmp_path, pair, name)
    with closing(InsideMirror(file)) as mirror:
        mirror.catch_up(2)
        (there,) = (at for at in mirror.slots.progress().values() if str(at.lane.flow) == "A->B")

    left = [each for each in batch_headers(pair["A"], name) if each.producer_id in mirrored]
    assert len(mirrored) == 1
    assert left
    assert [each.record_count for each in left][-1] == 0
    assert there.position == len(written(pair["A"], name)) == 10
