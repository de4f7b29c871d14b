"""The transforms of a flow as the file names them, checked. Runs anywhere; pickles.

Kafka Connect's keys (`transforms`, `predicates` and what begins with them) and a few of our own in
the same form: `type` may be a Python function, `topics` keeps a transform to some topics.
"""

from __future__ import annotations

from typing import Final, Literal

from pydantic import Field

from heliograph.config.registry import SAME_SUBJECT
from heliograph.config.sections import NamingPolicyConfig, Section
from heliograph.model import ClusterAlias

TransformKind = Literal[
    "columns",
    "record",
    "handler",
    "Filter",
    "InsertHeader",
    "DropHeaders",
    "RegexRouter",
    "SchemaIds",
]
Fate = Literal["stall", "skip", "dead-letter"]
"""What becomes of a record that cannot be mirrored."""
DEAD_LETTER: Final = "dead-letter"
RecordPart = Literal["key", "value"]
OnStranger = Literal["fail", "pass"]
PredicateKind = Literal["TopicNameMatches", "HasHeaderKey", "RecordIsTombstone", "HeaderNames"]


class PredicateConfig(Section):
    """Which records a transform is for."""

    kind: PredicateKind
    """The class's name, without its package; `HeaderNames` is Heliograph's own."""
    text: str = ""
    """A regex for the topic's name on the target, a header's name, or what a header holds."""
    headers: tuple[str, ...] = ()
    """Those of which one must hold `text`, of `HeaderNames`."""
    negate: bool = False
    """Whether it is for the others."""


class SchemaIdsConfig(Section):
    """Where ids of schemas stand, and which registries say what they become."""

    parts: tuple[RecordPart, ...] = ("value",)
    """Of a record, that begin with an id."""
    id_bytes: Literal[4, 8] = 4
    """Length of an id behind the magic byte 0."""
    on_unknown: OnStranger = "fail"
    """What becomes of an id that the source's registry does not know."""
    on_unframed: OnStranger = "fail"
    """What becomes of bytes that begin with no id."""
    rename: str = SAME_SUBJECT
    """`schemas.subjects.rename` of the flow."""
    source: ClusterAlias
    """Alias in names, as `policy` has it."""
    target: ClusterAlias
    policy: NamingPolicyConfig = NamingPolicyConfig()
    routers: tuple[TransformConfig, ...] = ()
    """Of the flow, that rename topics."""


class TransformConfig(Section):
    """One transform of a flow."""

    name: str
    """Its alias."""
    kind: TransformKind
    """A function on columns or on one record, or the name of Connect's class."""
    function: str = ""
    """`module:function` of the first three."""
    args: str | None = Field(default=None, repr=False)
    """What a handler is made with, as MirrorMaker 1's `--message.handler.args`."""
    headers: tuple[str, ...] = ()
    """The header that is inserted, or those that are dropped."""
    literal: str = Field(default="", repr=False)
    """What the inserted header says."""
    regex: str = ""
    """Of a `RegexRouter`: the names on the target that it changes, whole."""
    replacement: str = ""
    """What it makes of them, as Java writes it: `$1` is a group of the regex."""
    schema_ids: SchemaIdsConfig | None = None
    """Of `SchemaIds`."""
    timeout_ms: int = 60_000
    """`transform.timeout.ms` of the flow."""
    memory_bytes_max: int = 1 << 30
    """`transform.memory.max.bytes` of the flow."""
    topics: tuple[str, ...] = ()
    """Regexes of source topics it is for; empty means all."""
    predicate: PredicateConfig | None = None
    """Which records of those it is for."""

    @property
    def names_topics(self) -> bool:
        """Whether it changes topics' names and no record: part of the naming, not of a lane."""
        return self.kind == "RegexRouter"

    def __str__(self) -> str:
        return f"{self.name} ({self.function or self.kind})"
