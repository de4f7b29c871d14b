"""The charts of bench/README.md, drawn from the files of bench/results: `python -m bench.charts`.

`SOURCES` says which file each row is drawn from; a newer file is one line here. Every chart carries
the digest of what it shows, so that `tests/house/test_charts.py` sees one that its file has left
behind. Nothing is measured here, and no figure is typed.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import statistics
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

RESULTS: Final = Path(__file__).parent / "results"
CHARTS: Final = Path(__file__).parent / "charts"
SOURCES: Final[Mapping[str, str]] = {
    "plain_16k": "operate/quick-4.json",
    "lz4_64k": "copying/results.json",
    "one_kb": "copying/results.json",
    "one_record": "copying/results.json",
    "latency": "live/results.json",
    "far_source_50ms_20mb": "far/six-rows.json",
    "far_source_50ms_20mb_lz4": "far/six-rows.json",
    "far_source_200ms_60mb": "far/two-rows.json",
    "far_source_200ms_60mb_lz4": "far/six-rows.json",
    "far_target_50ms_20mb": "far/two-rows.json",
    "far_target_50ms_20mb_lz4": "far/six-rows.json",
    "far_target_200ms_60mb": "far/six-rows.json",
    "far_target_200ms_60mb_lz4": "far/six-rows.json",
}
_NAMES: Final = {
    "plain_16k": "100 B records, 16 KB batches, plain",
    "lz4_64k": "100 B records, 64 KB batches, lz4",
    "one_kb": "1 KB records, 16 KB batches, plain",
    "one_record": "100 B records, a batch each",
}
_SYSTEMS: Final = {
    "heliograph": "Heliograph",
    "mm2_tuned": "MirrorMaker 2, tuned",
    "mm2_default": "MirrorMaker 2, defaults",
}
_COLOURS: Final = {"heliograph": "#d97706", "mm2_tuned": "#475569", "mm2_default": "#94a3b8"}
_DIGEST: Final = re.compile(r"data sha256 ([0-9a-f]{64})")
_DARK: Final = (
    "<style>@media (prefers-color-scheme: dark) "
    "{ svg { filter: invert(0.92) hue-rotate(180deg) } }</style>"
)
"""Paper and ink change places, colours keep their hue; what knows no filter shows white paper."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One row of a chart: a bar for each system."""

    title: str
    file: str
    measured: str
    """The day, as its file has it."""
    bars: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    name: str
    title: str
    unit: str
    panels: tuple[Panel, ...]
    wide: bool = False
    """All panels on one scale."""

    @property
    def digest(self) -> str:
        """Of all that is drawn, to the last digit that the files have."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()


def charts() -> tuple[Chart, ...]:
    """What the files say today."""
    copies = [name for name in SOURCES if name in _NAMES]
    links = [name for name in SOURCES if name.startswith("far_")]
    return (
        Chart(
            name="throughput",
            title="Throughput, median of three",
            unit="records a second",
            panels=tuple(_panel(name, _NAMES[name], "records_per_s") for name in copies),
        ),
        Chart(
            name="cpu",
            title="CPU of the mirror, median of three (shorter is better)",
            unit="CPU seconds per GB",
            panels=tuple(_panel(name, _NAMES[name], "cpu_s_per_gb") for name in copies),
        ),
        Chart(
            name="links",
            title="Share of a far link that records use, one round each",
            unit="per cent of the link's bandwidth",
            panels=tuple(_panel(name, _link(name), "link_share", 100.0) for name in links),
            wide=True,
        ),
        Chart(
            name="latency",
            title="Latency at 1,000 records a second, median of three (shorter is better)",
            unit="milliseconds from send to sight",
            panels=tuple(_latency(quantile) for quantile in ("p50", "p99")),
        ),
    )


def drawn_digest(name: str) -> str | None:
    """What the chart in the repository was drawn from."""
    found = _DIGEST.search((CHARTS / f"{name}.svg").read_text(encoding="utf-8"))
    return found[1] if found else None


def _row(name: str) -> tuple[dict[str, Any], str]:
    document = json.loads((RESULTS / SOURCES[name]).read_text(encoding="utf-8"))
    return document["rows"][name], _day(document["began"])


def _day(began: str) -> str:
    at = datetime.fromisoformat(began)
    return f"{at.day} {at:%B %Y}"


def _panel(name: str, title: str, measure: str, unit: float = 1.0) -> Panel:
    row, day = _row(name)
    bars = {system: row[measure][system] * unit for system in _SYSTEMS if system in row[measure]}
    return Panel(title=title, file=SOURCES[name], measured=day, bars=bars)


def _latency(quantile: str) -> Panel:
    row, day = _row("latency")
    bars = {
        system: statistics.median(
            run[f"{quantile}_ms"] for run in row["runs"] if run["system"] == system
        )
        for system in row["row"]["systems"]
    }
    return Panel(title=quantile, file=SOURCES["latency"], measured=day, bars=bars)


def _link(name: str) -> str:
    _, side, delay, rate, *codec = name.split("_")
    packed = "lz4" if codec else "plain"
    return f"{side} behind {delay[:-2]} ms, {rate[:-2]} MB/s, {packed}"


def _captions(chart: Chart) -> str:
    """Files and days; days that are not the newest of the chart say that the code was older."""
    newest = max((panel.measured for panel in chart.panels), key=_as_date)
    days: dict[str, str] = {}
    for panel in chart.panels:
        older = "" if panel.measured == newest else ", older code"
        days[panel.file] = f"bench/results/{panel.file} ({panel.measured}{older})"
    return "from " + ", ".join(days.values())


def _as_date(day: str) -> datetime:
    return datetime.strptime(day, "%d %B %Y")  # noqa: DTZ007 - a day, to be compared with days


def draw(chart: Chart, path: Path) -> None:
    """Text stays text, and the same figures give the same file."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    lines = sum(len(panel.bars) + 1.4 for panel in chart.panels)
    figure = Figure(figsize=(9.2, 0.9 + 0.23 * lines), layout="constrained", facecolor="white")
    sizes = [len(panel.bars) for panel in chart.panels]
    grid = figure.subplots(
        len(sizes), 1, squeeze=False, height_ratios=[size + 0.6 for size in sizes]
    )
    most = max(value for panel in chart.panels for value in panel.bars.values())
    for axes, panel in zip(grid[:, 0], chart.panels, strict=True):
        systems = list(panel.bars)
        values = [panel.bars[system] for system in systems]
        names = [_SYSTEMS[system] for system in systems]
        bars = axes.barh(names, values, color=[_COLOURS[system] for system in systems], height=0.8)
        axes.bar_label(bars, labels=[_figure(value) for value in values], padding=3, fontsize=8)
        axes.set_title(panel.title, loc="left", fontsize=9, pad=2)
        axes.invert_yaxis()
        axes.set_xlim(0, 1.14 * (most if chart.wide else max(values)))
        axes.set_xticks([])
        axes.tick_params(axis="y", length=0, labelsize=8)
        axes.spines[["top", "right", "bottom"]].set_visible(False)
    figure.suptitle(f"{chart.title}: {chart.unit}", x=0.01, ha="left", fontsize=11)
    figure.supxlabel(_captions(chart), fontsize=7, x=0.01, ha="left")
    path.parent.mkdir(parents=True, exist_ok=True)
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "heliograph"}):
        told = f"data sha256 {chart.digest}"
        figure.savefig(path, format="svg", metadata={"Date": None, "Description": told})
    text = path.read_text(encoding="utf-8").replace("<defs>", f"{_DARK}\n <defs>", 1)
    path.write_text("\n".join(line.rstrip() for line in text.splitlines()) + "\n", encoding="utf-8")


def _figure(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def main() -> None:
    argparse.ArgumentParser(description=__doc__).parse_args()
    for chart in charts():
        draw(chart, CHARTS / f"{chart.name}.svg")
        print(f"{CHARTS / chart.name}.svg: {_captions(chart)}")


if __name__ == "__main__":
    main()
