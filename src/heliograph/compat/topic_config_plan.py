"""Which settings of mirrored topics must change on the target. No I/O; runs anywhere.

MirrorMaker 2 writes every setting of every topic at every interval. Here only what differs is
written; what the target ends up with is the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from heliograph.broker.topic_changes import ConfigChange, TopicConfigChanges
from heliograph.broker.view import ClusterView, ConfigOrigin, TopicSetting, TopicView
from heliograph.config.schema import FlowConfig
from heliograph.model import FlowId, TopicName
from heliograph.topics.filters import ConfigFilter, config_filter
from heliograph.topics.provisioning import PlanNote, Severity, is_topic_level
from heliograph.topics.selection import Selection


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfigPlan:
    flow: FlowId
    topics: tuple[TopicConfigChanges, ...]
    """Only those with something to change."""
    notes: tuple[PlanNote, ...]


def plan_topic_configs(
    flow: FlowConfig, selection: Selection, source: ClusterView, target: ClusterView
) -> TopicConfigPlan:
    """Compare topics that both sides have; those yet to be created get their settings then."""
    wanted_by = config_filter(flow)
    topics: list[TopicConfigChanges] = []
    notes: list[PlanNote] = []
    for source_name, target_name in selection.mirrored:
        read, written = source.topics.get(source_name), target.topics.get(target_name)
        if read is None or written is None:
            continue
        refused = read.settings_refused or written.settings_refused
        if refused is not None:
            notes.append(_problem(target_name, f"settings are not followed: {refused}"))
        if read.settings is None or written.settings is None:
            continue
        changes = tuple(_changes(read, written, wanted_by, flow))
        if changes:
            topics.append(TopicConfigChanges(topic=target_name, changes=changes))
        unknown = sorted(_unknown_to(read, written, wanted_by))
        if unknown:
            notes.append(
                _note(target_name, f"the target has no such setting: {', '.join(unknown)}")
            )
    return TopicConfigPlan(flow=flow.id, topics=tuple(topics), notes=tuple(notes))


def _changes(
    read: TopicView, written: TopicView, wanted_by: ConfigFilter, flow: FlowConfig
) -> Iterator[ConfigChange]:
    settings = {} if written.settings is None else written.settings
    keeps_target_defaults = flow.topic_configs.use_defaults_from == "target"
    for setting in _followed(read, wanted_by):
        present = settings.get(setting.name)
        if present is None:
            continue
        is_own = present.origin is ConfigOrigin.TOPIC
        if setting.origin is ConfigOrigin.DEFAULT and keeps_target_defaults:
            if is_own:
                yield ConfigChange(name=setting.name, value=None, before=present.value)
        elif setting.value is not None and not (is_own and present.value == setting.value):
            # An equal value that the target inherits is set all the same: it must not change
            # when somebody changes the defaults there.
            yield ConfigChange(name=setting.name, value=setting.value, before=present.value)


def _unknown_to(read: TopicView, written: TopicView, wanted_by: ConfigFilter) -> Iterator[str]:
    """Settings of the source topic's own that an older target would refuse, all others with it."""
    settings = {} if written.settings is None else written.settings
    for setting in _followed(read, wanted_by):
        if setting.origin is not ConfigOrigin.DEFAULT and setting.name not in settings:
            yield setting.name


def _followed(read: TopicView, wanted_by: ConfigFilter) -> Iterator[TopicSetting]:
    """As MirrorMaker 2 chooses them: not what brokers' files say, not what the filter leaves."""
    for setting in ({} if read.settings is None else read.settings).values():
        if is_topic_level(setting) and wanted_by.should_copy(setting.name):
            yield setting


def _note(topic: TopicName, text: str) -> PlanNote:
    return PlanNote(topic=topic, weight=Severity.NOTE, text=text)


def _problem(topic: TopicName, text: str) -> PlanNote:
    return PlanNote(topic=topic, weight=Severity.PROBLEM, text=text)
