"""Taking over and handing back, against a MirrorMaker 2 whose every step the test decides."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from heliograph.broker.admin import ClusterAdmin
from heliograph.broker.records import Record, RecordWriter, read_records
from heliograph.cli.adopt import adopt
from heliograph.cli.ledger import ledger
from heliograph.cli.release import release
from heliograph.config.load import load_config
from heliograph.inspect.status import StatusReader
from heliograph.ledger.entries import ledger_topic
from heliograph.ledger.service import LedgerService
from heliograph.model import ClusterAlias, FlowId, TopicName
from heliograph.takeover.connect_offsets import (
    SOURCE_CONNECTOR,
    StoredOffsetKey,
    encode_position,
    encode_position_key,
    partition_of,
)
from heliograph.takeover.pending import PendingAdoption
from heliograph.topics.lanes import plan_lanes
from heliograph.topics.selection import select_topics
from heliograph.wire.mirror_records import OffsetSync, decode_offset_sync, encode_offset_sync
from heliograph_tools.localkafka.cluster import LocalCluster
from tests.kit.auditing import audited
from tests.kit.clusters import TopicNames
from tests.kit.maps import offset_of
from tests.kit.mm2 import carry_once, mm2_properties
from tests.kit.records import (
    NewRec,
    Rec,
    Transaction,
    numbered,
    open_transaction,
    produce,
    produce_transactions,
    read_all,
)
from tests.kit.topics import create_topic, set_topic_config

RUNNER = CliRunner()


@dataclass(slots=True, kw_only=True)
class Stage:
    """One topic of one partition, and what a MirrorMaker 2 would do to it."""

    source: LocalCluster
    target: LocalCluster
    flow: FlowId
    topic: str
    config: Path
    read_committed: bool = False

    @property
    def target_topic(self) -> str:
        return f"{self.flow.source}.{self.topic}"

    def originals(self) -> list[Rec]:
        return read_all(self.source, self.topic, read_committed=self.read_committed)[0]

    def copies(self) -> list[Rec]:
        return read_all(self.target, self.target_topic)[0]

    def copy(self, records: Sequence[Rec]) -> None:
        """What MirrorMaker 2 does with what it reads."""
        made = [
            NewRec(key=r.key, value=r.value, headers=r.headers, timestamp_ms=r.timestamp_ms)
            for r in records
        ]
        produce(self.target, self.target_topic, made, batch_records_max=7)

    def store(self, last_offset: int) -> None:
        """Connect's flush of a position."""
        key = encode_position_key(self._key())
        record = Record(
            key=key, value=encode_position(last_offset), partition=partition_of(key, 25)
        )
        self._write(TopicName(f"mm2-offsets.{self.flow.source}.internal"), record, partitions=25)

    def sync(self, source_offset: int, target_offset: int) -> None:
        key, value = encode_offset_sync(
            OffsetSync(
                topic=TopicName(self.topic),
                partition=0,
                upstream_offset=source_offset,
                downstream_offset=target_offset,
            )
        )
        topic = TopicName(f"mm2-offset-syncs.{self.flow.target}.internal")
        self._write(topic, Record(key=key, value=value), on_source=True)

    def stored(self) -> int | None:
        """What MirrorMaker 2 would find, by the bytes it looks for."""
        topic = TopicName(f"mm2-offsets.{self.flow.source}.internal")
        target = load_config(self.config).target_of(self.flow)
        wanted, found = encode_position_key(self._key()), None
        for record in read_records(target, topic):
            if record.key == wanted:
                assert record.partition == partition_of(wanted, 25)
                found = None if record.value is None else json.loads(record.value)["offset"]
        return found

    def run(self, *arguments: str, code: int = 0) -> dict[str, Any]:
        """`adopt`, `release` or `ledger` with --json."""
        app = typer.Typer()
        app.command("adopt")(adopt)
        app.command("release")(release)
        app.command("ledger")(ledger)
        result = RUNNER.invoke(app, [arguments[0], str(self.config), "--json", *arguments[1:]])
        assert result.exit_code == code, result.output
        document: dict[str, Any] = json.loads(result.stdout)
        return document

    def lane(self, *arguments: str, code: int = 0) -> dict[str, Any]:
        (flow,) = self.run(*arguments, code=code)["flows"]
        assert flow["problem"] is None, flow["problem"]
        (lane,) = flow["lanes"]
        found: dict[str, Any] = lane
        return found

    def carry(self) -> None:
        carry_once(self.config, self.flow)

    def _key(self) -> StoredOffsetKey:
        return StoredOffsetKey(
            connector=SOURCE_CONNECTOR,
            cluster=self.flow.source,
            topic=TopicName(self.topic),
            partition=0,
        )

    def _write(
        self, topic: TopicName, record: Record, *, partitions: int = 1, on_source: bool = False
    ) -> None:
        cluster = self.source if on_source else self.target
        config = load_config(self.config)
        settings = config.source_of(self.flow) if on_source else config.target_of(self.flow)
        if not list(read_records(settings, topic)):
            create_topic(
                cluster, topic, partitions=partitions, config={"cleanup.policy": "compact"}
            )
        writer = RecordWriter(settings)
        writer.write(topic, [record])
        writer.close()


