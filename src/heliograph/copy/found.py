"""What a resume finds out about a lane. Runs on executors."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol, TypeVar

from heliograph.copy.chunk import LaneCursor, SourcePoint
from heliograph.errors import CorruptBatch, InvariantError, MirrorError
from heliograph.ledger.replay_guard import Ahead
from heliograph.letters.lane import LaneLetters
from heliograph.model import Lane, StallReason, TopicId

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumePoint:
    cursor: LaneCursor
    target_topic_id: TopicId
    """Of the topic whose log was looked at; what the cluster names later may be another."""
    identical: bool
    foreign_records: int = 0
    """Found since the last head and not in the map before."""
    written_until: int = 0
    """Up to where the map has been written, records there or not."""
    ahead: Ahead | None = None
    """What that map says of records that are not in the log."""
    letters: LaneLetters | None = None
    """What was decided to be dead letters from there on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocked:
    """Somebody must decide; the lane's own place is known all the same."""

    reason: StallReason
    detail: str
    position: int = 0
    source_next_offset: int = 0
    """Of the source topic the lane read."""
    target_next_offset: int = -1
    """Where the target's log ends; -1 where that log is not the lane's."""
    source_leader_epoch: int = -1
    retry_s: float | None = None
    """When to look again; None where nothing but a new start can help."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowFenced:
    """No lane of the flow, or of the lane's topic, may go on until the fence is lifted."""

    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceTrouble:
    """It is the source that the lane waits for."""

    error: MirrorError


Found = ResumePoint | Blocked | FlowFenced | SourceTrouble | MirrorError


class Resumable(Protocol):
    """A lane, as far as a resume looks at it."""

    @property
    def spec(self) -> Lane: ...

    @property
    def source_point(self) -> SourcePoint | None:
        """The last of the source that its slot knows to be mirrored; the ledger may know less."""

    @property
    def sure_position(self) -> int | None:
        """Where its slot knows the lane to stand; None where it sent what was not answered."""


L = TypeVar("L", bound=Resumable)
Report = Callable[[L, Found], None]


async def report_found(lane: L, place: Awaitable[Found], report: Report[L]) -> None:
    """Whatever becomes of it, the lane is reported once."""
    found: Found
    try:
        found = await place
    except CorruptBatch as exc:
        found = CorruptBatch(exc.offset, f"{lane.spec.target}, which is the target: {exc.why}")
    except MirrorError as exc:
        found = exc
    except Exception as exc:  # our own bug must not take the other lanes along
        log.exception("%s: a bug", lane.spec.id)
        found = InvariantError(f"{type(exc).__name__}: {exc}")
    report(lane, found)
