"""What systemd hears, on a real datagram socket."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from heliograph.cli.service import ServiceNotes


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(str(tmp_path / "notify"))
        listening.settimeout(5)
        yield listening


def heard(manager: socket.socket) -> list[str]:
    return manager.recv(4096).decode().split("\n")


def test_it_is_ready_once_feeds_the_watchdog_and_stops(manager: socket.socket) -> None:
    notes = ServiceNotes(
        {
            "NOTIFY_SOCKET": manager.getsockname(),
            "WATCHDOG_USEC": "1000",
            "WATCHDOG_PID": str(os.getpid()),
        }
    )

    notes.running("2 lanes\nlag 0")
    first = heard(manager)
    while (second := heard_of(notes, manager)) is None:
        pass
    notes.stopping()
    notes.running("2 lanes")

    assert first == ["READY=1", "STATUS=2 lanes lag 0", "WATCHDOG=1"]
    assert second == ["WATCHDOG=1"]
    assert heard(manager) == ["STOPPING=1", "STATUS=draining"]
    manager.setblocking(False)
    with pytest.raises(BlockingIOError):
        heard(manager)


def heard_of(notes: ServiceNotes, manager: socket.socket) -> list[str] | None:
    """What follows if the watchdog is due; None where it is not yet."""
    notes.running("2 lanes lag 0")
    manager.setblocking(False)
    try:
        return heard(manager)
    except BlockingIOError:
        return None
    finally:
        manager.settimeout(5)


def test_an_abstract_socket_is_reached_and_the_watchdog_of_another_is_not_fed() -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(f"\0heliograph-test-{os.getpid()}")
        listening.settimeout(5)
        notes = ServiceNotes(
            {
                "NOTIFY_SOCKET": f"@heliograph-test-{os.getpid()}",
                "WATCHDOG_USEC": "1000",
                "WATCHDOG_PID": "1",
            }
        )

        notes.running("1 lane")

        assert heard(listening) == ["READY=1", "STATUS=1 lane"]


def test_nobody_listens_is_said_once_and_does_no_harm(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    notes = ServiceNotes({"NOTIFY_SOCKET": str(tmp_path / "nobody")})

    notes.running("1 lane")
    notes.running("2 lanes")
    ServiceNotes({}).running("1 lane")

    assert caplog.text.count("cannot be told") == 1
