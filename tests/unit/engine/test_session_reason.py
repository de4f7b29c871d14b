"""Why Spark did not start, in one line, out of what a JVM and py4j wrote."""

from __future__ import annotations

from pathlib import Path

import pytest

from heliograph.engine.session import _why

UNPARSED = """\
Exception in thread "main" org.apache.spark.SparkException: Master must be yarn or local
\tat org.apache.spark.deploy.SparkSubmit.error(SparkSubmit.scala:1047)
\tat org.apache.spark.deploy.SparkSubmit.submit(SparkSubmit.scala:226)
"""
NO_OPTION = """Unrecognized VM option 'NoSuchOption'
Error: Could not create the Java Virtual Machine.
Error: A fatal exception has occurred. Program will exit.
"""
NO_MASTER = """\
26/11/18 01:00:00 ERROR Backend: Application has been killed. Reason: All masters are \
unresponsive! Giving up.
java.lang.IllegalArgumentException: requirement failed: Can only call getServletHandlers on a \
running MetricsSystem
"""
STOPPED = """An error occurred while calling o24.setLogLevel.
: java.lang.IllegalStateException: Cannot call methods on a stopped SparkContext.
This stopped SparkContext was created at:
"""


@pytest.mark.parametrize(
    ("log", "raised", "why"),
    [
        (UNPARSED, "[JAVA_GATEWAY_EXITED] Java gateway exited", "Master must be yarn or local"),
        (NO_OPTION, "Java gateway exited", "Unrecognized VM option 'NoSuchOption'"),
        (NO_MASTER, "An error occurred while calling o24", "the master does not answer"),
        ("", STOPPED, "the master does not answer"),
        ("", "[Errno 13] Permission denied: 'java'", "[Errno 13] Permission denied: 'java'"),
    ],
)
def test_the_line_that_says_what_is_wrong_is_found(
    log: str, raised: str, why: str, tmp_path: Path
) -> None:
    file = tmp_path / "spark.log"
    file.write_text(log, encoding="utf-8")

    assert _why(file, OSError(raised)) == why


def test_without_a_log_the_exception_speaks(tmp_path: Path) -> None:
    assert _why(tmp_path / "none", OSError("no such file")) == "no such file"
