"""A mirror that ends and starts again goes on exactly there; what it cannot reach it says."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from heliograph.local.cluster import ClusterSpec, LocalCluster
from heliograph.local.ports import PortHold
from tests.kit.clusters import ClusterFactory, TopicNames
from tests.kit.mirror import (
    Route,
    lasting_topic,
    mirror_once,
    route,
    running_mirror,
    write_config,
)
from tests.kit.records import (
    NewRec,
    Transaction,
    end_offsets,
    numbered,
    produce,
    produce_transactions,
    read_all,
)
from tests.kit.topics import force_compaction, wait_until


@pytest.fixture
def again(pair: dict[str, LocalCluster], tmp_path: Path, topic: TopicNames) -> Iterator[Route]:
    """A flow of its own for each test; topics that begin with its source's alias are mirrored."""
    alias = topic("again")
    config = write_config(
        tmp_path / "mm2.properties",
        {alias: pair["A"], "to": pair["B"]},
        {f"{alias}->to": {"topics": f"{alias}-.*"}},
    )
    yield route(config, (alias, pair["A"]), ("to", pair["B"]))


def test_once_mirrors_all_kinds_of_topics_and_a_second_once_repeats_nothing(again: Route) -> None:
    alias = again.flow.source
    plain = lasting_topic(again.source, f"{alias}-plain", partitions=4)
    produce(again.source, plain, numbered(4_000, partitions=4), codec="lz4")
    ended = lasting_topic(again.source, f"{alias}-transactions")
    transactions = [
        Transaction(records=numbered(10, start=100 * part), commit=part % 3 != 0)
        for part in range(9)
    ]
    produce_transactions(again.source, ended, transactions, transactional_id=ended)
    holes = _compacted(again, f"{alias}-compacted")
    names = (plain, ended, holes)

    first = mirror_once(again.config)
    ends = {name: end_offsets(again.target, again.renamed(name)) for name in names}
    second = mirror_once(again.config)

    assert first.exit_code == 0, first.last_words
    assert second.exit_code == 0, second.last_words
    assert ends == {name: end_offsets(again.target, again.renamed(name)) for name in names}
    for name in names:
        again.assert_arrives(name)
        again.assert_exact_map(name)


def _compacted(again: Route, name: str) -> str:
    """Holes within batches, tombstones, batches that are gone as a whole."""
    lasting_topic(again.source, name, config={"cleanup.policy": "compact"})
    produce(again.source, name, numbered(500, keys=60), codec="zstd")
    produce(again.source, name, [NewRec(key=b"k%d" % n, value=None) for n in range(0, 60, 7)])
    produce(again.source, name, numbered(90, keys=200, start=700), batch_records_max=5)
    force_compaction(again.source, name)
    produce(again.source, name, numbered(100, start=2_000))
    return name


@pytest.mark.parametrize(
    ("number", "group"), [(signal.SIGTERM, False), (signal.SIGINT, True)], ids=["term", "ctrl-c"]
)
def test_a_mirror_asked_to_stop_drains_and_the_next_one_goes_on_there(
    again: Route, number: signal.Signals, group: bool
) -> None:
    name = lasting_topic(again.source, f"{again.flow.source}-load", partitions=3)
    produce(again.source, name, numbered(60_000, partitions=3, value_bytes=500))
    with running_mirror(again.config) as run:
        wait_until(lambda: again.appended(name) > 0, "the first records on the target")
        members = run.members()
        code = run.stop(number, group=group)
        said = run.said
    produce(again.source, name, numbered(3_000, partitions=3, start=100_000))
    (head, *_) = again.lane_records(name).values()

    second = mirror_once(again.config)

    assert code == 0, said[-4_000:]
    assert "Traceback" not in said
    assert not [member for member in members if member.is_running()]
    assert head.head is not None
    assert second.exit_code == 0, second.last_words
    assert again.assert_arrives(name) == 63_000
    again.assert_exact_map(name)


def test_records_others_wrote_between_two_runs_leave_the_map_exact(again: Route) -> None:
    name = lasting_topic(again.source, f"{again.flow.source}-foreign")
    produce(again.source, name, numbered(100))
    mirror_once(again.config)
    produce(again.target, again.renamed(name), [NewRec(key=b"intruder", value=b"")] * 5)
    produce(again.source, name, numbered(100, start=1_000))

    second = mirror_once(again.config)

    assert second.exit_code == 0, second.last_words
    (wanted,) = read_all(again.source, name).values()
    (mirrored,) = read_all(again.target, again.renamed(name)).values()
    own = [rec.content for rec in mirrored if rec.key != b"intruder"]
    assert own == [rec.content for rec in wanted]
    assert len(mirrored) == 205
    again.assert_exact_map(name)


def test_clusters_that_refuse_or_do_not_answer_are_named_and_other_flows_go_on(
    pair: dict[str, LocalCluster], clusters: ClusterFactory, topic: TopicNames, tmp_path: Path
) -> None:
    closed = clusters(ClusterSpec(alias="C", sasl="PLAIN", users={"alice": "right"}))["C"]
    wrong = {
        name: value.replace("right", "mistaken")
        for name, value in closed.client_config_of("alice").items()
    }
    alias = topic("fine")
    name = lasting_topic(pair["A"], f"{alias}-records")
    produce(pair["A"], name, numbered(100))
    with contextlib.closing(PortHold()) as nobody:
        config = write_config(
            tmp_path / "mm2.properties",
            {
                alias: pair["A"],
                "to": pair["B"],
                "away": f"127.0.0.1:{nobody.port}",
                "locked": closed.bootstrap,
            },
            {
                f"{alias}->to": {"topics": f"{alias}-.*"},
                "away->to": {"topics": "nothing"},
                "locked->to": {"topics": "nothing"},
            },
        )
        with config.open("a", encoding="utf-8") as more:
            more.writelines(f"locked.{key} = {value}\n" for key, value in wrong.items())
        with running_mirror(config) as run:
            count = route(config, (alias, pair["A"]), ("to", pair["B"])).assert_arrives(name)
            away = run.wait_for_words("ERROR", "away->to", "cluster away")
            locked = run.wait_for_words("ERROR", "locked->to", "cluster locked")
            alive, said = run.exit_code is None, run.said

    assert count == 100
    assert "trying again" in away
    assert "trying again" in locked
    assert alive
    assert "mistaken" not in said
