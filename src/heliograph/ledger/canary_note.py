"""Canaries: small records that are sent now and then and looked for. No I/O; runs anywhere.

A canary is JSON, so that any consumer can read it, and carries a sequence of its flow. What arrives
is folded into a `Track` for each flow whose canaries come by: one hop, or several in a chain.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Final

from pydantic import Field

from heliograph.errors import WireError
from heliograph.ledger.entries import MemoEntry
from heliograph.ledger.memo import Memo, Typed
from heliograph.ledger.view import LedgerView
from heliograph.model import LATENCY_BUCKETS_MS

VERSION: Final = 1
RECENT_MAX: Final = 60
GAPS_MAX: Final = 50
TRACKS_MAX: Final = 32
_SUBJECT: Final = "canary"
_PROBLEM_CHARS_MAX: Final = 300
_Number = Annotated[int, Field(ge=0)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Canary:
    """What one canary says."""

    flow: Annotated[str, Field(max_length=512)]
    """The flow whose driver sent it, as `A->B`."""
    source: Annotated[str, Field(max_length=249)]
    """The cluster it was written to."""
    sequence: _Number
    sent_ms: _Number
    interval_s: _Number
    """When the next one is due."""
    driver: Annotated[str, Field(max_length=256)]
    """Host and pid of who wrote it."""


_CANARIES: Final[Typed[Canary]] = Typed(Canary)


def encode(canary: Canary) -> tuple[bytes, bytes]:
    """Key and value."""
    value = json.dumps({"v": VERSION, **_CANARIES.dump(canary)})
    return canary.flow.encode(), value.encode()


def decode(value: bytes | None) -> Canary | None:
    """None for what is no canary: anyone may write to the topic."""
    try:
        fields: Any = json.loads(value or b"")
        return _CANARIES.load("canary", fields) if isinstance(fields, dict) else None
    except (ValueError, WireError, RecursionError):
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Track:
    """Canaries of one flow, as they arrived."""

    flow: str
    source: str
    sequence: int
    """Of the newest that arrived."""
    sent_ms: int
    seen_ms: int
    latency_ms: int | None = None
    """Of the newest; None where it was there before anyone looked."""
    hop_ms: int | None = None
    """Of that, the part over this flow: where it was seen on the source too."""
    seen: _Number = 1
    missing: _Number = 0
    """Sequences that were jumped over, and did not come since."""
    late: _Number = 0
    """That came after their successors."""
    repeated: _Number = 0
    gaps: Annotated[tuple[int, ...], Field(max_length=GAPS_MAX)] = ()
    """The newest of the missing."""
    counts: tuple[int, ...] = (0,) * (len(LATENCY_BUCKETS_MS) + 1)
    """Canaries in each bucket of `LATENCY_BUCKETS_MS`, one more for what took longer."""
    recent: Annotated[tuple[int, ...], Field(max_length=RECENT_MAX)] = ()
    """Latencies of the last ones, in ms."""


def arrived(
    track: Track | None,
    canary: Canary,
    seen_ms: int,
    *,
    hop_ms: int | None = None,
    was_there: bool = False,
) -> Track:
    """The track with one more canary; `was_there` where it is not known when it arrived."""
    if track is not None and canary.sequence <= track.sequence:
        if canary.sequence not in track.gaps:
            return replace(track, repeated=track.repeated + 1)
        gaps = tuple(gap for gap in track.gaps if gap != canary.sequence)
        return replace(track, late=track.late + 1, missing=track.missing - 1, gaps=gaps)
    latency_ms = None if was_there else max(0, seen_ms - canary.sent_ms)
    before = track or Track(
        flow=canary.flow,
        source=canary.source,
        sequence=canary.sequence - 1,
        sent_ms=canary.sent_ms,
        seen_ms=seen_ms,
        seen=0,
    )
    jumped = range(before.sequence + 1, canary.sequence)
    return replace(
        before,
        sequence=canary.sequence,
        sent_ms=canary.sent_ms,
        seen_ms=seen_ms,
        latency_ms=latency_ms,
        hop_ms=None if was_there else hop_ms,
        seen=before.seen + 1,
        missing=before.missing + len(jumped),
        gaps=(*before.gaps, *jumped[-GAPS_MAX:])[-GAPS_MAX:],
        counts=before.counts if latency_ms is None else _counted(before.counts, latency_ms),
        recent=before.recent if latency_ms is None else (*before.recent, latency_ms)[-RECENT_MAX:],
    )


def _counted(counts: tuple[int, ...], latency_ms: int) -> tuple[int, ...]:
    at = sum(1 for bound in LATENCY_BUCKETS_MS if latency_ms > bound)
    return tuple(count + (number == at) for number, count in enumerate(counts))


@dataclass(frozen=True, slots=True, kw_only=True)
class CanaryNote:
    """How the canaries of a flow fare, as its ledger has it."""

    at_ms: int
    interval_s: _Number
    sequence: int = -1
    """Of the last that was sent; -1 before the first."""
    sent_ms: int | None = None
    waiting_ms: int | None = None
    """When the oldest was sent that has not arrived; None while none waits."""
    problem: Annotated[str, Field(max_length=_PROBLEM_CHARS_MAX)] = ""
    """Why none could be sent, or looked for."""
    topic: str = ""
    """Where they are looked for."""
    next_offsets: dict[str, int] = field(default_factory=dict)
    """Of each topic on the target, the first offset that was not looked at."""
    tracks: Annotated[tuple[Track, ...], Field(max_length=TRACKS_MAX)] = ()

    def track(self, flow: str) -> Track | None:
        return next((each for each in self.tracks if each.flow == flow), None)

    def late_s(self, now_ms: int) -> float:
        """How long the oldest canary is under way, or the next one overdue; 0 where neither is."""
        if self.waiting_ms is not None:
            return max(0, now_ms - self.waiting_ms) / 1000
        due_ms = (self.sent_ms if self.sent_ms is not None else self.at_ms) + 1000 * self.interval_s
        return max(0, now_ms - due_ms) / 1000


_NOTE: Final[Memo[CanaryNote]] = Memo(CanaryNote)


def canary_note(view: LedgerView) -> CanaryNote | None:
    """None where there is none, or none that can be read: the next canary writes another."""
    try:
        return _NOTE.read(view, _SUBJECT)
    except WireError:
        return None


def canary_entry(note: CanaryNote) -> MemoEntry:
    newest = sorted(note.tracks, key=lambda track: track.seen_ms)[-TRACKS_MAX:]
    problem = note.problem[:_PROBLEM_CHARS_MAX]
    return _NOTE.entry(_SUBJECT, replace(note, tracks=tuple(newest), problem=problem))
