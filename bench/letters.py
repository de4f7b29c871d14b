"""Thousands of records that the target does not take, and how long they take to become letters.

    python -m bench.letters [--records 10000] [--good 10000]

One partition with records of 5,000 bytes between others of 100, a target topic that takes batches
of 4,000: `on.unwritable.record = dead-letter`. The mirror runs in this process, with its slot on a
thread (`tests.kit.inside`). Each must be a letter or mirrored, once, in order. Writes
bench/results/inside/letters.json. `tests/soak` does it too.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from tests.kit.inside import InsideMirror
from tests.kit.mirror import RECORDS_ONLY, lasting_topic, write_config
from tests.kit.records import NewRec, end_offsets, produce, read_all
from tests.kit.topics import create_topic, set_topic_config

from heliograph_tools.bench.machine import this_machine
from heliograph_tools.localkafka.cluster import ClusterSpec, local_clusters

RESULTS: Final = Path(__file__).parent / "results" / "inside" / "letters.json"
TOPIC: Final = "shop"
LETTERS: Final = "letters"
_LARGE, _SMALL, _LIMIT = 5_000, 100, 4_000
_WAIT_S_MAX: Final = 1_800.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    records: int
    """Too large for the target."""
    good: int
    """Between them."""
    seconds: float
    half_s: float
    """Until the first half were letters: more than half of `seconds` left would be quadratic."""
    problems: list[str]


def measure(records: int, good: int, folder: Path) -> Written:
    specs = [ClusterSpec(alias=alias, heap_mb=512) for alias in ("A", "B")]
    with local_clusters(specs, root=folder / "clusters") as clusters:
        source, target = clusters["A"], clusters["B"]
        lasting_topic(source, TOPIC, partitions=1)
        create_topic(target, f"A.{TOPIC}", partitions=1)
        set_topic_config(target, f"A.{TOPIC}", {"max.message.bytes": str(_LIMIT)})
        create_topic(target, LETTERS, partitions=1)
        produce(source, TOPIC, list(_records(records, good)))
        keys = {
            "topics": TOPIC,
            "on.unwritable.record": "dead-letter",
            "dead.letter.topic": LETTERS,
        }
        file = write_config(folder / "mm2.properties", clusters, {"A->B": keys}, top=RECORDS_ONLY)
        half_s = 0.0
        with closing(InsideMirror(file)) as inside:
            began_s = time.monotonic()
            inside.reconcile()
            while (written := end_offsets(target, LETTERS)[0]) < records:
                if not half_s and written >= records // 2:
                    half_s = time.monotonic() - began_s
                if time.monotonic() - began_s > _WAIT_S_MAX:
                    raise AssertionError(f"{written} letters of {records}; {inside.stalls}")
                time.sleep(0.1)
            inside.catch_up()
            took_s = time.monotonic() - began_s
        wanted = read_all(source, TOPIC)[0]
        mirrored, letters = read_all(target, f"A.{TOPIC}")[0], read_all(target, LETTERS)[0]
        problems = []
        if [rec.value for rec in mirrored] != [r.value for r in wanted if _fits(r.value)]:
            problems.append(f"{len(mirrored)} mirrored of {good}, or out of order")
        if [rec.value for rec in letters] != [r.value for r in wanted if not _fits(r.value)]:
            problems.append(f"{len(letters)} letters of {records}, or out of order")
    return Written(records=records, good=good, seconds=took_s, half_s=half_s, problems=problems)


def _records(large: int, small: int) -> Iterator[NewRec]:
    """In turns, as far as both go."""
    for number in range(max(large, small)):
        for wanted, size in ((large, _LARGE), (small, _SMALL)):
            if number < wanted:
                yield NewRec(value=(b"%d:%d." % (size, number)).ljust(size, b"x"), partition=0)


def _fits(value: bytes | None) -> bool:
    return len(value or b"") < _LIMIT


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=10_000)
    parser.add_argument("--good", type=int, default=10_000)
    parser.add_argument("--out", type=Path, default=RESULTS)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="letters-") as folder:
        found = measure(asked.records, asked.good, Path(folder))
    asked.out.parent.mkdir(parents=True, exist_ok=True)
    asked.out.write_text(
        json.dumps({"machine": asdict(this_machine()), **asdict(found)}, indent=2) + "\n"
    )
    print(json.dumps(asdict(found), indent=2))
    if found.problems:
        raise SystemExit("\n".join(found.problems))


if __name__ == "__main__":
    main()
