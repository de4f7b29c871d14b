"""Many flows in one process: a full mesh, a hub with its spokes, a ring of three.

Under names that stay the same too: a mesh that leaves out what mirrors brought, and a chain.
The mesh is three single-node clusters and six flows, five and twenty in a soak, with everything on
that a flow can follow: checkpoints, group offsets, offset syncs, topic configs, ACLs. Hub and ring
are other aliases of the same clusters, so one driver has all of it. `HELIOGRAPH_STABLE_S` makes the
last test watch longer; CI watches for seconds, a soak for a minute.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise, permutations
from typing import Final

import pytest
from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import OffsetSpec

from heliograph.config.sections import IDENTITY_POLICY
from heliograph_tools.localkafka.cluster import ClusterSpec, LocalCluster, local_clusters
from tests.kit.acls import Grant, grant, is_granted
from tests.kit.groups import commit, committed
from tests.kit.inside import InsideMirror, running_inside
from tests.kit.mirror import lasting_topic, write_config
from tests.kit.records import Rec, numbered, produce, read_all
from tests.kit.soaking import in_soak
from tests.kit.topics import admin_of, set_topic_config, topic_config, wait_until

_SITES: Final = ("m1", "m2", "m3", "m4", "m5")[: in_soak(5, ci=3)]
_SPOKES: Final = ("s1", "s2", "s3")[: in_soak(3, ci=2)]
_RING: Final = ("r1", "r2", "r3")
_EQUALS: Final = ("e1", "e2", "e3")
_CHAIN: Final = ("c1", "c2", "c3")
_RECORDS: Final = 200
_SECONDS: Final = 90.0
_STABLE_S: Final = float(os.environ.get("HELIOGRAPH_STABLE_S", in_soak("60", ci="3")))
_TOP: Final = {
    "emit.checkpoints.enabled": "false",
    "emit.offset-syncs.enabled": "false",
    "emit.heartbeats.enabled": "false",
    "heartbeats.topic.replication.factor": "1",
    "heartbeats.replication.enabled": "false",
    "sync.topic.configs.enabled": "false",
    "sync.topic.acls.enabled": "false",
}


_SAME_NAMES: Final = {"replication.policy.class": IDENTITY_POLICY}
_EVERYTHING: Final = {
    "topics": "mesh",
    "groups": "mesh-.*",
    "emit.heartbeats.enabled": "true",
    "emit.checkpoints.enabled": "true",
    "emit.checkpoints.interval.seconds": "2",
    "checkpoints.topic.replication.factor": "1",
    "refresh.groups.interval.seconds": "2",
    "sync.group.offsets.enabled": "true",
    "sync.group.offsets.interval.seconds": "2",
    "emit.offset-syncs.enabled": "true",
    "offset-syncs.topic.replication.factor": "1",
    "sync.topic.configs.enabled": "true",
    "sync.topic.configs.interval.seconds": "2",
    "sync.topic.acls.enabled": "true",
    "sync.topic.acls.interval.seconds": "2",
}
_GROUP: Final = "mesh-billing"
_READER: Final = Grant(user="ann", operation="READ", kind="topic", name="mesh")


@dataclass(frozen=True, slots=True, kw_only=True)
class Topologies:
    clusters: Mapping[str, LocalCluster]
    """By alias; several aliases are one cluster."""
    run: InsideMirror


@pytest.fixture(scope="module")
def topologies(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Topologies]:
    root = tmp_path_factory.mktemp("topologies")
    specs = [
        ClusterSpec(
            alias=site,
            sasl="PLAIN",
            authorizer=True,
            heap_mb=256,
            jvm_options=("-XX:TieredStopAtLevel=1",),
        )
        for site in _SITES
    ]
    with local_clusters(specs, root=root / "clusters") as sites:
        shared = list(sites.values())
        clusters: dict[str, LocalCluster] = {
            **{site: sites[site] for site in _SITES},
            "hub": shared[0],
            **dict(zip(_SPOKES, shared[1:], strict=False)),
            **dict(zip(_RING, shared[:3], strict=True)),
            **dict(zip(_EQUALS, shared[:3], strict=True)),
            **dict(zip(_CHAIN, shared[:3], strict=True)),
        }
        for site in _SITES:
            lasting_topic(sites[site], "mesh", partitions=2)
        for spoke in _SPOKES:
            lasting_topic(clusters[spoke], "till", partitions=1)
        for place in _RING:
            lasting_topic(clusters[place], "round", partitions=1)
            lasting_topic(clusters[place], "equal", partitions=2)
            lasting_topic(clusters[place], "chained", partitions=2)
        flows: dict[str, Mapping[str, str]] = {
            f"{one}->{other}": _EVERYTHING for one, other in permutations(_SITES, 2)
        }
        flows |= {f"{spoke}->hub": {"topics": "till"} for spoke in _SPOKES}
        flows |= {
            f"{one}->{other}": {"topics": r"round, .*\\.round"}
            for one, other in zip(_RING, (*_RING[1:], _RING[0]), strict=True)
        }
        flows |= {
            f"{one}->{other}": {"topics": "equal", "loop.prevention": "mirrored", **_SAME_NAMES}
            for one, other in permutations(_EQUALS, 2)
        }
        flows |= {
            f"{one}->{other}": {"topics": "chained", **_SAME_NAMES}
            for there in pairwise(_CHAIN)
            for one, other in (there, there[::-1])
        }
        config = write_config(root / "mm2.properties", clusters, flows, top=_TOP)
        with running_inside(config, periodic=True) as run:
            yield Topologies(clusters=clusters, run=run)


def test_in_a_full_mesh_every_record_is_once_in_every_cluster(topologies: Topologies) -> None:
    for number, site in enumerate(_SITES):
        records = numbered(_RECORDS, partitions=2, start=number * _RECORDS)
        produce(topologies.clusters[site], "mesh", records)

    for site in _SITES:
        _await_everywhere(topologies, "mesh", site, [s for s in _SITES if s != site])


def test_spokes_reach_the_hub_and_never_each_other(topologies: Topologies) -> None:
    for number, spoke in enumerate(_SPOKES):
        produce(topologies.clusters[spoke], "till", numbered(_RECORDS, start=number * _RECORDS))

    for spoke in _SPOKES:
        _await_everywhere(topologies, "till", spoke, ["hub"])
    for spoke in _SPOKES:
        assert not [name for name in _topics(topologies.clusters[spoke]) if name.endswith(".till")]


def test_in_a_ring_records_go_all_the_way_round_and_stop_before_home(
    topologies: Topologies,
) -> None:
    for number, place in enumerate(_RING):
        produce(topologies.clusters[place], "round", numbered(_RECORDS, start=number * _RECORDS))

    for number, place in enumerate(_RING):
        one, two = _RING[(number + 1) % 3], _RING[(number + 2) % 3]
        _await_everywhere(topologies, "round", place, [one])
        there = topologies.clusters[two]
        _await_equal(topologies.clusters[place], "round", there, f"{one}.{place}.round")
        home = _topics(topologies.clusters[place])
        assert f"{two}.{one}.{place}.round" not in home


@pytest.mark.parametrize(("topic", "places"), [("equal", _EQUALS), ("chained", _CHAIN)])
def test_under_one_name_every_record_is_once_in_every_cluster(
    topologies: Topologies, topic: str, places: tuple[str, ...]
) -> None:
    written = [numbered(_RECORDS, partitions=2, start=at * _RECORDS) for at in range(3)]
    for place, records in zip(places, written, strict=True):
        produce(topologies.clusters[place], topic, records, batch_records_max=7)

    wanted = Counter((each.partition, each.value) for some in written for each in some)
    for place in places:
        wait_until(
            lambda place=place: _values(topologies.clusters[place], topic) >= wanted,  # type: ignore[misc]
            f"all of {topic} in {place}",
            timeout_s=_SECONDS,
            poll_s=0.5,
        )
    time.sleep(_STABLE_S)
    assert [_values(topologies.clusters[place], topic) for place in places] == [wanted] * 3


def _values(cluster: LocalCluster, topic: str) -> Counter[tuple[int, bytes | None]]:
    found = read_all(cluster, topic)
    return Counter((number, each.value) for number, some in found.items() for each in some)


def test_in_a_full_mesh_groups_settings_and_acls_are_followed_to_every_cluster(
    topologies: Topologies,
) -> None:
    first = topologies.clusters["m1"]
    commit(first, _GROUP, "mesh", {0: 50, 1: 40})
    grant(first, [_READER])
    set_topic_config(first, "mesh", {"retention.bytes": "123456789"})

    for site in _SITES[1:]:
        there = topologies.clusters[site]
        wait_until(
            lambda there=there: committed(there, _GROUP, "m1.mesh") == {0: 50, 1: 40},  # type: ignore[misc]
            f"the group in {site}",
            timeout_s=_SECONDS,
        )
        wait_until(
            lambda there=there: (  # type: ignore[misc]
                topic_config(there, "m1.mesh")["retention.bytes"] == "123456789"
                and is_granted(there, replace(_READER, name="m1.mesh"))
            ),
            f"settings and ACLs in {site}",
            timeout_s=_SECONDS,
        )


def test_nothing_loops_and_nothing_grows_while_nobody_writes(topologies: Topologies) -> None:
    _await_quiet(topologies)
    before = {site: _ends(topologies.clusters[site]) for site in _SITES}

    time.sleep(_STABLE_S)

    after = {site: _ends(topologies.clusters[site]) for site in _SITES}
    assert after == before
    for site in _SITES:
        mirrored = {name for name in _topics(topologies.clusters[site]) if name.endswith(".mesh")}
        assert mirrored == {f"{other}.mesh" for other in _SITES if other != site}
    assert topologies.run.stalls == []
    assert not topologies.run.slots.has_ended


def _await_quiet(topologies: Topologies) -> None:
    """Until what was written last has been checkpointed, synced and noted everywhere."""
    seen: list[dict[str, dict[str, int]]] = [{}]

    def is_quiet() -> bool:
        seen.append({site: _ends(topologies.clusters[site]) for site in _SITES})
        return seen[-1] == seen[-2]

    wait_until(is_quiet, "a mesh that writes nothing more", timeout_s=_SECONDS, poll_s=3.0)


def _topics(cluster: LocalCluster) -> set[str]:
    return set(admin_of(cluster).list_topics(timeout=10).topics)


def _ends(cluster: LocalCluster) -> dict[str, int]:
    """Records of every topic, the mirror's own included; heartbeats alone go on for ever."""
    admin = admin_of(cluster)
    asked = {
        TopicPartition(name, number): OffsetSpec.latest()
        for name, topic in admin.list_topics(timeout=10).topics.items()
        if name not in ("heartbeats", "__consumer_offsets")
        for number in topic.partitions
    }
    found: Counter[str] = Counter()
    for at, answer in admin.list_offsets(asked, request_timeout=30).items():
        found[at.topic] += answer.result(30).offset
    return dict(found)


def _await_everywhere(topologies: Topologies, topic: str, source: str, targets: list[str]) -> None:
    for target in targets:
        _await_equal(
            topologies.clusters[source], topic, topologies.clusters[target], f"{source}.{topic}"
        )


def _await_equal(source: LocalCluster, topic: str, target: LocalCluster, mirrored: str) -> None:
    wanted = _contents(read_all(source, topic))

    def arrived() -> bool:
        try:
            found = read_all(target, mirrored)
        except KafkaException:
            return False
        return sum(map(len, found.values())) >= sum(map(len, wanted.values()))

    wait_until(arrived, f"all of {topic} in {mirrored}", timeout_s=_SECONDS, poll_s=0.3)
    assert _contents(read_all(target, mirrored)) == wanted


def _contents(found: Mapping[int, list[Rec]]) -> dict[int, list[object]]:
    return {number: [record.content for record in some] for number, some in found.items()}
