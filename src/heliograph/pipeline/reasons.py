"""One sentence out of what Spark says when a query ends. No I/O; runs anywhere."""

from __future__ import annotations

import re
from typing import Final

_OURS: Final = re.compile(r"heliograph\.errors\.\w+: (.+)")
_PYTHON: Final = re.compile(
    r"^(?:[\w.]+\.)?(\w*(?:Error|Exception|Interrupt)): (.+)$", re.MULTILINE
)
_SPARK: Final = re.compile(r"(\[[A-Z][A-Z0-9_.]+\] .+)")
_WRAPPING: Final = ("[STREAM_FAILED]", "[FOREACH_BATCH_USER_FUNCTION_ERROR]")
_PY4J: Final = frozenset({"Py4JException", "Py4JJavaError", "SparkException"})
_TAIL: Final = re.compile(r"""(?:\\n|['"\s])+$""")
"""What is left of a text that was quoted in another."""
_CHARS_MAX: Final = 400


def reason_of(text: str) -> str:
    """The sentence that says most: ours, then Python's last, then Spark's own, then the first."""
    ours = _OURS.findall(text)
    if ours:
        return _short(ours[-1])
    spark = [each for each in _SPARK.findall(text) if not each.startswith(_WRAPPING)]
    python = [(name, why) for name, why in _PYTHON.findall(text) if name not in _PY4J]
    if python:
        name, why = python[-1]
        return _short(f"{name}: {why}")
    if spark:
        return _short(spark[0])
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return _short(lines[0] if lines else "no reason given")


def _short(sentence: str) -> str:
    plain = _TAIL.sub("", sentence.strip())
    return plain if len(plain) <= _CHARS_MAX else f"{plain[: _CHARS_MAX - 1]}…"
