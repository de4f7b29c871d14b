"""The configuration as everything else reads it: clusters, flows, engine. Runs anywhere; pickles.

A field names the key that fills it (`config.keys`); which line of a file decides, MirrorMaker 2's
precedence, old spellings and notes are the translator's (`config.mm2`), never here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final, Literal, Self

from pydantic import Field, model_validator

from heliograph.config.api import ApiConfig
from heliograph.config.health import AlarmsConfig, CanaryConfig, CutoverConfig
from heliograph.config.keys import INT_MAX, MM2, Effect, Own, Seconds
from heliograph.config.mm2.values import (
    group_template,
    number_or_auto,
    part_of_a_name,
    regexes,
    replicas,
    start,
)
from heliograph.config.pipelines import PipelineConfig
from heliograph.config.plugins import TOPIC_FILTER_METHODS, class_or_python
from heliograph.config.registry import QuotasSync, RegistryConfig, SchemasConfig
from heliograph.config.secrets import Secret
from heliograph.config.sections import (
    CONFIG_PROPERTIES_EXCLUDE,
    DEFAULT_TOPIC_FILTER,
    TOPICS_EXCLUDE,
    CheckpointsConfig,
    ClusterLoadConfig,
    ClusterProvenance,
    ConnectorConfig,
    GroupsConfig,
    HeartbeatsConfig,
    LoadConfig,
    NamingPolicyConfig,
    OffsetSyncsConfig,
    ProvenanceConfig,
    RecoveryConfig,
    Section,
    TopicAclsSync,
    TopicConfigsSync,
    WorkerConfig,
)
from heliograph.config.security import ClientRole, SecurityConfig
from heliograph.config.transforms import DEAD_LETTER, Fate, TransformConfig
from heliograph.errors import InvariantError
from heliograph.model import (
    ClusterAlias,
    FlowId,
    LoopPrevention,
    Offsets,
    OnExisting,
    Start,
    StartAt,
    TopicName,
)

__all__ = [
    "ClientRole",
    "ClusterConfig",
    "EngineConfig",
    "FlowClients",
    "FlowConfig",
    "MirrorConfig",
    "NamingPolicyConfig",
    "PipelineConfig",
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
    load: ClusterLoadConfig = ClusterLoadConfig()
    """Throttles of all flows together."""
    worker: WorkerConfig = WorkerConfig()
    """What MirrorMaker 2's Connect workers on this cluster were given."""
    registry: RegistryConfig = RegistryConfig()
    """The schema registry beside it."""
    provenance: ClusterProvenance = ClusterProvenance()
    """What mirrors call it."""

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


class FlowLimits(Section):
    """What a flow's clusters may be asked for by all their flows together."""

    source_bytes_per_s: int | None = None
    """`throttle.read.bytes.per.second` of the source."""
    target_bytes_per_s: int | None = None
    """`throttle.write.bytes.per.second` of the target."""


