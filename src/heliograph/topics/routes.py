"""`RegexRouter`: what it makes of a topic's name on the target. No I/O; driver.

As Kafka Connect does it: the regex must match the whole name, and what matched is replaced once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from heliograph.config.mm2.regexes import replacer
from heliograph.config.transforms import PredicateConfig, TransformConfig
from heliograph.model import TopicName


@dataclass(frozen=True, slots=True)
class Route:
    """One router of a flow."""

    regex: re.Pattern[str]
    replacement: Callable[[re.Match[str]], str]
    topics: tuple[str, ...]
    """Of the source; empty means all."""
    predicate: PredicateConfig | None

    def is_for(self, topic: TopicName, named: TopicName) -> bool:
        if self.topics and not any(re.fullmatch(each, topic) for each in self.topics):
            return False
        if self.predicate is None:
            return True
        matches = re.fullmatch(self.predicate.text, named) is not None
        return matches != self.predicate.negate


def routes_of(transforms: Sequence[TransformConfig]) -> tuple[Route, ...]:
    return tuple(
        Route(
            re.compile(each.regex),
            replacer(each.regex, each.replacement),
            each.topics,
            each.predicate,
        )
        for each in transforms
        if each.names_topics
    )


def renamed(routes: Sequence[Route], topic: TopicName, named: TopicName) -> TopicName:
    """The name that all routers together make of a source topic's name on the target."""
    for route in routes:
        if route.is_for(topic, named) and (match := route.regex.fullmatch(named)) is not None:
            named = TopicName(route.replacement(match))
    return named
