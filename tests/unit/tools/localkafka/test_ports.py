"""A held port is nobody else's, and still free for the broker."""

from __future__ import annotations

import contextlib
import socket

from heliograph_tools.localkafka.ports import LOOPBACK, PortHold, accepts


def test_a_held_port_can_be_listened_on_by_the_one_it_is_held_for() -> None:
    with contextlib.closing(PortHold()) as hold, socket.socket() as broker:
        before = accepts(hold.port)
        hold.let_broker_bind()
        broker.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as Java does
        broker.bind((LOOPBACK, hold.port))
        broker.listen()

        assert (before, accepts(hold.port)) == (False, True)


def test_held_ports_differ() -> None:
    with contextlib.ExitStack() as stack:
        ports = [stack.enter_context(contextlib.closing(PortHold())).port for _ in range(500)]

    assert len(set(ports)) == 500
