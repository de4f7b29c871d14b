"""What a flow may ask for: same offsets, the tail only, uncommitted records, both directions."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from heliograph_tools.localkafka.cluster import LocalCluster
from tests.kit.clusters import TopicNames
from tests.kit.inside import running_inside
from tests.kit.mirror import Route, lasting_topic, route, write_config
from tests.kit.records import (
    NewRec,
    Transaction,
    assert_same_records,
    end_offsets,
    numbered,
    produce,
    produce_transactions,
    read_all,
)
from tests.kit.topics import (
    admin_of,
    create_topic,
    delete_records_before,
    topic_config,
    wait_until,
)

_KEPT, _KEPT_FAR, _GAPPED = "kept-start", "kept-far", "kept-gaps"
_KEPT_FOREVER = "kept-forever"
_FAR = 250_000
_LATE = "late-tail"
_SINCE, _RECENT = "since-time", "recent-hour"


@dataclass(frozen=True, slots=True, kw_only=True)
class Flows:
    kept: Route
    late: Route
    since: Route
    recent: Route
    raw: Route
    there: Route
    back: Route


@pytest.fixture(scope="module")
def flows(
    pair: dict[str, LocalCluster], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Flows]:
    """One mirror, several flows between the same two clusters, one policy each."""
    a, b = pair["A"], pair["B"]
    _prepare_kept(a)
    lasting_topic(a, _LATE)
    produce(a, _LATE, numbered(30))
    for name in (_SINCE, _RECENT):
        lasting_topic(a, name)
        produce(a, name, numbered(30))
    produce(a, _RECENT, [NewRec(key=b"%d" % number) for number in range(5)])
    config = write_config(
        tmp_path_factory.mktemp("policies") / "mm2.properties",
        {
            **dict.fromkeys(("kept", "late", "since", "recent", "raw", "here"), a),
            **dict.fromkeys(("all", "there"), b),
        },
        {
            "kept->all": {"topics": "kept-.*", "offsets": "preserve"},
            "late->all": {"topics": "late-.*", "consumer.auto.offset.reset": "latest"},
            "since->all": {"topics": "since-.*", "start.at": "2023-11-14T22:13:20.010Z"},
            "recent->all": {
                "topics": "recent-.*",
                "consumer.auto.offset.reset": "by_duration:PT1H",
            },
            "raw->all": {"topics": "raw-.*", "read.committed": "false"},
            # These also match what the other direction has mirrored.
            "here->there": {"topics": ".*loop-.*"},
            "there->here": {"topics": ".*loop-.*"},
        },
    )
    with running_inside(config):
        yield Flows(
            kept=route(config, ("kept", a), ("all", b)),
            late=route(config, ("late", a), ("all", b)),
            since=route(config, ("since", a), ("all", b)),
            recent=route(config, ("recent", a), ("all", b)),
            raw=route(config, ("raw", a), ("all", b)),
            there=route(config, ("here", a), ("there", b)),
            back=route(config, ("there", b), ("here", a)),
        )


def _prepare_kept(a: LocalCluster) -> None:
    """Offsets are kept from a lane's first moment on, so these must be there before the mirror."""
    lasting_topic(a, _KEPT, partitions=2)
    produce(a, _KEPT, numbered(1_000, partitions=2))
    delete_records_before(a, _KEPT, {0: 137, 1: 500})
    lasting_topic(a, _KEPT_FAR)
    produce(a, _KEPT_FAR, [NewRec(value=None)] * _FAR, codec="zstd", linger_ms=100)
    delete_records_before(a, _KEPT_FAR, {0: _FAR - 10})
    create_topic(a, _KEPT_FOREVER, config={"cleanup.policy": ""})
    produce(a, _KEPT_FOREVER, [NewRec(key=b"%d" % number) for number in range(10)])
    lasting_topic(a, _GAPPED)
    produce(a, _GAPPED, numbered(50))
    delete_records_before(a, _GAPPED, {0: 20})
    produce_transactions(
        a,
        _GAPPED,
        [Transaction(records=numbered(10, start=100), commit=part != 1) for part in range(3)],
        transactional_id="kept-gaps",
    )


@pytest.mark.parametrize("name", [_KEPT, _KEPT_FAR])
def test_preserved_offsets_are_the_sources_own_and_filler_is_not_seen(
    flows: Flows, name: str
) -> None:
    kept = flows.kept
    _await_same_ends(kept, name)
    produce(kept.source, name, numbered(100, start=5_000))

    _await_same_ends(kept, name)
    kept.assert_arrives(name)

    wanted, mirrored = read_all(kept.source, name), read_all(kept.target, kept.renamed(name))
    for partition, records in wanted.items():
        assert [rec.offset for rec in records] == [rec.offset for rec in mirrored[partition]]
    assert end_offsets(kept.target, kept.renamed(name)) == end_offsets(kept.source, name)
    assert kept.lane_records(name)[0].runs.identical(1_000_000)


