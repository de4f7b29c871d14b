"""Consumer groups as JSON: what `groups --json` prints and the API answers. Driver only."""

from __future__ import annotations

from heliograph.broker.group_view import GroupState, GroupType
from heliograph.document import At, Document, Text
from heliograph.inspect.groups import Verdict


class GroupDocument(Document):
    group: str
    type: GroupType
    topic: str = At("source.topic")
    partition: int = At("source.partition")
    target_topic: str = At("target.topic")
    source_offset: int
    target_offset: int | None = At("translated.offset", None)
    clamped: str | None = At("translated.side", None)
    committed_offset: int | None
    target_end_offset: int | None
    lag_records: int | None
    source_state: GroupState | None
    target_state: GroupState | None
    verdict: Verdict


class FlowGroupsDocument(Document):
    flow: Text
    writes_offsets: bool
    problems: tuple[str, ...]
    groups: tuple[GroupDocument, ...] = At("rows")


class GroupsDocument(Document):
    at_ms: int
    flows: tuple[FlowGroupsDocument, ...]
