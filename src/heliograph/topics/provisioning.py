"""What the target lacks before records may flow, and what to tell a person. No I/O; runs anywhere.

Nothing is ever deleted or shrunk, and a topic that is there keeps its settings.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from heliograph.broker.topic_changes import PartitionsToGrow, TopicToCreate
from heliograph.broker.view import ClusterView, ConfigOrigin, TopicSetting, TopicView
from heliograph.config.schema import FlowConfig
from heliograph.config.sections import DEFAULT_CONFIG_FILTER
from heliograph.model import FlowId, OnExisting, TopicName
from heliograph.topics.filters import CONFIG_FILTER_KEY, ConfigFilter, config_filter
from heliograph.topics.selection import Selection
from heliograph.words import counted

TOPIC_NAME_LENGTH_MAX: Final = 249
_PRODUCER_COMPRESSION: Final = "producer"
_LOG_APPEND_TIME: Final = "LogAppendTime"


class Severity(StrEnum):
    NOTE = "note"
    """Worth knowing; everything is mirrored all the same."""
    PROBLEM = "problem"
    """Something would not be mirrored as asked until somebody changes something."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanNote:
    topic: TopicName
    """The topic's name on the target."""
    weight: Severity
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Provisioning:
    flow: FlowId
    to_create: tuple[TopicToCreate, ...]
    to_grow: tuple[PartitionsToGrow, ...]
    notes: tuple[PlanNote, ...]


def plan_provisioning(
    flow: FlowConfig,
    selection: Selection,
    source: ClusterView,
    target: ClusterView,
    foreign_records: Mapping[TopicName, int] | None = None,
) -> Provisioning:
    """Compare both sides; topics whose source is gone are left alone.

    `foreign_records` counts what target topics hold that no lane of the flow explains.
    """
    foreign = {} if foreign_records is None else foreign_records
    copied = config_filter(flow)
    to_create: list[TopicToCreate] = []
    to_grow: list[PartitionsToGrow] = []
    notes = [
        _problem(decision.topic, f"not mirrored: {decision.why}")
        for decision in selection.decisions
        if decision.is_problem
    ]
    for source_name, target_name in selection.mirrored:
        wanted = source.topics.get(source_name)
        if wanted is None:
            continue
        present = target.topics.get(target_name)
        if present is None and wanted.settings_refused is not None:
            # A topic created without its settings would keep the wrong ones for ever.
            notes.append(_problem(target_name, f"not created: {wanted.settings_refused}"))
        elif present is None:
            creation = TopicToCreate(
                source=source_name,
                name=target_name,
                partitions=wanted.partition_count,
                replication_factor=flow.replication_factor,
                configs=configs_to_copy(wanted, copied),
            )
            to_create.append(creation)
            notes.extend(_notes_on_creation(creation, wanted, flow, target))
        else:
            growth = _growth(present, wanted)
            if growth is not None:
                to_grow.append(growth)
            notes.extend(_notes_on_foreign(target_name, foreign.get(target_name, 0), flow))
            notes.extend(_notes_on_presence(present, wanted))
    return Provisioning(
        flow=selection.flow,
        to_create=tuple(to_create),
        to_grow=tuple(to_grow),
        notes=tuple(notes),
    )


def configs_to_copy(topic: TopicView, copied: ConfigFilter) -> Mapping[str, str]:
    """The settings a new topic on the target is given, as MirrorMaker 2 chooses them."""
    settings = {} if topic.settings is None else topic.settings
    return {
        setting.name: setting.value
        for setting in settings.values()
        if setting.value is not None and _is_own(setting) and copied.should_copy(setting.name)
    }


def is_topic_level(setting: TopicSetting) -> bool:
    """Whether a topic elsewhere may have it: brokers' files and secrets stay where they are."""
    return not (
        setting.read_only or setting.sensitive or setting.origin is ConfigOrigin.STATIC_BROKER
    )


def _is_own(setting: TopicSetting) -> bool:
    """Whether somebody set it, rather than Kafka's own defaults for all topics."""
    return is_topic_level(setting) and setting.origin is not ConfigOrigin.DEFAULT


