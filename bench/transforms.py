"""Records per second through transforms, against MirrorMaker 2 in the same run.

    python -m bench.transforms                 all rows, three rounds, about 40 minutes on 2 cores
    python -m bench.transforms --scale 0.01    a hundred times smaller, to see that it works
    python -m bench.transforms --row identity  one row, which takes the place of the one in the file

`identity`: 5 million records of 100 B; Heliograph with a function on columns that returns what it
got, MirrorMaker 2 with no transform at all. `header_filter`: one record in ten has a header, the
others are dropped; both with the same Filter. `schema_ids`: lz4, every value begins with a schema
id that is another in the target's registry; Heliograph exchanges it, with the small registries of
the tests on both sides, MirrorMaker 2 copies the value as it is. That a flow without transforms
costs what it did is `python -m bench.compare_trees`.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import random
import statistics
import struct
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from unittest import mock

from aiokafka.record.default_records import DefaultRecordBatchBuilder
from tests.kit.small_registry import small_registry

from heliograph.clock import now_ms
from heliograph_tools.bench import copying, filling
from heliograph_tools.bench.filling import BuiltBatch
from heliograph_tools.bench.machine import this_machine
from heliograph_tools.bench.rows import Codec, CopyRow, Goal, System, run_order
from heliograph_tools.bench.stage import Stage, open_stage
from heliograph_tools.bench.suite import fill
from heliograph_tools.bench.systems import Launch, Route, prepare

_ROOT: Final = Path(__file__).parents[1]
_OUT: Final = _ROOT / "bench/results/inside/transforms.json"
_KEPT: Final = 10
"""One record in so many has the header."""
_FILTER: Final = {
    "transforms": "unmarked",
    "transforms.unmarked.type": "org.apache.kafka.connect.transforms.Filter",
    "transforms.unmarked.predicate": "marked",
    "transforms.unmarked.negate": "true",
    "predicates": "marked",
    "predicates.marked.type": "org.apache.kafka.connect.transforms.predicates.HasHeaderKey",
    "predicates.marked.name": "mark",
}
_IDENTITY: Final = {
    "transforms": "same",
    "transforms.same.type": "bench.transform_functions:same",
}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Work:
    row: CopyRow
    keys: Mapping[System, Mapping[str, str]]
    """Below the flow's prefix."""
    kept: int = 1
    """One record in so many arrives."""
    schema_id: int | None = None
    """What every value begins with."""


def _row(name: str, goals: tuple[Goal, ...], codec: Codec = Codec.NONE) -> CopyRow:
    return CopyRow(
        name=name,
        records=5_000_000,
        record_bytes=100,
        batch_bytes=16_384,
        codec=codec,
        systems=(System.HELIOGRAPH, System.MM2_DEFAULT, System.MM2_TUNED),
        goals=goals,
    )


_DEFAULT, _TUNED = System.MM2_DEFAULT, System.MM2_TUNED
WORKS: Final = (
    _Work(
        row=_row(
            "identity", (Goal(against=_DEFAULT, factor=3.0), Goal(against=_TUNED, factor=1.5))
        ),
        keys={System.HELIOGRAPH: _IDENTITY},
    ),
    _Work(
        row=_row("header_filter", (Goal(against=_DEFAULT, factor=3.0),)),
        keys=dict.fromkeys(System, _FILTER),
        kept=_KEPT,
    ),
    _Work(
        row=_row("schema_ids", (Goal(against=_DEFAULT, factor=3.0),), Codec.LZ4),
        keys={
            System.HELIOGRAPH: {"transforms": "ids", "transforms.ids.type": "SchemaIds"},
        },
        schema_id=1,
    ),
)


def main() -> None:
    asked = _arguments()
    works = [_scaled(each, asked.scale) for each in WORKS if asked.row in (None, each.row.name)]
    machine = dataclasses.asdict(this_machine())
    with tempfile.TemporaryDirectory() as folder, open_stage(Path(folder)) as stage:
        for work in works:
            topic = f"full-{work.row.name}"
            with _marked_batches(work.kept), _framed_batches(work.schema_id):
                fill(stage, work.row, topic)
            found: list[dict[str, Any]] = []
            for number in range(asked.rounds):
                for system in run_order(work.row.systems, number):
                    found.append(_measured(stage, work, topic, system, number))
                    print(json.dumps(found[-1]), flush=True)
            judged = _judged(work, found)
            measured = {"machine": machine, "scale": asked.scale, "runs": found}
            _keep(asked.out, asked.scale, {**judged, **measured})
            print(json.dumps(judged), flush=True)


