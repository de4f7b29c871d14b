"""Loopback ports that nobody else can take before a broker listens on them. Runs on the driver."""

from __future__ import annotations

import socket
import sys
from typing import Final

LOOPBACK: Final = "127.0.0.1"
# Linux lets a second socket bind a port whose first owner does not listen, where both allow reuse;
# elsewhere the port has to be given up just before the broker starts.
_CAN_HOLD: Final = sys.platform == "linux"


class PortHold:
    """One port, reserved as long as this object is open, also while the broker is down."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        # Bound before reuse is allowed, so the kernel hands out a port that is nobody else's.
        self._socket.bind((LOOPBACK, 0))
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.port: int = self._socket.getsockname()[1]

    def let_broker_bind(self) -> None:
        """Call right before the broker starts."""
        if not _CAN_HOLD:
            self._socket.close()

    def close(self) -> None:
        self._socket.close()


def accepts(port: int) -> bool:
    """Whether somebody listens on `port` of this machine."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.settimeout(1)
        return probe.connect_ex((LOOPBACK, port)) == 0
