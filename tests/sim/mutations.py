"""Rules of the copying code taken out one at a time: what catches it, and after how many steps."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final
from unittest import mock

from heliograph.broker.codes import NONE
from heliograph.copy import machine, new_start, resume
from heliograph.copy.chunk import prepare_chunk
from heliograph.copy.fetching import FetchStream
from heliograph.copy.lane import CarriedLane
from heliograph.copy.machine import LaneMachine
from heliograph.copy.phases import Resuming, Running
from heliograph.copy.silences import Silences
from heliograph.ledger import lane_fold, locate, new_starts
from heliograph.ledger.entries import runs_entries
from heliograph.ledger.positions import position_from_sequence
from heliograph.ledger.replay_guard import ReplayGuard
from heliograph.wire.control import AbortedTransactions
from tests.sim.episode import run

_EPISODE_STEPS: Final = 3_000
_SEED: Final = "mutations"


@dataclass(frozen=True)
class Mutation:
    rule: str
    patches: tuple[tuple[Any, str, Any], ...]
    """Object, attribute and what stands there instead."""


def _sendable_at_once(lane: CarriedLane) -> bool:
    running = lane.running
    return bool(running and running.outgoing and not (running.probing and lane.in_flight))


def _never_alone(lane: CarriedLane, running: Running) -> Any:
    lane.in_flight += 1
    running.probing = False
    return running.outgoing.popleft()


def _sendable_unprobed(lane: CarriedLane) -> bool:
    running = lane.running
    return bool(
        running and running.outgoing and running.outgoing[0].ticket <= lane.flow.ledger.durable
    )


def _any_good_answer(lane: CarriedLane, batch: Any, row: Any) -> bool:
    return bool(row.error_code == NONE)


def _believed(record: Any, log: Any, *, target_topic_id: Any = None) -> Any:
    found = locate.locate(record, log, target_topic_id=target_topic_id)
    return locate.At(position=found.position) if isinstance(found, locate.AheadOfEnd) else found


def _unscanned(record: Any, log: Any, *, target_topic_id: Any = None) -> Any:
    found = locate.locate(record, log, target_topic_id=target_topic_id)
    if isinstance(found, locate.NeedsScan) and found.position is not None:
        return locate.At(position=found.position)
    return found


async def _ledger_first(flow: Any, lanes: Any, report: Any) -> Any:
    await flow.ledger.catch_up()
    flow.use(resume._stamp(flow))
    return await resume._read_log_states(flow, lanes, report)


def _looked_up_at_once(self: LaneMachine, lane: CarriedLane) -> None:
    phase = lane.phase
    if isinstance(phase, Resuming) and phase.due:
        phase.due = False
        self._slot.look_up(lane)


def _unbounded(lane: CarriedLane, running: Running, runs: Any, end_position: int) -> Any:
    source = lane.spec.id.source
    return runs_entries(
        source.topic, source.partition, runs, author=running.author, end_position=None
    )


def _nameless(original: Any) -> Any:
    def add(self: FetchStream, lane: CarriedLane, leader_epoch: int) -> None:
        original(self, lane, -1)

    return add


def _epochless(original: Any) -> Any:
    def read_to(self: Any, next_offset: int, leader_epoch: int) -> None:
        original(self, next_offset, -1)

    return read_to


def _without_epochs(chunk: Any) -> Callable[..., Any]:
    def prepare(fetched: Any, cursor: Any, *args: Any, **kwargs: Any) -> Any:
        prepared = chunk(fetched, cursor, *args, **kwargs)
        cursor.leader_epoch = -1
        for batch in prepared.batches:
            batch.leader_epoch = -1
        return prepared

    return prepare


async def _unjudged(flow: Any, lane: Any, record: Any, at: Any, source: Any) -> Any:
    return at


def _parting_forgotten(original: Any) -> Any:
    def parts_until(self: ReplayGuard, end: Any) -> Any:
        until = original(self, end)
        if until is not None:
            self._until = -1
        return until

    return parts_until


def _blind_scan(self: Any, header: Any) -> None:
    first = position_from_sequence(header.base_sequence, self._anchor.position) - 1
    count = header.last_offset_delta + 1
    self._correction.see(first, count, header.base_offset)
    self._own_end = header.base_offset + count


def _mutations() -> Iterator[Mutation]:
    from heliograph.copy import sources
    from heliograph.copy.lane_fields import Reached

    yield Mutation(
        "runs are in the ledger before the batches that need them leave",
        ((CarriedLane, "sendable", property(_sendable_at_once)),),
    )
    yield Mutation(
        "an answer that names another base offset, or comes out of turn, is no acknowledgement",
        ((machine, "_is_next", _any_good_answer),),
    )
    yield Mutation(
        "the first batch after a resume, or after a silence, travels alone",
        (
            (CarriedLane, "take", _never_alone),
            (CarriedLane, "sendable", property(_sendable_unprobed)),
        ),
    )
    yield Mutation(
        "a position above the high watermark is waited for, not believed",
        ((resume, "locate", _believed),),
    )
    yield Mutation(
        "where the log's end is not what the map says, the log is read",
        ((resume, "locate", _unscanned),),
    )
    yield Mutation(
        "the log is read first, the ledger after it",
        ((resume, "_read_logs_then_ledger", _ledger_first),),
    )
    yield Mutation(
        "nothing is looked up while a batch is in flight",
        ((LaneMachine, "_look_up_if_due", _looked_up_at_once),),
    )
    yield Mutation(
        "an answer to a Fetch counts only where the lane stands now",
        ((FetchStream, "_is_awaited", lambda self, key: key in self._lanes),),
    )
    yield Mutation(
        "a Fetch names its leader's epoch",
        ((FetchStream, "add", _nameless(FetchStream.add)),),
    )
    yield Mutation(
        "the source's log is compared with what was mirrored (epochs, last record)",
        (
            (sources, "prepare_chunk", _without_epochs(prepare_chunk)),
            (Reached, "read_to", _epochless(Reached.read_to)),
            (resume, "as_last_record_says", _unjudged),
        ),
    )
    yield Mutation(
        "batches of aborted transactions are left out",
        ((AbortedTransactions, "covers", lambda self, header: False),),
    )
    yield Mutation(
        "lost records are counted in the ledger", ((new_starts, "_losses", lambda *_: ()),)
    )
    yield Mutation(
        "runs that lie ahead are not followed blindly",
        ((ReplayGuard, "runs_to_write", lambda self, first, runs: list(runs)),),
    )
    yield Mutation(
        "an entry of runs says up to where it covers",
        ((CarriedLane, "ledger_entries", _unbounded),),
    )
    yield Mutation("an overdue answer is shown", ((Silences, "look", lambda *_: None),))
    yield Mutation(
        "records of others in front of a batch are noted in the map",
        ((CarriedLane, "_shift_target", lambda *_: None),),
    )
    yield Mutation(
        "runs that land late lower no target offset",
        ((lane_fold, "only_raises", lambda author: False),),
    )
    yield Mutation(
        "a correction by the log changes no source offset",
        ((lane_fold, "keeps_sources", lambda author: False),),
    )
    yield Mutation(
        "a lane that parts from runs ahead goes on saying where it is (mended by this layer)",
        ((ReplayGuard, "parts_until", _parting_forgotten(ReplayGuard.parts_until)),),
    )
    yield Mutation(
        "a scan misses records that are gone (mended in part by this layer)",
        ((locate.Scan, "see", _blind_scan),),
    )
    yield Mutation(
        "a lane without a start that has records of the flow does not begin",
        ((resume, "find_strays", _no_strays),),
    )
    yield Mutation(
        "a new start is begun only where it was decided",
        ((new_start, "decided_start", _decided_anywhere),),
    )


def _decided_anywhere(view: Any, lane: Any, record: Any, position: int) -> Any:
    decided = new_starts._MEMO.read(view, new_starts._subject(lane.id.source))
    if decided is None:
        return None
    if new_starts.decided_start(view, lane, record, decided.position) is None:
        return None
    return replace(decided, position=position)


async def _no_strays(flow: Any, newborn: Any) -> dict[Any, Any]:
    return {}


@contextmanager
def without(number: int | None) -> Iterator[None]:
    """The rule of that number taken out; None: none."""
    with ExitStack() as stack:
        if number is not None:
            for place, name, instead in list(_mutations())[number].patches:
                stack.enter_context(mock.patch.object(place, name, instead))
        yield


def _hunt(steps_max: int) -> dict[str, Any]:
    """Episodes until one fails, or until there were so many steps."""
    steps, number, began_s = 0, 0, time.monotonic()
    while steps < steps_max:
        seed = f"{_SEED}/{number}"
        outcome = run(seed, _EPISODE_STEPS)
        steps += outcome.steps
        if outcome.violation is not None:
            return {
                "caught": True,
                "steps": steps,
                "episode": seed,
                "at_step": outcome.at_step,
                "violation": outcome.violation,
                "seconds": round(time.monotonic() - began_s, 1),
            }
        number += 1
    return {
        "caught": False,
        "steps": steps,
        "episodes": number,
        "seconds": round(time.monotonic() - began_s, 1),
    }


def record_mutations(path: Path, steps_max: int, only: int | None) -> int:
    """Write what became of each, or of one; 1 where the code as it is fails, or a rule is not
    missed. What the file has of others stays."""
    rules = [mutation.rule for mutation in _mutations()]
    kept = json.loads(path.read_text()) if path.exists() else {"rules_taken_out": {}}
    rows: dict[str, Any] = kept["rules_taken_out"]
    if only is None or "as_it_is" not in kept:
        kept["as_it_is"] = _hunt(steps_max)
        print("as it is:", kept["as_it_is"], flush=True)
    for number in range(len(rules)) if only is None else (only,):
        with without(number):
            found = _hunt(steps_max)
        rows[rules[number]] = found
        print(f"{rules[number]}: {found}", flush=True)
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    )
    written = {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit.stdout.strip(),
        "steps_max": steps_max,
        "as_it_is": kept["as_it_is"],
        "rules_taken_out": {rule: rows[rule] for rule in rules if rule in rows},
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(written, indent=1) + "\n")
    return int(kept["as_it_is"]["caught"] or not all(row["caught"] for row in rows.values()))
