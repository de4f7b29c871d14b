"""Where a machine keeps what takes long to make and may be lost any time. Runs on the driver."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path


def cache_folder(environ: Mapping[str, str] | None = None) -> Path:
    """`$HELIOGRAPH_CACHE`, else `~/.cache/heliograph`; not created here."""
    env = os.environ if environ is None else environ
    configured = env.get("HELIOGRAPH_CACHE", "")
    return Path(configured) if configured else Path.home() / ".cache" / "heliograph"