class FlowConfig(Section):
    """One ordered pair of clusters: what is mirrored, under which name, by which rules."""

    id: FlowId
    """Source and target."""
    enabled: Annotated[bool, MM2("enabled", effect=Effect.BEGINS_OR_ENDS)] = False
    """Whether the flow mirrors records."""
    topics: Annotated[tuple[str, ...], MM2("topics", regexes, effect=Effect.REPLANS)] = (".*",)
    """Regexes of topics to mirror; one of them must match the whole name."""
    topics_exclude: Annotated[
        tuple[str, ...], MM2("topics.exclude", regexes, effect=Effect.REPLANS)
    ] = TOPICS_EXCLUDE
    """Regexes of topics that are never mirrored; stronger than `topics`."""
    topic_filter_class: Annotated[
        str,
        MM2(
            "topic.filter.class",
            class_or_python(DEFAULT_TOPIC_FILTER, methods=TOPIC_FILTER_METHODS),
            effect=Effect.REPLANS,
        ),
    ] = DEFAULT_TOPIC_FILTER
    """MirrorMaker 2's filter, or a Python class as `module:Class`."""
    policy: NamingPolicyConfig = NamingPolicyConfig()
    """How topics are called on the target."""
    replication_factor: Annotated[
        int, MM2("replication.factor", replicas, effect=Effect.REPLANS)
    ] = 2
    """Replication factor of topics created on the target; -1 is the broker's default."""
    refresh_enabled: Annotated[bool, MM2("refresh.topics.enabled")] = True
    """Whether new topics and partitions are found while running."""
    refresh_interval_s: Annotated[Seconds, MM2("refresh.topics.interval.seconds")] = 600
    """Time between two reads of the source's topics."""
    tasks_max: Annotated[int | None, MM2("tasks.max")] = Field(default=None, ge=1, le=INT_MAX)
    """Most slots that mirror the flow; unset leaves it to the engine (MirrorMaker 2: 1)."""
    start_at: Annotated[Start, Own("start.at", start, effect=Effect.REPLANS)] = StartAt.EARLIEST
    """Where a new lane begins: `earliest`, `latest`, `by_duration:PT1H`, `2026-01-31T04:03:00Z`."""
    start_group: Annotated[
        str | None, Own("start.group", group_template, effect=Effect.REPLANS)
    ] = None
    """Group on the source at whose commits new lanes begin; `start.at` where it has none."""
    read_committed: Annotated[bool, Own("read.committed", effect=Effect.REPLANS)] = True
    """Whether records of aborted transactions are skipped (MirrorMaker 2: no)."""
    offsets: Annotated[Offsets, Own("offsets", effect=Effect.REPLANS)] = Offsets.MAPPED
    """`preserve` gives new target partitions the source's own offsets."""
    ledger_runs_max: Annotated[int, Own("ledger.runs.max")] = Field(
        default=10_000_000, ge=100_000, le=INT_MAX
    )
    """Runs of a lane that the ledger keeps; older offsets translate to one known before them."""
    loop_prevention: Annotated[LoopPrevention | None, Own("loop.prevention")] = None
    """What is left out of the source: `returning` from the target, `mirrored` by any mirror."""
    provenance: ProvenanceConfig = ProvenanceConfig()
    """Headers of mirrors."""
    on_existing: Annotated[OnExisting, Own("on.existing", effect=Effect.REPLANS)] = (
        OnExisting.APPEND
    )
    """What a new lane does if its target partition already holds records."""
    on_unadopted: Annotated[
        Literal["refuse", "append"], Own("on.unadopted", effect=Effect.REPLANS)
    ] = "refuse"
    """What a new lane does with a partition that MirrorMaker 2 mirrored, until `adopt`."""
    on_retention_overrun: Annotated[Literal["stall", "skip"], Own("on.retention.overrun")] = "stall"
    """What a lane does when the source deleted records before they were mirrored."""
    on_topic_recreated: Annotated[Literal["stall", "restart"], Own("on.topic.recreated")] = "stall"
    """What a lane does when its source topic was deleted and recreated."""
    transform_aliases: Annotated[tuple[str, ...], MM2("transforms", effect=Effect.REPLANS)] = ()
    """Aliases of the transforms that records go through, in order."""
    predicate_aliases: Annotated[tuple[str, ...], MM2("predicates")] = ()
    """Aliases of predicates, which say what records a transform is for."""
    transforms: tuple[TransformConfig, ...] = ()
    """The transforms themselves, from what is written below `transforms.` and `predicates.`."""
    on_transform_error: Annotated[Fate, Own("on.transform.error")] = "stall"
    """What a lane does with a record that a transform fails on; one that is skipped is a loss."""
    transform_timeout_ms: Annotated[int, Own("transform.timeout.ms")] = Field(
        default=60_000, ge=100, le=3_600_000
    )
    """Longest time a function may take for one batch; then fewer records are tried, at last one."""
    transform_memory_bytes_max: Annotated[int, Own("transform.memory.max.bytes")] = Field(
        default=1024 * MIB, ge=32 * MIB, le=1024 * 1024 * MIB
    )
    """Most memory a function may take for one batch; then fewer records are tried, at last one."""
    on_unwritable_record: Annotated[Fate, Own("on.unwritable.record")] = "stall"
    """What a lane does with a record that the target refuses for size, time or want of a key."""
    dead_letter_topic: Annotated[
        str | None, Own("dead.letter.topic", part_of_a_name, effect=Effect.REPLANS)
    ] = None
    """Topic on the target for `dead-letter`; unset is `heliograph-letters.<source>.internal`."""
    dead_letter_replication_factor: Annotated[
        int | None, Own("dead.letter.topic.replication.factor", replicas)
    ] = None
    """Replication factor of that topic where it is created; unset is `replication.factor`."""
    on_topic_deleted: Annotated[Literal["keep", "delete"], Own("on.topic.deleted")] = "keep"
    """Whether a target topic is deleted after its source topic was."""
    lag_group: Annotated[str | None, Own("lag.group", group_template)] = None
    """Group on the source that commits what is mirrored, as `mirror.{source}.{target}`."""
    lag_group_interval_ms: Annotated[int, Own("lag.group.interval.ms")] = Field(
        default=5_000, ge=1, le=INT_MAX
    )
    """Time between two commits of `lag.group`."""
    config_properties_exclude: Annotated[
        tuple[str, ...], MM2("config.properties.exclude", regexes)
    ] = CONFIG_PROPERTIES_EXCLUDE
    """Regexes of topic configs that are not copied to the target."""
    clients: FlowClients = FlowClients()
    """Client overrides as they end up for this flow."""
    limits: FlowLimits = FlowLimits()
    """Throttles of its clusters."""
    topic_configs: TopicConfigsSync = TopicConfigsSync()
    """Topic configurations, after creation."""
    acls: TopicAclsSync = TopicAclsSync()
    """ACLs of topics."""
    schemas: SchemasConfig = SchemasConfig()
    """Schemas."""
    quotas: QuotasSync = QuotasSync()
    """Client quotas."""
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
    critical_latency_ms: Annotated[int | None, Own("critical.latency.ms")] = Field(
        default=None, ge=1, le=60_000
    )
    """Latency that 99 in 100 records of `critical.topics` keep: other lanes give way for it."""
    canary: CanaryConfig = CanaryConfig()
    """The canary."""
    alarms: AlarmsConfig = AlarmsConfig()
    """Alarms."""
    cutover: CutoverConfig = CutoverConfig()
    """What a flow must have to be ready to cut over."""
    connector: ConnectorConfig = ConnectorConfig()
    """What MirrorMaker 2's connectors are told."""
    pipelines: tuple[PipelineConfig, ...] = ()
    """Queries beside the lanes, in the order of their names."""

    @property
    def writes_letters(self) -> bool:
        """Whether any record of the flow may become a dead letter."""
        return DEAD_LETTER in (self.on_transform_error, self.on_unwritable_record)

    @property
    def letters_topic(self) -> TopicName:
        """`dead_letter_topic` of this flow."""
        named = self.dead_letter_topic or f"heliograph-letters.{self.id.source}.internal"
        return TopicName(named)

    @property
    def lag_group_id(self) -> str | None:
        """`lag_group` of this flow."""
        return self._named(self.lag_group)

    @property
    def start_group_id(self) -> str | None:
        """`start_group` of this flow."""
        return self._named(self.start_group)

    def _named(self, template: str | None) -> str | None:
        if template is None:
            return None
        return template.replace("{source}", self.id.source).replace("{target}", self.id.target)


