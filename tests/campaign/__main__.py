"""`python -m tests.campaign`: see the package."""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
from contextlib import closing
from dataclasses import asdict
from pathlib import Path

from tests.campaign.journal import Journal, read_journal
from tests.campaign.operations import drawn_plan
from tests.campaign.plan import Operation, Plan
from tests.campaign.play import Pace, play
from tests.campaign.results import add_piece, next_operation, pieces_in
from tests.campaign.world import Size


def main() -> int:
    asked = _asked()
    size = Size(brokers=asked.brokers, drivers=asked.drivers, spark=asked.spark)
    start = asked.start
    if asked.add is not None and start is None:
        start = next_operation(asked.add)
        sizes = [each["size"] for each in pieces_in(asked.add)]
        if sizes and sizes[-1] != asdict(size):
            raise SystemExit(f"{asked.add}: its pieces are of another size: {sizes[-1]}")
    start = start or 0
    plan = (
        plan_in(asked.replay) if asked.replay else drawn_plan(asked.seed, start + asked.ops, size)
    )
    plan = plan.part(start, asked.ops)
    if asked.prefix is not None:
        plan = plan.prefix(asked.prefix)
    print(f"SEED={plan.seed} OPS={len(plan.operations)} from {start}", flush=True)
    folder = asked.out or Path(tempfile.mkdtemp(prefix="campaign-"))
    folder.mkdir(parents=True, exist_ok=True)
    print(f"journal and logs: {folder}", flush=True)
    path = folder / "journal.jsonl"
    path.unlink(missing_ok=True)
    pace = Pace(pause_s=asked.pause, quiet_every=asked.quiet_every, minutes_max=asked.minutes_max)
    with closing(Journal(path)) as journal:
        played = play(plan, size, pace, folder, journal)
    if asked.add is not None:
        add_piece(asked.add, played, start, size, read_journal(path))
    print(
        f"{played.operations} operations in {played.seconds:.0f} s, {played.records:,} records "
        f"written, {played.mirrored:,} seen on the other side, {played.places} places of groups"
    )
    for finding in played.findings:
        print(finding)
    if asked.out is None and not played.findings:
        # One that found something, or failed itself, is kept to be read.
        shutil.rmtree(folder)
    return 1 if played.findings else 0


def plan_in(path: Path) -> Plan:
    """The plan that a journal begins with, whatever a seed means today."""
    head = next(line for line in read_journal(path) if line["what"] == "plan")
    return Plan(
        seed=head["seed"],
        kinds=tuple(head["kinds"]),
        workloads=tuple(head["workloads"]),
        operations=tuple(Operation(**each) for each in head["operations"]),
    )


def _asked() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.campaign")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 24))
    parser.add_argument("--ops", type=int, default=50)
    parser.add_argument(
        "--from", dest="start", type=int, help="begin with this operation, on new clusters"
    )
    parser.add_argument("--prefix", type=int, help="only so many of the first of these operations")
    parser.add_argument("--replay", type=Path, help="a journal: its plan in place of a seed's")
    parser.add_argument("--brokers", type=int, default=1, help="of each cluster")
    parser.add_argument("--drivers", type=int, default=2)
    parser.add_argument("--spark", action="store_true", help="drivers with real Spark")
    parser.add_argument("--pause", type=float, default=1.0, help="mean seconds between operations")
    parser.add_argument("--quiet-every", type=int, default=25)
    parser.add_argument(
        "--minutes-max", type=float, default=18.0, help="end with the operation under way then"
    )
    parser.add_argument("--out", type=Path, help="keep journal and logs in this folder")
    parser.add_argument("--add", type=Path, help="the next piece of what this file of results has")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
