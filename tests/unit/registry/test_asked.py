"""What is asked on a thread beside the slot."""

from __future__ import annotations

import threading

import pytest

from heliograph.errors import NotYetKnown
from heliograph.registry import asked
from heliograph.registry.asked import Asked
from tests.kit.framed import settled


def test_a_thread_that_cannot_be_started_is_no_fault_of_who_asks_and_is_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(asked, "AGAIN_S", 0.01)
    schemas: Asked[int, str] = Asked(lambda key: (f"schema {key}", ""), "asks for schema")
    with monkeypatch.context() as without:
        without.setattr(threading.Thread, "start", refuse)
        with pytest.raises(NotYetKnown, match="no thread can be started that asks for schema 7"):
            schemas.get(7)

    assert settled(schemas.get, 7) == "schema 7"
