"""Named steps at which a crash test may stop or kill its process. Runs anywhere.

In production nothing is installed: a step is two calls that do nothing, at most once for a request
or a ledger entry. Tests install a function in a child process; nothing else may.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

LANES_TO_CREATE: Final = "lanes to create"
"""Lanes are new and the ledger does not say where they start."""
LANES_CREATED: Final = "lanes created"
"""The ledger says where new lanes start; nothing of them is appended."""
FILLER_APPENDED: Final = "filler appended"
"""One batch of it; more may be missing."""
FILLER_TO_DELETE: Final = "filler to delete"
"""All of it is in the log."""
FILLER_DELETED: Final = "filler deleted"
"""The log is empty and ends where the lane is to start; the ledger does not know of it."""
RUNS_TO_WRITE: Final = "runs to write"
"""A chunk has runs and neither they nor its batches are on their way."""
RUNS_DURABLE: Final = "runs durable"
"""The ledger has runs that batches wait for; the batches are not sent."""
BATCHES_SENT: Final = "batches sent"
"""One produce request, not answered."""
BATCHES_ANSWERED: Final = "batches answered"
"""One produce request; its batches are not settled."""
LETTERS_TO_NOTE: Final = "letters to note"
"""Records are to become dead letters; nobody else knows."""
LETTERS_NOTED: Final = "letters noted"
"""The ledger names the letters; none is sent."""
LETTERS_APPENDED: Final = "letters appended"
"""All are in their topic; nothing behind the records is on its way."""
MAP_TO_CORRECT: Final = "map to correct"
"""Others' records lie in front of a batch that was answered; the ledger does not know."""
HEADS_TO_WRITE: Final = "heads to write"
"""The ledger's heads are behind."""
RUNS_TO_MERGE: Final = "runs to merge"
"""Settled runs are to be put together; nothing of that is written."""
RUNS_MERGED: Final = "runs merged"
"""Segments are in the ledger, and tombstones for what they replace."""
LEDGER_BATCH_TO_SEND: Final = "ledger batch to send"
"""It is sent before the event loop turns."""
LEDGER_ENTRY_TO_WRITE: Final = "ledger entry to write"
"""With the entry, which is not queued yet."""
LEDGER_ENTRY_DURABLE: Final = "ledger entry durable"
"""With the entry; what waits for it does not know yet."""
PIPELINE_STAGED: Final = "pipeline staged"
"""A micro-batch's rows are in files; the ledger does not know."""
PIPELINE_CLAIMED: Final = "pipeline claimed"
"""The ledger names the staged rows that count; none is sent."""
PIPELINE_APPENDED: Final = "pipeline appended"
"""One staged batch was answered; more may be missing."""
PIPELINE_TO_NOTE: Final = "pipeline to note"
"""All staged rows are in the target's log; the ledger does not know."""
PIPELINE_NOTED: Final = "pipeline noted"
"""The ledger knows; Structured Streaming has not committed the batch."""

OnStep = Callable[[str, object], None]


def _nothing(step: str, subject: object) -> None:
    """Nobody looks in."""


_on_step: OnStep = _nothing


def probe(step: str, subject: object = None) -> None:
    """The process has come to `step`."""
    _on_step(step, subject)


def install(on_step: OnStep) -> None:
    """For the rest of this process; tests only."""
    global _on_step
    _on_step = on_step