def _keep(out: Path, scale: float, row: dict[str, Any]) -> None:
    """The row in place of the one of the same name; others stay as they were measured."""
    kept = json.loads(out.read_text()) if out.exists() else {}
    rows = {each["row"]: each for each in kept.get("rows", []) if each.get("scale") == scale}
    rows[row["row"]] = row
    out.parent.mkdir(parents=True, exist_ok=True)
    document = {"rows": [rows[work.row.name] for work in WORKS if work.row.name in rows]}
    out.write_text(json.dumps(document, indent=1, default=str) + "\n")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--row", choices=[work.row.name for work in WORKS])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--out", type=Path, default=_OUT)
    return parser.parse_args()


def _scaled(work: _Work, factor: float) -> _Work:
    per_partition = _KEPT * max(1, round(work.row.records * factor / work.row.partitions / _KEPT))
    row = dataclasses.replace(work.row, records=per_partition * work.row.partitions)
    return dataclasses.replace(work, row=row)


def _measured(stage: Stage, work: _Work, topic: str, system: System, number: int) -> dict[str, Any]:
    """Rates are of the source's records: what a mirror reads, whatever it drops."""

    def prepared(
        of: System, route: Route, folder: Path, own: Mapping[str, str], *rest: Any
    ) -> Launch:
        prefix = f"{route.source_alias}->{route.target_alias}."
        keys = {prefix + name: value for name, value in work.keys.get(of, {}).items()}
        if work.schema_id is not None and of is System.HELIOGRAPH:
            keys[f"{route.source_alias}.schema.registry.url"] = source.url
            keys[f"{route.target_alias}.schema.registry.url"] = target.url
        launch = prepare(of, route, folder, own, keys)
        environment = {**launch.environment, "PYTHONPATH": os.pathsep.join(_path())}
        return dataclasses.replace(launch, environment=environment)

    arriving = dataclasses.replace(work.row, records=work.row.records // work.kept)
    with (
        small_registry(first_id=work.schema_id or 1) as source,
        small_registry(first_id=7_000) as target,
        mock.patch.object(copying, "prepare", prepared),
    ):
        for registry in (source, target):
            registry.put("bench-value", '"string"')
        run = copying.run_copy(stage, arriving, topic, system, number, {})
    return {
        "row": work.row.name,
        "system": system.value,
        "round": number,
        "load": os.getloadavg()[0],
        "records_per_s": run.records_per_s * work.kept,
        "cpu_s": run.cpu_s,
        "cpu_s_per_gb": None if run.cpu_s_per_gb is None else run.cpu_s_per_gb / work.kept,
        "startup_s": run.startup_s,
        "repeated": run.repeated,
    }


def _path() -> list[str]:
    """Where the functions of this folder are found, in the mirror and in Spark's workers."""
    return [str(_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]


@contextmanager
def _marked_batches(kept: int) -> Iterator[None]:
    """Every `kept`-th record gets the header; none where all arrive."""
    if kept == 1:
        yield
        return
    with mock.patch.object(filling, "build_batch", _marked_batch(kept)):
        yield


@contextmanager
def _framed_batches(schema_id: int | None) -> Iterator[None]:
    if schema_id is None:
        yield
        return
    value, head = filling._value, struct.pack(">bi", 0, schema_id)

    def framed(text: random.Random, size_bytes: int) -> bytes:
        return head + value(text, size_bytes - len(head))

    with mock.patch.object(filling, "_value", framed):
        yield


def _marked_batch(kept: int) -> Callable[..., BuiltBatch]:
    def build(
        seed: int,
        record_bytes: int,
        batch_bytes: int,
        codec: Codec = Codec.NONE,
        records_max: int | None = None,
    ) -> BuiltBatch:
        builder = DefaultRecordBatchBuilder(2, int(codec), 0, -1, -1, -1, batch_bytes)
        timestamp_ms, records = now_ms(), 0
        # Whole tens, so that one record in ten is one in ten of every batch.
        most = batch_bytes // (record_bytes + 20) // kept * kept
        while records < min(most, records_max or most):
            headers = [("mark", b"1")] if records % kept == 0 else []
            value = (b"%d:%d," % (seed, records) * record_bytes)[: record_bytes - 8]
            if builder.append(records, timestamp_ms, b"%08d" % records, value, headers) is None:
                raise AssertionError("less fitted than was counted")
            records += 1
        return BuiltBatch(payload=bytes(builder.build()), records=records)

    return build


def _judged(work: _Work, found: list[dict[str, Any]]) -> dict[str, Any]:
    rates = {
        system.value: statistics.median(
            run["records_per_s"]
            for run in found
            if (run["row"], run["system"]) == (work.row.name, system.value)
        )
        for system in work.row.systems
    }
    return {
        "row": work.row.name,
        "records": work.row.records,
        "medians": rates,
        "goals": [
            {
                "against": goal.against.value,
                "factor": goal.factor,
                "reached": round(rates["heliograph"] / rates[goal.against.value], 2),
            }
            for goal in work.row.goals
        ],
    }


if __name__ == "__main__":
    main()
