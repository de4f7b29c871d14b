"""Fixtures every test may use; they live in tests.kit. And which files begin first."""

from __future__ import annotations

from typing import Final

import pytest

from tests.kit.clusters import clusters, pair, topic
from tests.kit.java import java
from tests.kit.session_rules import pytest_sessionfinish
from tests.kit.spark_start import spark_starts_fast

__all__ = ["clusters", "java", "pair", "pytest_sessionfinish", "spark_starts_fast", "topic"]

_LONG: Final = (
    "crash/test_kills.py",
    "cluster/test_mirror_client.py",
    "cluster/test_mirror_restarts.py",
    "cluster/test_mirrormaker_behaviours.py",
    "cluster/test_secured.py",
    "spark/test_spark_checkpoint.py",
    "spark/test_standalone_run.py",
    "spark/test_local_cluster.py",
    "cluster/test_takeover.py",
    "cluster/test_failover_live.py",
)
"""Files that take a minute and more: a worker that begins one last keeps all the others waiting."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: not item.path.as_posix().endswith(_LONG))
