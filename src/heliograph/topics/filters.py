"""Which topics, groups and topic configurations a flow follows. No I/O; runs on the driver.

The default filters are MirrorMaker 2's: lists of regexes that match in full, exclusions win. A
filter of the operator's own is a Python class, constructed with the flow's `FlowConfig` as its
only argument; it replaces the lists, which it may read from there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, Protocol

from heliograph.broker.group_view import is_shadow
from heliograph.config.plugins import (
    CONFIG_FILTER_METHODS,
    GROUP_FILTER_METHODS,
    TOPIC_FILTER_METHODS,
    UnusableClass,
    is_python_path,
    load_class,
)
from heliograph.config.schema import FlowConfig
from heliograph.config.sections import (
    DEFAULT_CONFIG_FILTER,
    DEFAULT_GROUP_FILTER,
    DEFAULT_TOPIC_FILTER,
)
from heliograph.errors import ConfigError, PluginFailed

TOPIC_FILTER_KEY: Final = "topic.filter.class"
GROUP_FILTER_KEY: Final = "group.filter.class"
CONFIG_FILTER_KEY: Final = "config.property.filter.class"


class TopicFilter(Protocol):
    """Says which topics of the source are wanted.

    Asked about every topic at every look, so it should be quick. Internal topics and cycles are
    decided apart from it. Raises `PluginFailed` where a class of the operator's own raised.
    """

    def should_mirror(self, name: str) -> bool: ...


class GroupFilter(Protocol):
    """Says which consumer groups of the source are followed; as `TopicFilter` otherwise."""

    def should_follow(self, group: str) -> bool: ...


class ConfigFilter(Protocol):
    """Says which topic configurations are copied to the target; as `TopicFilter` otherwise."""

    def should_copy(self, name: str) -> bool: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Patterns:
    """`include` patterns are OR-ed, `exclude` wins; a pattern must match the whole name."""

    include: tuple[re.Pattern[str], ...]
    exclude: tuple[re.Pattern[str], ...] = ()

    @classmethod
    def of(cls, include: Iterable[str], exclude: Iterable[str] = ()) -> Patterns:
        return cls(
            include=tuple(re.compile(pattern) for pattern in include),
            exclude=tuple(re.compile(pattern) for pattern in exclude),
        )

    def included(self, name: str) -> re.Pattern[str] | None:
        """The first pattern that asks for the name."""
        return next((each for each in self.include if each.fullmatch(name)), None)

    def excluded(self, name: str) -> re.Pattern[str] | None:
        """The first pattern that keeps the name out."""
        return next((each for each in self.exclude if each.fullmatch(name)), None)

    def wanted(self, name: str) -> bool:
        return self.excluded(name) is None and self.included(name) is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ruling:
    """What a filter says of one name, and by which key of the configuration."""

    wanted: bool
    why: str
    key: str
    """`topics`, `topics.exclude` and the like; empty where no key decides."""

    @property
    def is_excluded(self) -> bool:
        """Whether a pattern keeps the name out, rather than none asking for it."""
        return self.key.endswith(".exclude")


@dataclass(frozen=True, slots=True, kw_only=True)
class PatternTopicFilter:
    """MirrorMaker 2's `DefaultTopicFilter`: `topics` and `topics.exclude`."""

    patterns: Patterns

    def should_mirror(self, name: str) -> bool:
        return self.patterns.wanted(name)


@dataclass(frozen=True, slots=True, kw_only=True)
class PatternGroupFilter:
    """MirrorMaker 2's `DefaultGroupFilter`: `groups` and `groups.exclude`."""

    patterns: Patterns

    def should_follow(self, group: str) -> bool:
        return self.patterns.wanted(group)


@dataclass(frozen=True, slots=True, kw_only=True)
class PatternConfigFilter:
    """MirrorMaker 2's `DefaultConfigPropertyFilter`: all but `config.properties.exclude`."""

    patterns: Patterns

    def should_copy(self, name: str) -> bool:
        return self.patterns.excluded(name) is None


class PythonFilter:
    """A class of the operator's own behind all three shapes; what it raises is told as such."""

    def __init__(self, path: str, asked: Any, method: str) -> None:
        self.path = path
        self._ask, self._method = getattr(asked, method), method

    def should_mirror(self, name: str) -> bool:
        return self._answer(name)

    def should_follow(self, group: str) -> bool:
        return self._answer(group)

    def should_copy(self, name: str) -> bool:
        return self._answer(name)

    def _answer(self, name: str) -> bool:
        try:
            answer = self._ask(name)
        except Exception as exc:  # foreign code may raise anything
            said = f"{type(exc).__name__}: {exc}"
            raise PluginFailed(f"`{self.path}`: {self._method}({name!r}) raised {said}") from exc
        if not isinstance(answer, bool):
            kind = type(answer).__name__
            raise PluginFailed(f"`{self.path}`: {self._method}({name!r}) gave a {kind}, not a bool")
        return answer


