"""Long work: watched, one of a flow at a time, and what becomes of its errors."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from heliograph.api.operations import OperationBody, Operations
from heliograph.api.problems import ApiProblem
from heliograph.errors import BrokerUnreachable, RecoveryRefused
from heliograph.procedure.runner import Say, StepEvent
from tests.unit.api.pretend import AB, BA


async def over(operations: Operations, wanted: str) -> OperationBody:
    async with asyncio.timeout(10):
        while operations.get(wanted).state == "running":
            await asyncio.sleep(0.01)
    return operations.get(wanted)


def test_steps_are_seen_while_it_runs_and_a_second_one_is_refused() -> None:
    may_end = threading.Event()

    def work(say: Say) -> dict[str, Any]:
        say(StepEvent(step="fence", what="begins"))
        say(StepEvent(step="fence", what="done", text="fenced", seconds=0.5))
        say(StepEvent(step="groups", what="begins"))
        may_end.wait(10)
        return {"topics": []}

    async def played() -> tuple[list[str], OperationBody, ApiProblem]:
        operations = Operations()
        begun = operations.begin("failover", AB, "ann", work)
        async with asyncio.timeout(10):
            while len(begun.steps) < 2:
                await asyncio.sleep(0.01)
        seen: list[str] = [step.state for step in begun.steps]
        operations.begin("failover", BA, "ann", lambda _: {})
        with pytest.raises(ApiProblem) as caught:
            operations.begin("promote", AB, "bob", work)
        may_end.set()
        return seen, await over(operations, begun.id), caught.value

    seen, ended, refused = asyncio.run(played())

    assert seen == ["done", "running"]
    assert (ended.state, ended.result, ended.by) == ("done", {"topics": []}, "ann")
    assert ended.ended_ms is not None
    assert (refused.status, refused.code) == (409, "operation_running")


@pytest.mark.parametrize(
    ("error", "state", "code"),
    [
        (RecoveryRefused("groups are in use"), "refused", "refused"),
        (BrokerUnreachable("no answer"), "failed", "cluster_unreachable"),
        (ValueError("a bug"), "failed", "bug"),
    ],
)
def test_an_error_is_part_of_the_operation(error: Exception, state: str, code: str) -> None:
    def work(say: Say) -> dict[str, Any]:
        raise error

    async def played() -> OperationBody:
        operations = Operations()
        return await over(operations, operations.begin("failover", AB, "ann", work).id)

    ended = asyncio.run(played())

    assert ended.error is not None
    assert (ended.state, ended.error.code) == (state, code)
