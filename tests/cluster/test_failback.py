"""Coming back to a cluster that was left, after everything that may have happened meanwhile."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from heliograph.broker.admin import ClusterAdmin
from heliograph.cli.app import app
from heliograph.errors import NotAuthorised, RecoveryRefused
from heliograph.failback.divergence import Choice, Resolution
from heliograph.failback.lane import ClusterPair, Settled, settled_lane
from heliograph.ledger.access import open_ledger
from heliograph.ledger.locations import LaneLocation
from heliograph.ledger.translate import Exact
from heliograph.model import TopicName
from heliograph_tools.localkafka.cluster import LocalCluster
from tests.kit.clusters import TopicNames
from tests.kit.failback import (
    PRESERVE,
    Stage,
    contents,
    only,
    open_stage,
    with_offsets,
)
from tests.kit.groups import commit, committed
from tests.kit.maps import exact_offset
from tests.kit.mirror import lasting_topic
from tests.kit.records import (
    NewRec,
    Rec,
    Transaction,
    end_offsets,
    numbered,
    produce,
    produce_transactions,
    read_all,
)
from tests.kit.topics import ROLL_KEY, delete_topic, force_compaction

STEPS = ("check", "find", "export", "clear", "begin", "groups", "open")


def test_a_topic_that_has_not_parted_goes_on_with_the_same_offsets_and_its_groups_go_back(
    pair: dict[str, LocalCluster], topic: TopicNames, tmp_path: Path
) -> None:
    name = lasting_topic(pair["A"], topic("whole"), partitions=2)
    stage = open_stage(pair, name, tmp_path, name, PRESERVE)
    produce(pair["A"], name, numbered(400, partitions=2))
    stage.mirror(stage.there, lanes=2)
    stage.fence(stage.there)
    produce(pair["B"], name, numbered(100, partitions=2, start=400))
    commit(pair["B"], f"early-{name}", name, {0: 120, 1: 7})
    commit(pair["B"], f"late-{name}", name, {0: 230, 1: 250})
    commit(pair["A"], f"early-{name}", name, {0: 150, 1: 3})

    report = stage.fail_back()
    stage.mirror(stage.back, lanes=2)

    assert report.resolutions == {TopicName(name): Resolution.CONTINUE}
    old, present = read_all(pair["A"], name), read_all(pair["B"], name)
    assert [len(records) for records in present.values()] == [250, 250]
    for number, records in present.items():
        assert with_offsets(old[number]) == with_offsets(records)
    # Forward only: partition 0 had been read further on the old primary.
    assert committed(pair["A"], f"early-{name}", name) == {0: 150, 1: 7}
    # Behind the parting nothing was there yet when groups were moved.
    assert committed(pair["A"], f"late-{name}", name) == {0: 200, 1: 200}
    for location in stage.locations(stage.back).values():
        assert location.position == 250
        assert location.record.runs.identical(location.position)
        for offset in (0, 7, 199, 200, 230, 250):
            assert location.offset_map.to_target(offset) == Exact(offset=offset)
    assert stage.fail_back().was_over


def test_a_thousand_unmirrored_records_are_saved_and_the_difference_is_appended_by_the_map(
    pair: dict[str, LocalCluster], topic: TopicNames, tmp_path: Path
) -> None:
    name = lasting_topic(pair["A"], topic("mapped"))
    stage = open_stage(pair, name, tmp_path, name)
    made = [Transaction(records=numbered(10, start=10 * n), commit=n != 3) for n in range(12)]
    produce_transactions(pair["A"], name, made[:6], transactional_id=name)
    stage.mirror(stage.there, lanes=1)
    produce(pair["B"], name, [NewRec(key=b"foreign")] * 3)
    produce_transactions(pair["A"], name, made[6:], transactional_id=name)
    stage.mirror(stage.there, lanes=1)
    divergence = end_offsets(pair["A"], name)[0]
    mirrored = only(pair["B"], name)
    lost = Transaction(records=numbered(20, start=5_000), commit=False)
    produce_transactions(pair["A"], name, [lost], transactional_id=name)
    produce(pair["A"], name, numbered(1_000, start=2_000))
    stage.fence(stage.there)
    produce(pair["B"], name, numbered(50, start=9_000))
    commit(pair["B"], f"inside-{name}", name, {0: 63})

    with pytest.raises(RecoveryRefused, match=r"1,000 records there were never mirrored"):
        stage.fail_back()
    report = stage.fail_back(Choice.RESYNC)
    before = only(pair["A"], name)
    stage.mirror(stage.back, lanes=1)

    assert report.resolutions == {TopicName(name): Resolution.APPEND}
    saved = only(pair["B"], f"saved-{stage.there.source}")
    assert [(r.key, r.value, r.timestamp_ms) for r in saved] == [
        (r.key, r.value, r.timestamp_ms) for r in before if r.offset >= divergence
    ]
    origins = [dict(record.headers)["heliograph.origin.offset"] for record in saved]
    assert [int(origin or b"") for origin in origins] == [
        r.offset for r in before if r.offset >= divergence
    ]
    (file,) = (tmp_path / "saved").rglob("*.parquet")
    rows = pq.read_table(file).to_pylist()
    assert [(row["offset"], row["key"], row["timestamp_ms"]) for row in rows] == [
        (r.offset, r.key, r.timestamp_ms) for r in before if r.offset >= divergence
    ]
    present, after = only(pair["B"], name), only(pair["A"], name)
    assert contents(present[: len(mirrored)]) == contents(mirrored)
    assert contents(after) == contents(before) + contents(present[len(mirrored) :])
    ours = [record for record in present if record.key != b"foreign"]
    _assert_translates(stage, name, after, ours)
    inside = committed(pair["A"], f"inside-{name}", name)[0]
    assert contents([r for r in after if r.offset >= inside])[:50] == contents(ours[60:110])
    (found,) = report.divergences[0].partitions
    assert found.note == (
        f"3 offsets on {stage.there.target} before the divergence were written by "
        "other producers and are not copied back"
    )


def test_a_lane_whose_producer_the_broker_has_forgotten_is_found_in_its_log(
    pair: dict[str, LocalCluster], topic: TopicNames, tmp_path: Path
) -> None:
    name = lasting_topic(pair["A"], topic("forgotten"))
    stage = open_stage(pair, name, tmp_path, name)
    produce(pair["A"], name, numbered(40))
    stage.mirror(stage.there, lanes=1)
    produce(pair["B"], name, [NewRec(key=b"foreign")] * 3)
    produce(pair["A"], name, numbered(40, start=40))
    stage.mirror(stage.there, lanes=1)
    produce(pair["B"], name, numbered(20, start=500))
    (location,) = stage.locations(stage.there).values()
    start = location.record.starts[0]
    # As a day later: nothing but the lane's start is left to go by.
    forgotten = replace(
        location,
        exact=False,
        position=start.position,
        last_sequence=-1,
        record=replace(location.record, head=None),
    )

    found = asyncio.run(_settled(stage, forgotten, (0, 103)))

    assert (found.position, found.source_next_offset, found.target_next_offset) == (80, 80, 83)
    assert found.runs.target_offset_at(39) == 39
    assert found.runs.target_offset_at(40) == 43


async def _settled(stage: Stage, location: LaneLocation, bounds: tuple[int, int]) -> Settled:
    config = stage.config
    async with open_ledger(config, stage.there) as ledger:
        await ledger.store.catch_up()
        await ledger.target.refresh([location.target.topic])
        pair = ClusterPair(
            config=config, flow=config.flow(stage.there), source=ledger.target, ledger=ledger
        )
        return await settled_lane(pair, location, bounds)


def test_same_offsets_are_kept_by_deleting_the_topic_and_copying_from_the_parting(
    pair: dict[str, LocalCluster], topic: TopicNames, tmp_path: Path
) -> None:
    name = lasting_topic(pair["A"], topic("parted"), partitions=2, config={"segment.ms": "654321"})
    stage = open_stage(pair, name, tmp_path, name, PRESERVE)
    produce(pair["A"], name, numbered(300, partitions=2))
    stage.mirror(stage.there, lanes=2)
    produce(pair["A"], name, numbered(1_000, start=2_000))
    stage.fence(stage.there)
    produce(pair["B"], name, numbered(60, partitions=2, start=9_000))
    commit(pair["B"], f"g-{name}", name, {0: 150, 1: 40})

    with pytest.raises(RecoveryRefused, match=r"say --yes"):
        stage.fail_back(Choice.RESYNC)
    told = CliRunner().invoke(
        app(), ["failback", str(stage.file), "--flow", str(stage.there), "--resync", "--dry-run"]
    )
    report = stage.fail_back(Choice.RESYNC, may_delete=True)
    stage.mirror(stage.back, lanes=2)

    assert f"deleted on {stage.there.source}: {name}, 1,300 offsets in 2 partitions" in told.output
    assert "1,000 of them saved first" in told.output
    assert report.resolutions == {TopicName(name): Resolution.RECREATE}
    assert len(only(pair["B"], f"saved-{stage.there.source}")) == 1_000
    old, present = read_all(pair["A"], name), read_all(pair["B"], name)
    for number, records in present.items():
        assert with_offsets(old[number]) == with_offsets(r for r in records if r.offset >= 150)
    assert all(
        location.record.runs.identical(location.position)
        for location in stage.locations(stage.back).values()
    )
    # Before the parting the old primary has nothing any more.
    assert committed(pair["A"], f"g-{name}", name) == {0: 150, 1: 150}
    admin = ClusterAdmin(stage.config.clusters[stage.there.source])
    kept = admin.topic_configs([TopicName(name)])[TopicName(name)]
    assert not isinstance(kept, NotAuthorised)
    assert (kept["segment.ms"].value, kept["retention.ms"].value) == ("654321", "-1")


def test_other_records_where_mirrored_ones_were_part_the_histories_there_and_not_at_the_end(
    pair: dict[str, LocalCluster], topic: TopicNames, tmp_path: Path
) -> None:
    """As after a log that was cut off and written again, which the ledger cannot know of."""
    base = topic("content")
    other, shorter = f"{base}-other", f"{base}-shorter"
    stage = open_stage(pair, base, tmp_path, f"{base}-.*")
    for name in (other, shorter):
        lasting_topic(pair["A"], name)
        produce(pair["A"], name, numbered(1_500))
    stage.mirror(stage.there, lanes=2)
    stage.fence(stage.there)
    stage.forget_topic_ids(stage.there)
    for name, kept in ((other, 60), (shorter, 1_400)):
        delete_topic(pair["A"], name)
        lasting_topic(pair["A"], name)
        produce(pair["A"], name, numbered(kept))
    produce(pair["A"], other, numbered(1_440, start=5_000))
    produce(pair["B"], other, numbered(10, start=1_500))

    report = stage.fail_back(Choice.RESYNC)
    stage.mirror(stage.back, lanes=2)

    assert report.resolutions == {
        TopicName(other): Resolution.APPEND,
        TopicName(shorter): Resolution.CONTINUE,
    }
    parted, cut = (each.partitions[0] for each in report.divergences)
    assert (parted.position, parted.source_offset, parted.target_offset) == (60, 60, 60)
    assert (parted.unmirrored_records, cut.unmirrored_records) == (1_440, 0)
    assert (cut.position, cut.note[-40:]) == (1_400, " has lost 100 offsets that were mirrored")
    old, present = only(pair["A"], other), only(pair["B"], other)
    assert contents(old[1_500:]) == contents(present[60:])
    assert with_offsets(only(pair["A"], shorter)) == with_offsets(only(pair["B"], shorter))


def test_topics_created_again_or_only_on_one_side_are_each_treated_as_what_they_are(
    pair: dict[str, LocalCluster], topic: TopicNames, tmp_path: Path
) -> None:
    base = topic("sides")
    again, only_old, only_new = (f"{base}-{what}" for what in ("again", "old", "new"))
    stage = open_stage(pair, base, tmp_path, f"{base}-.*", PRESERVE)
    lasting_topic(pair["A"], again)
    produce(pair["A"], again, numbered(80))
    stage.mirror(stage.there, lanes=1)
    stage.fence(stage.there)
    delete_topic(pair["A"], again)
    lasting_topic(pair["A"], again)
    produce(pair["A"], again, numbered(30, start=500))
    lasting_topic(pair["A"], only_old)
    produce(pair["A"], only_old, numbered(20, start=700))
    lasting_topic(pair["B"], only_new)
    produce(pair["B"], only_new, numbered(10, start=900))
    produce(pair["B"], again, numbered(5, start=80))

    report = stage.fail_back(Choice.RESYNC)
    stage.mirror(stage.back, lanes=2)

    assert report.resolutions == {
        TopicName(again): Resolution.APPEND,
        TopicName(only_new): Resolution.NEW,
        TopicName(only_old): Resolution.LEAVE,
    }
    saved = only(pair["B"], f"saved-{stage.there.source}")
    assert [record.key for record in saved] == [
        record.key for record in numbered(30, start=500) + numbered(20, start=700)
    ]
    old = only(pair["A"], again)
    assert [record.key for record in old[:30]] == [r.key for r in numbered(30, start=500)]
    assert contents(old[30:]) == contents(only(pair["B"], again))
    assert len(old) == 30 + 85
    assert contents(only(pair["A"], only_new)) == contents(only(pair["B"], only_new))
    assert len(only(pair["A"], only_old)) == 20


def test_a_compacted_topic_has_not_parted_where_only_one_side_was_cleaned(
    pair: dict[str, LocalCluster], topic: TopicNames, tmp_path: Path
) -> None:
    name = lasting_topic(pair["A"], topic("compact"), config={"cleanup.policy": "compact"})
    stage = open_stage(pair, name, tmp_path, name, PRESERVE)
    produce(pair["A"], name, numbered(90, keys=30))
    stage.mirror(stage.there, lanes=1)
    stage.fence(stage.there)
    force_compaction(pair["A"], name)
    produce(pair["B"], name, numbered(10, start=90, keys=30))

    report = stage.fail_back(Choice.RESYNC, may_delete=True)
    stage.mirror(stage.back, lanes=1)

    (found,) = report.divergences[0].partitions
    # The record that made the broker clean is the one that was never mirrored.
    assert (found.position, found.unmirrored_records, found.note) == (90, 1, "")
    # Its beginning cannot be deleted, so it cannot be made to begin elsewhere.
    assert report.resolutions == {TopicName(name): Resolution.APPEND}
    latest = {record.key: record.value for record in only(pair["A"], name)}
    assert latest == {record.key: record.value for record in only(pair["B"], name)} | {
        ROLL_KEY: b""
    }


def test_wiping_copies_everything_the_present_primary_has(
    pair: dict[str, LocalCluster], topic: TopicNames, tmp_path: Path
) -> None:
    name = lasting_topic(pair["A"], topic("wiped"))
    stage = open_stage(pair, name, tmp_path, name, PRESERVE)
    produce(pair["A"], name, numbered(80))
    stage.mirror(stage.there, lanes=1)
    stage.fence(stage.there)
    delete_topic(pair["A"], name)
    lasting_topic(pair["A"], name)
    produce(pair["A"], name, numbered(30, start=500))
    produce(pair["B"], name, numbered(20, start=80))

    command = ["failback", str(stage.file), "--flow", str(stage.there), "--wipe", "--yes", "--json"]
    folder, saved = tmp_path / "saved", f"saved-{name}"
    locations = ["--export-dir", str(folder), "--export-topic", saved]
    done = CliRunner().invoke(app(), [*command, *locations])
    again = CliRunner().invoke(app(), [*command, *locations])
    stage.mirror(stage.back, lanes=1)

    report = json.loads(done.stdout)
    assert [step["step"] for step in report["steps"]] == list(STEPS)
    assert report["steps"][2]["facts"]["records"] == len(only(pair["B"], saved)) == 30
    assert report["topics"][0]["treatment"] == "wipe"
    assert f"heliograph failover FILE --flow '{stage.back}' --planned" in report["next"]
    assert (done.exit_code, again.exit_code) == (0, 0)
    assert json.loads(again.stdout)["state"] == "finished before"
    assert with_offsets(only(pair["A"], name)) == with_offsets(only(pair["B"], name))
    assert len(only(pair["A"], name)) == 100


def test_two_clusters_change_places_twice_and_every_record_is_there_once(
    pair: dict[str, LocalCluster], topic: TopicNames, tmp_path: Path
) -> None:
    name = lasting_topic(pair["A"], topic("round"))
    stage = open_stage(pair, name, tmp_path, name, PRESERVE)
    produce(pair["A"], name, numbered(100))
    commit(pair["A"], f"g-{name}", name, {0: 30})
    stage.mirror(stage.there, lanes=1)

    stage.fail_over(stage.there, "unplanned")
    produce(pair["B"], name, numbered(50, start=100))
    commit(pair["B"], f"g-{name}", name, {0: 140})
    stage.fail_back()
    stage.mirror(stage.back, lanes=1)
    stage.fail_over(stage.back, "planned")
    home = committed(pair["A"], f"g-{name}", name)
    produce(pair["A"], name, numbered(25, start=150))
    second = stage.fail_back(flow=stage.back)
    produce(pair["A"], name, numbered(25, start=175))
    stage.mirror(stage.there, lanes=1)
    stage.fail_over(stage.there, "unplanned")

    assert home == {0: 140}
    assert second.resolutions == {TopicName(name): Resolution.CONTINUE}
    assert [r.key for r in only(pair["B"], name)] == [r.key for r in numbered(200)]
    assert with_offsets(only(pair["A"], name)) == with_offsets(only(pair["B"], name))
    (location,) = stage.locations(stage.there).values()
    assert (location.position, location.record.runs.identical(200)) == (200, True)
    # The second failover of the same flow is a new one, and not the first that is over.
    assert not stage.fail_back().was_over


def test_a_flow_that_renames_goes_on_and_its_groups_go_back_by_its_own_map(
    pair: dict[str, LocalCluster], topic: TopicNames, tmp_path: Path
) -> None:
    name = lasting_topic(pair["A"], topic("renamed"))
    stage = open_stage(pair, name, tmp_path, name, {})
    renamed = f"{stage.there.source}.{name}"
    produce(pair["A"], name, numbered(100))
    stage.mirror(stage.there, lanes=1)
    stage.fence(stage.there)
    produce(pair["A"], name, numbered(40, start=100))
    commit(pair["B"], f"g-{name}", renamed, {0: 70})
    commit(pair["A"], f"g-{name}", name, {0: 20})

    report = stage.fail_back()
    stage.mirror(stage.there, lanes=1)

    assert report.is_renaming
    assert [step.name for step in report.procedure.done] == ["check", "groups", "open"]
    assert committed(pair["A"], f"g-{name}", name) == {0: 70}
    assert contents(only(pair["B"], renamed)) == contents(only(pair["A"], name))
    assert not stage.is_fenced(forward=True)


def _assert_translates(stage: Stage, name: str, old: list[Rec], present: list[Rec]) -> None:
    """Every record of the present primary, and where it is on the old one; and back."""
    location = stage.locations(stage.back)[name, 0]
    there = {record.offset: record.content for record in old}
    for record in present:
        found = exact_offset(location.offset_map.to_target(record.offset))
        assert there[found] == record.content
        assert location.offset_map.to_source(found) == Exact(offset=record.offset)
    assert location.offset_map.to_target(present[-1].offset + 1) == Exact(offset=old[-1].offset + 1)
