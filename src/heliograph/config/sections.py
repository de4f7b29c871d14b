"""The concerns a flow is configured by, one model each; MirrorMaker 2's defaults. Runs anywhere.

The key that fills a field is in its annotation, what the field means is beside it.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from heliograph.config.hook_values import absolute_path, bearer_token, command, web_address
from heliograph.config.keys import INT_MAX, LONG_MAX, MM2, Effect, Own, Seconds
from heliograph.config.mm2.values import (
    cluster_id,
    header_name,
    header_names,
    part_of_a_name,
    regexes,
    replicas,
)
from heliograph.config.plugins import (
    CONFIG_FILTER_METHODS,
    GROUP_FILTER_METHODS,
    POLICY_METHODS,
    class_or_python,
)
from heliograph.config.secrets import Secret

_MIRROR: Final = "org.apache.kafka.connect.mirror."
DEFAULT_POLICY: Final = _MIRROR + "DefaultReplicationPolicy"
IDENTITY_POLICY: Final = _MIRROR + "IdentityReplicationPolicy"
DEFAULT_TOPIC_FILTER: Final = _MIRROR + "DefaultTopicFilter"
DEFAULT_GROUP_FILTER: Final = _MIRROR + "DefaultGroupFilter"
DEFAULT_CONFIG_FILTER: Final = _MIRROR + "DefaultConfigPropertyFilter"

TOPICS_EXCLUDE: Final = (r"mm2.*\.internal", r".*\.replica", r"__.*")
GROUPS_EXCLUDE: Final = ("console-consumer-.*", "connect-.*", "__.*")
CONFIG_PROPERTIES_EXCLUDE: Final = (
    r"follower\.replication\.throttled\.replicas",
    r"leader\.replication\.throttled\.replicas",
    r"message\.timestamp\.difference\.max\.ms",
    # MirrorMaker 2 4.3 has these with `log.` before them, which is the broker's name for them and
    # never matches a topic's. Copied, they would make the target refuse old records.
    r"message\.timestamp\.before\.max\.ms",
    r"message\.timestamp\.after\.max\.ms",
    r"message\.timestamp\.type",
    r"unclean\.leader\.election\.enable",
    r"min\.insync\.replicas",
)


class Section(BaseModel):
    """A part of the configuration: frozen, no unknown fields, docstrings are the documentation."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        # An error of ours never quotes what was given: it may be a password.
        hide_input_in_errors=True,
    )


class NamingPolicyConfig(Section):
    """How a source topic is called on the target."""

    class_path: Annotated[
        str,
        MM2(
            "replication.policy.class",
            class_or_python(DEFAULT_POLICY, IDENTITY_POLICY, methods=POLICY_METHODS),
            effect=Effect.REPLANS,
        ),
    ] = DEFAULT_POLICY
    """MirrorMaker 2's Default or Identity policy, or a Python class as `module:Class`."""
    separator: Annotated[
        str, MM2("replication.policy.separator", part_of_a_name, effect=Effect.REPLANS)
    ] = "."
    """Text between the source alias and the topic."""
    internal_separator_enabled: Annotated[
        bool, MM2("replication.policy.internal.topic.separator.enabled", effect=Effect.REPLANS)
    ] = True
    """Whether the names of internal topics use the separator too (KIP-949)."""

    @property
    def keeps_names(self) -> bool:
        """Whether topics are surely called the same on the target; a Python class may do it too."""
        return self.class_path.rpartition(".")[2] == IDENTITY_POLICY.rpartition(".")[2]


class GroupsConfig(Section):
    """Which consumer groups are followed to the target."""

    include: Annotated[tuple[str, ...], MM2("groups", regexes)] = (".*",)
    """Regexes of groups to sync; one of them must match the whole group id."""
    exclude: Annotated[tuple[str, ...], MM2("groups.exclude", regexes)] = GROUPS_EXCLUDE
    """Regexes of groups that are never synced; stronger than `groups`."""
    filter_class: Annotated[
        str,
        MM2(
            "group.filter.class",
            class_or_python(DEFAULT_GROUP_FILTER, methods=GROUP_FILTER_METHODS),
        ),
    ] = DEFAULT_GROUP_FILTER
    """MirrorMaker 2's filter, or a Python class as `module:Class`."""
    refresh_enabled: Annotated[bool, MM2("refresh.groups.enabled")] = True
    """Whether new groups are found while running."""
    refresh_interval_s: Annotated[Seconds, MM2("refresh.groups.interval.seconds")] = 600
    """Time between two reads of the source's groups."""
    sync_offsets_enabled: Annotated[bool, MM2("sync.group.offsets.enabled")] = False
    """Whether translated offsets are committed to the groups on the target."""
    sync_offsets_interval_s: Annotated[Seconds, MM2("sync.group.offsets.interval.seconds")] = 60
    """Time between two such commits."""
    on_rewind: Annotated[Literal["follow", "keep"], Own("on.group.rewind")] = "follow"
    """Whether a group that was rewound on the source is rewound on the target too."""


