"""The concerns a flow is configured by, one model each; MirrorMaker 2's defaults. Runs anywhere.

Names of Kafka keys are in `keys`; what is beside a field here is what the field means.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from heliograph.config.secrets import Secret

_MIRROR: Final = "org.apache.kafka.connect.mirror."
DEFAULT_POLICY: Final = _MIRROR + "DefaultReplicationPolicy"
IDENTITY_POLICY: Final = _MIRROR + "IdentityReplicationPolicy"
DEFAULT_TOPIC_FILTER: Final = _MIRROR + "DefaultTopicFilter"
DEFAULT_GROUP_FILTER: Final = _MIRROR + "DefaultGroupFilter"
DEFAULT_CONFIG_FILTER: Final = _MIRROR + "DefaultConfigPropertyFilter"
BYTE_ARRAY_CONVERTER: Final = "org.apache.kafka.connect.converters.ByteArrayConverter"

TOPICS_EXCLUDE: Final = (r".*[\-\.]internal", r".*\.replica", r"__.*")
GROUPS_EXCLUDE: Final = ("console-consumer-.*", "connect-.*", "__.*")
CONFIG_PROPERTIES_EXCLUDE: Final = (
    r"follower\.replication\.throttled\.replicas",
    r"leader\.replication\.throttled\.replicas",
    r"message\.timestamp\.difference\.max\.ms",
    r"message\.timestamp\.type",
    r"unclean\.leader\.election\.enable",
    r"min\.insync\.replicas",
)


class Section(BaseModel):
    """A part of the configuration: frozen, no unknown fields, docstrings are the documentation."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        use_attribute_docstrings=True,
        # An error of ours never quotes what was given: it may be a password.
        hide_input_in_errors=True,
    )


class NamingPolicyConfig(Section):
    """How a source topic is called on the target."""

    class_path: str = DEFAULT_POLICY
    """MirrorMaker 2's Default or Identity policy, or a Python class as `module:Class`."""
    separator: str = "."
    """Between the source alias and the topic."""
    internal_separator_enabled: bool = True
    """Whether the names of internal topics use the separator too (KIP-949)."""

    @property
    def keeps_names(self) -> bool:
        """Whether topics are surely called the same on the target; a Python class may do it too."""
        return self.class_path.rpartition(".")[2] == IDENTITY_POLICY.rpartition(".")[2]


class GroupsConfig(Section):
    """Which consumer groups are followed to the target."""

    include: tuple[str, ...] = (".*",)
    """Regexes of group ids, any of which must match in full."""
    exclude: tuple[str, ...] = GROUPS_EXCLUDE
    """Regexes of group ids that are never followed; wins over the groups asked for."""
    filter_class: str = DEFAULT_GROUP_FILTER
    """MirrorMaker 2's filter, or a Python class as `module:Class`."""
    refresh_enabled: bool = True
    """Whether new groups are looked for while running."""
    refresh_interval_s: int = Field(default=600, ge=1)
    """Time between two looks at the groups of the source."""
    sync_offsets_enabled: bool = False
    """Whether translated positions are written to the target's own group offsets."""
    sync_offsets_interval_s: int = Field(default=60, ge=1)
    """Time between two writes of group offsets."""
    on_rewind: Literal["follow", "keep"] = "follow"
    """Whether a group that was set back on the source is set back on the target too."""


class CheckpointsConfig(Section):
    """MirrorMaker 2's checkpoints: group positions on both sides, as records."""

    enabled: bool = True
    """Whether checkpoints are written."""
    interval_s: int = Field(default=60, ge=1)
    """Time between two checkpoints of a group."""
    replication_factor: int = 3
    """Of the checkpoints topic; -1 is the broker's default."""


class HeartbeatsConfig(Section):
    """MirrorMaker 2's heartbeats."""

    enabled: bool = True
    """Whether heartbeats are written to the target, even for a pair that mirrors nothing."""
    interval_s: int = Field(default=1, ge=1)
    """Time between two heartbeats."""
    replication_factor: int = 3
    """Of the heartbeats topic; -1 is the broker's default."""
    replicated: bool = True
    """Whether heartbeats of the source are mirrored whatever the topics say (KIP-1089)."""


