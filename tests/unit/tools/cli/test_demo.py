"""When the demo ends: by itself, unless people are invited to stay."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any, cast

import pytest

from heliograph_tools.cli.demo import Ending

ONE_LANE: Any = {"a lane": "its progress"}


def test_the_demo_ends_once_the_story_is_told() -> None:
    telling = cast("Future[None]", Future())
    ending = Ending(lambda: telling, invite=None)

    early = [ending.is_due({}), ending.is_due(ONE_LANE), ending.is_due(ONE_LANE)]
    telling.set_result(None)

    assert early == [False, False, False]
    assert ending.is_due(ONE_LANE)


def test_a_demo_that_is_kept_invites_once_and_goes_on() -> None:
    telling, invited = cast("Future[None]", Future()), 0

    def invite() -> None:
        nonlocal invited
        invited += 1

    ending = Ending(lambda: telling, invite=invite)
    ending.is_due(ONE_LANE)
    telling.set_result(None)

    assert [ending.is_due(ONE_LANE) for _ in range(3)] == [False, False, False]
    assert invited == 1


def test_a_story_that_failed_ends_a_demo_that_is_kept_too() -> None:
    telling = cast("Future[None]", Future())
    ending = Ending(lambda: telling, invite=lambda: None)
    ending.is_due(ONE_LANE)
    telling.set_exception(ValueError("no"))

    assert ending.is_due(ONE_LANE)
    with pytest.raises(ValueError, match="no"):
        ending.raise_problem()
