"""Which Kafka the brokers are, and what they lack."""

from __future__ import annotations

import pytest

from heliograph.doctor.finding import Severity
from heliograph.doctor.versions import release_of, version_findings
from tests.unit.doctor.clusters import NEW, NOT_TOLD, broker, by_severity, cluster


@pytest.mark.parametrize(
    ("level", "release"),
    [
        (0, "older than 3.0"),
        (7, "3.3"),
        (11, "3.5"),
        (22, "4.0"),
        (27, "4.1"),
        (30, "4.3"),
        (99, "4.4 or newer"),
    ],
)
def test_a_release_is_known_by_its_metadata_version(level: int, release: str) -> None:
    assert release_of(level) == release


def test_a_broker_without_topic_ids_is_too_old() -> None:
    old = broker(1, versions={**NEW, 1: (0, 12)})

    found = version_findings(cluster(broker(0), old))

    assert by_severity(found)[Severity.PROBLEM] == ["brokers 1 lack Fetch by topic id"]


@pytest.mark.parametrize(
    ("versions", "said"),
    [
        ({16: (0, 4)}, "types of groups"),
        ({90: (0, -1)}, "share groups' offsets"),
        ({55: (0, 0)}, "the quorum's state"),
    ],
)
def test_what_newer_brokers_have_is_noted(versions: dict[int, tuple[int, int]], said: str) -> None:
    found = version_findings(cluster(broker(0, versions={**NEW, **versions})))

    (note,) = by_severity(found)[Severity.NOTE]
    assert said in note


def test_brokers_of_two_versions_are_an_upgrade_under_way() -> None:
    found = version_findings(cluster(broker(0), broker(1, versions={**NEW, 3: (0, 99)})))

    assert by_severity(found) == {Severity.NOTE: ["its brokers are not all of one version"]}


def test_a_new_cluster_is_told_with_its_release() -> None:
    (fine,) = version_findings(cluster(broker(0), broker(1)))

    assert fine.what == (
        "2 brokers of Kafka 4.3 (metadata.version 30); nothing that a mirror uses is missing"
    )


def test_a_cluster_that_tells_nothing_is_unknown() -> None:
    (found,) = version_findings(cluster(broker(0, versions=None), features=NOT_TOLD))

    assert found.severity is Severity.UNKNOWN
