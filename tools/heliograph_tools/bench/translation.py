"""How many records a group reads again after failover, by each system's checkpoints. Runs on the
driver.

A topic is written while the mirror runs, groups are committed on the source at known lags, and the
checkpoints on the target are read as a consumer that fails over would. Source and target offsets
are equal here (nothing else writes, nothing is compacted), so the exact place is the group's own.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from heliograph.broker.records import read_records
from heliograph.config.schema import ClusterConfig
from heliograph.errors import BenchError, WireError
from heliograph.model import ClusterAlias, TopicName
from heliograph.wire.mirror_records import Checkpoint, decode_checkpoint
from heliograph_tools.bench.filling import fill_topic
from heliograph_tools.bench.mirror import MirrorProcess, running
from heliograph_tools.bench.raw import RawConnection
from heliograph_tools.bench.rows import CopyRow, System, TranslationRow
from heliograph_tools.bench.stage import Stage
from heliograph_tools.bench.systems import Route, keys_for_groups, prepare
from heliograph_tools.bench.watch import wait_until


@dataclass(frozen=True, slots=True, kw_only=True)
class TranslationRun:
    system: System
    round_index: int
    read_again: Mapping[int, tuple[int, ...]]
    """By the group's lag: records read again after failover, of each partition."""
    without_place: Mapping[int, int]
    """By the group's lag: partitions that have no checkpoint, where it starts anew."""


def run_translation(
    stage: Stage,
    row: TranslationRow,
    system: System,
    round_index: int,
    heliograph_keys: Mapping[str, str],
) -> TranslationRun:
    alias = f"{system.value.replace('_', '')}{round_index}{row.name}"
    topic = f"groups-{alias}"
    stage.create_source_topic(topic, row.partitions)
    route = stage.route(alias, topic)
    folder = stage.folder / "runs" / alias
    keys = keys_for_groups(alias)
    launch = prepare(system, route, folder, heliograph_keys, keys)
    try:
        with running(launch, folder / "mirror.log") as mirror:
            return _measure(stage, row, mirror, route, round_index)
    finally:
        stage.drop_topics(alias)


def _measure(
    stage: Stage, row: TranslationRow, mirror: MirrorProcess, route: Route, round_index: int
) -> TranslationRun:
    for part in range(row.parts):
        # In parts, each mirrored before the next, so that a mirror which samples gets its samples.
        fill_topic(stage.source_address, route.topic, _part(row))
        _await_mirrored(stage, row, mirror, route, (part + 1) * row.records // row.parts)
    end = row.records // row.partitions
    groups = {lag: f"{route.source_alias}-{lag}" for lag in row.lags if lag <= end}
    for lag, group in groups.items():
        at = dict.fromkeys(range(row.partitions), end - lag)
        commit_group(stage, group, route.topic, at, mirror)
    # What MirrorMaker 2 holds back is written within its flush interval: it gets that time too.
    time.sleep(row.settle_s)
    mirror.ensure_alive()
    found = _checkpoints(stage, route)
    if not found:
        raise BenchError(f"{route.source_alias}: no checkpoint in {row.settle_s:.0f} s")
    read_again: dict[int, tuple[int, ...]] = {}
    without: dict[int, int] = {}
    for lag, group in groups.items():
        locations = [
            found.get((group, route.target_topic, number)) for number in range(row.partitions)
        ]
        read_again[lag] = tuple(end - lag - at for at in locations if at is not None)
        without[lag] = sum(at is None for at in locations)
    return TranslationRun(
        system=mirror.launch.system,
        round_index=round_index,
        read_again=read_again,
        without_place=without,
    )


def _part(row: TranslationRow) -> CopyRow:
    return CopyRow(
        name=row.name,
        records=row.records // row.parts,
        record_bytes=row.record_bytes,
        batch_bytes=row.batch_bytes,
        partitions=row.partitions,
        systems=row.systems,
        goals=(),
    )


def _await_mirrored(
    stage: Stage, row: TranslationRow, mirror: MirrorProcess, route: Route, count: int
) -> None:
    with RawConnection(stage.target_address) as connection:
        wait_until(
            lambda: (
                connection.serves(route.target_topic, row.partitions)
                and sum(connection.end_offsets(route.target_topic, row.partitions)) >= count
            ),
            mirror.ensure_alive,
            f"{count} records in {route.target_topic}",
        )


def commit_group(
    stage: Stage, group: str, topic: str, offsets: Mapping[int, int], mirror: MirrorProcess
) -> None:
    """Put a group without members somewhere on the source."""
    admin = AdminClient({"bootstrap.servers": stage.source.bootstrap, "log_level": 4})
    wanted = [TopicPartition(topic, number, offset) for number, offset in offsets.items()]

    def committed() -> bool:
        """A coordinator that is just being made refuses partition by partition."""
        (answer,) = admin.alter_consumer_group_offsets(
            [ConsumerGroupTopicPartitions(group, wanted)]
        ).values()
        try:
            return all(place.error is None for place in answer.result(30).topic_partitions)
        except KafkaException as exc:
            raise BenchError(f"group {group}: {exc}") from exc

    wait_until(committed, mirror.ensure_alive, f"offsets of group {group}")


def _checkpoints(stage: Stage, route: Route) -> dict[tuple[str, str, int], int]:
    """The newest of each group and partition, as MirrorClient finds them."""
    target = ClusterConfig(
        alias=ClusterAlias(route.target_alias), bootstrap_servers=(stage.target.bootstrap,)
    )
    topic = TopicName(f"{route.source_alias}.checkpoints.internal")
    found: dict[tuple[str, str, int], int] = {}
    for record in read_records(target, topic):
        one = _decoded(record.key, record.value)
        if one is not None:
            found[one.group, one.topic, one.partition] = one.downstream_offset
    return found


def _decoded(key: bytes | None, value: bytes | None) -> Checkpoint | None:
    try:
        return decode_checkpoint(key or b"", value or b"")
    except WireError:
        return None
