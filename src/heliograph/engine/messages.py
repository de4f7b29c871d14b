"""What driver and slot say to each other over the link. Runs on both sides.

Every message has a `kind`; the JSON body of a frame is one message.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Final, Literal

from pydantic import Field, TypeAdapter, ValidationError

from heliograph.errors import LinkError
from heliograph.model import Lane, LaneId, LaneProgress, SlotFigures, SlotId

LANES_PER_MESSAGE: Final = 2_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Beat:
    """Sent by the slot, echoed by the driver; the lease is renewed from when it was *sent*."""

    number: int
    kind: Literal["beat"] = "beat"


@dataclass(frozen=True, slots=True, kw_only=True)
class AddLanes:
    """Carry these; a lane already carried with an equal spec goes on undisturbed."""

    lanes: tuple[Lane, ...]
    kind: Literal["add_lanes"] = "add_lanes"


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveLanes:
    """Stop these, wait for what is in flight, then say `Settled`."""

    ids: tuple[LaneId, ...]
    settle: bool = True
    """Whether what was fetched and not sent yet is appended first, or dropped."""
    kind: Literal["remove_lanes"] = "remove_lanes"


@dataclass(frozen=True, slots=True, kw_only=True)
class PauseLanes:
    ids: tuple[LaneId, ...]
    kind: Literal["pause_lanes"] = "pause_lanes"


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumeLanes:
    ids: tuple[LaneId, ...]
    kind: Literal["resume_lanes"] = "resume_lanes"


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitLanes:
    """These lanes keep these limits from now on, and no others."""

    ids: tuple[LaneId, ...]
    limits: tuple[str, ...]
    kind: Literal["limit_lanes"] = "limit_lanes"


@dataclass(frozen=True, slots=True, kw_only=True)
class Throttle:
    """This slot's share of a limit; None lifts it."""

    limit: str
    bytes_per_s: int | None
    kind: Literal["throttle"] = "throttle"


@dataclass(frozen=True, slots=True, kw_only=True)
class Configure:
    """Carry on with these settings; sent before any lane that needs them."""

    version: int
    """Higher than that of all settings before."""
    sealed: str
    """`engine.sealed.SlotSettings`."""
    kind: Literal["configure"] = "configure"


@dataclass(frozen=True, slots=True, kw_only=True)
class Drain:
    """Settle everything, say so, end the task."""

    kind: Literal["drain"] = "drain"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """End at once; nothing more is settled."""

    kind: Literal["stop"] = "stop"


@dataclass(frozen=True, slots=True, kw_only=True)
class Hello:
    """First message of every connection. What the slot carries is said in full, because messages
    of either direction may have been lost with the connection before."""

    slot: SlotId
    generation: int
    attempt: str
    machine: str
    pid: int
    lanes: tuple[Lane, ...]
    lanes_to_come: int = 0
    """In `MoreLanes` that follow at once: a frame has a bound, the lanes of a slot have none."""
    settings_version: int = 0
    """Of the settings it carries by."""
    kind: Literal["hello"] = "hello"


@dataclass(frozen=True, slots=True, kw_only=True)
class MoreLanes:
    """The rest of a hello."""

    lanes: tuple[Lane, ...]
    kind: Literal["more_lanes"] = "more_lanes"


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Only lanes that changed since the last report on this connection."""

    slot: SlotId
    at_ms: int
    lanes: tuple[LaneProgress, ...]
    cpu_s: float = 0.0
    """What the slot's process has used of a core since it began."""
    kind: Literal["progress"] = "progress"


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What the slot as a whole has done, since it began."""

    figures: SlotFigures
    kind: Literal["figures"] = "figures"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """The slot has let go of these for good; another may take them."""

    ids: tuple[LaneId, ...]
    kind: Literal["settled"] = "settled"


Down = (
    AddLanes
    | RemoveLanes
    | PauseLanes
    | ResumeLanes
    | LimitLanes
    | Throttle
    | Configure
    | Drain
    | Stop
    | Beat
)
Up = Hello | MoreLanes | Progress | Figures | Settled | Beat

_DOWN: Final[TypeAdapter[Down]] = TypeAdapter(Annotated[Down, Field(discriminator="kind")])
_UP: Final[TypeAdapter[Up]] = TypeAdapter(Annotated[Up, Field(discriminator="kind")])


def hello_messages(hello: Hello) -> list[Hello | MoreLanes]:
    """The hello in parts that each fit a frame."""
    first, rest = hello.lanes[:LANES_PER_MESSAGE], hello.lanes[LANES_PER_MESSAGE:]
    more = [
        MoreLanes(lanes=rest[start : start + LANES_PER_MESSAGE])
        for start in range(0, len(rest), LANES_PER_MESSAGE)
    ]
    return [replace(hello, lanes=first, lanes_to_come=len(rest)), *more]


def encode_down(message: Down) -> bytes:
    return _DOWN.dump_json(message)


def encode_up(message: Up) -> bytes:
    return _UP.dump_json(message)


def decode_down(body: bytes) -> Down:
    try:
        return _DOWN.validate_json(body)
    except ValidationError as exc:
        raise LinkError(f"the driver sent what is no message: {_first_problem(exc)}") from exc


def decode_up(body: bytes) -> Up:
    try:
        return _UP.validate_json(body)
    except ValidationError as exc:
        raise LinkError(f"the slot sent what is no message: {_first_problem(exc)}") from exc


def _first_problem(exc: ValidationError) -> str:
    problem = exc.errors(include_input=False, include_url=False)[0]
    place = ".".join(str(step) for step in problem["loc"])
    return f"{place or 'body'}: {problem['msg']}"
