"""What a target has to write to, as a batch must know it when it begins. Runs on the driver."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from heliograph.broker.admin import ClusterAdmin
from heliograph.errors import BrokerError, PipelineRefused
from heliograph.model import TopicName
from heliograph.pipeline.packing import OnError, TargetTopics, Times

_PRODUCERS_TIME: Final = "CreateTime"
_BOTH_WAYS: Final = "message.timestamp.difference.max.ms"
"""Before Kafka 3.6, which has one bound for each way (KIP-937)."""
_NO_BOUND: Final = str(2**63 - 1)


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
    times: dict[str, Times] = {}
    for name, found in admin.topic_configs(wanted).items():
        if isinstance(found, BrokerError):
            continue
        settings = {each: setting.value or "" for each, setting in found.items()}
        if "max.message.bytes" in settings:
            limits[name] = int(settings["max.message.bytes"] or 0)
        if "compact" in settings.get("cleanup.policy", ""):
            keyed.add(name)
        if settings.get("message.timestamp.type") == _PRODUCERS_TIME:
            times[name] = _times(settings)
    return TargetTopics(
        partition_counts={name: len(view.partitions) for name, view in described.items()},
        record_bytes_max=limits,
        keyed=frozenset(keyed),
        times=times,
        codec=codec,
        default_topic=topic,
        on_error=on_error,
        dead_letter_topic=dead_letter_topic,
    )


def _times(settings: Mapping[str, str]) -> Times:
    both = settings.get(_BOTH_WAYS, _NO_BOUND)
    past, future = (
        int(settings.get(f"message.timestamp.{way}.max.ms", both)) for way in ("before", "after")
    )
    return Times(past_ms_max=past, future_ms_max=future)