def topic_ruling(names: PatternTopicFilter | PythonFilter, topic: str) -> Ruling:
    """What the flow's own filter says of a topic; raises `PluginFailed`."""
    if isinstance(names, PythonFilter):
        return _python_ruling(names, TOPIC_FILTER_KEY, names.should_mirror(topic))
    return _pattern_ruling(names.patterns, "topics", topic)


def group_ruling(flow: FlowConfig, group: str) -> Ruling:
    """As `group_filter` decides, with the reason; raises `ConfigError` and `PluginFailed`."""
    if is_shadow(group):
        return Ruling(wanted=False, why="a drill made it; such groups stay where they are", key="")
    path = flow.groups.filter_class
    if path == DEFAULT_GROUP_FILTER:
        patterns = Patterns.of(flow.groups.include, flow.groups.exclude)
        return _pattern_ruling(patterns, "groups", group)
    found = _python_filter(flow, GROUP_FILTER_KEY, path, GROUP_FILTER_METHODS[0])
    return _python_ruling(found, GROUP_FILTER_KEY, found.should_follow(group))


def _python_ruling(names: PythonFilter, key: str, wanted: bool) -> Ruling:
    asks = "asks for it" if wanted else "does not ask for it"
    return Ruling(wanted=wanted, why=f"`{names.path}` {asks}", key=key)


def _pattern_ruling(patterns: Patterns, key: str, name: str) -> Ruling:
    excluded = patterns.excluded(name)
    if excluded is not None:
        why = f"matches {key}.exclude `{excluded.pattern}`"
        return Ruling(wanted=False, why=why, key=f"{key}.exclude")
    included = patterns.included(name)
    if included is None:
        return Ruling(wanted=False, why=f"no pattern of {key}", key=key)
    return Ruling(wanted=True, why=f"matches {key} `{included.pattern}`", key=key)


def topic_filter(flow: FlowConfig) -> PatternTopicFilter | PythonFilter:
    """The flow's `TopicFilter`; raises `ConfigError` where its class cannot be used."""
    path = flow.topic_filter_class
    if path == DEFAULT_TOPIC_FILTER:
        return PatternTopicFilter(patterns=Patterns.of(flow.topics, flow.topics_exclude))
    return _python_filter(flow, TOPIC_FILTER_KEY, path, TOPIC_FILTER_METHODS[0])


def group_filter(flow: FlowConfig) -> GroupFilter:
    """The flow's `GroupFilter`; raises `ConfigError` where its class cannot be used."""
    path = flow.groups.filter_class
    if path == DEFAULT_GROUP_FILTER:
        groups = Patterns.of(flow.groups.include, flow.groups.exclude)
        return _NoneOfOurs(filter=PatternGroupFilter(patterns=groups), lag=_lag_groups(flow))
    found = _python_filter(flow, GROUP_FILTER_KEY, path, GROUP_FILTER_METHODS[0])
    return _NoneOfOurs(filter=found, lag=_lag_groups(flow))


def _lag_groups(flow: FlowConfig) -> re.Pattern[str] | None:
    """Groups that this flow and others like it commit on their sources (`lag.group`)."""
    if flow.lag_group is None:
        return None
    parts = (re.escape(part) for part in re.split(r"\{source\}|\{target\}", flow.lag_group))
    return re.compile(".+".join(parts))


@dataclass(frozen=True, slots=True, kw_only=True)
class _NoneOfOurs:
    """Whatever is asked for, groups that Heliograph made on one cluster stay there."""

    filter: GroupFilter
    lag: re.Pattern[str] | None

    def should_follow(self, group: str) -> bool:
        if is_shadow(group) or (self.lag is not None and self.lag.fullmatch(group)):
            return False
        return self.filter.should_follow(group)


def config_filter(flow: FlowConfig) -> ConfigFilter:
    """The flow's `ConfigFilter`; raises `ConfigError` where its class cannot be used."""
    path = flow.topic_configs.filter_class
    if path == DEFAULT_CONFIG_FILTER:
        excluded = Patterns.of((), flow.config_properties_exclude)
        return PatternConfigFilter(patterns=excluded)
    return _python_filter(flow, CONFIG_FILTER_KEY, path, CONFIG_FILTER_METHODS[0])


def _python_filter(flow: FlowConfig, key: str, path: str, method: str) -> PythonFilter:
    if not is_python_path(path):
        why = f"{key}: is `{path}`, a Java class that cannot run here; write `module:Class`"
        raise ConfigError(str(flow.id), (why,))
    try:
        found = load_class(path, (method,))
    except UnusableClass as exc:
        raise ConfigError(str(flow.id), (f"{key}: is `{path}`, {exc}",)) from exc
    try:
        made = found(flow)
    except Exception as exc:  # foreign code may raise anything
        said = f"{type(exc).__name__}: {exc}"
        why = f"{key}: is `{path}`, which cannot be constructed with a FlowConfig: {said}"
        raise ConfigError(str(flow.id), (why,)) from exc
    return PythonFilter(path, made, method)
