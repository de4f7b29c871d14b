"""The results as one picture. Runs on the driver; needs matplotlib."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from heliograph_tools.bench.report import Medians, cpu_per_gb, rates
from heliograph_tools.bench.rows import CopyRow, System
from heliograph_tools.bench.suite import RowResult

_COLOURS: Final = {
    System.HELIOGRAPH: "#d97706",
    System.MM2_DEFAULT: "#94a3b8",
    System.MM2_TUNED: "#475569",
    System.FLOOR: "#e2e8f0",
}
_BAR_WIDTH: Final = 0.2


def write_chart(path: Path, results: Sequence[RowResult]) -> None:
    """Rates and CPU of every copied row, side by side."""
    copies = [result for result in results if isinstance(result.row, CopyRow)]
    if not copies:
        return
    names = [result.row.name for result in copies]
    figure = Figure(figsize=(11, 4.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    _bars(left, names, [rates(result) for result in copies], 1e-6)
    left.set_ylabel("million records per second")
    _bars(right, names, [cpu_per_gb(result) for result in copies], 1.0)
    right.set_ylabel("CPU seconds of the mirror per GB")
    figure.legend(
        *left.get_legend_handles_labels(), loc="outside upper center", ncols=4, frameon=False
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    # Text stays text, and the same numbers give the same file.
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "heliograph"}):
        figure.savefig(path, metadata={"Date": None})


def _bars(axes: Axes, names: Sequence[str], found: Sequence[Medians], unit: float) -> None:
    for index, system in enumerate(_COLOURS):
        locations = [place for place, medians in enumerate(found) if system in medians]
        if not locations:
            continue
        heights = [found[place][system] * unit for place in locations]
        left = [place + (index - 1.5) * _BAR_WIDTH for place in locations]
        bars = axes.bar(left, heights, _BAR_WIDTH, label=system.value, color=_COLOURS[system])
        axes.bar_label(bars, fmt="{:.3g}", fontsize=7)
    axes.set_xticks(range(len(names)), names)
    axes.spines[["top", "right"]].set_visible(False)