class CheckpointsConfig(Section):
    """MirrorMaker 2's checkpoints: group positions on both sides, as records."""

    enabled: Annotated[bool, MM2("emit.checkpoints.enabled")] = True
    """Whether checkpoints are written."""
    interval_s: Annotated[Seconds, MM2("emit.checkpoints.interval.seconds")] = 60
    """Time between two checkpoints of a group."""
    replication_factor: Annotated[int, MM2("checkpoints.topic.replication.factor", replicas)] = 3
    """Replication factor of the checkpoints topic; -1 is the broker's default."""


class HeartbeatsConfig(Section):
    """MirrorMaker 2's heartbeats."""

    enabled: Annotated[bool, MM2("emit.heartbeats.enabled")] = True
    """Whether heartbeats are written to the target, even for a pair that mirrors nothing."""
    interval_s: Annotated[Seconds, MM2("emit.heartbeats.interval.seconds")] = 1
    """Time between two heartbeats."""
    replication_factor: Annotated[int, MM2("heartbeats.topic.replication.factor", replicas)] = 3
    """Replication factor of the heartbeats topic; -1 is the broker's default."""
    replicated: Annotated[bool, MM2("heartbeats.replication.enabled", effect=Effect.REPLANS)] = True
    """Whether the source's heartbeats are mirrored even if `topics` does not match (KIP-1089)."""


class OffsetSyncsConfig(Section):
    """MirrorMaker 2's offset syncs: samples of the offset map, for its own tools to read."""

    enabled: Annotated[bool, MM2("emit.offset-syncs.enabled")] = True
    """Whether offset syncs are written (KIP-1031)."""
    location: Annotated[Literal["source", "target"], MM2("offset-syncs.topic.location")] = "source"
    """Cluster that holds the offset syncs topic (KIP-716)."""
    replication_factor: Annotated[int, MM2("offset-syncs.topic.replication.factor", replicas)] = 3
    """Replication factor of the offset syncs topic; -1 is the broker's default."""
    lag_max: Annotated[int, MM2("offset.lag.max")] = Field(default=100, ge=0, le=LONG_MAX)
    """Most target offsets between two offset syncs of a partition."""


class TopicConfigsSync(Section):
    """Topic configurations followed to the target after the topic was created."""

    filter_class: Annotated[
        str,
        MM2(
            "config.property.filter.class",
            class_or_python(DEFAULT_CONFIG_FILTER, methods=CONFIG_FILTER_METHODS),
        ),
    ] = DEFAULT_CONFIG_FILTER
    """MirrorMaker 2's filter, or a Python class as `module:Class`."""
    enabled: Annotated[bool, MM2("sync.topic.configs.enabled")] = True
    """Whether topic configs are synced after the topic was created."""
    interval_s: Annotated[Seconds, MM2("sync.topic.configs.interval.seconds")] = 600
    """Time between two comparisons of topic configs."""
    use_defaults_from: Annotated[
        Literal["source", "target"], MM2("use.defaults.from", top=False)
    ] = "target"
    """Cluster whose default applies to configs that the source topic does not set."""


class TopicAclsSync(Section):
    """ACLs of mirrored topics followed to the target."""

    enabled: Annotated[bool, MM2("sync.topic.acls.enabled")] = True
    """Whether topic ACLs are synced."""
    interval_s: Annotated[Seconds, MM2("sync.topic.acls.interval.seconds")] = 600
    """Time between two comparisons of ACLs."""
    mode: Annotated[Literal["follow", "mirrormaker2"], Own("sync.topic.acls.mode")] = "follow"
    """`follow` also removes ACLs that the source revoked; `mirrormaker2` only adds."""


class RecoveryConfig(Section):
    """What is told of a failover, and how often a flow audits itself."""

    before_command: Annotated[str | None, Own("failover.before.command", command)] = None
    """Command run before a failover, for example to stop the producers; no shell."""
    after_command: Annotated[str | None, Own("failover.after.command", command)] = None
    """Command run after a failover or failback, for example to change DNS; no shell."""
    webhook_url: Annotated[Secret | None, Own("failover.webhook.url", web_address)] = None
    """URL to which every event is posted as JSON, failed drills and audits too."""
    webhook_token: Annotated[Secret | None, Own("failover.webhook.token", bearer_token)] = None
    """Token sent to the webhook as `Authorization: Bearer`."""
    bootstrap_file: Annotated[str | None, Own("failover.bootstrap.file", absolute_path)] = None
    """Absolute path of a file that receives `bootstrap.servers` of the primary cluster."""
    hook_timeout_s: Annotated[int, Own("failover.hook.timeout.seconds")] = Field(
        default=30, ge=1, le=3_600
    )
    """Longest time for one command or one post."""
    audit_interval_s: Annotated[int | None, Own("audit.interval.seconds")] = Field(
        default=None, ge=1, le=INT_MAX
    )
    """Time between two audits of newly mirrored records, while running; unset is never."""


