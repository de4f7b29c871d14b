"""A decision: who wants what of which lanes, why, and until when. No I/O; runs anywhere."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from functools import cached_property
from typing import Annotated, Final

from pydantic import Field

from heliograph.config.mm2.regexes import RegexRefused, from_java
from heliograph.errors import MirrorError
from heliograph.model import SlotId, TopicPartition

WHO_CHARS_MAX: Final = 128
WHY_CHARS_MAX: Final = 512
TOPICS_MAX: Final = 256
PARTITIONS_MAX: Final = 4_096
SLOTS_MAX: Final = 1_024
_NAME_CHARS_MAX: Final = 249
_NUMBER_MAX: Final = 2**31 - 1
_STARS_MAX: Final = 3
_RATE_MAX: Final = 2**53
_NAME: Final = re.compile(r"[A-Za-z0-9._-]+")
_ESCAPED: Final = re.compile(r"(?:[A-Za-z0-9._-]|\\[.\-])+")


class BadDecision(MirrorError):
    """What was asked for cannot be decided; nothing was written."""


class Verb(StrEnum):
    PAUSE = "pause"
    RESUME = "resume"
    THROTTLE = "throttle"
    THROTTLE_SOURCE = "throttle-source"
    """What all flows together read from the flow's source."""
    THROTTLE_TARGET = "throttle-target"
    """What all flows together write to the flow's target."""
    PIN = "pin"
    MOVE = "move"
    DRAIN = "drain"
    EXCLUDE = "exclude"
    INCLUDE = "include"
    STOP = "stop"
    START = "start"
    REWIND = "rewind"

    @property
    def aspect(self) -> str:
        """Decisions of one aspect and one scope replace each other."""
        return _ASPECTS.get(self, self.value)


_ASPECTS: Final = {
    Verb.RESUME: Verb.PAUSE.value,
    Verb.MOVE: Verb.PIN.value,
    Verb.INCLUDE: Verb.EXCLUDE.value,
    Verb.START: Verb.STOP.value,
}
_OF_CLUSTERS: Final = (Verb.THROTTLE_SOURCE, Verb.THROTTLE_TARGET)
"""Verbs about a cluster of the flow, kept by each flow for its own lanes."""
THROTTLES: Final = frozenset({Verb.THROTTLE, *_OF_CLUSTERS})
ONLY_FLOWS: Final = frozenset({Verb.STOP, Verb.START, Verb.DRAIN, *_OF_CLUSTERS})
"""Verbs about a flow as a whole."""
ONLY_TOPICS: Final = frozenset({Verb.EXCLUDE, Verb.INCLUDE})
"""Verbs about topics as a whole."""
_WITH_SLOTS: Final = frozenset({Verb.PIN, Verb.MOVE, Verb.DRAIN})


class Breadth(IntEnum):
    """How many lanes a scope is meant for; the higher one wins over the lower."""

    FLOW = 0
    PATTERN = 1
    TOPIC = 2
    PARTITION = 3


_Name = Annotated[str, Field(min_length=1, max_length=_NAME_CHARS_MAX)]
_Number = Annotated[int, Field(ge=0, le=_NUMBER_MAX)]


@dataclass(frozen=True, kw_only=True)
class Scope:
    """Which lanes of a flow: all, those of topics by name or regex, or single partitions."""

    topics: Annotated[tuple[_Name, ...], Field(max_length=TOPICS_MAX)] = ()
    """By their names on the source."""
    patterns: Annotated[tuple[_Name, ...], Field(max_length=TOPICS_MAX)] = ()
    """Regexes, as `topics` of the configuration has them, that match a whole name."""
    partitions: Annotated[tuple[_Number, ...], Field(max_length=PARTITIONS_MAX)] = ()
    """Only these of the topics; none: every one."""

    @property
    def breadth(self) -> Breadth:
        if self.partitions:
            return Breadth.PARTITION
        if self.patterns:
            return Breadth.PATTERN
        return Breadth.TOPIC if self.topics else Breadth.FLOW

    @cached_property
    def _names(self) -> frozenset[str]:
        return frozenset(self.topics)

    @cached_property
    def _regexes(self) -> tuple[re.Pattern[str], ...]:
        return tuple(map(_compiled, self.patterns))

    @cached_property
    def _numbers(self) -> frozenset[int]:
        return frozenset(self.partitions)

    def has_topic(self, topic: str) -> bool:
        """Whether any lane of the topic is meant."""
        if not self.topics and not self.patterns:
            return True
        return topic in self._names or any(regex.fullmatch(topic) for regex in self._regexes)

    def has_partition(self, number: int) -> bool:
        """Of a topic that is meant."""
        return not self.partitions or number in self._numbers

    def has(self, lane: TopicPartition) -> bool:
        return self.has_topic(lane.topic) and self.has_partition(lane.partition)

    def __str__(self) -> str:
        topics = ", ".join((*self.topics, *self.patterns)) or "every topic"
        if not self.partitions:
            return topics
        return f"{topics}: partition {', '.join(map(str, self.partitions))}"


def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(from_java(pattern))
    except RegexRefused:
        return re.compile(pattern)  # of the file, which was translated when it was read


WHOLE_FLOW: Final = Scope()


