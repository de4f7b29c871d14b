"""Lag of a lane, a topic, a flow, in one shape. Pure; runs anywhere.

None is what is not known, and is shown as `?`. Where a time can also be *never*, it is `math.inf`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, Final, Literal

from pydantic import WithJsonSchema

from heliograph.model import FlowId, LaneId, TopicName

NEVER: Final = math.inf
UNKNOWN_TEXT: Final = "?"
NEVER_TEXT: Final = "never"


class Motion(StrEnum):
    """What a lane does about its lag."""

    IDLE = "idle"
    """Nothing waits."""
    MOVING = "moving"
    """Records wait, and some were acknowledged lately."""
    STUCK = "stuck"
    """Records wait, nothing keeps the lane from copying, and none was acknowledged for a while."""
    STALLED = "stalled"
    """The lane itself says that it cannot go on."""
    HELD = "held"
    """An operator keeps it from copying: paused, stopped, excluded, fenced."""
    UNKNOWN = "unknown"
    """It has not begun, or its slot or its source was not heard."""


class Trend(StrEnum):
    """Where the lag goes, over the last minute or so."""

    SHRINKING = "shrinking"
    STEADY = "steady"
    GROWING = "growing"


OverrunBy = Literal["", "log start", "retention.ms", "retention.bytes"]
LOG_START: Final = "log start"
"""What waits is gone: the log begins after it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Behind:
    """What lies between one of a lane's positions and the end of its source."""

    records: int | None = None
    """Offsets: markers and what was compacted away count as records."""
    bytes: int | None = None
    """Estimated from the records and what a record of the lane weighed so far."""
    seconds: float | None = None
    """Age of the oldest record that waits; of several lanes that of the worst."""


NOT_KNOWN: Final = Behind()
NOTHING: Final = Behind(records=0, bytes=0, seconds=0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lag:
    """The figures that lanes, topics and flows have alike."""

    motion: Motion
    """Of several lanes the worst: stalled, stuck, unknown, held, moving, idle."""
    read: Behind = NOT_KNOWN
    """Not fetched from the source yet."""
    acknowledged: Behind = NOT_KNOWN
    """Not acknowledged by the target yet. This is what *lag* alone means."""
    committed: Behind = NOT_KNOWN
    """Not noted in the ledger yet: where a driver would be that only had the ledger."""
    records_per_s: float | None = None
    """Acknowledged by the target."""
    bytes_per_s: float | None = None
    """The same in bytes, estimated as `Behind.bytes` is."""
    source_records_per_s: float | None = None
    """Written to the source."""
    catch_up_s: float | None = None
    """0 when nothing waits; `NEVER` while the source is written to as fast as it is copied. Of
    several lanes the slowest, so that skew shows."""
    trend: Trend | None = None
    overrun_s: float | None = None
    """Until the source may delete what waits, at the present rates, at the earliest; `NEVER` where
    it does not delete, or the lane gets away from it. 0 when it has. Of several lanes the first."""
    overrun_by: OverrunBy = ""
    """What would delete it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneLag(Lag):
    lane: LaneId
    still_s: float | None = None
    """For how long records have waited without one being acknowledged; None where none waits, or
    where it is not known."""
    retention_s: float | None = None
    """How long the source keeps a record; `NEVER` where its age does not matter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicLag(Lag):
    flow: FlowId
    topic: TopicName
    lanes: int
    motions: Mapping[Motion, int] = field(default_factory=dict)
    worst: LaneId | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowLag(Lag):
    flow: FlowId
    lanes: int
    topics: int
    motions: Mapping[Motion, int] = field(default_factory=dict)
    worst: LaneId | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LagReport:
    """Everything at one moment; nothing in it changes."""

    at_ms: int
    lanes: Mapping[LaneId, LaneLag] = field(default_factory=dict)
    topics: Mapping[tuple[FlowId, TopicName], TopicLag] = field(default_factory=dict)
    flows: Mapping[FlowId, FlowLag] = field(default_factory=dict)


_NeverWord = Annotated[
    Literal["never"],
    # A generator of clients takes `const` for what every value has to be.
    WithJsonSchema({"type": "string", "enum": ["never"]}),
]
Seconds = float | _NeverWord | None
"""As JSON has it."""


def json_seconds(seconds: float | None) -> Seconds:
    """JSON has no infinity."""
    if seconds is None:
        return None
    return NEVER_TEXT if seconds == NEVER else round(seconds, 3)


def seconds_words(seconds: float | None) -> str:
    """`?`, `never`, `0:00:12`, or days where it is more than two."""
    if seconds is None:
        return UNKNOWN_TEXT
    if seconds == NEVER:
        return NEVER_TEXT
    if seconds >= 2 * 86_400:
        return f"{seconds / 86_400:,.0f} d"
    whole = math.ceil(seconds)
    return f"{whole // 3600}:{whole % 3600 // 60:02}:{whole % 60:02}"
