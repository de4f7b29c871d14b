"""Every Kafka release as source and as target of the newest; `make versions`.

    python -m bench.versions [--release 3.6 ...] [--pyspark 4.0 ... [--part audit ...]]

Runs tests/cluster/test_versions.py once for each release, with brokers of that release and of the
newest, and some tests of each of Spark's parts for each PySpark, which goes to the cache folder.
Writes one file for each to bench/results/versions, and from all of them the tables of
docs/reference/versions.md. What has no file there is shown as `not run`.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from heliograph.cache import cache_folder
from heliograph_tools.localkafka.versions import KAFKA_VERSION, NEWEST_RELEASE, PATCHES

ROOT: Final = Path(__file__).parents[1]
RESULTS: Final = ROOT / "bench" / "results" / "versions"
PAGE: Final = ROOT / "docs" / "reference" / "versions.md"
SPARKS: Final[Mapping[str, str]] = {"4.0": "4.0.1", "4.1": "4.1.4", "4.2": "4.2.1", "4.3": "4.3.0"}
SPARK_TESTS: Final[Mapping[str, tuple[str, ...]]] = {
    "slots": (
        "tests/spark/test_slots.py::test_lanes_are_added_moved_and_removed_without_a_restart",
        "tests/spark/test_slots.py::test_a_killed_worker_costs_only_its_own_slot",
        "tests/spark/test_slots.py::test_draining_settles_every_lane_and_ends_every_task",
    ),
    "audit": ("tests/spark/test_audit_job.py",),
    "source": ("tests/cluster/test_pipeline_source.py",),
    "`exactly_once`": ("tests/spark/test_pipeline.py",),
    "streams into the format": ("tests/soak/test_pyspark.py",),
    "pipelines of a file": ("tests/soak/test_pipeline_runs.py",),
}
SCENES: Final[Mapping[str, str]] = {
    "records": "test_records_arrive_equal_and_the_map_is_exact",
    "groups and failover": "test_groups_go_on_at_the_exact_record_after_a_failover",
    "kill -9": "test_a_lane_killed_with_batches_under_way_loses_and_repeats_nothing",
}
ROLES: Final = ("as source", "as target")
_TESTS: Final = "tests/cluster/test_versions.py"
_RUN_S_MAX: Final = 1_800
_NOT_RUN: Final = "not run"
_LEAVES_OPEN: Final = frozenset({"4.0", "4.1"})
_LEFT_OPEN: Final = ("ResourceWarning", "pytest.PytestUnraisableExceptionWarning")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--release", action="append", choices=list(PATCHES), help="of Kafka")
    parser.add_argument("--pyspark", action="append", choices=list(SPARKS))
    parser.add_argument("--part", action="append", choices=list(SPARK_TESTS), help="of Spark's")
    parser.add_argument("--page-only", action="store_true", help="write the page, run nothing")
    asked = parser.parse_args()
    if not asked.page_only:
        is_whole = not (asked.release or asked.pyspark)
        for release in PATCHES if is_whole else asked.release or ():
            keep(f"kafka-{release}", try_kafka(release))
        for release in SPARKS if is_whole else asked.pyspark or ():
            if not asked.part:
                (RESULTS / f"pyspark-{release}.json").unlink(missing_ok=True)
            for part in asked.part or SPARK_TESTS:
                keep(f"pyspark-{release}", try_spark(release, part))
    PAGE.write_text(with_tables(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


def try_kafka(release: str) -> dict[str, Any]:
    outcomes = outcomes_of([_TESTS], {"HELIOGRAPH_KAFKA": release})
    return {"kafka": PATCHES[release], "other": KAFKA_VERSION, "outcomes": outcomes}


def try_spark(release: str, part: str) -> dict[str, Any]:
    """With what was kept of the other parts."""
    version = SPARKS[release]
    folder = cache_folder() / "pyspark" / version
    if not folder.is_dir():
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(folder)]
        subprocess.run([*command, f"pyspark=={version}"], check=True)
    # Before everything else that is installed, for executors too.
    environ = {"PYTHONPATH": str(folder)}
    command = [sys.executable, "-c", "import pyspark; print(pyspark.__version__)"]
    used = subprocess.check_output(command, env={**os.environ, **environ}, text=True).strip()
    if used != version:
        raise SystemExit(f"PySpark {used} would be used, not {version}")
    # Spark's own: sockets of results are left to the collector.
    warnings = [f"-Wignore::{name}" for name in _LEFT_OPEN] if release in _LEAVES_OPEN else []
    found = _summed(outcomes_of([*warnings, *SPARK_TESTS[part]], environ))
    return {"pyspark": version, "outcomes": {**_kept(f"pyspark-{release}"), part: found}}


def outcomes_of(arguments: Sequence[str], environ: Mapping[str, str]) -> dict[str, str]:
    """`passed`, what a test itself recorded, or a line of what went wrong; by its name."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        # xunit1 keeps what a test records.
        kept = [f"--junitxml={report}", "-ojunit_family=xunit1"]
        command = [sys.executable, "-m", "pytest", "-q", *kept, *arguments]
        subprocess.run(
            command, cwd=ROOT, env={**os.environ, **environ}, check=False, timeout=_RUN_S_MAX
        )
        cases = list(ElementTree.parse(report).iter("testcase"))
    return {str(case.get("name")): _outcome(case) for case in cases}


