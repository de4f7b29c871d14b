"""What a command writes to its log."""

from __future__ import annotations

import logging
from datetime import datetime

from heliograph.cli.output import _is_not_py4j, _Zoned


def test_the_traceback_py4j_logs_when_a_jvm_ends_is_left_out() -> None:
    record = logging.LogRecord(
        "root",
        logging.INFO,
        "/site-packages/py4j/java_gateway.py",
        1056,
        "Exception while sending command.",
        None,
        None,
    )

    assert not _is_not_py4j(record)


def test_what_others_log_is_kept() -> None:
    record = logging.LogRecord("heliograph", logging.INFO, "/driver/run.py", 1, "text", None, None)

    assert _is_not_py4j(record)


def test_times_of_the_log_have_a_zone() -> None:
    record = logging.LogRecord("heliograph", logging.INFO, "/driver/run.py", 1, "text", None, None)

    said = _Zoned("%(asctime)s %(message)s").format(record).split()[0]

    assert datetime.fromisoformat(said).tzinfo is not None
