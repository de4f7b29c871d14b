"""What the lanes of one flow share: clusters, ledger, producer. Runs on executors."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from heliograph.broker.cluster import Cluster
from heliograph.config.schema import MirrorConfig
from heliograph.errors import ConfigError
from heliograph.ledger.store import LedgerStore
from heliograph.model import ClusterAlias, FlowId, TopicPartition
from heliograph.wire.batch import Stamp

_LONG_READS_AT_ONCE: Final = 8


PARTITION_BYTES: Final = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchLimits:
    """How a flow is carried: how much one answer of its source may bring, how long a broker may
    wait for it, how much its ledger keeps."""

    bytes_max: int | None = None
    """None: found by itself (`pace`)."""
    partition_bytes_max: int | None = None
    bytes_min: int = 1
    wait_ms_max: int = 500
    metadata_ms_max: int = 300_000
    """How old the source's metadata may get before it is asked for again."""
    rack: str = ""
    """Where the reader is: a leader may name a replica that is nearer (KIP-392)."""
    ledger_runs_max: int = 10_000_000
    """Runs of a lane that the ledger keeps."""

    @property
    def partition_bytes(self) -> int:
        """To begin with."""
        return self.partition_bytes_max or PARTITION_BYTES

    @classmethod
    def of(cls, alias: ClusterAlias, consumer: Mapping[str, str]) -> FetchLimits:
        """As a consumer that reads that cluster was told, in Kafka's own names."""
        asked = {field: consumer[key] for key, field in _FETCH_KEYS.items() if key in consumer}
        rack = consumer.get("client.rack", "").strip()
        if asked.get("bytes_min") == "0":
            # Java's "at once, whatever there is": a broker asked so would be asked without pause.
            del asked["bytes_min"]
        problems = tuple(
            f"{alias}.consumer.{key}: is {consumer[key]!r}, not a whole number above 0"
            for key, field in _FETCH_KEYS.items()
            if field in asked and not (asked[field].isdecimal() and int(asked[field]))
        )
        if problems:
            raise ConfigError(f"cluster {alias}", problems)
        return cls(rack=rack, **{field: int(text) for field, text in asked.items()})


_FETCH_KEYS: Final = {
    "fetch.max.bytes": "bytes_max",
    "max.partition.fetch.bytes": "partition_bytes_max",
    "fetch.min.bytes": "bytes_min",
    "fetch.max.wait.ms": "wait_ms_max",
    "metadata.max.age.ms": "metadata_ms_max",
}


def fetch_limits(config: MirrorConfig) -> dict[FlowId, FetchLimits]:
    """Of every flow that mirrors; small and without secrets, so that it may travel to slots."""
    return {
        flow.id: replace(
            FetchLimits.of(flow.id.source, flow.clients.source_consumer),
            ledger_runs_max=flow.ledger_runs_max,
        )
        for flow in config.flows
    }


class Flow:
    def __init__(
        self,
        flow_id: FlowId,
        source: Cluster,
        target: Cluster,
        ledger: LedgerStore,
        limits: FetchLimits,
    ) -> None:
        self.id = flow_id
        self.source = source
        self.target = target
        self.ledger = ledger
        self.limits = limits
        self.long_reads = asyncio.Semaphore(_LONG_READS_AT_ONCE)
        """Of lanes whose target log must be read, or filled, before they go on."""
        self.stamp: Stamp | None = None
        """Known once the ledger was read; the driver writes it there before it hands out lanes."""
        self.behind_since_s: dict[TopicPartition, float] = {}
        """Target partitions whose log ends before the map says, since when."""
        self.on_new_producer: Callable[[], None] = lambda: None
        """Called when the ledger names another producer than the lanes append as."""

    def use(self, stamp: Stamp) -> None:
        """Append as this producer from here on."""
        before, self.stamp = self.stamp, stamp
        if before not in (None, stamp):
            self.on_new_producer()
