"""How a run of a mirror ended. Runs on the driver."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from heliograph.model import FlowId, LaneId, LaneProgress, Stalled


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """How a mirror was when it ended."""

    progress: Mapping[LaneId, LaneProgress]
    fenced: frozenset[FlowId] = frozenset()
    """Flows that no driver may carry until their fence is lifted."""
    unadopted: int = 0
    """Partitions that wait for `heliograph adopt`."""
    failures: Mapping[FlowId, str] = field(default_factory=dict)
    """Why a flow or a topic of it is not mirrored, or what of its jobs does not work."""

    @property
    def stalled(self) -> tuple[LaneProgress, ...]:
        return tuple(at for at in self.progress.values() if isinstance(at.state, Stalled))

    @property
    def is_well(self) -> bool:
        """Whether nothing needs an operator; a flow that is fenced on purpose, beside others that
        are mirrored, does not."""
        all_fenced = bool(self.fenced) and not self.progress
        return not (self.stalled or all_fenced or self.unadopted or self.failures)
