"""A mirror that is told another configuration while it runs."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from heliograph.config.schema import ClusterConfig, MirrorConfig
from heliograph.driver import changing
from heliograph.driver.changing import ChangingMirror
from heliograph.driver.stop import StopRequest
from heliograph.errors import BrokerUnreachable
from heliograph.model import ClusterAlias

NOTHING = MirrorConfig(clusters={}, pairs=())


def config(port: int) -> MirrorConfig:
    """Without a flow, so that no Spark is started."""
    alias = ClusterAlias("A")
    cluster = ClusterConfig(alias=alias, bootstrap_servers=(f"127.0.0.1:{port}",))
    return MirrorConfig(clusters={alias: cluster}, pairs=())


class Mirrors:
    """Stands in for `run_mirror`: notes what it was given, and runs until it is stopped."""

    def __init__(self) -> None:
        self.ran: list[MirrorConfig] = []
        self.running = 0
        self.fails = False

    async def __call__(
        self, config: MirrorConfig, *, stop: StopRequest, services: Any, spark: Any
    ) -> None:
        assert self.running == 0
        self.ran.append(config)
        if self.fails:
            raise BrokerUnreachable("no answer")
        self.running += 1
        async with services[0](object()):
            await stop.wait()
        self.running -= 1


@pytest.fixture
def mirrors(monkeypatch: pytest.MonkeyPatch) -> Mirrors:
    made = Mirrors()
    monkeypatch.setattr(changing, "run_mirror", made)
    monkeypatch.setattr(changing, "_TOGETHER_S", 0.0)
    return made


def test_a_change_ends_the_mirror_and_begins_another(mirrors: Mirrors) -> None:
    async def scene() -> None:
        stop = StopRequest()
        mirror = ChangingMirror(NOTHING, stop)
        running = asyncio.create_task(mirror.run())
        await mirror.followed()
        mirror.reconfigure(config(1))
        await mirror.followed()
        assert mirror.live is not None
        mirror.reconfigure(config(1))
        mirror.reconfigure(config(2))
        mirror.reconfigure(config(3))
        await mirror.followed()
        stop.make()
        await running
        assert mirror.live is None

    asyncio.run(scene())

    assert mirrors.ran[:2] == [NOTHING, config(1)]
    assert mirrors.ran[-1] == config(3)
    assert mirrors.running == 0


def test_a_mirror_that_cannot_run_says_why_and_follows_the_next_change(mirrors: Mirrors) -> None:
    mirrors.fails = True

    async def scene() -> None:
        stop = StopRequest()
        mirror = ChangingMirror(config(1), stop)
        running = asyncio.create_task(mirror.run())
        await mirror.followed()
        assert mirror.problem == "no answer"
        mirrors.fails = False
        mirror.reconfigure(config(2))
        await mirror.followed()
        assert (mirror.problem, mirrors.ran[-1]) == ("", config(2))
        stop.make()
        await running

    asyncio.run(scene())
