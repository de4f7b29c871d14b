"""Whether the position of a group on a topic is translated, and if not, why. No I/O; driver."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from heliograph.inspect.groups import FlowGroups, GroupRow, Verdict
from heliograph.inspect.near import did_you_mean, near_patterns
from heliograph.inspect.why import FlowFacts, Reason
from heliograph.model import FlowId, TopicName
from heliograph.topics.filters import Ruling

_MEANS = {
    Verdict.IN_STEP: "the group on the target stands there",
    Verdict.BEHIND: "the group on the target stands before it; the next sync moves it there",
    Verdict.AHEAD: "the group on the target stands behind it: it was moved there by others",
    Verdict.COARSE: "the ledger has forgotten the exact offset and knows one before it",
    Verdict.ACTIVE: "the group has members on the target, so the mirror does not write to it",
    Verdict.NOT_TRANSLATABLE: "nothing of the partition is mirrored yet that it could stand on",
    Verdict.NOT_WRITTEN: "it is translated when asked for, and not written to the target",
    Verdict.UNKNOWN: "the target does not tell about the group",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupWhy:
    flow: FlowId
    group: str
    followed: bool
    rows: tuple[GroupRow, ...]
    """Its offsets on the topic, one for each partition it has committed."""
    reasons: tuple[Reason, ...]

    @property
    def translated(self) -> bool:
        """Whether there is an answer for every partition it stands on."""
        return bool(self.rows) and all(row.translated is not None for row in self.rows)


def why_of_group(
    facts: FlowFacts,
    topic: TopicName,
    group: str,
    ruling: Ruling,
    found: FlowGroups | None,
    known: frozenset[str],
) -> GroupWhy:
    """`found` is what both clusters said of the group, None where they were not asked; `known` are
    the groups of the source."""
    rows = () if found is None else tuple(r for r in found.rows if r.source.topic == topic)
    reasons: list[Reason] = []
    if not ruling.wanted:
        fix = f"change {facts.flow.id}.{ruling.key}" if ruling.key else ""
        reasons.append(facts.reason(f"not followed: {ruling.why}", ruling.key, fix))
        if ruling.key == "groups":
            near = near_patterns(group, facts.flow.groups.include)
            reasons += [facts.reason(text, "groups") for text in near]
    elif found is not None:
        reasons += _followed(facts, topic, group, found, rows, known)
    return GroupWhy(
        flow=facts.flow.id,
        group=group,
        followed=ruling.wanted,
        rows=rows,
        reasons=tuple(reasons),
    )


def _followed(
    facts: FlowFacts,
    topic: TopicName,
    group: str,
    found: FlowGroups,
    rows: tuple[GroupRow, ...],
    known: frozenset[str],
) -> Iterator[Reason]:
    yield from (Reason(text=problem) for problem in found.problems)
    alias = facts.flow.id.source
    if not rows and group not in known and not found.problems:
        yield Reason(text=f"cluster {alias} shows no such group{did_you_mean(group, known)}")
    elif not rows and not found.problems:
        yield Reason(text=f"it has committed no offset on {topic} on cluster {alias}")
    for verdict in dict.fromkeys(row.verdict for row in rows):
        key = "sync.group.offsets.enabled" if verdict is Verdict.NOT_WRITTEN else ""
        fix = f"set {facts.flow.id}.{key} = true" if key else ""
        partitions = ", ".join(str(r.source.partition) for r in rows if r.verdict is verdict)
        text = f"partition {partitions}: {_MEANS[verdict]}"
        yield facts.reason(text, key, fix)
