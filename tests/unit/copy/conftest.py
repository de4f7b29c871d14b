"""Fixtures of the tests of `heliograph.copy`."""

from __future__ import annotations

import pytest


@pytest.fixture
def behind_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """A log that ends before what the map says has done so for long enough."""
    monkeypatch.setattr("heliograph.copy.resume.BEHIND_S_MAX", 0.0)
    monkeypatch.setattr("heliograph.copy.strays.UNKNOWN_S_MAX", 0.0)
