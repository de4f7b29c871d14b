"""The charts of bench/README.md and the figures of README.md are those of their result files."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from bench.charts import CHARTS, SOURCES, Chart, charts, drawn_digest

from tests.kit.blocks import ROOT


@pytest.mark.parametrize("chart", charts(), ids=lambda chart: chart.name)
def test_a_chart_is_drawn_from_the_files_as_they_are(chart: Chart) -> None:
    """Red after a new measurement: `python -m bench.charts` draws them all."""
    assert drawn_digest(chart.name) == chart.digest


def test_a_figure_that_changes_changes_the_digest() -> None:
    chart = charts()[0]
    first = chart.panels[0]
    bars = {**first.bars, "heliograph": first.bars["heliograph"] + 1}

    other = replace(chart, panels=(replace(first, bars=bars), *chart.panels[1:]))

    assert other.digest != chart.digest


def test_every_chart_is_in_the_readme_of_the_benchmarks_and_names_its_files() -> None:
    page = (ROOT / "bench/README.md").read_text()
    shown = set(re.findall(r"!\[[^\]]*\]\(charts/(\w+)\.svg\)", page))
    captions = " ".join((CHARTS / f"{chart.name}.svg").read_text() for chart in charts())

    assert shown == {chart.name for chart in charts()} == {path.stem for path in CHARTS.iterdir()}
    assert [file for file in set(SOURCES.values()) if f"bench/results/{file}" not in captions] == []


FIGURES = [
    (words, cells, file)
    for words, *cells, file in re.findall(
        r"^\| ([^|]+) \| ([^|]+) \| ([^|]+) \| ([^|]+) \|$", (ROOT / "README.md").read_text(), re.M
    )
    if "bench/results" in file or file == "the same"
]


def test_every_figure_of_the_readme_is_in_the_file_it_links_to() -> None:
    unfounded = []
    known: list[float] = []
    for words, cells, source in FIGURES:
        link = re.search(r"\]\((bench/results/[\w./-]+\.json)\)", source)
        if link is not None:
            known = list(numbers(json.loads((ROOT / link[1]).read_text())))
        told = [each for cell in cells for each in re.findall(r"\d[\d,]*(?:\.\d+)?", cell)]
        unfounded += [f"{words}: {each}" for each in told if not is_founded(each, known)]

    assert len(FIGURES) > 5
    assert unfounded == []


def numbers(document: Any) -> Iterator[float]:
    """Every number of a file."""
    if isinstance(document, dict | list):
        inner = document.values() if isinstance(document, dict) else document
        for each in inner:
            yield from numbers(each)
    elif isinstance(document, int | float):
        yield document


def is_founded(told: str, known: list[float]) -> bool:
    """One of them says it with these digits, be it as a share and told in per cent."""
    digits = len(told.partition(".")[2])
    return any(f"{each * unit:,.{digits}f}" == told for each in known for unit in (1, 100))