class OffsetSyncsConfig(Section):
    """MirrorMaker 2's offset syncs: samples of the offset map, for its own tools to read."""

    enabled: bool = True
    """Whether offset syncs are written (KIP-1031)."""
    location: Literal["source", "target"] = "source"
    """Which cluster holds the topic (KIP-716)."""
    lag_max: int = Field(default=100, ge=0)
    """Most target offsets between two syncs of a partition."""
    replication_factor: int = 3
    """Of the offset syncs topic; -1 is the broker's default."""


class TopicConfigsSync(Section):
    """Topic configurations followed to the target after the topic was created."""

    enabled: bool = True
    """Whether topic configurations are followed."""
    interval_s: int = Field(default=600, ge=1)
    """Time between two comparisons."""
    use_defaults_from: Literal["source", "target"] = "target"
    """Whose default applies to what the source topic does not override."""
    filter_class: str = DEFAULT_CONFIG_FILTER
    """MirrorMaker 2's filter, or a Python class as `module:Class`."""


class TopicAclsSync(Section):
    """ACLs of mirrored topics followed to the target."""

    enabled: bool = True
    """Whether ACLs are followed."""
    interval_s: int = Field(default=600, ge=1)
    """Time between two comparisons."""
    mode: Literal["follow", "mirrormaker2"] = "follow"
    """Whether what was revoked on the source is revoked too, or only added to as MirrorMaker 2."""


class RecoveryConfig(Section):
    """What is told of a failover, and how often a flow audits itself."""

    before_command: str | None = None
    """Command run before a failover, for example to stop the producers; no shell."""
    after_command: str | None = None
    """Command run after a failover or failback, for example to change DNS; no shell."""
    webhook_url: Secret | None = None
    """Where every event is posted as JSON, alarms of drills and audits too; `http` or `https`."""
    webhook_token: Secret | None = None
    """Sent to the webhook as `Authorization: Bearer`."""
    bootstrap_file: str | None = None
    """Absolute path of a file that holds `bootstrap.servers` of the cluster that is primary."""
    hook_timeout_s: int = Field(default=30, ge=1, le=3_600)
    """Longest time one command or one post may take."""
    audit_interval_s: int | None = Field(default=None, ge=1)
    """Time between two audits of what was mirrored since, while running; unset is never."""


class ConnectorConfig(Section):
    """What Kafka Connect asks of a connector; kept so that the file loads."""

    name: str | None = None
    """Name of the connector."""
    connector_class: str | None = None
    """Class of the connector."""
    source_alias: str | None = None
    """Alias used in names, heartbeats and checkpoints instead of the flow's source."""
    target_alias: str | None = None
    """Alias used in heartbeats and against cycles instead of the flow's target."""
    tasks_max_enforce: bool = True
    """Whether Connect refuses more tasks than `tasks.max`."""
    admin_timeout_ms: int = Field(default=60_000, ge=0)
    """Bound on one task of topic or group administration."""
    consumer_poll_timeout_ms: int = Field(default=1_000, ge=0)
    """Longest wait of one poll."""
    forwarding_admin_class: str = "org.apache.kafka.clients.admin.ForwardingAdmin"
    """Java class between MirrorMaker 2 and its admin clients (KIP-787)."""
    metric_reporters: tuple[str, ...] = ("org.apache.kafka.common.metrics.JmxReporter",)
    """Java classes that receive metrics."""
    metric_names_formats: tuple[Literal["legacy", "new"], ...] = ("legacy",)
    """Which names metrics have (KIP-1280)."""
    key_converter: str = BYTE_ARRAY_CONVERTER
    """Java class of the key converter; bytes are never converted here."""
    value_converter: str = BYTE_ARRAY_CONVERTER
    """Java class of the value converter; bytes are never converted here."""
    header_converter: str = BYTE_ARRAY_CONVERTER
    """Java class of the header converter; bytes are never converted here."""
    transforms: tuple[str, ...] = ()
    """Aliases of single message transforms."""
    predicates: tuple[str, ...] = ()
    """Aliases of predicates of transforms."""
    topic_creation_groups: tuple[str, ...] = ()
    """Aliases of Connect's topic creation groups."""
    plugins: Mapping[str, str] = Field(default_factory=dict, repr=False)
    """Settings of transforms, predicates, converters and creation groups, by full name."""
    config_action_reload: Literal["none", "restart"] = "restart"
    """What Connect does when a config provider's value changes."""
    errors_retry_timeout_ms: int = Field(default=0, ge=-1)
    """How long Connect retries a failed conversion or transform; -1 is for ever."""
    errors_retry_delay_ms_max: int = Field(default=60_000, ge=0)
    """Longest pause between such retries."""
    errors_tolerance: Literal["none", "all"] = "none"
    """Whether Connect skips records that fail; nothing is skipped here."""
    errors_log_enabled: bool = False
    """Whether Connect logs failed records."""
    errors_log_messages: bool = False
    """Whether that log includes the record."""
    exactly_once_support: Literal["requested", "required"] = "requested"
    """Whether Connect must be exactly-once; Heliograph always is."""
    transaction_boundary: Literal["poll", "interval", "connector"] = "poll"
    """Where Connect ends a transaction; there are none here."""
    transaction_boundary_interval_ms: int | None = Field(default=None, ge=1)
    """Length of a transaction of boundary `interval`; unset is the offset flush interval."""
    offsets_storage_topic: str | None = None
    """A Connect offsets topic of the connector's own."""


