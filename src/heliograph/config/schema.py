"""The configuration as everything else reads it: clusters, flows, engine. Runs anywhere; pickles.

A field names the key that fills it (`config.keys`); which line of a file decides, MirrorMaker 2's
precedence, old spellings and notes are the translator's (`config.mm2`), never here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final, Literal, Self

from pydantic import Field, model_validator

from heliograph.config.api import ApiConfig
from heliograph.config.keys import INT_MAX, MM2, Own, Seconds
from heliograph.config.mm2.values import regexes, replicas, start
from heliograph.config.plugins import TOPIC_FILTER_METHODS, class_or_python
from heliograph.config.secrets import Secret
from heliograph.config.sections import (
    CONFIG_PROPERTIES_EXCLUDE,
    DEFAULT_TOPIC_FILTER,
    TOPICS_EXCLUDE,
    CheckpointsConfig,
    ConnectorConfig,
    GroupsConfig,
    HeartbeatsConfig,
    LoadConfig,
    NamingPolicyConfig,
    OffsetSyncsConfig,
    RecoveryConfig,
    Section,
    TopicAclsSync,
    TopicConfigsSync,
    WorkerConfig,
)
from heliograph.config.security import ClientRole, SecurityConfig
from heliograph.errors import InvariantError
from heliograph.model import ClusterAlias, FlowId, Offsets, OnExisting, Start, StartAt

__all__ = [
    "ClientRole",
    "ClusterConfig",
    "EngineConfig",
    "FlowClients",
    "FlowConfig",
    "MirrorConfig",
    "NamingPolicyConfig",
    "Secret",
    "SecurityConfig",
]

MIB: Final = 1024 * 1024
PROGRESS_INTERVAL_MS: Final = 250


class ClusterConfig(Section):
    """One Kafka cluster and how to talk to it."""

    alias: ClusterAlias
    """Its short name, as in topic names and flows."""
    bootstrap_servers: tuple[str, ...] = Field(min_length=1)
    """`host:port` of brokers to begin with."""
    security: SecurityConfig = SecurityConfig()
    """TLS and SASL of every client that has none of its own."""
    role_security: Mapping[ClientRole, SecurityConfig] = Field(default_factory=dict)
    """TLS and SASL of the roles that were given their own."""
    consumer: Mapping[str, str] = Field(default_factory=dict, repr=False)
    """Overrides of consumers, by Java names, security apart."""
    producer: Mapping[str, str] = Field(default_factory=dict, repr=False)
    """Overrides of producers, by Java names, security apart."""
    admin: Mapping[str, str] = Field(default_factory=dict, repr=False)
    """Overrides of admin clients, by Java names, security apart."""
    worker: WorkerConfig = WorkerConfig()
    """What MirrorMaker 2's Connect workers on this cluster were given."""

    def security_of(self, role: ClientRole | None) -> SecurityConfig:
        return self.security if role is None else self.role_security.get(role, self.security)

    def overrides_of(self, role: ClientRole) -> Mapping[str, str]:
        return {"admin": self.admin, "consumer": self.consumer, "producer": self.producer}[role]


class FlowClients(Section):
    """Client overrides a flow adds to those of its clusters, as MirrorMaker 2 resolves them."""

    source_consumer: Mapping[str, str] = Field(default_factory=dict, repr=False)
    """Of the consumer that reads records: the source's and the flow's together."""
    source_admin: Mapping[str, str] = Field(default_factory=dict, repr=False)
    """Of the source's admin client: the source's and the flow's together."""
    target_producer: Mapping[str, str] = Field(default_factory=dict, repr=False)
    """Of the producer that writes records: the target's and `producer.override.` of the flow."""
    target_admin: Mapping[str, str] = Field(default_factory=dict, repr=False)
    """Of the target's admin client: the target's and the flow's together."""
    offset_syncs_producer: Mapping[str, str] = Field(default_factory=dict, repr=False)
    """Of the producer that writes offset syncs: `producer.` of the flow and the cluster's."""


