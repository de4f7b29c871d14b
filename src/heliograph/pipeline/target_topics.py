"""What a target has to write to, as a batch must know it when it begins. Runs on the driver."""

from __future__ import annotations

from heliograph.broker.admin import ClusterAdmin
from heliograph.errors import BrokerError, PipelineRefused
from heliograph.model import TopicName
from heliograph.pipeline.packing import OnError, TargetTopics


def target_topics(
    admin: ClusterAdmin,
    *,
    topic: str | None,
    codec: int,
    on_error: OnError = OnError.STALL,
    dead_letter_topic: str | None = None,
) -> TargetTopics:
    """Of one topic, or of all where rows name theirs. Raises `PipelineRefused`, `BrokerError`."""
    named = {each for each in (topic, dead_letter_topic) if each is not None}
    names = sorted(named if topic is not None else named | admin.topic_names())
    wanted = [TopicName(name) for name in names if not name.startswith("__")]
    described = admin.describe_topics(wanted)
    for each in sorted(named):
        if TopicName(each) not in described:
            raise PipelineRefused(f"cluster {admin.alias} has no topic {each}: create it first")
    limits: dict[str, int] = {}
    keyed: set[str] = set()
    for name, settings in admin.topic_configs(wanted).items():
        if isinstance(settings, BrokerError):
            continue
        if "max.message.bytes" in settings:
            limits[name] = int(settings["max.message.bytes"].value or 0)
        if "cleanup.policy" in settings and "compact" in (settings["cleanup.policy"].value or ""):
            keyed.add(name)
    return TargetTopics(
        partition_counts={name: len(view.partitions) for name, view in described.items()},
        record_bytes_max=limits,
        keyed=frozenset(keyed),
        codec=codec,
        default_topic=topic,
        on_error=on_error,
        dead_letter_topic=dead_letter_topic,
    )
