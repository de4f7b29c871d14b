"""A file of a seed's campaign, piece by piece: what was done and found, how late records came.

A piece of at most twenty minutes is played on new clusters and begins where the last one ended, so
a campaign of a thousand operations needs no machine for an hour.
"""

from __future__ import annotations

import json
import subprocess
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from heliograph_tools.bench.machine import this_machine
from tests.campaign.play import Played
from tests.campaign.world import Size


def pieces_in(path: Path) -> list[dict[str, Any]]:
    return list(json.loads(path.read_text())["pieces"]) if path.exists() else []


def next_operation(path: Path) -> int:
    """Where the next piece begins."""
    return max((each["from"] + each["operations"] for each in pieces_in(path)), default=0)


def add_piece(
    path: Path, played: Played, start: int, size: Size, journal: Iterable[Mapping[str, Any]]
) -> None:
    """Beside the file are its operations, a line each."""
    piece = {
        "from": start,
        "size": asdict(size),
        "commit": _commit(),
        "machine": asdict(this_machine()),
        **asdict(played),
    }
    pieces = [*pieces_in(path), piece]
    path.parent.mkdir(parents=True, exist_ok=True)
    whole = {"seed": played.seed, **summed(pieces), "pieces": pieces}
    path.write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")
    with path.with_suffix(".operations.jsonl").open("a", encoding="utf-8") as lines:
        for line in journal:
            if line["what"] in ("operation", "quiet"):
                lines.write(json.dumps(line) + "\n")


def summed(pieces: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Of all pieces together."""
    outcomes: defaultdict[str, Counter[str]] = defaultdict(Counter)
    worst: defaultdict[str, float] = defaultdict(float)
    for piece in pieces:
        for kind, counts in piece["outcomes"].items():
            outcomes[kind].update(counts)
        for kind, lag in piece["lag_s"].items():
            worst[kind] = max(worst[kind], lag["worst"])
    names = ("operations", "seconds", "records", "mirrored", "quiet_moments", "places")
    return {
        **{name: round(sum(piece[name] for piece in pieces), 1) for name in names},
        "findings": [finding for piece in pieces for finding in piece["findings"]],
        "outcomes": {kind: dict(counts) for kind, counts in sorted(outcomes.items())},
        "worst_lag_s": dict(sorted(worst.items())),
    }


def _commit() -> str:
    done = subprocess.run(
        ["git", "describe", "--always", "--dirty", "--exclude=*"],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parent,
    )
    return done.stdout.strip()
