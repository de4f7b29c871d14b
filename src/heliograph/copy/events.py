"""What a lane's two sides, its resume, its timers and the driver report of it. Runs on executors.

All go to `machine.LaneMachine.on`. What the source side finds out names the `Running` it is about:
asking a broker takes time, and the lane may have gone on meanwhile.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from heliograph.copy.chunk import OutgoingBatch
from heliograph.copy.found import Found
from heliograph.copy.phases import Resuming, Running, Stop
from heliograph.errors import MirrorError


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceEvent:
    """What the source side found out for one `Running`."""

    running: Running | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceAnswered(SourceEvent):
    """The source's leader answers again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceRefreshed(SourceEvent):
    """The source's metadata is as new as can be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceFailed(SourceEvent):
    """No good answer from the source's leader."""

    error: MirrorError


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceBlocked(SourceEvent):
    """The source has nothing that may follow what was fetched."""

    stop: Stop


@dataclass(frozen=True, slots=True, kw_only=True)
class Throttled(SourceEvent):
    """The flow may fetch no more for so long."""

    wait_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SequenceMismatch:
    """The target's log holds something else than the lane thought."""

    detail: str
    """What the target said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchTooLarge:
    """The target refused a batch for its size."""

    error: MirrorError


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchUnwritable:
    """The target refused a batch for what a record in it is, and the lane is to go on without."""

    batch: OutgoingBatch
    code: str
    error: MirrorError


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetFailed:
    """The target refused a batch or did not answer: unknown whether it has it."""

    error: MirrorError


@dataclass(frozen=True, slots=True)
class Drained:
    """Nothing of the lane waits or is in flight."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LookedUp:
    """Log and ledger were asked where the lane goes on."""

    asked: Resuming
    found: Found


@dataclass(frozen=True, slots=True)
class ResumeDue:
    """A lane has waited long enough to ask its log."""


@dataclass(frozen=True, slots=True)
class FetchDue:
    """The source that failed is to be tried again."""


@dataclass(frozen=True, slots=True)
class ThrottleOver:
    """The flow may fetch again."""


@dataclass(frozen=True, slots=True)
class Resume:
    """A stalled or paused lane is to go on: its time has come, or the driver says so."""


@dataclass(frozen=True, slots=True)
class Pause:
    """The driver says so."""


@dataclass(frozen=True, slots=True)
class Retire:
    """Fetch no more, whatever happens: the lane leaves this slot once all is settled."""


@dataclass(frozen=True, slots=True)
class Close:
    """The slot lets go of the lane."""


DRAINED: Final = Drained()

TargetEvent = SequenceMismatch | BatchTooLarge | BatchUnwritable | TargetFailed
LaneEvent = (
    SourceEvent
    | TargetEvent
    | Drained
    | LookedUp
    | ResumeDue
    | FetchDue
    | ThrottleOver
    | Resume
    | Pause
    | Retire
    | Close
)
