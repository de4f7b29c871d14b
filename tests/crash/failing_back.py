"""A failback in a process of its own that kills itself -9 at a chosen point."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from heliograph import probe
from heliograph.broker import seed as seed_module
from heliograph.broker.admin import ClusterAdmin
from heliograph.broker.groups import GroupAdmin
from heliograph.broker.records import RecordWriter
from heliograph.config.load import load_config
from heliograph.failback import export as export_module
from heliograph.failback.command import fail_back
from heliograph.failback.context import FailbackOrder
from heliograph.ledger.entries import FlowEntry, HeadEntry, MemoEntry, Tombstone
from heliograph.ledger.fence import unfence_entry
from heliograph.procedure.runner import StepEvent
from tests.crash.children import FORKS

_CHILD_S_MAX: Final = 60.0
_CHUNK_RECORDS: Final = 100
_FILLER_RECORDS: Final = 50

Strike = Callable[[], None]


def fail_back_until(file: Path, order: FailbackOrder, point: str) -> int:
    """The child's exit code: minus nine where it came to the point."""
    child = FORKS.Process(target=_child, args=(file, order, point))
    child.start()
    child.join(_CHILD_S_MAX)
    assert child.exitcode is not None, f"the child hangs; it was to die at: {point}"
    return child.exitcode


def _child(file: Path, order: FailbackOrder, point: str) -> None:
    _set(export_module, "_CHUNK_RECORDS_MAX", _CHUNK_RECORDS)
    _set(seed_module, "FILLER_RECORDS", _FILLER_RECORDS)
    kind, _, step = point.partition(": ")

    def strike() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def say(event: StepEvent) -> None:
        if kind == "begins" and (event.step, event.what) == (step, "begins"):
            strike()

    if kind == "done, not recorded":
        _at(probe.LEDGER_ENTRY_TO_WRITE, strike, _is_note_of(step))
    elif kind != "begins":
        INSIDE[point](strike)
    asyncio.run(fail_back(load_config(file), order, say))


def _set(owner: object, name: str, value: object) -> None:
    setattr(owner, name, value)


def _after(owner: Any, name: str, strike: Strike, *, passes: int = 1) -> None:
    """Strike when the call has returned so often."""
    original, left = getattr(owner, name), [passes]

    def struck(*args: Any, **kwargs: Any) -> Any:
        answer = original(*args, **kwargs)
        left[0] -= 1
        if left[0] == 0:
            strike()
        return answer

    setattr(owner, name, struck)


def _at(wanted_step: str, strike: Strike, wanted: Callable[[Any], bool]) -> None:
    """Strike when a process comes to the step with such a subject."""

    def on_step(step: str, subject: object) -> None:
        if step == wanted_step and wanted(subject):
            strike()

    probe.install(on_step)


def _when_written(wanted: Callable[[Any], bool]) -> Callable[[Strike], None]:
    """Strike once an entry of that kind is durable."""
    return lambda strike: _at(probe.LEDGER_ENTRY_DURABLE, strike, wanted)


def _is_note_of(step: str) -> Callable[[Any], bool]:
    """Whether an entry says that the step is done; its subject ends with the step's name."""
    return lambda entry: isinstance(entry, MemoEntry) and entry.subject.endswith(f"/{step}")


INSIDE: Final[dict[str, Callable[[Strike], None]]] = {
    "some records saved": lambda strike: _after(RecordWriter, "write", strike, passes=2),
    "most records saved, a file unfinished": lambda strike: _after(
        export_module._ParquetFile, "write", strike, passes=4
    ),
    "topics deleted": lambda strike: _after(ClusterAdmin, "delete_topics", strike),
    "topics created": lambda strike: _after(ClusterAdmin, "create_topics", strike),
    "some filler appended": lambda strike: _at(probe.FILLER_APPENDED, strike, lambda _: True),
    "a lane written": _when_written(lambda entry: isinstance(entry, HeadEntry)),
    "a lane forgotten": _when_written(
        lambda entry: isinstance(entry, Tombstone) and "Head" in type(entry.key).__name__
    ),
    "the producer written": _when_written(lambda entry: isinstance(entry, FlowEntry)),
    "groups committed": lambda strike: _after(GroupAdmin, "commit_each", strike),
    "the fence lifted": _when_written(lambda entry: entry == unfence_entry()),
}