@pytest.fixture
def stage(pair: dict[str, LocalCluster], topic: TopicNames, tmp_path: Path) -> Stage:
    # An alias of its own for each test: ledger and offsets topics are named after it.
    name = topic("orders")
    number = name.rpartition("-")[2]
    flow = FlowId(source=ClusterAlias(f"up{number}"), target=ClusterAlias(f"down{number}"))
    config = mm2_properties(
        tmp_path / "mm2.properties", (flow.source, pair["A"]), (flow.target, pair["B"]), name
    )
    made = Stage(source=pair["A"], target=pair["B"], flow=flow, topic=name, config=config)
    create_topic(pair["A"], name, config={"retention.ms": "-1"})
    create_topic(pair["B"], made.target_topic, config={"retention.ms": "-1"})
    return made


def contents(records: Sequence[Rec]) -> list[object]:
    return [record.content for record in records]


def waits_for_adoption(stage: Stage) -> bool:
    """Whether `run` would leave the lane alone."""
    config = load_config(stage.config)
    flow, cluster = config.flow(stage.flow), config.target_of(stage.flow)
    admin = ClusterAdmin(cluster)
    admin.ensure_compacted_topic(
        ledger_topic(stage.flow.source), partitions=1, replication_factor=1
    )
    source, target = ClusterAdmin(config.source_of(stage.flow)).describe(), admin.describe()
    lanes = plan_lanes(flow, select_topics(flow, source.topics), source, target)
    with closing(LedgerService(config.clusters)) as ledgers:
        return bool(PendingAdoption(flow, cluster).waiting(lanes, target, ledgers))


def test_a_copy_that_was_killed_goes_on_at_exactly_the_next_record(stage: Stage) -> None:
    produce(stage.source, stage.topic, numbered(300))
    originals = stage.originals()
    stage.copy(originals[:120])
    stage.sync(0, 0)
    stage.sync(100, 100)
    stage.sync(119, 119)
    stage.store(109)
    stage.copy(originals[110:200])  # the second life repeats [110, 120)
    stage.sync(110, 120)
    stage.sync(150, 160)
    stage.store(150)

    dry = stage.lane("adopt", "--dry-run")
    assert waits_for_adoption(stage)
    lane = stage.lane("adopt", "--yes")
    stage.carry()

    assert dry == lane
    assert lane["verdict"] == "adopt"
    assert lane["compared_from"] == {"source": 100, "target": 100}
    assert (lane["stored_next_offset"], lane["source_next_offset"]) == (151, 200)
    assert lane["repeats"] == [{"source": [110, 120], "target": [120, 130], "records": 10}]
    assert (lane["foreign_records"], lane["doubts"]) == (0, [])
    wanted = contents(originals[:120]) + contents(originals[110:])
    assert contents(stage.copies()) == wanted
    assert not waits_for_adoption(stage)
    report = audited(stage.config, stage.flow)
    assert report.records == 200
    (note,) = report.notes  # `equal` is not said of what MirrorMaker 2 copied
    assert note.startswith("not compared: 100 records of the target, in front of 1 lane")


def test_an_offset_from_before_an_adoption_is_not_translated(stage: Stage) -> None:
    produce(stage.source, stage.topic, numbered(100))
    stage.copy(stage.originals()[:60])
    stage.sync(0, 0)
    stage.sync(40, 40)
    stage.store(59)
    stage.run("adopt", "--yes")
    stage.carry()
    asked = ("ledger", "--topic", stage.topic, "--partition", "0", "--translate")

    before, since = stage.run(*asked, "39", code=1), stage.run(*asked, "40")
    back = stage.run(*asked, "39", "--back", code=1)

    assert (before["to"]["offset"], before["exact"], before["clamped"]) == (None, False, None)
    assert "source offset 39 is from before the lane was adopted" in before["unsafe"]
    assert "target offset 39 is from before the lane was adopted" in back["unsafe"]
    assert (since["to"]["offset"], since["exact"], since["unsafe"]) == (40, True, None)


