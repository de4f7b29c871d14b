"""Says what an executor's Python can import. Runs on executors, on the standard library alone."""

from __future__ import annotations

import importlib
import platform
from collections.abc import Iterable, Iterator
from typing import Final

REQUIRED: Final = ("heliograph", "pydantic", "aiokafka", "kio", "crc32c", "cramjam")
"""What a slot needs; pyspark itself comes with the executor."""


def missing_imports(
    required: tuple[str, ...], rows: Iterable[object]
) -> Iterator[tuple[str, str, str, tuple[str, ...]]]:
    """Per executor asked: host, Python version, where heliograph came from, what is missing."""
    for _ in rows:
        pass
    missing = []
    for name in required:
        try:
            importlib.import_module(name)
        except ImportError as exc:
            missing.append(name if exc.name == name else f"{name} (needs {exc.name})")
    own = importlib.import_module("heliograph")
    yield platform.node(), platform.python_version(), str(own.__file__), tuple(missing)