class LoadConfig(Section):
    """How much a flow may take, and which of its topics come first."""

    throttle_bytes_per_s: Annotated[int | None, Own("throttle.bytes.per.second")] = Field(
        default=None, ge=1, le=LONG_MAX
    )
    """Most bytes a second that all lanes of the flow copy together; unset is no limit."""
    throttle_topics: Annotated[tuple[str, ...], Own("throttle.topics", regexes)] = ()
    """Regexes of topics that have a limit of their own beside the flow's."""
    throttle_topics_bytes_per_s: Annotated[int | None, Own("throttle.topics.bytes.per.second")] = (
        Field(default=None, ge=1, le=LONG_MAX)
    )
    """Most bytes a second that all lanes of `throttle.topics` copy together."""
    critical_topics: Annotated[tuple[str, ...], Own("critical.topics", regexes)] = ()
    """Regexes of topics whose lanes have slots of their own, which no other lane is given."""
    critical_slots: Annotated[tuple[int, ...], Own("critical.slots")] = (0,)
    """The slots, by number from 0, for `critical.topics`."""


class ClusterLoadConfig(Section):
    """How much all flows together may take of a cluster."""

    read_bytes_per_s: Annotated[int | None, Own("throttle.read.bytes.per.second")] = Field(
        default=None, ge=1, le=LONG_MAX
    )
    """Most bytes a second that all lanes read from the cluster together; unset is no limit."""
    write_bytes_per_s: Annotated[int | None, Own("throttle.write.bytes.per.second")] = Field(
        default=None, ge=1, le=LONG_MAX
    )
    """Most bytes a second that all lanes write to the cluster together; unset is no limit."""


class ClusterProvenance(Section):
    """What mirrors call a cluster in headers of records."""

    id: Annotated[str | None, Own("provenance.id", cluster_id, top=False)] = None
    """The cluster's id as headers of mirrors have it, usually that of `kafka-cluster.sh`."""


class ProvenanceConfig(Section):
    """Headers that say which cluster a record came from."""

    drop: Annotated[tuple[str, ...], Own("provenance.drop", header_names)] = ()
    """Headers of mirrors: records in which one of them names the target are left out."""
    write: Annotated[str | None, Own("provenance.write", header_name)] = None
    """Header that each record gets, with the source's `provenance.id`; unset writes none."""


class ConnectorConfig(Section):
    """What MirrorMaker 2's connectors are told and Heliograph heeds too."""

    source_alias: Annotated[
        str | None, MM2("source.cluster.alias", part_of_a_name, effect=Effect.REPLANS)
    ] = None
    """Alias of the source in topic names, heartbeats and checkpoints, if not the flow's."""
    target_alias: Annotated[
        str | None, MM2("target.cluster.alias", part_of_a_name, effect=Effect.REPLANS)
    ] = None
    """Alias of the target in heartbeats and for cycle detection, if not the flow's."""
    admin_timeout_ms: Annotated[int, MM2("admin.timeout.ms")] = Field(
        default=60_000, ge=0, le=LONG_MAX
    )
    """Longest time for one request about topics or groups."""
    name: Annotated[str | None, MM2("name")] = None
    """Connector whose offsets `adopt` reads and `release` writes; unset, it is detected."""
    exactly_once_support: Annotated[
        Literal["requested", "required"], MM2("exactly.once.support", top=False)
    ] = "requested"
    """`required` refuses a flow that mirrors aborted records; Heliograph is always exactly once."""
    offsets_storage_topic: Annotated[str | None, MM2("offsets.storage.topic", top=False)] = None
    """The connector's own offsets topic, which `adopt` reads and `release` writes."""


class WorkerConfig(Section):
    """What Connect's workers on a target cluster are given and `adopt` and `release` need."""

    group_id: Annotated[str | None, MM2("group.id", top=False)] = None
    """Group of the Connect workers; unset is `<source>-mm2`."""
    offset_storage_topic: Annotated[str | None, MM2("offset.storage.topic")] = None
    """Topic of MirrorMaker 2's offsets; unset is `mm2-offsets.<source>.internal`."""
    offset_storage_partitions: Annotated[int, MM2("offset.storage.partitions", replicas)] = 25
    """Partitions of that topic if `release` creates it; -1 is the broker's default."""
    offset_storage_replication_factor: Annotated[
        int, MM2("offset.storage.replication.factor", replicas)
    ] = 3
    """Replication factor of that topic if `release` creates it; -1 is the broker's default."""
    offset_flush_interval_ms: Annotated[int, MM2("offset.flush.interval.ms", top=False)] = Field(
        default=60_000, ge=1
    )
    """Time after which a delayed offset sync is written."""
    exactly_once_source_support: Annotated[
        Literal["disabled", "preparing", "enabled"], MM2("exactly.once.source.support", top=False)
    ] = "disabled"
    """Unless `enabled` (KIP-618), `release` warns that MirrorMaker 2 may copy records twice."""
