"""A failover in a process of its own that kills itself -9 at a chosen point."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from heliograph import probe
from heliograph.broker.groups import CommitOutcome, GroupAdmin, GroupOffset
from heliograph.config.load import load_config
from heliograph.errors import BrokerError
from heliograph.failover.command import FailoverOrder, fail_over
from heliograph.failover.outputs import Mode
from heliograph.ledger.entries import MemoEntry
from heliograph.model import FlowId, TopicName, TopicPartition
from heliograph.procedure.runner import StepEvent
from tests.crash.children import FORKS


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """Right after an event was said, or right after a memo became durable."""

    step: str = ""
    what: str = ""
    memo: str = ""
    """The part of a memo's subject that follows the course's id; or a whole subject."""
    commits: bool = False
    """Right after groups were committed, when nothing tells of it yet."""
    after: int = 1
    """How often it must come."""

    def __str__(self) -> str:
        said = f"{self.step} {self.what}" if self.step else f"memo {self.memo}"
        return f"{'committed' if self.commits else said} {self.after}"


def fail_over_until(
    file: Path, flow: FlowId, mode: Mode, point: Point, topics: Sequence[str] | None = None
) -> int:
    """The child's exit code: minus nine where it came to the point."""
    alone = None if topics is None else tuple(map(TopicName, topics))
    order = FailoverOrder(flow=flow, mode=mode, topics=alone)
    child = FORKS.Process(target=_child, args=(file, order, point))
    child.start()
    child.join(60)
    assert child.exitcode is not None, "the child hangs"
    return child.exitcode


def _child(file: Path, order: FailoverOrder, point: Point) -> None:
    left = point.after

    def die() -> None:
        nonlocal left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def say(event: StepEvent) -> None:
        if (event.step, event.what) == (point.step, point.what):
            die()

    if point.memo:
        _watch_memos(point.memo, die)
    if point.commits:
        _watch_commits(die)
    config = load_config(file)
    asyncio.run(fail_over(config, order, say))


def _watch_commits(die: Callable[[], None]) -> None:
    commit = GroupAdmin.commit_each

    def and_die(
        self: GroupAdmin, wanted: Mapping[str, Mapping[TopicPartition, GroupOffset]]
    ) -> Mapping[str, CommitOutcome | BrokerError]:
        outcome = commit(self, wanted)
        die()
        return outcome

    GroupAdmin.commit_each = and_die  # type: ignore[method-assign]


def _watch_memos(subject: str, die: Callable[[], None]) -> None:
    """Between a memo's acknowledgement and whatever would come next."""

    def on_step(step: str, entry: object) -> None:
        if (
            step == probe.LEDGER_ENTRY_DURABLE
            and isinstance(entry, MemoEntry)
            and _is(entry.subject, subject)
        ):
            die()

    probe.install(on_step)


def _is(subject: str, wanted: str) -> bool:
    return subject == wanted or subject.partition("/")[2].partition("/")[2] == wanted
