"""For all tests of modules."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine a thread may begin late: who asks a transform once means its answer."""
    monkeypatch.setattr("heliograph.transform.at_work.GRACE_S", 10.0)
    monkeypatch.setattr("heliograph.transform.hands.IMPATIENT_S", 0.0)
