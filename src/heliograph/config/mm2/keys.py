"""Every key `mm2.properties` may hold, its place in the model and its type. Runs anywhere.

`docs/reference/config.md` has a row for each; a test holds the two together.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from heliograph.config.hook_values import absolute_path, bearer_token, command, web_address
from heliograph.config.mm2.names import REMOVED, RENAMED, SECURITY_KEYS, WORKER_OTHER
from heliograph.config.mm2.values import (
    Reader,
    choice,
    choices,
    no_transforms,
    part_of_a_name,
    regexes,
    replicas,
    share,
    switch,
    text,
    whole,
    words,
)
from heliograph.config.plugins import (
    CONFIG_FILTER_METHODS,
    GROUP_FILTER_METHODS,
    POLICY_METHODS,
    TOPIC_FILTER_METHODS,
    class_or_python,
)
from heliograph.config.sections import (
    DEFAULT_CONFIG_FILTER,
    DEFAULT_GROUP_FILTER,
    DEFAULT_POLICY,
    DEFAULT_TOPIC_FILTER,
    IDENTITY_POLICY,
)
from heliograph.config.security import ClientRole
from heliograph.model import Offsets, OnExisting

NOT_YET: Final = "transforms do not act yet, and predicates are theirs"
CONNECT: Final = "belongs to Kafka Connect and does nothing here"


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    name: str
    field: str
    """Path in the model of its scope, with dots."""
    read: Reader
    inert: str | None = None
    """Why the key does nothing; None where it acts."""
    top: bool = True
    """Whether it may stand without a prefix, as the default of every flow or cluster."""


def _key(name: str, field: str, read: Reader, inert: str | None = None, *, top: bool = True) -> Key:
    return Key(name=name, field=field, read=read, inert=inert, top=top)


_SECONDS: Final = whole(1, 2**31 - 1)
_MILLIS: Final = whole(0, 2**63 - 1)

FLOW_KEYS: Final = (
    _key("enabled", "enabled", switch),
    _key("topics", "topics", regexes),
    _key("topics.exclude", "topics_exclude", regexes),
    _key(
        "topic.filter.class",
        "topic_filter_class",
        class_or_python(DEFAULT_TOPIC_FILTER, methods=TOPIC_FILTER_METHODS),
    ),
    _key(
        "replication.policy.class",
        "policy.class_path",
        class_or_python(DEFAULT_POLICY, IDENTITY_POLICY, methods=POLICY_METHODS),
    ),
    _key("replication.policy.separator", "policy.separator", part_of_a_name),
    _key(
        "replication.policy.internal.topic.separator.enabled",
        "policy.internal_separator_enabled",
        switch,
    ),
    _key("replication.factor", "replication_factor", replicas),
    _key("refresh.topics.enabled", "refresh_enabled", switch),
    _key("refresh.topics.interval.seconds", "refresh_interval_s", _SECONDS),
    _key("tasks.max", "tasks_max", whole(1, 2**31 - 1)),
    _key("config.properties.exclude", "config_properties_exclude", regexes),
    _key(
        "config.property.filter.class",
        "topic_configs.filter_class",
        class_or_python(DEFAULT_CONFIG_FILTER, methods=CONFIG_FILTER_METHODS),
    ),
    _key("sync.topic.configs.enabled", "topic_configs.enabled", switch),
    _key("sync.topic.configs.interval.seconds", "topic_configs.interval_s", _SECONDS),
    _key(
        "use.defaults.from",
        "topic_configs.use_defaults_from",
        choice(("source", "target")),
        top=False,
    ),
    _key("sync.topic.acls.enabled", "acls.enabled", switch),
    _key("sync.topic.acls.interval.seconds", "acls.interval_s", _SECONDS),
    _key("groups", "groups.include", regexes),
    _key("groups.exclude", "groups.exclude", regexes),
    _key(
        "group.filter.class",
        "groups.filter_class",
        class_or_python(DEFAULT_GROUP_FILTER, methods=GROUP_FILTER_METHODS),
    ),
    _key("refresh.groups.enabled", "groups.refresh_enabled", switch),
    _key("refresh.groups.interval.seconds", "groups.refresh_interval_s", _SECONDS),
    _key("sync.group.offsets.enabled", "groups.sync_offsets_enabled", switch),
    _key("sync.group.offsets.interval.seconds", "groups.sync_offsets_interval_s", _SECONDS),
    _key("emit.checkpoints.enabled", "checkpoints.enabled", switch),
    _key("emit.checkpoints.interval.seconds", "checkpoints.interval_s", _SECONDS),
    _key("checkpoints.topic.replication.factor", "checkpoints.replication_factor", replicas),
    _key("emit.heartbeats.enabled", "heartbeats.enabled", switch),
    _key("emit.heartbeats.interval.seconds", "heartbeats.interval_s", _SECONDS),
    _key("heartbeats.topic.replication.factor", "heartbeats.replication_factor", replicas),
    _key("heartbeats.replication.enabled", "heartbeats.replicated", switch),
    _key("emit.offset-syncs.enabled", "offset_syncs.enabled", switch),
    _key(
        "offset-syncs.topic.location",
        "offset_syncs.location",
        choice(("source", "target")),
    ),
    _key(
        "offset-syncs.topic.replication.factor",
        "offset_syncs.replication_factor",
        replicas,
    ),
    _key("offset.lag.max", "offset_syncs.lag_max", whole(0, 2**63 - 1)),
    _key("source.cluster.alias", "connector.source_alias", part_of_a_name),
    _key("target.cluster.alias", "connector.target_alias", part_of_a_name),
    _key("admin.timeout.ms", "connector.admin_timeout_ms", _MILLIS),
    _key("consumer.poll.timeout.ms", "connector.consumer_poll_timeout_ms", _MILLIS, CONNECT),
    _key("forwarding.admin.class", "connector.forwarding_admin_class", text, CONNECT),
    _key("metric.reporters", "connector.metric_reporters", words, CONNECT),
    _key(
        "metric.names.formats",
        "connector.metric_names_formats",
        choices(("legacy", "new")),
        CONNECT,
    ),
    _key("name", "connector.name", text, CONNECT),
    _key("connector.class", "connector.connector_class", text, CONNECT),
    _key("tasks.max.enforce", "connector.tasks_max_enforce", switch, CONNECT),
    _key("key.converter", "connector.key_converter", text, CONNECT),
    _key("value.converter", "connector.value_converter", text, CONNECT),
    _key("header.converter", "connector.header_converter", text, CONNECT),
    _key("transforms", "connector.transforms", no_transforms, NOT_YET),
    _key("predicates", "connector.predicates", words, NOT_YET),
    _key(
        "config.action.reload",
        "connector.config_action_reload",
        choice(("none", "restart")),
        CONNECT,
    ),
    _key("errors.retry.timeout", "connector.errors_retry_timeout_ms", whole(-1), CONNECT),
    _key("errors.retry.delay.max.ms", "connector.errors_retry_delay_ms_max", _MILLIS, CONNECT),
    _key("errors.tolerance", "connector.errors_tolerance", choice(("none", "all")), CONNECT),
    _key("errors.log.enable", "connector.errors_log_enabled", switch, CONNECT),
    _key("errors.log.include.messages", "connector.errors_log_messages", switch, CONNECT),
    _key("topic.creation.groups", "connector.topic_creation_groups", words, CONNECT, top=False),
    _key(
        "exactly.once.support",
        "connector.exactly_once_support",
        choice(("requested", "required")),
        CONNECT,
        top=False,
    ),
    _key(
        "transaction.boundary",
        "connector.transaction_boundary",
        choice(("poll", "interval", "connector")),
        CONNECT,
        top=False,
    ),
    _key(
        "transaction.boundary.interval.ms",
        "connector.transaction_boundary_interval_ms",
        whole(1),
        CONNECT,
        top=False,
    ),
    _key("offsets.storage.topic", "connector.offsets_storage_topic", text, top=False),
    # Heliograph's own.
    _key("offsets", "offsets", choice(Offsets)),
    _key("on.existing", "on_existing", choice(OnExisting)),
    _key("on.unadopted", "on_unadopted", choice(("refuse", "append"))),
    _key("on.retention.overrun", "on_retention_overrun", choice(("stall", "skip"))),
    _key("on.topic.recreated", "on_topic_recreated", choice(("stall", "restart"))),
    _key("on.topic.deleted", "on_topic_deleted", choice(("keep", "delete"))),
    _key("on.group.rewind", "groups.on_rewind", choice(("follow", "keep"))),
    _key("sync.topic.acls.mode", "acls.mode", choice(("follow", "mirrormaker2"))),
    _key("read.committed", "read_committed", switch),
    _key("failover.before.command", "recovery.before_command", command),
    _key("failover.after.command", "recovery.after_command", command),
    _key("failover.webhook.url", "recovery.webhook_url", web_address),
    _key("failover.webhook.token", "recovery.webhook_token", bearer_token),
    _key("failover.bootstrap.file", "recovery.bootstrap_file", absolute_path),
    _key("failover.hook.timeout.seconds", "recovery.hook_timeout_s", whole(1, 3_600)),
    _key("audit.interval.seconds", "recovery.audit_interval_s", _SECONDS),
)

OWN_FLOW_KEYS: Final = frozenset(
    {
        "offsets",
        "on.existing",
        "on.unadopted",
        "on.retention.overrun",
        "on.topic.recreated",
        "on.topic.deleted",
        "on.group.rewind",
        "sync.topic.acls.mode",
        "read.committed",
        "failover.before.command",
        "failover.after.command",
        "failover.webhook.url",
        "failover.webhook.token",
        "failover.bootstrap.file",
        "failover.hook.timeout.seconds",
        "audit.interval.seconds",
    }
)

ENGINE_KEYS: Final = (
    _key("master", "master", text),
    _key("slots", "slots", whole(1, 100_000)),
    _key("slots.cpus", "slot_cpus", share),
    _key("slots.lease.ms.max", "lease_ms_max", whole(1, 2**31 - 1)),
    _key("slots.bytes.max", "bytes_max", whole(1024 * 1024)),
    _key("link.host", "link_host", text),
)

REST_KEYS: Final = (
    _key("dedicated.mode.enable.internal.rest", "internal_enabled", switch, CONNECT),
    _key("listeners", "listeners", words, CONNECT),
    _key("admin.listeners", "admin_listeners", words, CONNECT),
    _key("rest.advertised.host.name", "advertised_host_name", text, CONNECT),
    _key("rest.advertised.port", "advertised_port", whole(1, 65_535), CONNECT),
    _key("rest.advertised.listener", "advertised_listener", choice(("http", "https")), CONNECT),
    _key("access.control.allow.origin", "access_control_allow_origin", text, CONNECT),
    _key("access.control.allow.methods", "access_control_allow_methods", text, CONNECT),
    _key("response.http.headers.config", "response_http_headers", text, CONNECT),
    _key("rest.extension.classes", "extension_classes", words, CONNECT),
)

WORKER_KEYS: Final = (
    _key("group.id", "group_id", text, top=False),
    _key("offset.storage.topic", "offset_storage_topic", text),
    _key("offset.storage.partitions", "offset_storage_partitions", replicas, CONNECT),
    _key(
        "offset.storage.replication.factor", "offset_storage_replication_factor", replicas, CONNECT
    ),
    _key("status.storage.topic", "status_storage_topic", text, CONNECT),
    _key("status.storage.partitions", "status_storage_partitions", replicas, CONNECT),
    _key(
        "status.storage.replication.factor", "status_storage_replication_factor", replicas, CONNECT
    ),
    _key("config.storage.topic", "config_storage_topic", text, CONNECT),
    _key(
        "config.storage.replication.factor", "config_storage_replication_factor", replicas, CONNECT
    ),
    _key("offset.flush.interval.ms", "offset_flush_interval_ms", whole(1), top=False),
    _key("offset.flush.timeout.ms", "offset_flush_timeout_ms", whole(1), CONNECT, top=False),
    _key(
        "exactly.once.source.support",
        "exactly_once_source_support",
        choice(("disabled", "preparing", "enabled")),
        CONNECT,
        top=False,
    ),
    _key(
        "task.shutdown.graceful.timeout.ms", "task_shutdown_graceful_timeout_ms", _MILLIS, CONNECT
    ),
)

PLUGIN_PREFIXES: Final = (
    "transforms.",
    "predicates.",
    "topic.creation.",
    "key.converter.",
    "value.converter.",
    "header.converter.",
)
ROLES: Final[tuple[ClientRole, ...]] = ("admin", "consumer", "producer")

FLOW_BY_NAME: Final = {key.name: key for key in FLOW_KEYS}
ENGINE_BY_NAME: Final = {key.name: key for key in ENGINE_KEYS}
REST_BY_NAME: Final = {key.name: key for key in REST_KEYS}
WORKER_BY_NAME: Final = {key.name: key for key in WORKER_KEYS}


def model_keys() -> tuple[str, ...]:
    """Every name the reference documents, without prefixes of clusters and flows."""
    tables = (FLOW_BY_NAME, ENGINE_BY_NAME, REST_BY_NAME, WORKER_BY_NAME)
    named = [name for table in tables for name in table]
    return (
        "clusters",
        "bootstrap.servers",
        "config.providers",
        "spark.*",
        *named,
        *sorted(SECURITY_KEYS),
        *sorted(WORKER_OTHER),
        *RENAMED,
        *REMOVED,
    )
