from __future__ import annotations

import pytest

from heliograph.pipeline.reasons import reason_of

FOREACH = """[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: [FOREACH_BATCH_\
USER_FUNCTION_ERROR] An error occurred in the user provided function in foreach batch sink. \
SQLSTATE: 39000
py4j.Py4JException: An exception was raised by the Python Proxy. Return Message: Traceback:
  File "x.py", line 1, in write
heliograph.errors.PipelineRefused: the rows cannot be written: column value is missing
"""


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (FOREACH, "the rows cannot be written: column value is missing"),
        ("Traceback\\nValueError: odd\\nat java".replace("\\n", "\n"), "ValueError: odd"),
        (
            "[STREAM_FAILED] x\n[UNRESOLVED_COLUMN.WITH_SUGGESTION] no `colour` here\n",
            "[UNRESOLVED_COLUMN.WITH_SUGGESTION] no `colour` here",
        ),
        ("  \nsomething else\n", "something else"),
        ("", "no reason given"),
        ("x" * 900, "x" * 399 + "…"),
    ],
)
def test_one_sentence_is_left(text: str, reason: str) -> None:
    assert reason_of(text) == reason
