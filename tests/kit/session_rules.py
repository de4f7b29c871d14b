"""What holds for every test session: nothing is skipped, and nothing is left to chance unasked."""

from __future__ import annotations

from typing import Final

import pytest
from hypothesis import settings

_NOT_RUN: Final = ("skipped", "xfailed")

# CI draws the same examples every time, so that a red run is a change's fault; `make soak` draws
# new ones (`--hypothesis-profile random`). No deadline: how long an example takes says more about
# what else the machine does than about the code.
settings.register_profile("fixed", derandomize=True, database=None, deadline=None)
settings.register_profile("random", derandomize=False, print_blob=True, deadline=None)
settings.load_profile("fixed")


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """A test that did not run proves nothing: a session with one fails, and says how many."""
    # Workers of xdist have no reporter; the one that started them counts for all.
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None:
        return
    count = sum(len(reporter.stats.get(outcome, ())) for outcome in _NOT_RUN)
    if count:
        reporter.write_line(f"\n{count} tests did not run; a skipped test is a failure", red=True)
        if session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