def _outcome(case: ElementTree.Element) -> str:
    for kind in ("failure", "error"):
        problem = case.find(kind)
        if problem is not None:
            told = (problem.get("message") or kind).strip().splitlines()
            return f"failed: {told[0] if told else kind}"
    if case.find("skipped") is not None:
        return _NOT_RUN
    recorded = case.find("properties/property[@name='outcome']")
    return "passed" if recorded is None else str(recorded.get("value"))


def _summed(outcomes: Mapping[str, str]) -> str:
    failed = [f"{name} {each}" for name, each in outcomes.items() if each.startswith("failed")]
    if failed or not outcomes:
        return f"failed: {len(failed)} of {len(outcomes)}: {'; '.join(failed)}"
    # One test that says more than that it passed says it for all.
    return next((each for each in outcomes.values() if each != "passed"), "passed")


def keep(name: str, found: Mapping[str, Any]) -> None:
    RESULTS.mkdir(parents=True, exist_ok=True)
    whole = {"measured": datetime.now(UTC).date().isoformat(), **found}
    (RESULTS / f"{name}.json").write_text(json.dumps(whole, indent=2) + "\n", encoding="utf-8")


def with_tables(page: str) -> str:
    """The page with its tables as the results have them."""
    for name, table in (("kafka", _kafka_table()), ("pyspark", _spark_table())):
        begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
        before, rest = page.split(begin)
        page = f"{before}{begin}{table}{end}{rest.partition(end)[2]}"
    return page


def _kafka_table() -> str:
    rows = [
        [
            PATCHES[release],
            role,
            *(_short(found.get(f"{test}[{role}]")) for test in SCENES.values()),
        ]
        for release in PATCHES
        for found in [_kept(f"kafka-{release}")]
        for role in ROLES
    ]
    other = f"Kafka, with {PATCHES[NEWEST_RELEASE]} at the other end"
    return _table([other, "role", *SCENES], rows)


def _spark_table() -> str:
    rows = [
        [version, *(_short(found.get(name)) for name in SPARK_TESTS)]
        for release, version in SPARKS.items()
        for found in [_kept(f"pyspark-{release}")]
    ]
    return _table(["PySpark", *SPARK_TESTS], rows)


def _kept(name: str) -> dict[str, str]:
    path = RESULTS / f"{name}.json"
    outcomes: dict[str, str] = (
        json.loads(path.read_text(encoding="utf-8"))["outcomes"] if path.is_file() else {}
    )
    return outcomes


def _short(outcome: str | None) -> str:
    return _NOT_RUN if outcome is None else outcome.partition(":")[0]


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


if __name__ == "__main__":
    main()
