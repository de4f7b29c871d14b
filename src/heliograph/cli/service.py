"""What a service manager hears of a run: sd_notify(3), as systemd speaks it. Runs on the driver.

Nothing is sent unless `NOTIFY_SOCKET` names a socket. The watchdog is told from the mirror's own
loop: one that hangs is silent.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Mapping
from typing import Final

from heliograph.clock import monotonic_s

log = logging.getLogger("heliograph")

_TOLD_PER_WATCHDOG: Final = 4
_STATUS_CHARS_MAX: Final = 500


class ServiceNotes:
    """READY=1 once, WATCHDOG=1 in time, STATUS= as it changes, STOPPING=1 in the end."""

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        found = os.environ if environment is None else environment
        name = found.get("NOTIFY_SOCKET", "")
        # A name that begins with @ is one of Linux's abstract sockets.
        self._address = "\0" + name[1:] if name.startswith("@") else name
        self._watchdog_s = _watchdog_s(found)
        self._told_s = float("-inf")
        self._status = ""
        self._is_ready = self._is_stopping = False
        self._is_broken = False

    def running(self, status: str) -> None:
        """Call often, from the loop that does the work."""
        if self._is_stopping:
            return
        notes: list[str] = []
        if not self._is_ready:
            self._is_ready = True
            notes.append("READY=1")
        notes += self._status_note(status)
        if self._watchdog_s and monotonic_s() - self._told_s >= (
            self._watchdog_s / _TOLD_PER_WATCHDOG
        ):
            self._told_s = monotonic_s()
            notes.append("WATCHDOG=1")
        self._send(notes)

    def stopping(self) -> None:
        self._is_stopping = True
        self._send(["STOPPING=1", *self._status_note("draining")])

    def _status_note(self, status: str) -> list[str]:
        line = " ".join(status.split())[:_STATUS_CHARS_MAX]
        if line == self._status:
            return []
        self._status = line
        return [f"STATUS={line}"]

    def _send(self, notes: list[str]) -> None:
        if not self._address or not notes:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as out:
                out.setblocking(False)
                out.sendto("\n".join(notes).encode(), self._address)
        except OSError as exc:
            # A mirror does not end because nobody listens; a watchdog that hears nothing acts.
            if not self._is_broken:
                log.warning("the service manager cannot be told: %s", exc.strerror)
            self._is_broken = True


def _watchdog_s(environment: Mapping[str, str]) -> float:
    """0 where this process is not watched."""
    pid, text = environment.get("WATCHDOG_PID", ""), environment.get("WATCHDOG_USEC", "")
    if (pid and pid != str(os.getpid())) or not text.isascii() or not text.isdigit():
        return 0.0
    return int(text) / 1_000_000
