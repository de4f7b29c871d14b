"""Consumer groups on both sides, one row for each group. No I/O; runs anywhere.

A group may have ten thousand partitions: they are counted by what is to be said of them, and the
worst ones are named.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from heliograph.inspect.groups import FlowGroups, GroupRow, GroupsStatus, Verdict
from heliograph.model import FlowId

GROUPS_MAX: Final = 200
PARTITIONS_MAX: Final = 20
_WORST: Final = (
    Verdict.NOT_TRANSLATABLE,
    Verdict.UNKNOWN,
    Verdict.AHEAD,
    Verdict.BEHIND,
    Verdict.NOT_WRITTEN,
    Verdict.COARSE,
    Verdict.ACTIVE,
    Verdict.IN_STEP,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupView:
    flow: str
    group: str
    type: str
    source_state: str | None
    target_state: str | None
    partitions: int
    verdicts: Mapping[str, int]
    """How many partitions are what, the worst first."""
    lag_records: int | None
    """Left to read on the target; None where that of one partition is not known."""
    worst: tuple[GroupRow, ...]

    @property
    def is_well(self) -> bool:
        return set(self.verdicts) <= {Verdict.IN_STEP.value, Verdict.ACTIVE.value}


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupsView:
    at_ms: int
    groups: tuple[GroupView, ...]
    total: int
    problems: tuple[tuple[str, str], ...]


def groups_view(found: GroupsStatus, visible: Collection[FlowId]) -> GroupsView:
    flows = [each for each in found.flows if each.flow in visible]
    groups = sorted(
        (view for flow in flows for view in _groups(flow)),
        key=lambda view: (_rank(view.worst[0].verdict), view.flow, view.group),
    )
    return GroupsView(
        at_ms=found.at_ms,
        groups=tuple(groups[:GROUPS_MAX]),
        total=len(groups),
        problems=tuple((str(flow.flow), why) for flow in flows for why in flow.problems),
    )


def _groups(flow: FlowGroups) -> Iterable[GroupView]:
    by_group: defaultdict[str, list[GroupRow]] = defaultdict(list)
    for row in flow.rows:
        by_group[row.group].append(row)
    for group, rows in by_group.items():
        rows.sort(key=lambda row: (_rank(row.verdict), -(row.lag_records or 0), row.source))
        lags = [row.lag_records for row in rows]
        first = rows[0]
        yield GroupView(
            flow=str(flow.flow),
            group=group,
            type=str(first.type),
            source_state=None if first.source_state is None else str(first.source_state),
            target_state=None if first.target_state is None else str(first.target_state),
            partitions=len(rows),
            verdicts=Counter(row.verdict.value for row in rows),
            lag_records=None if None in lags else sum(lag for lag in lags if lag is not None),
            worst=tuple(rows[:PARTITIONS_MAX]),
        )


def _rank(verdict: Verdict) -> int:
    return _WORST.index(verdict)
