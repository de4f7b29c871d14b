"""What `heliograph drill` refuses before it begins."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import typer

from heliograph.cli.drill import _require_writable

NOBODY = 65534


@contextmanager
def nobody() -> Iterator[None]:
    """The superuser may write everywhere."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


def test_a_page_that_cannot_be_written_is_refused_before_the_drill() -> None:
    with tempfile.TemporaryDirectory() as made:
        folder, locked = Path(made), Path(made) / "locked.html"
        locked.write_text("")
        locked.chmod(0o444)
        folder.chmod(0o777)
        with nobody():
            _require_writable(folder / "x.html")
            with pytest.raises(typer.BadParameter, match="may not be written"):
                _require_writable(locked)
        folder.chmod(0o555)
        with nobody(), pytest.raises(typer.BadParameter, match="may not be written"):
            _require_writable(folder / "x.html")
        folder.chmod(0o700)
        with pytest.raises(typer.BadParameter, match="is a folder"):
            _require_writable(folder)
