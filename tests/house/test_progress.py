"""What a slot reports of a lane is measured in `copy` and shown to someone outside it."""

from __future__ import annotations

import re
from dataclasses import fields

from heliograph.model import LaneProgress
from tests.house.test_style import modules


def texts(*, of_copy: bool) -> str:
    return "\n".join(
        text
        for name, text in modules()
        if name.startswith("heliograph/copy/") == of_copy and name != "heliograph/model.py"
    )


def test_every_field_of_progress_is_measured() -> None:
    measured = texts(of_copy=True)

    silent = [
        field.name for field in fields(LaneProgress) if not re.search(rf"\b{field.name}=", measured)
    ]

    assert silent == []


def test_every_field_of_progress_is_shown() -> None:
    shown = texts(of_copy=False)

    unread = {
        field.name for field in fields(LaneProgress) if not re.search(rf"\.{field.name}\b", shown)
    }

    assert unread == set()
