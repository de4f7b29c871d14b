"""`heliograph bench`: measure against MirrorMaker 2 on this machine. Runs on the driver."""

from __future__ import annotations

import importlib.util
import json
import signal
import sys
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from rich.console import Console

if TYPE_CHECKING:
    from heliograph_tools.bench.suite import Order, RowResult

BENCH_HELP: Final = """Measure Heliograph, MirrorMaker 2 and the floor, on the same brokers.

Every row is run with each system in turn, several times; the medians are shown. Ends with 1 when a
system did not do its work.

Examples:

  heliograph bench

  heliograph bench --quick --json
"""
_QUICK_SECONDS_MAX: Final = 270.0
_RESULTS: Final = Path("bench") / "results"
_NEEDED: Final = ("psutil", "matplotlib")


def bench(
    row: Annotated[
        list[str] | None,
        typer.Option("--row", help="Only this row; may be given more than once."),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="The first row only, in under five minutes.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="JSON on stdout, progress on stderr.")
    ] = False,
    scale: Annotated[
        float, typer.Option("--scale", min=0.0001, max=1.0, help="Shrink every row, to try it out.")
    ] = 1.0,
    rounds: Annotated[int, typer.Option("--rounds", min=1, help="Runs of each system.")] = 3,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="KEY=VALUE into Heliograph's properties, not MirrorMaker 2's."),
    ] = None,
    results: Annotated[
        Path | None,
        typer.Option(
            "--results",
            help="Folder for results.json and chart.svg; bench/results where all sizes are real.",
        ),
    ] = None,
) -> None:
    """Measure Heliograph, MirrorMaker 2 and the floor, in one run on the same brokers."""
    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise typer.BadParameter(
            f"bench needs {' and '.join(missing)}: pip install 'heliograph[tools]'"
        )
    order = _order(row or [], quick, scale, rounds, settings or [])
    folder = results or (_RESULTS if scale == 1.0 and not quick and not row else None)
    # The default action would end this process at once and leave the mirrors it started behind.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    found, document = _measure(order, folder)
    _tell(found, document, quick=quick, as_json=as_json)
    if any(result.failures for result in found):
        raise typer.Exit(1)


def _order(
    rows: Sequence[str], quick: bool, scale: float, rounds: int, settings: Sequence[str]
) -> Order:
    from heliograph_tools.bench.rows import QUICK_ROW, choose_rows
    from heliograph_tools.bench.suite import Order

    try:
        chosen = choose_rows((QUICK_ROW,) if quick else tuple(rows), scale)
    except ValueError as exc:
        raise typer.BadParameter(str(exc), param_hint="--row") from exc
    keys: dict[str, str] = {}
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals:
            raise typer.BadParameter(f"{setting!r} is not KEY=VALUE", param_hint="--set")
        keys[key.strip()] = value.strip()
    return Order(
        rows=chosen,
        rounds=rounds,
        seconds_max=_QUICK_SECONDS_MAX if quick else None,
        heliograph_keys=keys,
    )


def _measure(order: Order, folder: Path | None) -> tuple[tuple[RowResult, ...], dict[str, Any]]:
    """Run all; with a folder, what is done so far is on disk after every row."""
    from heliograph_tools.bench.chart import write_chart
    from heliograph_tools.bench.machine import this_machine
    from heliograph_tools.bench.report import full_json, write_results
    from heliograph_tools.bench.suite import run_suite

    progress = Console(stderr=True, log_path=False)
    machine = this_machine()
    began = datetime.now(tz=UTC).isoformat(timespec="seconds")
    done: list[RowResult] = []

    def keep(result: RowResult) -> None:
        done.append(result)
        if folder is not None:
            write_results(folder / "results.json", full_json(done, machine, began))
            write_chart(folder / "chart.svg", done)

    with tempfile.TemporaryDirectory(prefix="heliograph-bench-") as scratch:
        found = run_suite(
            order,
            Path(scratch),
            lambda text: progress.log(text, markup=False, highlight=False),
            keep,
        )
    return found, full_json(found, machine, began)


def _tell(
    found: Sequence[RowResult], document: dict[str, Any], *, quick: bool, as_json: bool
) -> None:
    from heliograph_tools.bench.report import quick_json
    from heliograph_tools.bench.rows import System
    from heliograph_tools.bench.tables import result_tables, startup_lines

    tables = Console(stderr=as_json)
    for table in result_tables(found):
        tables.print(table)
    lines = startup_lines(found, System.HELIOGRAPH)
    if lines:
        tables.print("where Heliograph's start-up goes:")
        for line in lines:
            tables.print(f"  {line}", markup=False, highlight=False)
    if as_json:
        sys.stdout.write(json.dumps(quick_json(found) if quick else document) + "\n")
