"""Whether this session is a soak (`make soak`), where some tests are larger than in `make test`."""

from __future__ import annotations

import os
from typing import Final, TypeVar

SOAKS: Final = "HELIOGRAPH_SOAK" in os.environ

T = TypeVar("T")


def in_soak(soak: T, *, ci: T) -> T:
    """`ci` unless this is a soak."""
    return soak if SOAKS else ci