class FlowConfig(Section):
    """One ordered pair of clusters: what is mirrored, under which name, by which rules."""

    id: FlowId
    """Source and target."""
    enabled: Annotated[bool, MM2("enabled")] = False
    """Whether the flow mirrors records."""
    topics: Annotated[tuple[str, ...], MM2("topics", regexes)] = (".*",)
    """Regexes of topics to mirror; one of them must match the whole name."""
    topics_exclude: Annotated[tuple[str, ...], MM2("topics.exclude", regexes)] = TOPICS_EXCLUDE
    """Regexes of topics that are never mirrored; stronger than `topics`."""
    topic_filter_class: Annotated[
        str,
        MM2(
            "topic.filter.class",
            class_or_python(DEFAULT_TOPIC_FILTER, methods=TOPIC_FILTER_METHODS),
        ),
    ] = DEFAULT_TOPIC_FILTER
    """MirrorMaker 2's filter, or a Python class as `module:Class`."""
    policy: NamingPolicyConfig = NamingPolicyConfig()
    """How topics are called on the target."""
    replication_factor: Annotated[int, MM2("replication.factor", replicas)] = 2
    """Replication factor of topics created on the target; -1 is the broker's default."""
    refresh_enabled: Annotated[bool, MM2("refresh.topics.enabled")] = True
    """Whether new topics and partitions are found while running."""
    refresh_interval_s: Annotated[Seconds, MM2("refresh.topics.interval.seconds")] = 600
    """Time between two reads of the source's topics."""
    tasks_max: Annotated[int | None, MM2("tasks.max")] = Field(default=None, ge=1, le=INT_MAX)
    """Most slots that mirror the flow; unset leaves it to the engine (MirrorMaker 2: 1)."""
    start_at: Annotated[Start, Own("start.at", start)] = StartAt.EARLIEST
    """Where a new lane begins: `earliest`, `latest`, `by_duration:PT1H`, `2026-01-31T04:03:00Z`."""
    read_committed: Annotated[bool, Own("read.committed")] = True
    """Whether records of aborted transactions are skipped (MirrorMaker 2: no)."""
    offsets: Annotated[Offsets, Own("offsets")] = Offsets.MAPPED
    """`preserve` gives new target partitions the source's own offsets."""
    ledger_runs_max: Annotated[int, Own("ledger.runs.max")] = Field(
        default=10_000_000, ge=100_000, le=INT_MAX
    )
    """Runs of a lane that the ledger keeps; older offsets translate to one known before them."""
    on_existing: Annotated[OnExisting, Own("on.existing")] = OnExisting.APPEND
    """What a new lane does if its target partition already holds records."""
    on_unadopted: Annotated[Literal["refuse", "append"], Own("on.unadopted")] = "refuse"
    """What a new lane does with a partition that MirrorMaker 2 mirrored, until `adopt`."""
    on_retention_overrun: Annotated[Literal["stall", "skip"], Own("on.retention.overrun")] = "stall"
    """What a lane does when the source deleted records before they were mirrored."""
    on_topic_recreated: Annotated[Literal["stall", "restart"], Own("on.topic.recreated")] = "stall"
    """What a lane does when its source topic was deleted and recreated."""
    on_topic_deleted: Annotated[Literal["keep", "delete"], Own("on.topic.deleted")] = "keep"
    """Whether a target topic is deleted after its source topic was."""
    config_properties_exclude: Annotated[
        tuple[str, ...], MM2("config.properties.exclude", regexes)
    ] = CONFIG_PROPERTIES_EXCLUDE
    """Regexes of topic configs that are not copied to the target."""
    clients: FlowClients = FlowClients()
    """Client overrides as they end up for this flow."""
    topic_configs: TopicConfigsSync = TopicConfigsSync()
    """Topic configurations, after creation."""
    acls: TopicAclsSync = TopicAclsSync()
    """ACLs of topics."""
    groups: GroupsConfig = GroupsConfig()
    """Consumer groups."""
    checkpoints: CheckpointsConfig = CheckpointsConfig()
    """Checkpoints."""
    heartbeats: HeartbeatsConfig = HeartbeatsConfig()
    """Heartbeats."""
    offset_syncs: OffsetSyncsConfig = OffsetSyncsConfig()
    """Offset syncs."""
    recovery: RecoveryConfig = RecoveryConfig()
    """Failover, failback, and audits while running."""
    load: LoadConfig = LoadConfig()
    """Throttles and critical topics."""
    connector: ConnectorConfig = ConnectorConfig()
    """What MirrorMaker 2's connectors are told."""


