"""A mirror that is offered another configuration while it runs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from heliograph.config.difference import Changed, Difference
from heliograph.config.keys import Effect
from heliograph.config.schema import ClusterConfig, MirrorConfig
from heliograph.driver import changes as module
from heliograph.driver.changes import ConfigChanges
from heliograph.errors import BrokerUnreachable, ConfigError, MirrorError
from heliograph.model import ClusterAlias


def config(port: int) -> MirrorConfig:
    alias = ClusterAlias("A")
    cluster = ClusterConfig(alias=alias, bootstrap_servers=(f"127.0.0.1:{port}",))
    return MirrorConfig(clusters={alias: cluster}, pairs=())


def one_change(what: str) -> Difference:
    return Difference(
        changes=(Changed(what=what, effect=Effect.AT_ONCE),) if what else (),
        begun=(),
        ended=(),
        concerned=frozenset(),
        reconnected=(),
        refused=(),
    )


class Mirror:
    """Applies what it is told, or raises what a test says."""

    def __init__(self) -> None:
        self.applied: list[MirrorConfig] = []
        self.error: MirrorError | None = None
        self.what = "slots: 1 -> 2"

    async def __call__(self, config: MirrorConfig) -> Difference:
        if self.error is not None:
            raise self.error
        self.applied.append(config)
        return one_change(self.what)


Scene = Callable[[ConfigChanges, Mirror], Awaitable[None]]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TOGETHER_S", 0.01)
    monkeypatch.setattr(module, "AGAIN_S", 0.01)


def play(scene: Scene) -> tuple[ConfigChanges, Mirror]:
    changes, mirror = ConfigChanges(), Mirror()

    async def played() -> None:
        following = asyncio.create_task(changes.follow(mirror))
        async with asyncio.timeout(10):
            await scene(changes, mirror)
        following.cancel()

    asyncio.run(played())
    return changes, mirror


def test_what_is_offered_last_is_followed_and_shown() -> None:
    async def scene(changes: ConfigChanges, mirror: Mirror) -> None:
        for port in (1, 2, 3):
            changes.offer(config(port))
        await changes.followed()

    changes, mirror = play(scene)

    assert mirror.applied == [config(3)]
    assert (changes.status.changes, changes.status.problem) == (("slots: 1 -> 2",), "")
    assert changes.status.applied_ms is not None


def test_what_cannot_be_used_changes_nothing_until_it_is_mended() -> None:
    async def scene(changes: ConfigChanges, mirror: Mirror) -> None:
        changes.offer(config(1))
        await changes.followed()
        changes.unusable(ConfigError("mm2.properties", ("line 1  x: unknown key", "line 2  y")))
        await asyncio.sleep(0.05)
        assert changes.status.problem == (
            "the changed configuration is not followed: mm2.properties: line 1  x: unknown key; "
            "line 2  y"
        )
        assert changes.status.changes == ("slots: 1 -> 2",), "what was applied before"
        mirror.what = ""
        changes.offer(config(1))
        await changes.followed()

    changes, mirror = play(scene)

    assert changes.status.problem == ""
    assert changes.status.changes == ("slots: 1 -> 2",)
    assert len(mirror.applied) == 2


def test_what_a_cluster_does_not_let_act_is_tried_again() -> None:
    async def scene(changes: ConfigChanges, mirror: Mirror) -> None:
        mirror.error = BrokerUnreachable("cluster A: credentials refused")
        changes.offer(config(1))
        await changes.followed()
        assert "credentials refused" in changes.status.problem
        mirror.error = None
        while not changes.is_settled:
            await asyncio.sleep(0.005)

    changes, mirror = play(scene)

    assert mirror.applied == [config(1)]
    assert changes.status.problem == ""


def test_what_needs_a_restart_is_not_tried_again() -> None:
    async def scene(changes: ConfigChanges, mirror: Mirror) -> None:
        mirror.error = ConfigError("a change that cannot act while running", ("master: a -> b",))
        changes.offer(config(1))
        await changes.followed()
        mirror.error = None
        await asyncio.sleep(0.1)

    changes, mirror = play(scene)

    assert mirror.applied == []
    assert "master: a -> b" in changes.status.problem
