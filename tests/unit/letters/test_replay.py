"""Replays that are killed anywhere and begun again: each record is behind its target once."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace

import pytest
from kio.schema.errors import ErrorCode

from heliograph.config.transforms import TransformConfig
from heliograph.errors import InvariantError
from heliograph.ledger.store import LedgerStore
from heliograph.letters.append import end_of, records_from
from heliograph.letters.replay import REPLAYED_HEADER, Outcome, Repair, Replay, Replayed, Replayer
from heliograph.model import TopicPartition
from heliograph.transform.lane import LaneTransform
from heliograph.transform.record import Record, Where
from tests.kit.batches import records_of
from tests.kit.fake_cluster import Asked
from tests.kit.fake_log import Refusal
from tests.unit.copy.resume_kit import FLOW, LEDGER, ORDERS, Stage, flow_entry


class Killed(Exception):
    """The command is no more."""


def given(count: int) -> list[Replay]:
    return [
        Replay(source=ORDERS, offset=10 * n, content=(n + 1, b"k", b"%d" % n, (("h", b"x"),)))
        for n in range(count)
    ]


def fixed(record: Record) -> Record | None:
    if record.value == b"1":
        return None
    if record.value == b"2":
        raise ValueError("beyond repair")
    return record._replace(value=b"fixed " + (record.value or b""))


async def replay(
    stage: Stage,
    records: list[Replay],
    *,
    repair: Repair | None = None,
    transforms: tuple[TransformConfig, ...] = (),
    again: bool = False,
    writes: bool = True,
) -> list[Replayed]:
    def transform_of(source: TopicPartition) -> LaneTransform | None:
        return LaneTransform.of(transforms, Where(source.topic, source.topic, source.partition))

    store = LedgerStore(stage.target, LEDGER)
    try:
        replayer = Replayer(
            flow=FLOW,
            target=stage.target,
            ledger=store,
            target_of=lambda source: source,
            transform_of=transform_of,
            repair=repair,
        )
        return await replayer.replay(records, again=again, writes=writes)
    finally:
        stage.target.before = lambda _: None
        await store.close()


def there(stage: Stage) -> list[tuple[bytes | None, bytes | None]]:
    """Value, and what the header says of where it is from."""

    async def read() -> list[tuple[bytes | None, bytes | None]]:
        end = await end_of(stage.target, ORDERS)
        return [
            (content[2], dict(content[3])[REPLAYED_HEADER])
            async for _, content in records_from(stage.target, ORDERS, 0, end)
        ]

    return asyncio.run(read())


def test_records_go_behind_their_partition_with_where_they_are_from_and_only_once() -> None:
    stage = Stage()

    first = asyncio.run(replay(stage, given(3)))
    second = asyncio.run(replay(stage, given(4)))

    assert [each.outcome for each in first] == [Outcome.REPLAYED] * 3
    assert [each.outcome for each in second] == [Outcome.ALREADY] * 3 + [Outcome.REPLAYED]
    assert there(stage) == [(b"%d" % n, b"A/orders/0/%d" % (10 * n)) for n in range(4)]


def test_who_asks_for_it_gets_a_record_again() -> None:
    stage = Stage()
    asyncio.run(replay(stage, given(1)))

    asyncio.run(replay(stage, given(1), again=True))

    assert len(there(stage)) == 2


def test_a_repair_changes_drops_or_fails_each_record_by_itself() -> None:
    stage = Stage()

    done = asyncio.run(replay(stage, given(4), repair=fixed))

    assert [each.outcome for each in done] == [
        Outcome.REPLAYED,
        Outcome.DROPPED,
        Outcome.FAILED,
        Outcome.REPLAYED,
    ]
    assert "beyond repair" in done[2].why
    assert [value for value, _ in there(stage)] == [b"fixed 0", b"fixed 3"]


def test_what_a_flow_hides_a_replay_does_not_show() -> None:
    """Records go through the flow's transforms as any other."""
    stage = Stage()
    drops = TransformConfig.model_validate({"name": "t", "kind": "DropHeaders", "headers": ["h"]})

    asyncio.run(replay(stage, given(1), transforms=(drops,)))

    async def headers() -> list[str]:
        return [
            name
            async for _, content in records_from(stage.target, ORDERS, 0, 1)
            for name, _ in content[3]
        ]

    assert asyncio.run(headers()) == [REPLAYED_HEADER]


def test_a_record_that_the_target_still_refuses_fails_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stage = Stage()
    log = stage.written
    append = log.append

    def strict(batch: bytes) -> int:
        if any(rec.value == b"5" for rec in records_of(batch)):
            raise Refusal(ErrorCode.invalid_timestamp)
        return append(batch)

    monkeypatch.setattr(log, "append", strict)

    done = asyncio.run(replay(stage, given(9)))

    assert [each.outcome for each in done].count(Outcome.REPLAYED) == 8
    assert done[5].outcome is Outcome.FAILED and "INVALID_TIMESTAMP" in done[5].why
    assert [value for value, _ in there(stage)] == [b"%d" % n for n in range(9) if n != 5]


def test_a_dry_run_writes_nothing() -> None:
    stage = Stage()

    done = asyncio.run(replay(stage, given(2), writes=False))

    assert [each.outcome for each in done] == [Outcome.REPLAYED] * 2
    assert there(stage) == []
    assert stage.target.log(TopicPartition(topic=LEDGER, partition=0)).end == 0


@pytest.mark.parametrize("seed", range(12))
def test_a_replay_that_is_killed_anywhere_and_begun_again_repeats_and_loses_nothing(
    seed: int,
) -> None:
    stage, chance = Stage(), random.Random(seed)
    records = [replace(each, offset=at) for at, each in enumerate(given(40))]

    def strike(asked: Asked) -> None:
        if chance.random() < 0.06:
            raise Killed

    kills = 0
    for upto in (10, 25, 40):
        for _ in range(200):
            stage.target.before = strike if kills < 40 else lambda _: None
            try:
                asyncio.run(replay(stage, records[:upto]))
                break
            except (Killed, InvariantError):  # the latter where the ledger's writer was hit
                kills += 1

    assert kills > 0
    assert [said for _, said in there(stage)] == [b"A/orders/0/%d" % at for at in range(40)]


def test_a_replay_is_no_local_write_to_the_flow_the_other_way() -> None:
    """Its producer is listed in the ledger, behind the flow's own, before it writes."""
    stage = Stage()

    async def replayed() -> tuple[list[int], set[int]]:
        store = LedgerStore(stage.target, LEDGER)
        await store.write([flow_entry()])
        await replay(stage, given(2))
        await store.catch_up()
        await store.close()
        return (
            [each.producer_id for each in store.view.producers],
            {header.producer_id for header in stage.written.headers()},
        )

    listed, wrote = asyncio.run(replayed())

    assert listed[0] == flow_entry().producer_id
    assert wrote == set(listed[1:])