class EngineConfig(Section):
    """Where and how wide Spark runs."""

    master: Annotated[str | None, Own("master")] = None
    """Spark master; unset leaves it to Spark's own configuration, or else to this machine."""
    slots: Annotated[int | None, Own("slots")] = Field(default=None, ge=1, le=100_000)
    """Long Spark tasks that mirror lanes; unset, it follows from cores and lanes."""
    slot_cpus: Annotated[float, Own("slots.cpus")] = Field(default=0.25, gt=0, lt=1_000)
    """Share of a core that each slot books; leaves room for audits beside the slots."""
    lease_ms_max: Annotated[int, Own("slots.lease.ms.max")] = Field(
        default=30_000, ge=1, le=INT_MAX
    )
    """Time without a message from the driver after which a slot stops by itself."""
    driver_lease_ms: Annotated[int, Own("driver.lease.ms")] = Field(
        default=8_000, ge=1_000, le=600_000
    )
    """Time without a renewal after which a driver stops leading a flow and another takes over."""
    bytes_max: Annotated[int, Own("slots.bytes.max")] = Field(default=256 * MIB, ge=MIB)
    """Most bytes one slot keeps in flight."""
    link_host: Annotated[str | None, Own("link.host")] = None
    """Host or address under which slots reach the driver; unset, it is detected."""
    spark: Mapping[str, str] = Field(default_factory=dict, repr=False)
    """`spark.*` settings, as written, for the session."""

    @model_validator(mode="after")
    def _lease_outlasts_a_pause(self) -> Self:
        if self.lease_ms_max < 3 * PROGRESS_INTERVAL_MS:
            raise ValueError(
                f"lease_ms_max is {self.lease_ms_max}, less than three progress reports"
            )
        return self


class MirrorConfig(Section):
    """Everything a file says."""

    clusters: Mapping[ClusterAlias, ClusterConfig]
    """By alias, in the order of the file."""
    pairs: tuple[FlowConfig, ...]
    """Every ordered pair of clusters: one that is not enabled may still have heartbeats."""
    chosen: frozenset[FlowId] | None = None
    """The pairs this process looks after, where it was told to leave some to others."""
    engine: EngineConfig = EngineConfig()
    """Spark and the slots."""
    api: ApiConfig = ApiConfig()
    """The REST server of `heliograph run`."""
    secret_variables: frozenset[str] = frozenset()
    """Variables of the environment that hold secrets of the file; no child need see them."""
    notes: tuple[str, ...] = ()
    """Sentences about keys that were understood and do nothing, each with its line."""

    @property
    def flows(self) -> tuple[FlowConfig, ...]:
        """The pairs that mirror records, of those this process looks after."""
        return tuple(pair for pair in self.chosen_pairs if pair.enabled)

    @property
    def every_flow(self) -> tuple[FlowConfig, ...]:
        """The pairs that mirror records, those of other processes included."""
        return tuple(pair for pair in self.pairs if pair.enabled)

    @property
    def chosen_pairs(self) -> tuple[FlowConfig, ...]:
        """The pairs this process looks after."""
        chosen = self.chosen
        return tuple(pair for pair in self.pairs if chosen is None or pair.id in chosen)

    def flow(self, wanted: FlowId) -> FlowConfig:
        for pair in self.pairs:
            if pair.id == wanted:
                return pair
        raise InvariantError(f"{wanted} is not a flow of this configuration")

    def source_of(self, wanted: FlowId) -> ClusterConfig:
        """The source cluster with the client overrides this flow ends up with."""
        clients = self.flow(wanted).clients
        return self.clusters[wanted.source].model_copy(
            update={"consumer": clients.source_consumer, "admin": clients.source_admin}
        )

    def target_of(self, wanted: FlowId) -> ClusterConfig:
        """The target cluster with the client overrides this flow ends up with."""
        clients = self.flow(wanted).clients
        return self.clusters[wanted.target].model_copy(
            update={"producer": clients.target_producer, "admin": clients.target_admin}
        )

    def offset_syncs_of(self, wanted: FlowId) -> ClusterConfig:
        """The cluster that holds a flow's offset syncs, with the overrides of who writes them."""
        flow = self.flow(wanted)
        on_source = flow.offset_syncs.location == "source"
        held = self.source_of(wanted) if on_source else self.target_of(wanted)
        return held.model_copy(update={"producer": flow.clients.offset_syncs_producer})
