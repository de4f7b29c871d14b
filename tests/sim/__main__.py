"""`python -m tests.sim`: see the package."""

from __future__ import annotations

import argparse
import hashlib
import json
import logging
import os
import sys
import time
import warnings
from pathlib import Path

EPISODE_STEPS = 3_000
_HASH_SEED = "0"


def main() -> int:
    asked = _asked()
    if os.environ.get("PYTHONHASHSEED") != _HASH_SEED:
        # Sets of names are gone through in the order of their hashes, which a process draws anew.
        environment = {**os.environ, "PYTHONHASHSEED": _HASH_SEED}
        os.execve(sys.executable, [sys.executable, "-m", "tests.sim", *sys.argv[1:]], environment)
    if not asked.verbose:
        logging.disable(logging.CRITICAL)
    # Processes that are killed leave coroutines behind that never end.
    warnings.simplefilter("ignore")
    sys.unraisablehook = lambda _: None
    from tests.sim.mutations import record_mutations, without

    if asked.mutations:
        return record_mutations(Path(asked.mutations), asked.steps, asked.without)
    with without(asked.without):
        if asked.episode or asked.schedule:
            return _play_one(asked)
        return _play_many(asked)


def _asked() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.sim")
    parser.add_argument("--seed", default="1")
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--seconds", type=float, help="end after so long, whatever is left")
    parser.add_argument("--episode", help="play this one alone")
    parser.add_argument("--prefix", type=int, help="only so many steps of the episode")
    parser.add_argument("--shrink", type=float, default=0.0, help="for so many seconds")
    parser.add_argument("--schedule", help="play what was kept in this file")
    parser.add_argument("--keep", help="write the schedule of a failure here")
    parser.add_argument("--unpromised", action="store_true")
    parser.add_argument("--without", type=int, help="the number of a rule to take out")
    parser.add_argument("--verbose", action="store_true", help="show what Heliograph logs")
    parser.add_argument("--mutations", help="take rules out one by one; write what was caught here")
    return parser.parse_args()


def _play_many(asked: argparse.Namespace) -> int:
    from tests.sim.episode import run
    from tests.sim.shrink import shrink

    began_s, steps, callbacks, copied, failures, number = time.monotonic(), 0, 0, 0, 0, 0
    digest = hashlib.sha256()
    while steps < asked.steps and (
        asked.seconds is None or time.monotonic() - began_s < asked.seconds
    ):
        seed = f"{asked.seed}/{number}"
        outcome = run(seed, EPISODE_STEPS, unpromised=asked.unpromised)
        steps += outcome.steps
        callbacks += outcome.callbacks
        copied += outcome.copied
        digest.update(repr((outcome.steps, outcome.callbacks, outcome.copied)).encode())
        if outcome.violation is not None:
            failures += 1
            print(f"episode {seed}, step {outcome.at_step}: {outcome.violation}", flush=True)
            if asked.shrink:
                outcome = shrink(
                    seed, outcome, unpromised=asked.unpromised, seconds_max=asked.shrink
                )
                print(f"in {len(outcome.schedule)} steps: {outcome.violation}", flush=True)
            if asked.keep:
                _keep(Path(asked.keep), seed, outcome.schedule, asked.unpromised)
            if asked.shrink:
                break
        number += 1
    took_s = time.monotonic() - began_s
    print(
        f"seed {asked.seed}: {number} episodes, {steps} steps, {callbacks} callbacks, {copied} "
        f"records copied, {failures} failures; {took_s:.1f} s, {steps / took_s:.0f} steps/s, "
        f"digest {digest.hexdigest()[:16]}"
    )
    return 1 if failures else 0


def _play_one(asked: argparse.Namespace) -> int:
    from tests.sim.episode import run
    from tests.sim.shrink import shrink

    seed, schedule, unpromised = asked.episode, None, asked.unpromised
    if asked.schedule:
        kept = json.loads(Path(asked.schedule).read_text())
        seed, unpromised = kept["episode"], kept["unpromised"]
        schedule = [_action(row) for row in kept["schedule"]]
    if asked.prefix is not None and schedule is None:
        schedule = run(seed, EPISODE_STEPS, unpromised=unpromised).schedule
    if schedule is not None:
        schedule = schedule[: asked.prefix]
    outcome = run(seed, EPISODE_STEPS, schedule, unpromised=unpromised)
    if outcome.violation is None:
        print(f"episode {seed}: {outcome.steps} steps, {outcome.copied} records copied: all well")
        return 0
    print(f"episode {seed}, step {outcome.at_step}: {outcome.violation}")
    if asked.shrink:
        outcome = shrink(seed, outcome, unpromised=unpromised, seconds_max=asked.shrink)
        print(f"in {len(outcome.schedule)} steps: {outcome.violation}")
        for action in outcome.schedule:
            print("   ", *action)
    if asked.keep:
        _keep(Path(asked.keep), seed, outcome.schedule, unpromised)
    return 1


def _action(row: list[str | int]) -> tuple[str, int, int, int]:
    name, first, second, third = row
    return str(name), int(first), int(second), int(third)


def _keep(
    path: Path, seed: str, schedule: list[tuple[str, int, int, int]], unpromised: bool
) -> None:
    kept = {"episode": seed, "unpromised": unpromised, "schedule": schedule}
    path.write_text(json.dumps(kept) + "\n")


if __name__ == "__main__":
    sys.exit(main())