def scope_of(asked: tuple[str, ...], partitions: tuple[int, ...] = ()) -> Scope:
    """What `--topic` and `--partition` mean: a word is a name, anything else a regex.

    Raises `BadDecision`.
    """
    topics: list[str] = []
    patterns: list[str] = []
    for word in dict.fromkeys(part.strip() for part in asked):
        if not word or len(word) > _NAME_CHARS_MAX:
            raise BadDecision(f"a topic has 1 to {_NAME_CHARS_MAX} characters, not {len(word)}")
        if _ESCAPED.fullmatch(word):
            topics.append(word.replace("\\", ""))
            continue
        _require_regex(word)
        patterns.append(word)
    if partitions and not asked:
        raise BadDecision("a partition is one of a topic: name the topic too")
    if len(topics) + len(patterns) > TOPICS_MAX or len(partitions) > PARTITIONS_MAX:
        raise BadDecision(
            f"a decision is about at most {TOPICS_MAX} topics and {PARTITIONS_MAX:,} partitions; "
            "use a regex"
        )
    return Scope(
        topics=tuple(sorted(topics)),
        patterns=tuple(sorted(patterns)),
        partitions=tuple(sorted(set(partitions))),
    )


def _require_regex(pattern: str) -> None:
    try:
        from_java(pattern)
    except RegexRefused as exc:
        raise BadDecision(f"topic {pattern!r} is neither a name nor a regex: {exc}") from exc
    if _may_take_long(pattern):
        raise BadDecision(
            f"topic {pattern!r} could take the driver minutes to match: at most {_STARS_MAX} `*` "
            "or `+`, and no group that repeats with `*`, `+` or `|` in it"
        )


def _may_take_long(pattern: str) -> bool:
    """Whether names could be matched in very many ways: the driver's loop would wait for them."""
    # Escapes and classes are one character each.
    plain = re.sub(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]", "x", pattern)
    groups: list[tuple[int, bool]] = []
    stars, is_many = 0, False
    for at, char in enumerate(plain):
        if char == "(":
            groups.append((stars, is_many))
            is_many = False
        elif char == ")" and groups:
            if is_many and plain[at + 1 : at + 2] in ("*", "+", "{"):
                return True
            before = groups.pop()
            is_many = is_many or before[1]
        elif char == "|":
            is_many = True
            stars = groups[-1][0] if groups else 0
        elif char in "*+{":
            stars, is_many = stars + 1, True
            if stars > _STARS_MAX:
                return True
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Withdrawal:
    who: Annotated[str, Field(max_length=WHO_CHARS_MAX)]
    at_ms: Annotated[int, Field(ge=0)]


@dataclass(frozen=True, kw_only=True)
class Decision:
    """Written once under a key of its own and never changed; see `record` for its end."""

    id: Annotated[str, Field(pattern="^[0-9a-f]{10}$")]
    verb: Verb
    scope: Scope = WHOLE_FLOW
    who: Annotated[str, Field(max_length=WHO_CHARS_MAX)]
    at_ms: Annotated[int, Field(ge=0)]
    why: Annotated[str, Field(max_length=WHY_CHARS_MAX)] = ""
    until_ms: Annotated[int | None, Field(ge=0)] = None
    """By the clock of whoever reads it; then what was decided before holds again."""
    bytes_per_s: Annotated[int | None, Field(ge=1, le=_RATE_MAX)] = None
    """Of a throttle, for all its lanes together; None lifts wider throttles, but for those of
    clusters."""
    slots: Annotated[tuple[_Number, ...], Field(max_length=SLOTS_MAX)] = ()
    """Of a pin, move or drain; none: not pinned any more, or drained any more."""
    offset: Annotated[int | None, Field(ge=0)] = None
    """Of a rewind: the source offset to go on with; None: the first there is."""
    withdrawn: Withdrawal | None = field(default=None, compare=False)
    done_ms: int | None = field(default=None, compare=False)
    """When a rewind was carried out."""

    @property
    def key(self) -> tuple[str, Scope]:
        return self.verb.aspect, self.scope

    @property
    def slot_ids(self) -> frozenset[SlotId]:
        return frozenset(map(SlotId, self.slots))

    def has_ended(self, now_ms: int) -> bool:
        return self.until_ms is not None and self.until_ms <= now_ms

    def check(self) -> None:
        """Raises `BadDecision` for what no lane could follow."""
        if self.verb in ONLY_FLOWS and self.scope.breadth is not Breadth.FLOW:
            raise BadDecision(f"{self.verb} is for a whole flow; leave topics out")
        if self.verb in ONLY_TOPICS and self.scope.breadth not in (Breadth.PATTERN, Breadth.TOPIC):
            raise BadDecision(f"{self.verb} is for topics: name them, without partitions")
        if self.verb is Verb.MOVE and len(self.slots) != 1:
            raise BadDecision("a lane is moved to one slot")
        if self.verb is Verb.REWIND and not self.scope.topics:
            raise BadDecision("a rewind is for topics by their names")
        if self.slots and self.verb not in _WITH_SLOTS:
            raise BadDecision(f"{self.verb} has no slots")
        if self.bytes_per_s is not None and self.verb not in THROTTLES:
            raise BadDecision(f"{self.verb} has no rate")
        for name, text in (("who", self.who), ("why", self.why)):
            if not text.isprintable():
                raise BadDecision(f"{name} has characters that cannot be printed")
        if len(self.who) > WHO_CHARS_MAX or len(self.why) > WHY_CHARS_MAX:
            raise BadDecision(
                f"who and why have at most {WHO_CHARS_MAX} and {WHY_CHARS_MAX} characters"
            )
        if not all(_NAME.fullmatch(topic) for topic in self.scope.topics):
            raise BadDecision("a topic is named with letters, digits, `.`, `_` and `-`")
        for pattern in self.scope.patterns:
            _require_regex(pattern)