def _await_same_ends(kept: Route, name: str) -> None:
    """Counting would not do: a new target is filled up to the first offset, then emptied."""
    wanted = end_offsets(kept.source, name)

    def reached() -> bool:
        return kept.appended(name) > 0 and end_offsets(kept.target, kept.renamed(name)) == wanted

    wait_until(reached, f"the ends of {name}", timeout_s=60)


def test_a_topic_without_a_cleanup_policy_is_mirrored_as_one(flows: Flows) -> None:
    """Kafka 4.1 on: neither deleted nor compacted, so nothing may be deleted from it either."""
    kept = flows.kept

    assert kept.assert_arrives(_KEPT_FOREVER) == 10

    assert topic_config(kept.target, kept.renamed(_KEPT_FOREVER))["cleanup.policy"] == ""


def test_a_source_with_gaps_is_mapped_though_offsets_were_to_be_preserved(flows: Flows) -> None:
    kept = flows.kept

    kept.assert_arrives(_GAPPED)

    (mirrored,) = read_all(kept.target, kept.renamed(_GAPPED)).values()
    (wanted,) = read_all(kept.source, _GAPPED).values()
    # Identical until the first transaction's marker, shifted after it.
    assert [rec.offset for rec in mirrored[:40]] == [rec.offset for rec in wanted[:40]]
    assert mirrored[-1].offset < wanted[-1].offset
    kept.assert_exact_map(_GAPPED)


def test_a_lane_that_starts_at_the_latest_offset_mirrors_only_what_comes_after(
    flows: Flows,
) -> None:
    late = flows.late
    wait_until(lambda: bool(late.lane_records(_LATE)), "the lane's start in the ledger", poll_s=0.3)
    (lane,) = late.lane_records(_LATE).values()
    produce(late.source, _LATE, numbered(20, start=1_000))

    late.await_records(_LATE, 20)

    (wanted,) = read_all(late.source, _LATE).values()
    (mirrored,) = read_all(late.target, late.renamed(_LATE)).values()
    assert lane.starts[0].source_offset == 30
    assert [rec.content for rec in mirrored] == [rec.content for rec in wanted[30:]]


def test_a_lane_begins_with_the_first_record_of_a_time_or_of_the_last_hour(flows: Flows) -> None:
    since, recent = flows.since, flows.recent

    since.await_records(_SINCE, 20)
    recent.await_records(_RECENT, 5)

    (of_time,) = read_all(since.target, since.renamed(_SINCE)).values()
    (of_hour,) = read_all(recent.target, recent.renamed(_RECENT)).values()
    assert [rec.key for rec in of_time] == [rec.key for rec in numbered(30)][10:]
    assert [rec.key for rec in of_hour] == [b"%d" % number for number in range(5)]


def test_uncommitted_records_are_mirrored_where_asked_for(flows: Flows, topic: TopicNames) -> None:
    raw = flows.raw
    name = lasting_topic(raw.source, topic("raw-transactions"))
    transactions = [
        Transaction(records=numbered(10, start=100 * part), commit=part % 2 == 0)
        for part in range(4)
    ]
    produce_transactions(raw.source, name, transactions, transactional_id=name)

    count = raw.assert_arrives(name, read_committed=False)

    assert count == 40
    assert len(read_all(raw.target, raw.renamed(name))[0]) == 40
    raw.assert_exact_map(name, read_committed=False)


def test_both_directions_at_once_mirror_everything_and_nothing_goes_round(
    flows: Flows, topic: TopicNames
) -> None:
    there, back = flows.there, flows.back
    name = topic("loop-both")
    for cluster in (there.source, there.target):
        lasting_topic(cluster, name, partitions=2)
    produce(there.source, name, numbered(300, partitions=2))
    produce(there.target, name, numbered(200, partitions=2, start=50_000))

    assert there.assert_arrives(name) == 300
    assert back.assert_arrives(name) == 200

    time.sleep(3.0)  # a loop would show at the next look at the topics, one second apart
    assert_same_records(there.source, there.target, name, f"here.{name}")
    for cluster, wanted in ((there.source, f"there.{name}"), (there.target, f"here.{name}")):
        shown = {each for each in admin_of(cluster).list_topics(timeout=10).topics if name in each}
        assert shown == {name, wanted}
