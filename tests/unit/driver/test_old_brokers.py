"""A line in the log that no mirror ends for."""

from __future__ import annotations

import asyncio
import logging

import pytest

from heliograph.broker.cluster import Cluster
from heliograph.config.schema import ClusterConfig, FlowConfig, MirrorConfig
from heliograph.driver import old_brokers
from heliograph.driver.old_brokers import say_what_is_lacking
from heliograph.model import ClusterAlias, FlowId


def mirror() -> MirrorConfig:
    """A is mirrored to B; C is another driver's."""
    aliases = [ClusterAlias(name) for name in "ABC"]
    clusters = {
        alias: ClusterConfig(alias=alias, bootstrap_servers=("127.0.0.1:1",)) for alias in aliases
    }
    first, second, third = aliases
    pairs = tuple(
        FlowConfig(id=FlowId(source=source, target=target), enabled=True)
        for source, target in ((first, second), (first, third))
    )
    chosen = frozenset({pairs[0].id})
    return MirrorConfig(clusters=clusters, pairs=pairs).model_copy(update={"chosen": chosen})


def test_clusters_that_cannot_even_be_opened_end_nothing_and_only_those_of_the_driver_are_asked(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def unreadable(config: ClusterConfig, role: str) -> Cluster:
        if config.alias == "A":
            raise OSError("no such file: secret.pem")
        raise ValueError("bad setting secret")

    monkeypatch.setattr(old_brokers, "open_cluster", unreadable)
    caplog.set_level(logging.DEBUG, "heliograph.driver.old_brokers")

    asyncio.run(say_what_is_lacking(mirror()))

    assert caplog.messages == [
        "versions of the brokers of A are not known: OSError",
        "versions of the brokers of B are not known: ValueError",
    ]


def test_a_cluster_that_does_not_answer_is_left_to_its_lanes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "heliograph.driver.old_brokers")

    asyncio.run(say_what_is_lacking(mirror()))

    assert caplog.messages == []
