"""Why a topic is mirrored or not, as JSON: for `why --json` and the API. Driver only."""

from __future__ import annotations

from heliograph.document import At, Document, OrNull, Text
from heliograph.inspect.groups_document import GroupDocument
from heliograph.inspect.why import Standing


class ReasonDocument(Document):
    text: str
    key: OrNull
    line: int | None
    is_default: bool
    fix: OrNull


class FlowWhyDocument(Document):
    flow: Text
    standing: Standing
    target_topic: str | None = At("target")
    since_ms: int | None
    states: dict[str, int]
    lag_records: int | None
    reasons: tuple[ReasonDocument, ...]


class GroupWhyDocument(Document):
    flow: Text
    group: str
    followed: bool
    translated: bool
    offsets: tuple[GroupDocument, ...] = At("rows")
    reasons: tuple[ReasonDocument, ...]


class WhyDocument(Document):
    at_ms: int
    topic: str
    flows: tuple[FlowWhyDocument, ...]
    groups: tuple[GroupWhyDocument, ...]
    hints: tuple[str, ...]
