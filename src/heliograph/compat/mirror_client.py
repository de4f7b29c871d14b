"""Ask a cluster what is mirrored to it: hops, upstream clusters, translated offsets. Runs anywhere.

Java has `MirrorClient` and `RemoteClusterUtils` for this; here are the same questions with the
same answers, whether MirrorMaker 2 or Heliograph wrote the topics:

    from heliograph.config.schema import ClusterConfig
    from heliograph.mirror_client import MirrorClient

    backup = ClusterConfig(alias="backup", bootstrap_servers=("backup1:9092",))
    with MirrorClient(backup) as client:
        client.upstream_clusters()  # frozenset({'primary'})
        client.replication_hops("primary")  # 1
        client.remote_consumer_offsets("billing", "primary")  # where `billing` goes on here

With the `mm2.properties` at hand, `MirrorClient.of(load_config(path), "backup")` takes addresses,
credentials and naming policy from there.
"""

from __future__ import annotations

import re
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self

from heliograph.broker.admin import TIMEOUT_S_DEFAULT, ClusterAdmin
from heliograph.broker.group_view import GroupOffset
from heliograph.broker.records import ReadRecord, read_records
from heliograph.compat import upstream as names
from heliograph.compat.upstream import UNREACHABLE
from heliograph.config.schema import ClusterConfig, FlowConfig, MirrorConfig, NamingPolicyConfig
from heliograph.errors import ConfigError, NotAuthorised, WireError
from heliograph.model import ClusterAlias, FlowId, TopicName, TopicPartition
from heliograph.topics.naming import (
    HEARTBEATS,
    DefaultReplicationPolicy,
    IdentityReplicationPolicy,
    NamingPolicy,
    naming_policy,
    source_alias,
)
from heliograph.wire.mirror_records import Checkpoint, decode_checkpoint, decode_heartbeat

__all__ = [
    "UNREACHABLE",
    "GroupOffset",
    "HeartbeatsRead",
    "MirrorClient",
    "NewestHeartbeat",
    "checkpoint_topics",
    "heartbeat_topics",
    "replication_hops",
    "translate_group_offsets",
    "translate_offsets",
    "upstream_clusters",
]

DEFAULT_NAMING: Final = NamingPolicyConfig()
"""`alias.topic`, as MirrorMaker 2 names topics where nobody says otherwise."""
_NO_SOURCE: Final = ClusterAlias("")


@dataclass(frozen=True, slots=True, kw_only=True)
class NewestHeartbeat:
    """The newest heartbeat that one flow left in a topic."""

    flow: FlowId
    """The flow whose mirror wrote it, into the cluster that is its target."""
    emitted_ms: int
    """When it was written there, by the clock of who wrote it."""
    received_ms: int | None
    """When this cluster got it, by its own clock; None where the topic keeps the writers' times."""

    @property
    def latency_ms(self) -> int | None:
        """From where it was written to here, over all hops; None where nobody noted its arrival."""
        return None if self.received_ms is None else max(0, self.received_ms - self.emitted_ms)

    def age_s(self, at_ms: int) -> float:
        # Clocks of two machines: a heartbeat from a moment ago may carry a time to come.
        return max(0.0, (at_ms - self.emitted_ms) / 1000)


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatsRead:
    """What one heartbeats topic holds."""

    newest: Mapping[FlowId, NewestHeartbeat]
    skipped_records: int
    """Records in it that are no heartbeats."""


