"""`offsets = preserve`: a consumer goes on at the other cluster with nothing but its own offset."""

from __future__ import annotations

import asyncio
from pathlib import Path

from confluent_kafka import Consumer, TopicPartition

from heliograph.inspect.status import StatusReader
from heliograph.ledger.locations import all_topics
from heliograph_tools.localkafka.cluster import LocalCluster
from tests.kit.clusters import TopicNames
from tests.kit.failback import PRESERVE, Stage, open_stage
from tests.kit.groups import commit
from tests.kit.mirror import lasting_topic
from tests.kit.records import NewRec, Transaction, numbered, produce, produce_transactions
from tests.kit.topics import delete_records_before, wait_until


def test_an_ordinary_consumer_that_knows_only_its_source_offset_reads_exactly_the_next_records(
    pair: dict[str, LocalCluster], topic: TopicNames, tmp_path: Path
) -> None:
    name = lasting_topic(pair["A"], topic("same"), partitions=2)
    stage = open_stage(pair, name, tmp_path, name, PRESERVE)
    written = numbered(600, partitions=2)
    produce(pair["A"], name, written)
    # As retention leaves it: neither log begins at 0.
    delete_records_before(pair["A"], name, {0: 40, 1: 90})
    stage.mirror(stage.there, lanes=2)
    read, left_at = _consume(pair["A"], name, {0: 40, 1: 90}, count=150)

    rest, _ = _consume(pair["B"], name, left_at, count=600 - 130 - 150)

    kept = {r.value for r in written[2 * 40 :: 2]} | {r.value for r in written[2 * 90 + 1 :: 2]}
    assert len(read) == 150
    assert len(rest) == 320
    assert set(read) | set(rest) == kept
    assert not set(read) & set(rest)


def test_a_group_that_commits_the_same_number_on_the_other_side_goes_on_there(
    pair: dict[str, LocalCluster], topic: TopicNames, tmp_path: Path
) -> None:
    name = lasting_topic(pair["A"], topic("group"))
    stage = open_stage(pair, name, tmp_path, name, PRESERVE)
    produce(pair["A"], name, numbered(100))
    delete_records_before(pair["A"], name, {0: 10})
    stage.mirror(stage.there, lanes=1)
    commit(pair["B"], f"g-{name}", name, {0: 64})

    consumer = Consumer(
        {
            **pair["B"].librdkafka_config,
            "group.id": f"g-{name}",
            "auto.offset.reset": "error",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([name])
    found = _polled(consumer, 36)
    consumer.close()

    assert found == [record.value for record in numbered(36, start=64)]


def test_the_status_says_which_lanes_are_identical_and_why_the_others_are_not(
    pair: dict[str, LocalCluster], topic: TopicNames, tmp_path: Path
) -> None:
    base = topic("why")
    same, gaps, others = (f"{base}-{what}" for what in ("same", "gaps", "others"))
    stage = open_stage(pair, base, tmp_path, f"{base}-.*", PRESERVE)
    for name in (same, gaps, others):
        lasting_topic(pair["A"], name)
    produce(pair["A"], same, numbered(20))
    for start in (0, 10):
        records = numbered(10, start=start)
        produce_transactions(
            pair["A"], gaps, [Transaction(records=records)], transactional_id=f"{gaps}-{start}"
        )
    lasting_topic(pair["B"], others)
    produce(pair["B"], others, [NewRec(key=b"other")] * 3)
    produce(pair["A"], others, numbered(20))
    stage.mirror(stage.there, lanes=3)

    found = _mapped_because(stage)

    assert found == {
        same: "",
        gaps: "gap: no records before source 11",
        others: "start: source 0 went to target 3",
    }


def _mapped_because(stage: Stage) -> dict[str, str]:
    async def look() -> dict[str, str]:
        reader = StatusReader(stage.config, all_topics())
        try:
            seen = await reader.read()
        finally:
            await reader.close()
        (flow,) = (each for each in seen.flows if each.flow == stage.there)
        return {lane.lane.source.topic: lane.mapped_because for lane in flow.lanes}

    return asyncio.run(look())


def _consume(
    cluster: LocalCluster, topic: str, offsets: dict[int, int], *, count: int
) -> tuple[list[bytes | None], dict[int, int]]:
    """So many records from there on, and where that leaves the consumer."""
    consumer = Consumer(
        {
            **cluster.librdkafka_config,
            "group.id": "same-offsets",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
        }
    )
    consumer.assign([TopicPartition(topic, number, at) for number, at in offsets.items()])
    found = _polled(consumer, count)
    locations = consumer.position([TopicPartition(topic, number) for number in offsets])
    after = {place.partition: place.offset for place in locations}
    consumer.close()
    return found, {number: max(at, after[number]) for number, at in offsets.items()}


def _polled(consumer: Consumer, count: int) -> list[bytes | None]:
    """Exactly so many records; any error, such as an offset that is not there, fails."""
    found: list[bytes | None] = []

    def enough() -> bool:
        message = consumer.poll(0.2)
        if message is not None:
            assert message.error() is None, message.error()
            found.append(message.value())
        return len(found) >= count

    wait_until(enough, f"{count} records", poll_s=0)
    return found
