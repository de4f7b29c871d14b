"""The Kafka versions brokers here can be, and how they differ. Pure; runs anywhere."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

PATCHES: Final[Mapping[str, str]] = {
    "3.1": "3.1.2",
    "3.6": "3.6.2",
    "3.9": "3.9.1",
    "4.0": "4.0.1",
    "4.1": "4.1.1",
    "4.3": "4.3.1",
}
"""Releases that Heliograph is tried with, oldest first, and the patch that stands for each."""
OLDEST_RELEASE, *_, NEWEST_RELEASE = PATCHES
KAFKA_VERSION: Final = PATCHES[NEWEST_RELEASE]


def release(version: str) -> tuple[int, int]:
    """`(3, 9)` of `3.9.1`."""
    major, minor, *_ = version.split(".")
    return int(major), int(minor)


def needs_log4j(version: str) -> bool:
    """Whether a broker loads classes of Log4j 1 that its artifacts do not bring."""
    return release(version) < (4, 0)


def has_bootstrap_checkpoint(version: str) -> bool:
    """Whether formatting writes the cluster's first metadata (KIP-778)."""
    return release(version) >= (3, 3)


def lacks_scram(version: str) -> bool:
    """Whether a KRaft cluster cannot know SCRAM users (KIP-900)."""
    return release(version) < (3, 5)


def lacks_authorizer(version: str) -> bool:
    """Whether a KRaft cluster has no ACLs (KIP-801)."""
    return release(version) < (3, 2)
