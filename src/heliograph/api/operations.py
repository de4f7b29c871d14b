"""Long work that can be watched: a failover takes minutes, its request a moment. Driver only.

Operations are kept in the driver's memory. What a failover or failback did is in the flow's ledger:
one that a killed driver left is resumed by the same request to the next driver.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict

from heliograph.api.problems import ApiProblem, ErrorBody, problem_of
from heliograph.broker.blocking import blocking
from heliograph.clock import now_ms
from heliograph.driver.problems import problem_of as problem_of_any
from heliograph.model import FlowId
from heliograph.procedure.runner import Say, StepEvent

_KEPT_MAX: Final = 200
"""Of those that are over."""
_ID_BYTES: Final = 8

State = Literal["running", "done", "refused", "failed"]
Work = Callable[[Say], dict[str, Any]]
"""Called on a thread of its own, and may block; returns the result. Raises `MirrorError`."""


class StepBody(BaseModel):
    """One step of an operation."""

    name: str
    state: Literal["running", "done", "done before"]
    text: str
    seconds: float | None


class OperationBody(BaseModel):
    """Long work, begun by a request."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    id: str
    kind: str
    """The verb: failover, promote, reverse or restore."""
    flow: str
    by: str
    """Name of the token that asked for it."""
    state: State
    """`refused`: something stands in the way and nothing is broken; `failed`: try it again."""
    began_ms: int
    ended_ms: int | None = None
    steps: list[StepBody] = []
    result: dict[str, Any] | None = None
    """What was done, topic by topic, as the command's `--json` has it."""
    error: ErrorBody | None = None


class Operations:
    """Belongs to the driver's loop. A flow has one running operation at most."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, OperationBody] = OrderedDict()
        self._tasks: dict[str, asyncio.Task[None]] = {}

    @property
    def all(self) -> tuple[OperationBody, ...]:
        """The newest first."""
        return tuple(reversed(self._known.values()))

    @property
    def running(self) -> tuple[OperationBody, ...]:
        return tuple(one for one in self._known.values() if one.state == "running")

    def get(self, wanted: str) -> OperationBody:
        found = self._known.get(wanted)
        if found is None:
            raise ApiProblem(404, f"this driver has no operation {wanted[:100]!r}")
        return found

    def begin(self, kind: str, flow: FlowId, by: str, work: Work) -> OperationBody:
        """Start `work`; raises 409 while another operation of the flow runs."""
        for other in self.running:
            if other.flow == str(flow):
                raise ApiProblem(
                    409,
                    f"{other.kind} of {flow} is running (operation {other.id}); wait for it",
                    code="operation_running",
                    details={"operation": other.id},
                )
        body = OperationBody(
            id=secrets.token_hex(_ID_BYTES),
            kind=kind,
            flow=str(flow),
            by=by,
            state="running",
            began_ms=now_ms(),
        )
        self._known[body.id] = body
        self._forget_oldest()
        task = asyncio.create_task(self._run(body, work), name=f"{kind} of {flow}")
        self._tasks[body.id] = task
        task.add_done_callback(lambda _: self._tasks.pop(body.id))
        return body

    async def accepted(self, begun: OperationBody, accepted: asyncio.Event) -> None:
        """Wait until it is, or over; raises 412, and forgets it, where it found another plan than
        the one that was to be carried out."""
        task = self._tasks.get(begun.id)
        if task is not None:
            waiting = asyncio.ensure_future(accepted.wait())
            await asyncio.wait([task, waiting], return_when=asyncio.FIRST_COMPLETED)
            waiting.cancel()
        if begun.error is not None and begun.error.status == 412:
            self._known.pop(begun.id, None)
            raise ApiProblem(412, begun.error.message)

    async def _run(self, body: OperationBody, work: Work) -> None:
        loop = asyncio.get_running_loop()

        def say(event: StepEvent) -> None:
            loop.call_soon_threadsafe(_hear, body, event)

        try:
            body.result = await blocking(work, say)
            body.state = "done"
        except Exception as exc:  # noqa: BLE001 - who watches the operation is told
            found = problem_of(problem_of_any(exc))
            body.state = "refused" if found.status == 409 else "failed"
            body.error = ErrorBody(
                status=found.status, code=found.code, message=found.message, details=found.details
            )
        body.ended_ms = now_ms()

    def _forget_oldest(self) -> None:
        over = [one.id for one in self._known.values() if one.state != "running"]
        for known in over[: max(0, len(over) - _KEPT_MAX)]:
            del self._known[known]


def _hear(body: OperationBody, event: StepEvent) -> None:
    step = next((step for step in body.steps if step.name == event.step), None)
    if step is None:
        step = StepBody(name=event.step, state="running", text="", seconds=None)
        body.steps.append(step)
    match event.what:
        case "begins":
            step.state = "running"
        case "goes on":
            step.text = event.text
        case "done":
            step.state, step.text, step.seconds = "done", event.text, round(event.seconds, 3)
        case "done before":
            step.state, step.text = "done before", event.text
