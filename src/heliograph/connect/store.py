"""Connectors in Connect's own topic, in Connect's own records. Runs on the driver.

`connector-NAME` has the configuration, `target-state-NAME` what somebody wants of it; other keys
are Connect's business (tasks, session keys) and left alone. So the connectors of a Connect cluster
that was stopped are found, and a Connect that comes back finds them.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Mapping, Sequence
from typing import Final

from aiokafka.record.default_records import DefaultRecordBatch

from heliograph.broker.admin import ClusterAdmin
from heliograph.broker.blocking import blocking
from heliograph.broker.cluster import EARLIEST, LATEST, Cluster, open_cluster
from heliograph.broker.log import read_batches
from heliograph.broker.records import Record, RecordWriter
from heliograph.config.schema import ClusterConfig
from heliograph.connect.model import Connector, TargetState
from heliograph.errors import BrokerError
from heliograph.model import TopicName, TopicPartition

log = logging.getLogger("heliograph")

_CONNECTOR: Final = "connector-"
_TARGET_STATE: Final = "target-state-"


class Kept:
    """What the records of the topic amount to. No I/O."""

    def __init__(self) -> None:
        self._configs: dict[str, Mapping[str, str]] = {}
        self._states: dict[str, TargetState] = {}

    @property
    def connectors(self) -> tuple[Connector, ...]:
        """In the order in which they were made."""
        return tuple(
            Connector(
                name=name,
                config=config,
                target_state=self._states.get(name, TargetState.STARTED),
            )
            for name, config in self._configs.items()
        )

    def apply(self, key: bytes | None, value: bytes | None) -> None:
        """What cannot be read is said and changes nothing, as in Connect."""
        try:
            name = (key or b"").decode()
            if name.startswith(_CONNECTOR):
                self._apply_config(name.removeprefix(_CONNECTOR), value)
            elif name.startswith(_TARGET_STATE):
                self._apply_state(name.removeprefix(_TARGET_STATE), value)
        except (ValueError, TypeError, AttributeError, KeyError, RecursionError):
            log.warning("a record of the connectors' topic cannot be read: key %r", key)

    def _apply_config(self, name: str, value: bytes | None) -> None:
        if value is None:
            self._configs.pop(name, None)
            return
        properties = json.loads(value)["properties"]
        self._configs[name] = {
            str(key): text for key, text in properties.items() if isinstance(text, str)
        }

    def _apply_state(self, name: str, value: bytes | None) -> None:
        if value is None:
            self._states.pop(name, None)
            return
        said = json.loads(value)
        # Workers before 3.5 know no STOPPED, and are told PAUSED in the older field.
        self._states[name] = TargetState(said.get("state.v2") or said["state"])


def records_of(connector: Connector, before: Connector | None) -> list[Record]:
    """What makes `before` into `connector`, in the order Connect writes it."""
    records: list[Record] = []
    wanted = TargetState.STARTED if before is None else before.target_state
    if connector.target_state is not wanted:
        records.append(_state_record(connector))
    if before is None or before.config != connector.config:
        properties = {"properties": dict(connector.config)}
        records.append(_record(_CONNECTOR + connector.name, properties))
    return records


def tombstones_of(connector: Connector) -> list[Record]:
    return [_record(prefix + connector.name, None) for prefix in (_CONNECTOR, _TARGET_STATE)]


def _state_record(connector: Connector) -> Record:
    state = connector.target_state
    older = TargetState.PAUSED if state is TargetState.STOPPED else state
    document = {"state": older.value, "state.v2": state.value}
    return _record(_TARGET_STATE + connector.name, document)


def _record(key: str, document: object) -> Record:
    value = None if document is None else json.dumps(document, separators=(",", ":")).encode()
    return Record(key=key.encode(), value=value)


class ConnectorTopic:
    """The topic on its cluster. Owned by one loop; `open` before anything else."""

    def __init__(
        self, cluster: ClusterConfig, topic: TopicName, *, replication_factor: int
    ) -> None:
        self._config, self._replication_factor = cluster, replication_factor
        self._at = TopicPartition(topic=topic, partition=0)
        self._kept = Kept()
        self._next_offset = 0
        self._cluster: Cluster = open_cluster(cluster, "consumer")
        self._writer: RecordWriter | None = None
        self._reading = asyncio.Lock()
        self.cluster_id: str | None = None

    @property
    def connectors(self) -> tuple[Connector, ...]:
        return self._kept.connectors

    async def open(self) -> None:
        """Make the topic where there is none, and read it whole. Raises `BrokerError`."""
        cluster_id = await blocking(self._ensure)
        self._writer = await blocking(RecordWriter, self._config)
        await self.catch_up()
        self.cluster_id = cluster_id

    def _ensure(self) -> str:
        admin = ClusterAdmin(self._config)
        admin.ensure_compacted_topic(
            self._at.topic,
            partitions=1,
            replication_factor=self._replication_factor,
            factor_key="config.storage.replication.factor",
        )
        admin.await_partitions({self._at.topic: 1})
        return str(admin.describe().cluster_id)

    async def catch_up(self) -> bool:
        """Read to where the topic ends at this moment; whether there was anything new."""
        async with self._reading:
            if self._cluster.leader(self._at) is None:
                await self._cluster.refresh([self._at.topic])
            end = await self._offset(LATEST)
            start = self._next_offset or await self._offset(EARLIEST)
            async for header, batch in read_batches(self._cluster, self._at, start, end):
                if not header.is_control:
                    for record in DefaultRecordBatch(bytes(batch)):
                        self._kept.apply(record.key, record.value)
                self._next_offset = header.next_offset
            return end > start

    async def write(self, records: Sequence[Record]) -> None:
        """Durable, and read back, when it returns. Raises `BrokerError`."""
        if self._writer is None:
            raise BrokerError(f"cluster {self._config.alias}: its connectors were not read yet")
        await blocking(self._writer.write, self._at.topic, records)
        await self.catch_up()

    async def close(self) -> None:
        if self._writer is not None:
            await blocking(self._writer.close)
        self._cluster.close()

    async def _offset(self, time: int) -> int:
        found = (await self._cluster.list_offsets([self._at], time))[self._at]
        if isinstance(found, BrokerError):
            await self._cluster.refresh([self._at.topic])
            raise found
        return found
