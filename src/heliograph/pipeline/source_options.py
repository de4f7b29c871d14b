"""What a reader was told: topics, where to begin, how much at a time. Runs on the driver.

Options are named as those of Spark's own Kafka source where that has them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from heliograph.config.schema import ClusterConfig
from heliograph.errors import ConfigError
from heliograph.model import TopicName, TopicPartition
from heliograph.pipeline.options import cluster_of, count_of, named

_KNOWN: Final = (
    "config",
    "cluster",
    "subscribe",
    "subscribePattern",
    "assign",
    "startingOffsets",
    "startingTimestamp",
    "startingGroup",
    "endingOffsets",
    "endingTimestamp",
    "maxRecordsPerTrigger",
    "maxBytesPerTrigger",
    "maxRecordsPerPartition",
    "isolation.level",
    "failOnDataLoss",
    "includeHeaders",
    "columns",
)
COLUMNS: Final = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "timestampType": "int",
    "leaderEpoch": "int",
    "headers": "array<struct<key:string,value:binary>>",
}
"""What a record becomes, with Spark's types."""
EARLIEST_WORD: Final = "earliest"
LATEST_WORD: Final = "latest"
_RECORDS_PER_PARTITION: Final = 2_000_000
_BY_WORD: Final = {EARLIEST_WORD: -2, LATEST_WORD: -1}


@dataclass(frozen=True, slots=True, kw_only=True)
class AtWord:
    """`earliest` or `latest`."""

    word: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AtTime:
    at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AtGroup:
    """Where a consumer group stands; partitions it has not committed begin at the earliest."""

    group: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AtOffsets:
    offsets: Mapping[TopicPartition, int]
    """-2 is the earliest, -1 the latest, as in Spark's own source."""


Where = AtWord | AtTime | AtGroup | AtOffsets


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    cluster: ClusterConfig = field(repr=False)
    topics: frozenset[TopicName] = frozenset()
    pattern: str | None = None
    partitions: frozenset[TopicPartition] = frozenset()
    """Only these, of the topics; all where empty."""
    start: Where
    end: Where
    read_committed: bool
    fails_on_loss: bool
    with_headers: bool
    records_max: int | None
    """Of a trigger; so with `bytes_max`."""
    bytes_max: int | None
    records_per_partition: int

    def wants(self, topic: TopicName) -> bool:
        if self.pattern is not None:
            return re.fullmatch(self.pattern, topic) is not None
        return topic in self.topics

    def takes(self, at: TopicPartition) -> bool:
        return not self.partitions or at in self.partitions


def source_options(
    given: Mapping[str, str],
    *,
    is_stream: bool,
    clusters: Mapping[str, ClusterConfig] | None = None,
) -> SourceOptions:
    """`clusters` need no file. Raises `ConfigError` with all that is wrong."""
    return _Parser(given, is_stream=is_stream, clusters=clusters or {}).parsed()


def columns_of(given: Mapping[str, str]) -> list[str]:
    """Those that are read, in their order. Raises `ConfigError`."""
    found = named(given, _KNOWN, [])
    wanted = {each.strip() for each in found.get("columns", ",".join(COLUMNS)).split(",")}
    if unknown := sorted(wanted - COLUMNS.keys()):
        raise ConfigError('format("heliograph")', (f"columns: there is no {unknown[0]}",))
    if found.get("includeHeaders", "true").lower() == "false":
        wanted.discard("headers")
    return [name for name in COLUMNS if name in wanted]