def test_a_second_adoption_says_so_and_changes_nothing(stage: Stage) -> None:
    produce(stage.source, stage.topic, numbered(50))
    stage.copy(stage.originals()[:20])
    stage.store(19)
    stage.run("adopt", "--yes")

    again = stage.run("adopt", "--yes")

    assert again["written_lanes"] == 0
    assert again["flows"][0]["lanes"][0]["verdict"] == "held"


def test_nothing_is_written_without_a_yes(stage: Stage) -> None:
    produce(stage.source, stage.topic, numbered(50))
    stage.copy(stage.originals()[:20])
    stage.store(19)
    app = typer.Typer()
    app.command("adopt")(adopt)

    result = RUNNER.invoke(app, [str(stage.config)], input="n\n")

    assert result.exit_code == 0
    assert "nothing was changed" in result.output
    assert waits_for_adoption(stage)


def test_records_of_others_cost_no_record_and_aborted_ones_are_known_as_copies(
    stage: Stage,
) -> None:
    transactions = [
        Transaction(records=numbered(10, start=10 * n), commit=n % 3 != 1) for n in range(9)
    ]
    produce_transactions(stage.source, stage.topic, transactions, transactional_id=stage.topic)
    originals = stage.originals()
    stage.copy(originals[:35])
    stage.store(originals[29].offset)
    produce(stage.target, stage.target_topic, [NewRec(key=b"somebody", value=b"else")])
    stage.copy(originals[35:55])

    lane = stage.lane("adopt", "--from", "earliest", "--yes")
    stage.carry()

    assert lane["source_next_offset"] == originals[54].offset + 1
    assert lane["foreign"] == [[35, 36]]
    assert (lane["foreign_records"], lane["missing_records"]) == (1, 0)
    committed = read_all(stage.source, stage.topic, read_committed=True)[0]
    rest = [record for record in committed if record.offset > originals[54].offset]
    assert contents(stage.copies()[56:]) == contents(rest)


def test_every_position_since_the_start_of_the_comparison_translates_exactly(
    stage: Stage,
) -> None:
    produce(stage.source, stage.topic, numbered(100))
    originals = stage.originals()
    stage.copy(originals[:40])
    stage.store(29)
    stage.copy(originals[30:60])

    stage.run("adopt", "--from", "earliest", "--yes")
    stage.carry()

    locations = _places(stage)
    copies = stage.copies()
    for offset in (0, 10, 29, 30, 35, 40, 59, 60, 99):
        answer = offset_of(locations[0].offset_map.to_target(offset))
        after = [r for r in copies if r.offset >= answer]
        # Who has not come to the records copied twice cannot but meet them twice.
        again = originals[offset:40] + originals[30:] if offset < 30 else originals[offset:]
        assert contents(after) == contents(again), offset


def test_a_target_with_append_times_is_compared_without_them(stage: Stage) -> None:
    set_topic_config(stage.target, stage.target_topic, {"message.timestamp.type": "LogAppendTime"})
    produce(stage.source, stage.topic, numbered(50))
    stage.copy(stage.originals()[:20])
    stage.store(9)

    lane = stage.lane("adopt", "--dry-run")

    assert (lane["verdict"], lane["source_next_offset"]) == ("adopt", 20)
    assert "without timestamps" in lane["notes"][0]


def test_an_offset_sync_that_is_wrong_is_not_where_the_comparison_begins(stage: Stage) -> None:
    produce(stage.source, stage.topic, numbered(50))
    stage.copy(stage.originals()[:20])
    stage.sync(8, 3)
    stage.store(9)

    lane = stage.lane("adopt", "--dry-run")

    assert lane["compared_from"] == {"source": 0, "target": 0}
    assert (lane["source_next_offset"], lane["repeated_records"]) == (20, 0)


def test_an_open_transaction_on_the_target_is_waited_for(stage: Stage) -> None:
    produce(stage.source, stage.topic, numbered(50))
    stage.copy(stage.originals()[:20])
    stage.store(9)

    with open_transaction(
        stage.target, stage.target_topic, numbered(1), transactional_id=stage.topic
    ):
        lane = stage.lane("adopt", "--dry-run", code=1)

    assert "still open" in lane["problem"]


