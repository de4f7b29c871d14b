"""What happens on the way between the mirror and one broker, or all brokers of a cluster."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Final

from heliograph_tools.proxy import TcpProxy
from tests.campaign.operations.kind import Detail, Kind
from tests.campaign.world import World

_LASTS_S: Final = (0.3, 8.0)


def cut(world: World, chance: random.Random) -> Detail:
    """Connections are reset in the middle of whatever they carry."""
    alias, some = _proxies(world, chance)
    for proxy in some:
        proxy.cut()
    return {"cluster": alias, "brokers": len(some)}


def refuse(world: World, chance: random.Random) -> Detail:
    def act(proxy: TcpProxy) -> None:
        proxy.refuse()
        proxy.cut()

    return _for_a_while(world, chance, "refuses", act, TcpProxy.accept)


def half_open(world: World, chance: random.Random) -> Detail:
    """Nothing arrives any more and nothing is closed."""
    return _for_a_while(world, chance, "is silent", TcpProxy.hold, TcpProxy.release)


def delay(world: World, chance: random.Random) -> Detail:
    delay_ms = chance.choice((5, 50, 200))

    def act(proxy: TcpProxy) -> None:
        proxy.delay_ms = delay_ms

    def end(proxy: TcpProxy) -> None:
        proxy.delay_ms = 0

    return {**_for_a_while(world, chance, "is far", act, end), "delay_ms": delay_ms}


def narrow(world: World, chance: random.Random) -> Detail:
    bytes_per_s = chance.choice((20_000, 200_000, 2_000_000))

    def act(proxy: TcpProxy) -> None:
        proxy.bytes_per_s = bytes_per_s

    def end(proxy: TcpProxy) -> None:
        proxy.bytes_per_s = None

    return {**_for_a_while(world, chance, "is narrow", act, end), "bytes_per_s": bytes_per_s}


def drop_some(world: World, chance: random.Random) -> Detail:
    """Each second or third connection is reset as soon as it was made."""
    every = chance.choice((2, 3))

    def act(proxy: TcpProxy) -> None:
        proxy.drops_every = every
        proxy.cut()

    def end(proxy: TcpProxy) -> None:
        proxy.drops_every = None

    return {**_for_a_while(world, chance, "drops connections", act, end), "every": every}


def _for_a_while(
    world: World,
    chance: random.Random,
    what: str,
    act: Callable[[TcpProxy], None],
    end: Callable[[TcpProxy], None],
) -> dict[str, object]:
    alias, some = _proxies(world, chance)
    seconds = chance.uniform(*_LASTS_S)
    for proxy in some:
        act(proxy)

    def over() -> None:
        for proxy in some:
            end(proxy)

    world.later(seconds, f"the way to {alias} {what}", over)
    return {"cluster": alias, "brokers": len(some), "seconds": round(seconds, 1)}


def _proxies(world: World, chance: random.Random) -> tuple[str, Sequence[TcpProxy]]:
    """One broker's, or all of a cluster."""
    alias = chance.choice("AB")
    every = world.proxies[alias]
    return alias, every if chance.random() < 0.5 else [chance.choice(every)]


KINDS: Final = (
    Kind(name="cut", family="network", perform=cut),
    Kind(name="refuse", family="network", perform=refuse),
    Kind(name="half-open", family="network", perform=half_open),
    Kind(name="delay", family="network", perform=delay),
    Kind(name="narrow", family="network", perform=narrow),
    Kind(name="drop-connections", family="network", perform=drop_some),
)
