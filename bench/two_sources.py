"""Two sources into one partition, as MirrorMaker 1 allows it, beside one source alone.

    python -m bench.two_sources [--records 300000]

Batches of one source move what the other expects of the target, so its map gets a run each time
they take turns. The mirror runs in this process, with its slot on a thread (`tests.kit.inside`).
Each record must be there once. Writes bench/results/inside/two-sources.json.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections import Counter
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from tests.cluster.test_mirrormaker_1 import file_of
from tests.kit.inside import InsideMirror
from tests.kit.mirror import lasting_topic
from tests.kit.records import end_offsets, numbered, produce, read_all
from tests.kit.topics import wait_until

from heliograph.ledger.entries import ledger_topic
from heliograph.model import ClusterAlias
from heliograph_tools.bench.machine import this_machine
from heliograph_tools.localkafka.cluster import ClusterSpec, LocalCluster, local_clusters

RESULTS: Final = Path(__file__).parent / "results" / "inside" / "two-sources.json"
TOPIC: Final = "shop"


@dataclass(frozen=True, slots=True, kw_only=True)
class Copied:
    sources: int
    records: int
    seconds: float
    records_per_s: float
    ledger_entries: int
    """In the ledgers of all sources."""
    ledger_bytes: int
    problems: list[str]


def measure(sources: int, records: int, folder: Path) -> Copied:
    """`records` in all, divided among the sources."""
    names = ["one", "two"][:sources]
    specs = [ClusterSpec(alias=alias, heap_mb=512) for alias in (*names, "target")]
    with local_clusters(specs, root=folder / "clusters") as clusters:
        target = clusters["target"]
        for cluster in clusters.values():
            lasting_topic(cluster, TOPIC, partitions=1)
        for name in names:
            produce(clusters[name], TOPIC, numbered(records // sources))
        file = file_of(folder, [(n, clusters[n], f"mirror-{n}") for n in names], target, TOPIC)
        with closing(InsideMirror(file)) as inside:
            began_s = time.monotonic()
            inside.reconcile()
            wait_until(
                lambda: end_offsets(target, TOPIC)[0] >= records, "all records", timeout_s=500
            )
            took_s = time.monotonic() - began_s
            inside.catch_up()
        problems = _problems(clusters, names, target)
        ledgers = [ledger_topic(ClusterAlias(name)) for name in names]
        kept = [rec for each in ledgers for some in read_all(target, each).values() for rec in some]
        return Copied(
            sources=sources,
            records=records,
            seconds=took_s,
            records_per_s=records / took_s,
            ledger_entries=len(kept),
            ledger_bytes=sum(len(rec.key or b"") + len(rec.value or b"") for rec in kept),
            problems=problems,
        )


def _problems(
    clusters: dict[str, LocalCluster], names: list[str], target: LocalCluster
) -> list[str]:
    wanted = Counter(rec.content for n in names for rec in read_all(clusters[n], TOPIC)[0])
    there = Counter(rec.content for rec in read_all(target, TOPIC)[0])
    lost, more = (wanted - there).total(), (there - wanted).total()
    return [f"{lost} lost, {more} more than once"] if lost or more else []


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=300_000)
    parser.add_argument("--out", type=Path, default=RESULTS)
    asked = parser.parse_args()
    found = []
    for sources in (1, 2):
        with tempfile.TemporaryDirectory(prefix="two-sources-") as folder:
            found.append(asdict(measure(sources, asked.records, Path(folder))))
            print(json.dumps(found[-1]), flush=True)
    asked.out.parent.mkdir(parents=True, exist_ok=True)
    document = {"machine": asdict(this_machine()), "runs": found}
    asked.out.write_text(json.dumps(document, indent=2) + "\n")


if __name__ == "__main__":
    main()
