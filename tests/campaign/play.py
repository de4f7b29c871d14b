"""Play a plan: one operation after the other, everything noted as it happens, checks in between."""

from __future__ import annotations

import random
import re
import statistics
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

from tests.campaign.checks import Finding
from tests.campaign.journal import Journal
from tests.campaign.operations import EVERY
from tests.campaign.operations.kind import NotNow
from tests.campaign.plan import Operation, Plan
from tests.campaign.quiet import latencies, look
from tests.campaign.watch import Watch
from tests.campaign.world import UNKNOWN, Size, World, open_world
from tests.kit.leaks import leaks_in_arguments, leaks_in_folder

_BUGS: Final = re.compile(
    r"Traceback \(most recent|InvariantError|a bug|bug in|never awaited|stalled: bug"
)
_GOES_ON: Final = re.compile(
    r"trying again|tried again|tries again|: stalled: |: cluster \w+(, broker [^ ]+)?: "
)
"""Errors that name what cannot be reached, or the lane's reason; all others are told."""
_LINES_MAX: Final = 5
_ERRORS_MAX: Final = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How fast it goes, and how often all is looked at."""

    pause_s: float
    """Between two operations, on average."""
    quiet_every: int
    """Operations between two looks at everything."""
    minutes_max: float = 60.0
    """Then no other operation begins, and the last look is taken."""


@dataclass(slots=True, kw_only=True)
class Played:
    """What a campaign was, and what it found; no findings is what it must be."""

    seed: int
    operations: int
    kinds: tuple[str, ...]
    workloads: tuple[str, ...]
    seconds: float = 0.0
    records: int = 0
    mirrored: int = 0
    quiet_moments: int = 0
    places: int = 0
    """Groups on partitions whose failover was looked at."""
    outcomes: dict[str, dict[str, int]] = field(default_factory=dict)
    """By kind of operation."""
    lag_s: dict[str, dict[str, float]] = field(default_factory=dict)
    """By kind of operation: of records sent after it and before the next one, from their
    acknowledgement to the sight of them on the target."""
    lane_states: dict[str, int] = field(default_factory=dict)
    errors: dict[str, int] = field(default_factory=dict)
    """Lines of the drivers' logs that are errors, numbers left out."""
    findings: list[str] = field(default_factory=list)
    """Each with the operation after which it was found."""


def play(plan: Plan, size: Size, pace: Pace, folder: Path, journal: Journal) -> Played:
    """Ends at the first look that finds something."""
    played = Played(
        seed=plan.seed,
        operations=0,
        kinds=plan.kinds,
        workloads=plan.workloads,
    )
    journal.note("plan", size=asdict(size), pace=asdict(pace), **shape_of(plan))
    began_s = time.monotonic()
    counted: Counter[tuple[str, str]] = Counter()
    with ExitStack() as stack:
        world = stack.enter_context(open_world(folder, size, plan.workloads, journal, plan.seed))
        watch = stack.enter_context(closing(Watch(world.drivers, world.ends, lambda: world.lanes)))
        stack.enter_context(world.undoing())
        journal.note("begun", seconds=round(time.monotonic() - began_s, 1))
        for operation in plan.operations:
            time.sleep(operation.pause * pace.pause_s)
            counted[operation.kind, _perform(world, operation)] += 1
            played.operations += 1
            is_late = time.monotonic() - began_s > pace.minutes_max * 60
            is_last = is_late or operation is plan.operations[-1]
            if is_last or played.operations % pace.quiet_every == 0:
                found = [*look(world), *_told(world, watch)]
                played.quiet_moments += 1
                played.findings += [f"after operation {operation.index}: {each}" for each in found]
                if found or is_late:
                    break
        _sum_up(played, world, plan, counted)
        played.lane_states = dict(watch.states)
        played.errors = dict(_errors(world).most_common(_ERRORS_MAX))
    played.seconds = round(time.monotonic() - began_s, 1)
    journal.note("end", **asdict(played))
    return played


def _perform(world: World, operation: Operation) -> str:
    world.truth.operation = operation.index
    world.journal.note("begin", index=operation.index, kind=operation.kind)
    began_s = time.monotonic()
    detail: Mapping[str, object]
    try:
        detail = EVERY[operation.kind].perform(world, random.Random(operation.seed))
        outcome = "ok"
    except NotNow as exc:
        outcome, detail = "fail", {"why": str(exc)}
    except UNKNOWN as exc:
        outcome, detail = "unknown", {"why": f"{type(exc).__name__}: {exc}"}
    world.journal.note(
        "operation",
        index=operation.index,
        kind=operation.kind,
        outcome=outcome,
        seconds=round(time.monotonic() - began_s, 2),
        detail=detail,
    )
    for driver in list(world.drivers.current):
        if driver.has_ended:
            world.complaints.append(
                f"{driver.log.name} ended by itself with {driver.run.exit_code}: "
                f"{driver.run.last_words[-500:]}"
            )
            world.drivers.current.remove(driver)
            world.drivers.fill()
    return outcome


def _told(world: World, watch: Watch) -> list[Finding]:
    """What was seen on the way: silence, complaints, secrets, and lines of our own bugs."""
    found = [Finding(check="silence", lane="", what=what) for what in watch.silent]
    found += [Finding(check="operation", lane="", what=what) for what in world.complaints]
    leaks = leaks_in_folder(world.folder / "logs", world.secrets)
    processes = [each for driver in world.drivers.answering() for each in driver.run.family()]
    leaks += leaks_in_arguments(processes, world.secrets)
    found += [Finding(check="secrets", lane="", what=what) for what in leaks]
    for driver in world.drivers.every:
        lines = unaccounted(driver.run.said)
        found += [
            Finding(check="log", lane=driver.log.name, what=line) for line in lines[:_LINES_MAX]
        ]
    return found


def unaccounted(said: str) -> list[str]:
    """Lines of a driver's log that are a bug's, and errors that do not say what happens next."""
    return [
        line
        for line in said.splitlines()
        if _BUGS.search(line) or (" ERROR " in line and not _GOES_ON.search(line))
    ]


def _errors(world: World) -> Counter[str]:
    lines = [line for driver in world.drivers.every for line in driver.run.complaints]
    return Counter(re.sub(r"\d+", "N", line.partition(" ERROR ")[2])[:200] for line in lines)


def shape_of(plan: Plan) -> dict[str, object]:
    """For the journal, which can be played again."""
    return {
        "seed": plan.seed,
        "kinds": plan.kinds,
        "workloads": plan.workloads,
        "operations": [asdict(each) for each in plan.operations],
    }


def _sum_up(played: Played, world: World, plan: Plan, counted: Counter[tuple[str, str]]) -> None:
    for (kind, outcome), count in sorted(counted.items()):
        played.outcomes.setdefault(kind, {})[outcome] = count
    by_kind: dict[str, list[float]] = {}
    kinds = {operation.index: operation.kind for operation in plan.operations}
    for index, some in latencies(world).items():
        by_kind.setdefault(kinds.get(index, "none"), []).extend(some)
    for kind, some in sorted(by_kind.items()):
        played.lag_s[kind] = {
            "records": len(some),
            "median": round(statistics.median(some), 3),
            "worst": round(max(some), 3),
        }
    played.records, played.places = world.truth.count, len(world.moves)
    played.mirrored = sum(map(len, by_kind.values()))
