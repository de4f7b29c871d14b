"""What driver and slot say to each other over the link. Runs on both sides.

Every message has a `kind`; the JSON body of a frame is one message.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final, Literal

from pydantic import Field, TypeAdapter, ValidationError

from heliograph.errors import LinkError
from heliograph.model import FlowId, Lane, LaneId, LaneProgress, SlotId


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
    """Stop these, settle what is in flight, then say `Settled`."""

    ids: tuple[LaneId, ...]
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
class Throttle:
    """This slot's share of a flow's limit; None lifts it."""

    flow: FlowId
    bytes_per_s: int | None
    kind: Literal["throttle"] = "throttle"


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
    kind: Literal["hello"] = "hello"


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Only lanes that changed since the last report on this connection."""

    slot: SlotId
    at_ms: int
    lanes: tuple[LaneProgress, ...]
    kind: Literal["progress"] = "progress"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """The slot has let go of these for good; another may take them."""

    ids: tuple[LaneId, ...]
    kind: Literal["settled"] = "settled"


Down = AddLanes | RemoveLanes | PauseLanes | ResumeLanes | Throttle | Drain | Stop | Beat
Up = Hello | Progress | Settled | Beat

_DOWN: Final[TypeAdapter[Down]] = TypeAdapter(Annotated[Down, Field(discriminator="kind")])
_UP: Final[TypeAdapter[Up]] = TypeAdapter(Annotated[Up, Field(discriminator="kind")])


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