def test_garbage_in_mirrormaker_2s_topics_is_counted_and_not_trusted(stage: Stage) -> None:
    produce(stage.source, stage.topic, numbered(50))
    stage.copy(stage.originals()[:20])
    stage.sync(0, 0)
    stage.store(19)
    garbage = [NewRec(key=b"x", value=b"y")]
    produce(stage.target, f"mm2-offsets.{stage.flow.source}.internal", garbage)
    produce(stage.source, f"mm2-offset-syncs.{stage.flow.target}.internal", garbage)

    (flow,) = stage.run("adopt", "--dry-run")["flows"]

    assert flow["lanes"][0]["source_next_offset"] == 20
    assert any(note.startswith("2 records in MirrorMaker 2's topics") for note in flow["notes"])


def test_a_lane_nothing_was_copied_of_begins_anew(stage: Stage) -> None:
    produce(stage.source, stage.topic, numbered(10))

    lane = stage.lane("adopt", "--yes")

    assert lane["verdict"] == "new"


def test_a_target_that_is_no_copy_is_refused(stage: Stage) -> None:
    produce(stage.source, stage.topic, numbered(50))
    produce(stage.target, stage.target_topic, numbered(20, start=1_000))
    stage.store(19)

    lane = stage.lane("adopt", "--yes", code=1)

    assert lane["verdict"] == "refused"
    assert "none of the 20 compared records" in lane["problem"]


def test_a_position_beyond_the_source_is_refused(stage: Stage) -> None:
    produce(stage.source, stage.topic, numbered(50))
    stage.copy(stage.originals())
    stage.store(80)

    lane = stage.lane("adopt", "--yes", code=1)

    assert lane["verdict"] == "refused"
    assert "the source ends at 50" in lane["problem"]


def test_a_lane_handed_back_is_where_mirrormaker_2_looks_and_can_be_adopted_again(
    stage: Stage,
) -> None:
    produce(stage.source, stage.topic, numbered(100))
    originals = stage.originals()
    stage.copy(originals[:30])
    stage.store(29)
    stage.run("adopt", "--yes")
    stage.carry()

    dry = stage.lane("release", "--dry-run")
    before = stage.stored()
    lane = stage.lane("release", "--yes")
    produce(stage.source, stage.topic, numbered(60, start=100))
    originals = stage.originals()
    stage.copy(originals[100:120])  # MirrorMaker 2 goes on, is killed, and goes on again
    stage.copy(originals[110:140])
    stage.store(109)
    again = stage.lane("release", "--yes")
    adopted = stage.lane("adopt", "--yes")
    stage.carry()

    assert (dry["verdict"], before) == ("release", 29)
    assert lane["source_next_offset"] == 100
    assert lane["offset_sync"] == [99, 99]
    assert _last_sync(stage) == (99, 99)
    assert again["verdict"] == "done"
    assert (adopted["source_next_offset"], adopted["repeated_records"]) == (140, 10)
    wanted = contents(originals[:120]) + contents(originals[110:])
    assert contents(stage.copies()) == wanted
    place = _places(stage)[0]
    for offset in (0, 30, 99, 105, 115, 139, 150):
        answer = offset_of(place.offset_map.to_target(offset))
        after = [r for r in stage.copies() if r.offset >= answer]
        assert {r.content for r in originals[offset:]} <= {r.content for r in after}, offset


def test_a_release_writes_a_position_under_the_key_it_reads(stage: Stage) -> None:
    produce(stage.source, stage.topic, numbered(40))
    stage.copy(stage.originals()[:10])
    stage.store(9)
    stage.run("adopt", "--yes")
    stage.carry()

    stage.run("release", "--yes")

    assert stage.stored() == 39


def _places(stage: Stage) -> Sequence[Any]:
    async def read() -> Sequence[Any]:
        config = load_config(stage.config)
        reader = StatusReader(config)
        try:
            return await reader.locations(config.flow(stage.flow))
        finally:
            await reader.close()

    return asyncio.run(read())


def _last_sync(stage: Stage) -> tuple[int, int]:
    config = load_config(stage.config)
    topic = TopicName(f"mm2-offset-syncs.{stage.flow.target}.internal")
    records = list(read_records(config.source_of(stage.flow), topic))
    sync = decode_offset_sync(records[-1].key, records[-1].value)
    return sync.upstream_offset, sync.downstream_offset