class WorkerConfig(Section):
    """What Connect's worker on a target cluster is given, the names of its topics above all."""

    group_id: str | None = None
    """Connect group; unset is `<source>-mm2`."""
    offset_storage_topic: str | None = None
    """Where MirrorMaker 2 keeps positions; unset is `mm2-offsets.<source>.internal`."""
    offset_storage_partitions: int = 25
    """Of that topic; -1 is the broker's default."""
    offset_storage_replication_factor: int = 3
    """Of that topic; -1 is the broker's default."""
    status_storage_topic: str | None = None
    """Where Connect keeps states; unset is `mm2-status.<source>.internal`."""
    status_storage_partitions: int = 5
    """Of that topic; -1 is the broker's default."""
    status_storage_replication_factor: int = 3
    """Of that topic; -1 is the broker's default."""
    config_storage_topic: str | None = None
    """Where Connect keeps configurations; unset is `mm2-configs.<source>.internal`."""
    config_storage_replication_factor: int = 3
    """Of that topic; -1 is the broker's default."""
    offset_flush_interval_ms: int = Field(default=60_000, ge=1)
    """Time after which an offset sync that was held back is written."""
    offset_flush_timeout_ms: int = Field(default=5_000, ge=1)
    """Bound on one such write."""
    exactly_once_source_support: Literal["disabled", "preparing", "enabled"] = "disabled"
    """Connect's exactly-once (KIP-618); Heliograph always is."""
    task_shutdown_graceful_timeout_ms: int = Field(default=5_000, ge=0)
    """How long Connect waits for a task to stop."""
    other: Mapping[str, str] = Field(default_factory=dict, repr=False)
    """Every other key of a Connect worker, as written."""


class RestConfig(Section):
    """Connect's REST server between MirrorMaker 2 processes (KIP-710); Heliograph needs none."""

    internal_enabled: bool = False
    """Whether MirrorMaker 2 processes talk to each other."""
    listeners: tuple[str, ...] = ()
    """Where they listen."""
    admin_listeners: tuple[str, ...] = ()
    """Where their administration listens."""
    advertised_host_name: str | None = None
    """Host other processes are told."""
    advertised_port: int | None = Field(default=None, ge=1, le=65_535)
    """Port other processes are told."""
    advertised_listener: Literal["http", "https"] | None = None
    """Protocol other processes are told."""
    access_control_allow_origin: str = ""
    """CORS origin."""
    access_control_allow_methods: str = ""
    """CORS methods."""
    response_http_headers: str = ""
    """Headers added to every answer."""
    extension_classes: tuple[str, ...] = ()
    """Java classes that extend the server."""
    https: Mapping[str, str] = Field(default_factory=dict, repr=False)
    """`listeners.https.*`, as written."""