def _growth(present: TopicView, wanted: TopicView) -> PartitionsToGrow | None:
    if present.partition_count >= wanted.partition_count:
        return None
    return PartitionsToGrow(
        name=present.name,
        partitions_before=present.partition_count,
        partitions=wanted.partition_count,
    )


def _notes_on_creation(
    creation: TopicToCreate,
    wanted: TopicView,
    flow: FlowConfig,
    target: ClusterView,
) -> Iterator[PlanNote]:
    name = creation.name
    if len(name) > TOPIC_NAME_LENGTH_MAX:
        yield _problem(
            name, f"name has {len(name)} characters, Kafka allows {TOPIC_NAME_LENGTH_MAX}"
        )
    if 0 < target.broker_count < creation.replication_factor:
        yield _problem(
            name,
            factor_too_high(creation.factor_key, creation.replication_factor, target),
        )
    if wanted.settings is None:
        yield _note(name, "settings of the source topic are not known, none are copied")
    else:
        own = {setting.name for setting in wanted.settings.values() if _is_own(setting)}
        copied = config_filter(flow)
        left_out = sorted(name for name in own if not copied.should_copy(name))
        if left_out:
            is_list = flow.topic_configs.filter_class == DEFAULT_CONFIG_FILTER
            key = "config.properties.exclude" if is_list else CONFIG_FILTER_KEY
            yield _note(name, f"not copied ({key}): {', '.join(left_out)}")
    defaults = {} if target.topic_defaults is None else target.topic_defaults
    yield from _notes_on_settings(name, wanted, {**defaults, **creation.configs})


def factor_too_high(key: str, factor: int, cluster: ClusterView) -> str:
    brokers = counted(cluster.broker_count, "broker")
    return f"{key} is {factor}, cluster {cluster.alias} has {brokers} up"


def _notes_on_foreign(topic: TopicName, records: int, flow: FlowConfig) -> Iterator[PlanNote]:
    if records and flow.on_existing is OnExisting.REFUSE:
        other = counted(records, "other record")
        yield _problem(topic, f"already holds {other}, and on.existing is refuse")
    elif records:
        other = counted(records, "other record")
        yield _note(topic, f"already holds {other}, the copy goes after them")


def _notes_on_presence(present: TopicView, wanted: TopicView) -> Iterator[PlanNote]:
    name = present.name
    if present.partition_count > wanted.partition_count:
        yield _note(
            name,
            f"has {present.partition_count} partitions, "
            f"the source {wanted.partition_count}: the others stay empty",
        )
    if present.settings is not None:
        in_force = {s.name: s.value for s in present.settings.values() if s.value is not None}
        yield from _notes_on_settings(name, wanted, in_force)


def _notes_on_settings(
    name: TopicName, wanted: TopicView, in_force: Mapping[str, str]
) -> Iterator[PlanNote]:
    """What the target's brokers will do to records under the settings the topic has or gets."""
    if in_force.get("message.timestamp.type") == _LOG_APPEND_TIME:
        yield _problem(
            name,
            f"message.timestamp.type is {_LOG_APPEND_TIME} on the target: "
            "timestamps of the source are not kept",
        )
    compression = in_force.get("compression.type", _PRODUCER_COMPRESSION)
    if compression != _PRODUCER_COMPRESSION:
        yield _note(
            name,
            f"compression.type is {compression} on the target: "
            "its brokers recompress batches that come in another codec",
        )
    source_bytes_max = _whole_number(wanted.setting("max.message.bytes"))
    target_bytes_max = _whole_number(in_force.get("max.message.bytes"))
    if source_bytes_max and target_bytes_max and target_bytes_max < source_bytes_max:
        yield _problem(
            name,
            f"max.message.bytes is {target_bytes_max} on the target and {source_bytes_max} "
            "on the source: larger batches will be refused",
        )


def _whole_number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() else None


def _note(topic: TopicName, text: str) -> PlanNote:
    return PlanNote(topic=topic, weight=Severity.NOTE, text=text)


def _problem(topic: TopicName, text: str) -> PlanNote:
    return PlanNote(topic=topic, weight=Severity.PROBLEM, text=text)
