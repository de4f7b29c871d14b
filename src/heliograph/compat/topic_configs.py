"""Keep the settings of mirrored topics as they are on the source. Runs on the driver."""

from __future__ import annotations

import logging
from typing import Final

from heliograph.broker.clients import Clients
from heliograph.broker.topic_changes import TopicConfigChanges
from heliograph.compat.topic_config_plan import plan_topic_configs
from heliograph.config.schema import FlowConfig
from heliograph.errors import BrokerError
from heliograph.ledger.fenced_topics import FencedTopics, unless_fenced
from heliograph.log_once import LogOnce
from heliograph.topics.observe import with_settings
from heliograph.topics.provisioning import Severity
from heliograph.topics.selection import select_topics

log = logging.getLogger(__name__)

_TOLD_MAX: Final = 3


class TopicConfigsJob:
    """Looks at both sides and changes what differs; a topic that is refused stops no other."""

    what: Final = "topic configs"

    def __init__(self, flow: FlowConfig, clients: Clients, fenced: FencedTopics = dict) -> None:
        """`fenced` tells which topics were failed over alone: their settings are their own."""
        self.flow: Final = flow.id
        self.interval_s: Final = float(flow.topic_configs.interval_s)
        self._config = flow
        self._clients = clients
        self._fenced = fenced
        self._said = LogOnce()

    def step(self) -> None:
        source_admin = self._clients.admin(self._clients.source(self.flow))
        target_admin = self._clients.admin(self._clients.target(self.flow))
        source, target = source_admin.describe(), target_admin.describe()
        selection = select_topics(self._config, source.topics, unless_fenced(self._fenced()))
        both = [(name, to) for name, to in selection.mirrored if to in target.topics]
        source = with_settings(source_admin, source, [name for name, _ in both])
        target = with_settings(target_admin, target, [to for _, to in both])
        plan = plan_topic_configs(self._config, selection, source, target)
        problems: list[str] = []
        for note in plan.notes:
            text = f"{note.topic}: {note.text}"
            if note.weight is Severity.PROBLEM:
                problems.append(text)
            elif self._said.is_new(text):
                log.info("%s: %s", self.flow, text)
        outcomes = target_admin.alter_topic_configs(plan.topics)
        for topic in plan.topics:
            outcome = outcomes[topic.topic]
            if isinstance(outcome, BrokerError):
                problems.append(f"{topic.topic}: {outcome}")
            else:
                log.info("%s: %s: %s", self.flow, topic.topic, _told(topic))
        if problems:
            more = len(problems) - _TOLD_MAX
            tail = [f"and {more} more topics"] if more > 0 else []
            raise BrokerError("; ".join([*problems[:_TOLD_MAX], *tail]))


def _told(topic: TopicConfigChanges) -> str:
    return ", ".join(
        f"{change.name} taken back"
        if change.value is None
        else f"{change.name} set to {change.value}"
        for change in topic.changes
    )
