"""A table that keeps every character at any width of a terminal. Runs on the driver."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, Literal

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

Side = Literal["left", "right"]

_PROSE_WIDTH_MIN: Final = 16
"""A column of sentences is not squeezed to the width of its longest word."""
_BAR_WIDTH_MIN: Final = 4
_BAR_WIDTH_MAX: Final = 20
_GAP: Final = 1
_HEADING_COLUMNS_MAX: Final = 2


class FittingTable:
    """Columns where every word and number fits on its line, otherwise one paragraph a row.

    A column without a name holds bars, which are left out where there is no room for them.
    """

    def __init__(self, columns: Sequence[tuple[str, Side]]) -> None:
        self._columns = tuple(columns)
        self._rows: list[tuple[RenderableType, ...]] = []

    def add_row(self, *cells: RenderableType, style: str = "") -> None:
        # As texts, because a string may be read as markup: `[0, 10)`.
        self._rows.append(
            tuple(Text(cell, style=style) if isinstance(cell, str) else cell for cell in cells)
        )

    def __rich_console__(
        self, console: Console, options: ConsoleOptions
    ) -> Iterator[RenderableType]:
        every = tuple(range(len(self._columns)))
        without_bars = tuple(at for at in every if self._columns[at][0])
        for shown in (every, without_bars):
            widths = self._widths(shown, options.max_width)
            if widths is not None:
                yield self._as_columns(shown, widths)
                return
        yield from self._as_paragraphs()

    def _widths(self, shown: Sequence[int], width: int) -> list[int] | None:
        """Of each column; None where the words do not fit into `width`."""
        least = [self._width_min(at) for at in shown]
        left = width - sum(least) - _GAP * (len(shown) - 1)
        if left < 0:
            return None
        more = [max(0, self._width_max(at) - had) for at, had in zip(shown, least, strict=True)]
        widths = list(least)
        # Those that lack least first: as many columns as possible are not folded at all.
        for at in sorted(range(len(shown)), key=more.__getitem__):
            given = min(more[at], left)
            widths[at] += given
            left -= given
        return widths

    def _width_min(self, column: int) -> int:
        name, side = self._columns[column]
        if not name:
            return _BAR_WIDTH_MIN
        if side == "right":
            return self._width_max(column)
        texts = [name, *self._texts(column)]
        word = max(cell_len(word) for text in texts for word in (text.split() or [""]))
        return max(word, min(self._width_max(column), _PROSE_WIDTH_MIN))

    def _width_max(self, column: int) -> int:
        name, _ = self._columns[column]
        if not name:
            has_bars = any(not isinstance(row[column], Text) for row in self._rows)
            return _BAR_WIDTH_MAX if has_bars else _BAR_WIDTH_MIN
        lines = [name, *(line for text in self._texts(column) for line in text.splitlines())]
        return max(map(cell_len, lines))

    def _texts(self, column: int) -> list[str]:
        return [cell.plain for row in self._rows if isinstance(cell := row[column], Text)]

    def _as_columns(self, shown: Sequence[int], widths: Sequence[int]) -> Table:
        table = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0))
        for at, width in zip(shown, widths, strict=True):
            name, side = self._columns[at]
            # Names are for copying, so they fold rather than end in dots; numbers stay whole.
            table.add_column(name, justify=side, overflow="fold", width=width)
        for row in self._rows:
            table.add_row(*(row[at] for at in shown))
        return table

    def _as_paragraphs(self) -> Iterator[RenderableType]:
        heading = self._heading_columns()
        for row in self._rows:
            cells = [cell if isinstance(cell, Text) else None for cell in row]
            head = [cell for cell in cells[:heading] if cell]
            yield _folded(Text(" ").join(head))
            pairs = [
                Text.assemble(f"{name} ", cell)
                for (name, _), cell in zip(self._columns[heading:], cells[heading:], strict=True)
                if cell and name
            ]
            if pairs:
                yield Padding(_folded(Text(" | ").join(pairs)), (0, 0, 0, 2))

    def _heading_columns(self) -> int:
        """What names a row: the first columns, as far as they are no numbers."""
        sides = [side for _, side in self._columns]
        names = sides.index("right") if "right" in sides else len(sides)
        return max(1, min(names, _HEADING_COLUMNS_MAX))


def _folded(text: Text) -> Text:
    text.overflow = "fold"
    return text
