"""Clusters whose settings change while they are open."""

from __future__ import annotations

import asyncio

from heliograph.broker.open_clusters import OpenClusters
from heliograph.config.schema import ClusterConfig
from heliograph.config.secrets import Secret
from heliograph.config.security import SaslConfig, SecurityConfig
from heliograph.model import ClusterAlias

A, B = ClusterAlias("A"), ClusterAlias("B")


def cluster(alias: ClusterAlias, **more: object) -> ClusterConfig:
    settings = {"alias": alias, "bootstrap_servers": ("127.0.0.1:1",), **more}
    return ClusterConfig.model_validate(settings)


def login(password: str) -> SecurityConfig:
    sasl = SaslConfig(mechanism="PLAIN", username="u", password=Secret(password))
    return SecurityConfig(protocol="SASL_PLAINTEXT", sasl=sasl)


def test_only_roles_whose_settings_differ_are_reconnected_and_they_stay_the_same_object() -> None:
    async def scene() -> None:
        opened = OpenClusters({A: cluster(A), B: cluster(B)})
        reader, writer = opened.get(A, "consumer"), opened.get(A, "producer")
        opened.get(B, "consumer")
        changed = cluster(A, role_security={"consumer": login("new")})

        due = opened.use({A: changed, B: cluster(B)})
        await asyncio.gather(*due)

        assert len(due) == 1
        assert opened.get(A, "consumer") is reader
        assert opened.get(A, "producer") is writer
        # Nobody answers there: the settings count all the same, from the next connection on.
        assert reader._settings["sasl_plain_password"] == "new"
        assert "sasl_plain_password" not in writer._settings

    asyncio.run(scene())


def test_a_cluster_that_is_gone_stays_open_until_it_is_dropped() -> None:
    async def scene() -> None:
        opened = OpenClusters({A: cluster(A), B: cluster(B)})
        gone = opened.get(B, "producer")

        due = opened.use({A: cluster(A)})
        kept = opened.get(B, "producer") is gone
        opened.drop()

        assert (due, kept) == ([], True)
        assert opened._opened == {}

    asyncio.run(scene())
