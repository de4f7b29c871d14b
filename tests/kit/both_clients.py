"""Java's own mirror client beside ours, over every naming policy, and records for both to read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from heliograph.compat.mirror_client import MirrorClient
from heliograph.config.schema import ClusterConfig, NamingPolicyConfig
from heliograph.config.sections import DEFAULT_POLICY, IDENTITY_POLICY
from heliograph.model import ClusterAlias, TopicName
from heliograph.wire.mirror_records import (
    Checkpoint,
    encode_checkpoint,
)
from heliograph_tools.localkafka.cluster import LocalCluster
from tests.kit.java import Java, JavaMirrorClient

Pair = dict[str, LocalCluster]


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """One way to name topics, said to both sides."""

    separator: str = "."
    internal: bool = True
    class_path: str = DEFAULT_POLICY
    source: str | None = None

    @property
    def naming(self) -> NamingPolicyConfig:
        return NamingPolicyConfig(
            class_path=self.class_path,
            separator=self.separator,
            internal_separator_enabled=self.internal,
        )

    @property
    def properties(self) -> dict[str, str]:
        said = {
            "replication.policy.class": self.class_path,
            "replication.policy.separator": self.separator,
            "replication.policy.internal.topic.separator.enabled": str(self.internal).lower(),
        }
        return said if self.source is None else {**said, "source.cluster.alias": self.source}


POLICIES = {
    "default": Policy(),
    "underscore": Policy(separator="_"),
    "underscore, dots inside": Policy(separator="_", internal=False),
    "two characters": Policy(separator="--"),
    "identity": Policy(class_path=IDENTITY_POLICY, source="origin"),
    "identity of nobody": Policy(class_path=IDENTITY_POLICY),
}
EVERY_POLICY = pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES.keys())


def config_of(cluster: LocalCluster, alias: str = "here") -> ClusterConfig:
    return ClusterConfig(
        alias=ClusterAlias(alias), bootstrap_servers=tuple(cluster.bootstrap.split(","))
    )


@contextmanager
def both(
    java: Java, cluster: LocalCluster, policy: Policy = POLICIES["default"]
) -> Iterator[tuple[MirrorClient, JavaMirrorClient]]:
    properties = {"bootstrap.servers": cluster.bootstrap, **policy.properties}
    with (
        MirrorClient(config_of(cluster), policy.naming, source=policy.source) as ours,
        java.mirror_client(properties) as theirs,
    ):
        yield ours, theirs


def checkpoint(
    group: str, topic: str, offset: int, *, partition: int = 0, metadata: str = ""
) -> tuple[bytes, bytes]:
    return encode_checkpoint(
        Checkpoint(
            group=group,
            topic=TopicName(topic),
            partition=partition,
            upstream_offset=offset + 100,
            downstream_offset=offset,
            metadata=metadata,
        )
    )


GARBAGE: list[tuple[bytes, bytes]] = [
    (b"", b""),
    (b"key", b"value"),
    (checkpoint("g", "t", 1)[0], b"\x00"),
    (checkpoint("g", "t", 1)[0], checkpoint("g", "t", 1)[1][:-1]),
    (checkpoint("g", "t", 1)[0][:-1], checkpoint("g", "t", 1)[1]),
    (b"\x7f\xff" + b"g", checkpoint("g", "t", 1)[1]),
    (b"\xff\xff" + b"g", checkpoint("g", "t", 1)[1]),
    (checkpoint("g", "t", 1)[0], checkpoint("g", "t", 1)[1][:-2] + b"\x7f\xff"),
]