class EngineConfig(Section):
    """Where and how wide Spark runs."""

    master: Annotated[str | None, Own("master", effect=Effect.RESTART)] = None
    """Spark master; unset leaves it to Spark's own configuration, or else to this machine."""
    slots: Annotated[int | None, Own("slots", number_or_auto)] = Field(
        default=None, ge=1, le=100_000
    )
    """Long Spark tasks that mirror lanes; unset or `auto`, they follow executors and lag."""
    slots_min: Annotated[int, Own("slots.min")] = Field(default=1, ge=1, le=100_000)
    """Fewest slots of `auto`, however little there is to do."""
    slots_max: Annotated[int | None, Own("slots.max")] = Field(default=None, ge=1, le=100_000)
    """Most slots of `auto`; unset, only the cores Spark has bound them."""
    slot_cpus: Annotated[float, Own("slots.cpus", effect=Effect.RESTART)] = Field(
        default=0.25, gt=0, lt=1_000
    )
    """Share of a core that each slot books; leaves room for audits beside the slots."""
    lease_ms_max: Annotated[int, Own("slots.lease.ms.max", effect=Effect.RESTART)] = Field(
        default=30_000, ge=1, le=INT_MAX
    )
    """Time without a message from the driver after which a slot stops by itself."""
    driver_lease_ms: Annotated[int, Own("driver.lease.ms")] = Field(
        default=8_000, ge=1_000, le=600_000
    )
    """Time without a renewal after which a driver stops leading a flow and another takes over."""
    bytes_max: Annotated[int, Own("slots.bytes.max")] = Field(default=256 * MIB, ge=MIB)
    """Most bytes one slot keeps in flight."""
    link_host: Annotated[str | None, Own("link.host", effect=Effect.RESTART)] = None
    """Host or address under which slots reach the driver; unset, it is detected."""
    reload_enabled: Annotated[bool, Own("reload.enabled")] = True
    """Whether changes of the file act while running; SIGHUP has it read in any case."""
    spark: Mapping[str, str] = Field(default_factory=dict, repr=False)
    """`spark.*` settings, as written, for the session."""

    @model_validator(mode="after")
    def _lease_outlasts_a_pause(self) -> Self:
        if self.lease_ms_max < 3 * PROGRESS_INTERVAL_MS:
            raise ValueError(
                f"lease_ms_max is {self.lease_ms_max}, less than three progress reports"
            )
        return self

    @model_validator(mode="after")
    def _bounds_fit(self) -> Self:
        if self.slots_max is not None and self.slots_max < self.slots_min:
            raise ValueError(f"slots_max is {self.slots_max}, less than slots.min")
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

    def loop_prevention_of(self, wanted: FlowId) -> LoopPrevention:
        """As the file says, or as follows from the flows there are."""
        flow = self.flow(wanted)
        if flow.loop_prevention is not None:
            return flow.loop_prevention
        back = FlowId(source=wanted.target, target=wanted.source)
        keeping = {each.id for each in self.every_flow if each.policy.keeps_names}
        return LoopPrevention.RETURNING if {wanted, back} <= keeping else LoopPrevention.NONE

    def way_back(self, wanted: FlowId) -> FlowId | None:
        """The flow that brings the target's own records to the source under the same names."""
        back = FlowId(source=wanted.target, target=wanted.source)
        if back not in {each.id for each in self.every_flow}:
            return None
        both = (wanted, back)
        keep_names = all(self.flow(each).policy.keeps_names for each in both)
        left_out = [self.loop_prevention_of(each) for each in both]
        return back if keep_names and LoopPrevention.NONE not in left_out else None

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
