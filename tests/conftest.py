"""Fixtures every test may use; they live in tests.kit. And which files begin first."""

from __future__ import annotations

from typing import Final

import pytest

from tests.kit.clusters import clusters, pair, tidy_pair, topic
from tests.kit.java import java
from tests.kit.session_rules import pytest_sessionfinish
from tests.kit.spark_start import spark_starts_fast

__all__ = [
    "clusters",
    "java",
    "pair",
    "pytest_sessionfinish",
    "spark_starts_fast",
    "tidy_pair",
    "topic",
]

_LONG: Final = (
    "campaign/test_campaign.py",
    "cluster/test_takeover.py",
    "crash/test_kills.py",
    "cluster/test_link_faults.py",
    "cluster/test_mirrormaker_behaviours.py",
    "crash/test_zombies.py",
    "cluster/test_mirror_restarts.py",
    "cluster/test_adoption.py",
    "spark/test_standalone_run.py",
    "spark/test_pipeline.py",
    "crash/test_failover_kills.py",
    "spark/test_spark_checkpoint.py",
    "cluster/test_failover.py",
    "spark/test_audit_job.py",
    "cluster/test_local.py",
    "cluster/test_cli.py",
    "cluster/test_failback.py",
    "cluster/test_tutorial.py",
    "cluster/test_guides.py",
    "cluster/test_mirror_faults.py",
    "cluster/test_secured.py",
    "cluster/test_reload.py",
    "cluster/test_decisions.py",
    "cluster/test_topologies.py",
    "crash/test_steps.py",
    "cluster/test_audit.py",
    "cluster/test_permissions.py",
    "cluster/test_page.py",
    "cluster/test_bench.py",
    "cluster/test_tune.py",
    "cluster/test_drill.py",
    "cluster/test_records.py",
    "spark/test_driver_lost.py",
    "cluster/test_mirror_records.py",
    "spark/test_slots.py",
    "crash/test_failback_kills.py",
    "crash/test_letters.py",
    "cluster/test_pipeline_target.py",
    "cluster/test_offsets_command.py",
    "cluster/test_share_groups.py",
    "cluster/test_clock_jumps.py",
    "cluster/test_metrics.py",
    "cluster/test_standby.py",
    "cluster/test_slots_follow.py",
    "cluster/test_canary.py",
    "cluster/test_target_faults.py",
    "cluster/test_recovery_permissions.py",
    "cluster/test_failover_live.py",
    "cluster/test_cut_off.py",
    "cluster/test_connect.py",
    "cluster/test_real_mirrormaker.py",
    "cluster/test_heartbeats_and_syncs.py",
    "cluster/test_group_offsets.py",
    "cluster/test_round_trips.py",
    "cluster/test_failover_topics.py",
    "cluster/test_mirror_client.py",
)
"""The longest files, about longest first: a worker that begins one last keeps the others waiting.
Those that use the processor are between those that wait. Others follow by name, Spark's last."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: _rank(item.path.as_posix()))


def _rank(path: str) -> int:
    return next((at for at, name in enumerate(_LONG) if path.endswith(name)), len(_LONG))