class _Parser:
    def __init__(
        self,
        given: Mapping[str, str],
        *,
        is_stream: bool,
        clusters: Mapping[str, ClusterConfig],
    ) -> None:
        self._is_stream, self._clusters = is_stream, clusters
        self._problems: list[str] = []
        self._given = named(given, _KNOWN, self._problems)

    def parsed(self) -> SourceOptions:
        cluster = cluster_of(self._given, self._problems, self._clusters)
        topics, pattern, partitions = self._selection()
        start, end = self._start(), self._end()
        found = {
            "read_committed": self._isolation(),
            "fails_on_loss": self._flag("failOnDataLoss", True),
            "with_headers": self._flag("includeHeaders", True),
        }
        records_max = count_of(self._given, "maxRecordsPerTrigger", self._problems)
        bytes_max = count_of(self._given, "maxBytesPerTrigger", self._problems)
        per_partition = (
            count_of(self._given, "maxRecordsPerPartition", self._problems)
            or _RECORDS_PER_PARTITION
        )
        if self._problems or cluster is None or start is None or end is None:
            raise ConfigError('format("heliograph")', tuple(self._problems))
        return SourceOptions(
            cluster=cluster,
            topics=topics,
            pattern=pattern,
            partitions=partitions,
            start=start,
            end=end,
            records_max=records_max,
            bytes_max=bytes_max,
            records_per_partition=per_partition,
            **found,
        )

    def _selection(
        self,
    ) -> tuple[frozenset[TopicName], str | None, frozenset[TopicPartition]]:
        ways = [name for name in ("subscribe", "subscribePattern", "assign") if name in self._given]
        if len(ways) != 1:
            self._problems.append("one of subscribe, subscribePattern and assign is needed")
            return frozenset(), None, frozenset()
        text = self._given[ways[0]]
        if ways[0] == "subscribe":
            names = {TopicName(name.strip()) for name in text.split(",") if name.strip()}
            return frozenset(names), None, frozenset()
        if ways[0] == "subscribePattern":
            try:
                re.compile(text)
            except re.error as exc:
                self._problems.append(f"subscribePattern: {exc}")
            return frozenset(), text, frozenset()
        found = frozenset(self._partitions_of("assign", text))
        return frozenset(at.topic for at in found), None, found

    def _partitions_of(self, name: str, text: str) -> list[TopicPartition]:
        try:
            return [
                TopicPartition(topic=TopicName(topic), partition=int(partition))
                for topic, partitions in json.loads(text).items()
                for partition in partitions
            ]
        except (ValueError, AttributeError, TypeError):
            self._problems.append(f'{name} is not {{"topic": [0, 1]}}')
            return []

    def _start(self) -> Where | None:
        ways = [
            name
            for name in ("startingOffsets", "startingTimestamp", "startingGroup")
            if name in self._given
        ]
        if len(ways) > 1:
            self._problems.append(f"{' and '.join(ways)} are two places to start from")
            return None
        if not ways:
            return AtWord(word=LATEST_WORD if self._is_stream else EARLIEST_WORD)
        if ways[0] == "startingGroup":
            return AtGroup(group=self._given["startingGroup"])
        return self._where(ways[0])

    def _end(self) -> Where | None:
        ways = [name for name in ("endingOffsets", "endingTimestamp") if name in self._given]
        if not ways:
            return AtWord(word=LATEST_WORD)
        if self._is_stream:
            self._problems.append(f"{ways[0]} is for batches, a stream does not end")
            return None
        return self._where(ways[0])

    def _where(self, name: str) -> Where | None:
        text = self._given[name].strip()
        if name.endswith("Timestamp"):
            if not text.isdigit():
                self._problems.append(f"{name} is {text}, not milliseconds since 1970")
                return None
            return AtTime(at_ms=int(text))
        if text in _BY_WORD:
            return AtWord(word=text)
        try:
            return AtOffsets(
                offsets={
                    TopicPartition(topic=TopicName(topic), partition=int(partition)): int(offset)
                    for topic, offsets in json.loads(text).items()
                    for partition, offset in offsets.items()
                }
            )
        except (ValueError, AttributeError, TypeError):
            self._problems.append(f'{name} is not earliest, latest or {{"topic": {{"0": 23}}}}')
            return None

    def _isolation(self) -> bool:
        text = self._given.get("isolation.level", "read_committed")
        if text not in ("read_committed", "read_uncommitted"):
            self._problems.append(f"isolation.level is {text}")
        return text == "read_committed"

    def _flag(self, name: str, default: bool) -> bool:
        text = self._given.get(name, str(default)).lower()
        if text not in ("true", "false"):
            self._problems.append(f"{name} is {text}, not true or false")
        return text == "true"
