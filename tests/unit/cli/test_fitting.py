"""Tables at the width of a terminal: no character is lost, whatever the names are."""

from __future__ import annotations

import pytest
from rich.console import Console
from rich.progress_bar import ProgressBar

from heliograph.cli.fitting import FittingTable, Side

LONG = "team-45.customer-profile-updates.v1"
COLUMNS: tuple[tuple[str, Side], ...] = (
    ("flow", "left"),
    ("topic", "left"),
    ("lanes", "right"),
    ("mirrored", "right"),
    ("", "left"),
    ("remarks", "left"),
)


def shown(table: FittingTable, width: int) -> str:
    console = Console(width=width, no_color=True, highlight=False)
    with console.capture() as capture:
        console.print(table)
    return capture.get()


def table_of(topic: str, remarks: str = "offsets identical; lost 0") -> FittingTable:
    table = FittingTable(COLUMNS)
    bar = ProgressBar(total=10, completed=5)
    table.add_row("A->B", topic, "3", "156,328,991", bar, remarks)
    return table


@pytest.mark.parametrize("width", [20, 40, 60, 80, 120, 200])
@pytest.mark.parametrize("topic", ["orders", LONG, "x" * 249])
def test_no_character_is_lost_at_any_width(width: int, topic: str) -> None:
    text = shown(table_of(topic), width)

    letters = "".join(text.split())
    assert max(map(len, text.splitlines())) <= width
    assert "156,328,991" in letters
    for word in ("A->B", "identical;", "lost"):
        assert word in letters
    assert letters.count("x" if topic.startswith("xx") else topic) >= (
        249 if topic.startswith("xx") else 1
    )


def test_a_table_that_fits_has_its_header_and_one_line_a_row() -> None:
    lines = shown(table_of("orders"), 120).splitlines()

    assert lines[0].split() == ["flow", "topic", "lanes", "mirrored", "remarks"]
    assert len(lines) == 2
    assert "━" in lines[1]


def test_bars_go_before_words_are_broken() -> None:
    text = shown(table_of("orders", "identical"), 43)

    assert "━" not in text
    assert text.splitlines()[0].split()[0] == "flow"
    assert len(text.splitlines()) == 2


def test_a_name_too_long_for_its_column_makes_a_paragraph_of_its_row() -> None:
    lines = shown(table_of(LONG), 60).splitlines()

    assert lines[0] == f"A->B {LONG}"
    assert lines[1].rstrip() == "  lanes 3 | mirrored 156,328,991 | remarks offsets"


def test_brackets_are_shown_as_they_are() -> None:
    assert "[0, 10)" in shown(table_of("orders", "lost [0, 10)"), 120)
