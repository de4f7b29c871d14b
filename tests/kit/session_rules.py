"""What holds for every test session: nothing is skipped, and nothing is left to chance unasked."""

from __future__ import annotations

import itertools
import traceback
from asyncio import selector_events
from typing import Any, Final

import pytest
from hypothesis import settings

_NOT_RUN: Final = ("skipped", "xfailed")
_OPENED_AT_LINES: Final = 12
_Transport: Any = selector_events._SelectorTransport  # type: ignore[attr-defined]
_shown = _Transport.__repr__
_made = _Transport.__init__

# CI draws the same examples every time, so that a red run is a change's fault; `make soak` draws
# new ones (`--hypothesis-profile random`). No deadline: how long an example takes says more about
# what else the machine does than about the code.
settings.register_profile("fixed", derandomize=True, database=None, deadline=None)
settings.register_profile("random", derandomize=False, print_blob=True, deadline=None)
settings.load_profile("fixed")


def _note_where(transport: Any, *args: Any, **kwargs: Any) -> None:
    _made(transport, *args, **kwargs)
    # Every connection of a session comes here, and next to none of them is shown.
    frames = itertools.islice(traceback.walk_stack(None), 1, _OPENED_AT_LINES)
    transport.opened_at = [(frame.f_code, line) for frame, line in frames]


def _told(transport: Any) -> str:
    lines = [
        f"  {code.co_filename}:{line} in {code.co_name}"
        for code, line in getattr(transport, "opened_at", ())
    ]
    return "\n".join([f"{_shown(transport)} opened at", *lines])


# The warning that a socket was never closed comes in another test: it says where it was opened.
_Transport.__init__ = _note_where
_Transport.__repr__ = _told


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