class MirrorClient:
    """What one cluster knows of the clusters that are mirrored to it.

    Reads only: names of topics, heartbeats, checkpoints. `naming` must be the policy that the
    mirror of this cluster uses. `source` is needed for `IdentityReplicationPolicy` only, whose
    names do not tell where a topic is from: every topic then counts as mirrored from `source`,
    and without it none does.

    Every question asks the cluster again. Raises `BrokerError`, which names the cluster. Safe to
    share between threads; close it, or use it in a `with` block.
    """

    def __init__(
        self,
        cluster: ClusterConfig,
        naming: NamingPolicyConfig = DEFAULT_NAMING,
        *,
        source: ClusterAlias | str | None = None,
        timeout_s: float = TIMEOUT_S_DEFAULT,
    ) -> None:
        self.cluster: Final = cluster
        self.naming: Final = naming
        self._policy = _policy_of(cluster, naming, None if source is None else ClusterAlias(source))
        self._timeout_s = timeout_s
        self._admin: ClusterAdmin | None = ClusterAdmin(cluster, timeout_s=timeout_s)
        self._lock = threading.Lock()
        self._skipped_records = 0

    @classmethod
    def of(
        cls,
        config: MirrorConfig,
        alias: ClusterAlias | str,
        *,
        source: ClusterAlias | str | None = None,
        timeout_s: float = TIMEOUT_S_DEFAULT,
    ) -> Self:
        """The client of one cluster of a configuration, with the policy of the flows into it.

        `source` picks the flow `source->alias`. It may be left out while all flows into the
        cluster name topics alike; otherwise `ConfigError` says so.
        """
        naming, only_source = _naming_into(config, ClusterAlias(alias), source)
        cluster = config.clusters[ClusterAlias(alias)]
        return cls(cluster, naming, source=only_source, timeout_s=timeout_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        raised: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the connections; may be called again, and no question may follow."""
        self._admin = None

    @property
    def replication_policy(self) -> NamingPolicy:
        """How this client reads names: `topic_source`, `upstream_topic`, `is_internal`."""
        return self._policy

    @property
    def skipped_records(self) -> int:
        """Records that were no checkpoints or heartbeats, met in such topics by this client.

        They are left out of every answer; a topic read twice counts twice.
        """
        return self._skipped_records

    def remote_topic_name(self, source: ClusterAlias | str, topic: TopicName | str) -> TopicName:
        """What `topic` of cluster `source` is called here (Java: `formatRemoteTopic`)."""
        policy = _policy_of(self.cluster, self.naming, ClusterAlias(source))
        return policy.target_topic(TopicName(topic))

    def replication_hops(self, upstream: ClusterAlias | str) -> int:
        """Mirrors between `upstream` and this cluster on the shortest way; -1 if there is none.

        With flows A->B and B->C, A is two hops from C. Told from the names of heartbeat topics, so
        a flow that was stopped still counts; the age of its heartbeats tells (`newest_heartbeats`).
        """
        return names.shortest_hops(self._policy, self._topics(), ClusterAlias(upstream))

    def heartbeat_topics(self) -> frozenset[TopicName]:
        """The cluster's own `heartbeats` and every mirrored one, such as `A.heartbeats`."""
        return names.heartbeat_topics(self._policy, self._topics())

    def checkpoint_topics(self) -> frozenset[TopicName]:
        """Topics with translated group offsets, such as `A.checkpoints.internal`."""
        return names.checkpoint_topics(self._policy, self._topics())

    def upstream_clusters(self) -> frozenset[ClusterAlias]:
        """Clusters whose heartbeats arrive here, however many hops away."""
        return names.upstream_clusters(self._policy, self._topics())

    def remote_topics(self, source: ClusterAlias | str | None = None) -> frozenset[TopicName]:
        """Mirrored topics, internal ones apart; with `source`, those mirrored directly from it."""
        wanted = None if source is None else ClusterAlias(source)
        return names.remote_topics(self._policy, self._topics(), wanted)

    def remote_consumer_offsets(
        self, group: str, remote: ClusterAlias | str, timeout_s: float | None = None
    ) -> Mapping[TopicPartition, GroupOffset]:
        """Where a group of cluster `remote` goes on here, as its newest checkpoints say.

        Topics are named as on this cluster, so the answer can be committed as it is. Nothing is
        found where no checkpoints topic is. Unlike Java's, a read that is not finished in time
        raises `BrokerUnreachable`: half the partitions would look like all of them.
        """
        return self._translated(remote, timeout_s, lambda each: each == group).get(group, {})

    def remote_group_offsets(
        self,
        groups: re.Pattern[str] | str,
        remote: ClusterAlias | str,
        timeout_s: float | None = None,
    ) -> Mapping[str, Mapping[TopicPartition, GroupOffset]]:
        """As `remote_consumer_offsets`, for every group whose whole id matches (KIP-1239).

        The checkpoints are read once, however many groups match.
        """
        wanted = re.compile(groups)
        return self._translated(
            remote, timeout_s, lambda group: wanted.fullmatch(group) is not None
        )

    def _translated(
        self, remote: ClusterAlias | str, timeout_s: float | None, wanted: Callable[[str], bool]
    ) -> dict[str, dict[TopicPartition, GroupOffset]]:
        newest: dict[bytes | None, Checkpoint] = {}
        skipped_records = 0
        topic = self._policy.checkpoints_topic(ClusterAlias(remote))
        for record in self._read(topic, timeout_s):
            if record.value is None:
                # Compaction would remove what a tombstone is for, so it counts as removed.
                newest.pop(record.key, None)
                continue
            try:
                found = decode_checkpoint(record.key, record.value)
            except WireError:
                skipped_records += 1
                continue
            if wanted(found.group):
                newest[record.key] = found
        self._count(skipped_records)
        translated: defaultdict[str, dict[TopicPartition, GroupOffset]] = defaultdict(dict)
        for found in newest.values():
            place = TopicPartition(topic=found.topic, partition=found.partition)
            offset = GroupOffset(offset=found.downstream_offset, metadata=found.metadata)
            translated[found.group][place] = offset
        return dict(translated)

    def newest_heartbeats(
        self,
        topic: TopicName | str = HEARTBEATS,
        timeout_s: float | None = None,
        *,
        last_offsets: int | None = None,
    ) -> Mapping[FlowId, NewestHeartbeat]:
        """The newest heartbeat of every flow in one of `heartbeat_topics`, by the flow.

        In the cluster's own `heartbeats` these are the flows into it, written where they are
        received. In `A.heartbeats` they are the flows into A, and their age is what mirroring from
        A took at most. With `last_offsets` only the end of the topic is read: enough for flows that
        are alive, and quick where a week of heartbeats waits for compaction.
        """
        return self.read_heartbeats(topic, timeout_s, last_offsets=last_offsets).newest

    def read_heartbeats(
        self,
        topic: TopicName | str = HEARTBEATS,
        timeout_s: float | None = None,
        *,
        last_offsets: int | None = None,
    ) -> HeartbeatsRead:
        """As `newest_heartbeats`, with how many records of this topic were none."""
        stamped = self._is_stamped_here(TopicName(topic))
        newest: dict[FlowId, NewestHeartbeat] = {}
        skipped_records = 0
        for record in self._read(TopicName(topic), timeout_s, last_offsets):
            try:
                found = decode_heartbeat(record.key, record.value)
            except WireError:
                skipped_records += 1
                continue
            flow = FlowId(source=ClusterAlias(found.source), target=ClusterAlias(found.target))
            # The last one written, as compaction keeps it: a wrong clock must not stand for ever.
            newest[flow] = NewestHeartbeat(
                flow=flow,
                emitted_ms=found.timestamp_ms,
                received_ms=record.timestamp_ms if stamped else None,
            )
        self._count(skipped_records)
        return HeartbeatsRead(newest=newest, skipped_records=skipped_records)

    def _topics(self) -> frozenset[TopicName]:
        return self._open().topic_names()

    def _read(
        self, topic: TopicName, timeout_s: float | None, last_offsets: int | None = None
    ) -> Iterator[ReadRecord]:
        self._open()
        return read_records(
            self.cluster,
            topic,
            partitions=[0],
            last_offsets=last_offsets,
            timeout_s=self._timeout_s if timeout_s is None else timeout_s,
        )

    def _is_stamped_here(self, topic: TopicName) -> bool:
        found = self._open().topic_configs([topic]).get(topic)
        if found is None or isinstance(found, NotAuthorised):
            return False
        kind = found.get("message.timestamp.type")
        return kind is not None and kind.value == "LogAppendTime"

    def _count(self, skipped_records: int) -> None:
        with self._lock:
            self._skipped_records += skipped_records

    def _open(self) -> ClusterAdmin:
        if self._admin is None:
            raise ValueError(f"the client of cluster {self.cluster.alias} is closed")
        return self._admin


def replication_hops(
    cluster: ClusterConfig,
    upstream: ClusterAlias | str,
    naming: NamingPolicyConfig = DEFAULT_NAMING,
) -> int:
    """Mirrors between `upstream` and `cluster`; -1 if there is no way. One question, one client."""
    with MirrorClient(cluster, naming) as client:
        return client.replication_hops(upstream)


def heartbeat_topics(
    cluster: ClusterConfig, naming: NamingPolicyConfig = DEFAULT_NAMING
) -> frozenset[TopicName]:
    """Every heartbeats topic of `cluster`."""
    with MirrorClient(cluster, naming) as client:
        return client.heartbeat_topics()


def checkpoint_topics(
    cluster: ClusterConfig, naming: NamingPolicyConfig = DEFAULT_NAMING
) -> frozenset[TopicName]:
    """Every checkpoints topic of `cluster`."""
    with MirrorClient(cluster, naming) as client:
        return client.checkpoint_topics()


def upstream_clusters(
    cluster: ClusterConfig, naming: NamingPolicyConfig = DEFAULT_NAMING
) -> frozenset[ClusterAlias]:
    """Clusters whose heartbeats arrive at `cluster`."""
    with MirrorClient(cluster, naming) as client:
        return client.upstream_clusters()


def translate_offsets(
    cluster: ClusterConfig,
    remote: ClusterAlias | str,
    group: str,
    timeout_s: float = TIMEOUT_S_DEFAULT,
    naming: NamingPolicyConfig = DEFAULT_NAMING,
) -> Mapping[TopicPartition, GroupOffset]:
    """Where `group` of cluster `remote` goes on at `cluster`."""
    with MirrorClient(cluster, naming) as client:
        return client.remote_consumer_offsets(group, remote, timeout_s)


def translate_group_offsets(
    cluster: ClusterConfig,
    remote: ClusterAlias | str,
    groups: re.Pattern[str] | str,
    timeout_s: float = TIMEOUT_S_DEFAULT,
    naming: NamingPolicyConfig = DEFAULT_NAMING,
) -> Mapping[str, Mapping[TopicPartition, GroupOffset]]:
    """Where every group of cluster `remote` whose whole id matches goes on at `cluster`."""
    with MirrorClient(cluster, naming) as client:
        return client.remote_group_offsets(groups, remote, timeout_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class _IdentityWithoutSource(IdentityReplicationPolicy):
    """Nothing in a name says that it is mirrored, heartbeats apart."""

    def topic_source(self, topic: TopicName) -> ClusterAlias | None:
        if topic.endswith(HEARTBEATS):
            return DefaultReplicationPolicy.topic_source(self, topic)
        return None


def _policy_of(
    cluster: ClusterConfig, naming: NamingPolicyConfig, source: ClusterAlias | None
) -> NamingPolicy:
    flow = FlowId(source=source or _NO_SOURCE, target=cluster.alias)
    policy = naming_policy(FlowConfig(id=flow, policy=naming))
    if source is None and isinstance(policy, IdentityReplicationPolicy):
        return _IdentityWithoutSource(
            source=_NO_SOURCE,
            separator=policy.separator,
            internal_separator_enabled=policy.internal_separator_enabled,
        )
    return policy


def _naming_into(
    config: MirrorConfig, alias: ClusterAlias, source: ClusterAlias | str | None
) -> tuple[NamingPolicyConfig, ClusterAlias | None]:
    """How topics are named on `alias`, and where they are from if only one cluster can be meant."""
    if alias not in config.clusters:
        known = ", ".join(config.clusters)
        raise ConfigError(str(alias), (f"is none of the clusters, which are {known}",))
    pairs = [pair for pair in config.pairs if pair.id.target == alias]
    flows = [pair for pair in pairs if pair.enabled] or pairs
    if source is not None:
        flows = [pair for pair in pairs if pair.id.source == source]
        if not flows:
            raise ConfigError(f"{source}->{alias}", ("is not a flow of this configuration",))
    if not flows:
        return DEFAULT_NAMING, None
    if any(flow.policy != flows[0].policy for flow in flows):
        names = ", ".join(str(flow.id) for flow in flows)
        raise ConfigError(
            str(alias), (f"the flows {names} name topics differently; say which source is meant",)
        )
    only = flows[0] if len(flows) == 1 else None
    return flows[0].policy, None if only is None else source_alias(only)
