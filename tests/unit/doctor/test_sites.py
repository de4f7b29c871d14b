"""What the loss of each site does, from the replicas, the in-sync sets and the voters."""

from __future__ import annotations

import pytest

from heliograph.doctor.facts import ClusterFacts
from heliograph.doctor.finding import Severity
from heliograph.doctor.sites import SiteLoss, site_findings, site_losses
from tests.unit.doctor.clusters import broker, cluster, severities, topic

THREE = (broker(0, "a"), broker(1, "b"), broker(2, "c"))
TWO_SITES = (broker(0, "a"), broker(1, "a"), broker(2, "b"))


def loss(of: ClusterFacts, site: str) -> SiteLoss:
    return next(each for each in site_losses(of) if each.site == site)


def names(partitions: tuple[object, ...]) -> list[str]:
    return [str(each) for each in partitions]


@pytest.mark.parametrize(
    ("replicas", "least", "site", "offline", "not_writable", "moved"),
    [
        ((0, 1, 2), "2", "a", [], [], 1),
        ((1, 2, 0), "2", "a", [], [], 0),
        ((0, 1), "2", "a", [], ["t-0"], 1),
        ((0, 1), "2", "c", [], [], 0),
        ((0, 1), "1", "a", [], [], 1),
        ((0,), "1", "a", ["t-0"], [], 0),
        ((0,), "1", "b", [], [], 0),
    ],
)
def test_a_partition_lives_on_in_the_replicas_elsewhere(
    replicas: tuple[int, ...],
    least: str,
    site: str,
    offline: list[str],
    not_writable: list[str],
    moved: int,
) -> None:
    seen = loss(cluster(*THREE, topic("t", replicas, min_insync_replicas=least)), site)

    assert names(seen.offline) == offline
    assert names(seen.not_writable) == not_writable
    assert seen.leaders_moved == moved
    assert seen.quorum_survives is True


def test_a_replica_that_is_not_in_sync_saves_nothing() -> None:
    lagging = topic("t", (0, 1, 2), in_sync=(0,), min_insync_replicas="1")

    seen = loss(cluster(*THREE, lagging), "a")

    assert names(seen.offline) == ["t-0"]
    assert seen.unclean == ()


def test_an_unclean_election_saves_the_partition_and_not_its_records() -> None:
    lagging = topic(
        "t",
        (0, 1, 2),
        in_sync=(0,),
        min_insync_replicas="1",
        unclean_leader_election_enable="true",
    )

    seen = loss(cluster(*THREE, lagging), "a")

    assert names(seen.unclean) == ["t-0"]


@pytest.mark.parametrize(
    ("voters", "site", "survives"),
    [
        ((0, 1, 2), "a", False),
        ((0, 1, 2), "b", True),
        ((2,), "b", False),
        ((2,), "a", True),
        # Controllers that are no brokers have no rack.
        ((7, 8, 9), "a", None),
        ((0, 2, 9), "b", None),
        ((0, 1, 2, 8, 9), "b", None),
        (None, "a", None),
    ],
)
def test_the_quorum_survives_with_a_majority(
    voters: tuple[int, ...] | None, site: str, survives: bool | None
) -> None:
    seen = loss(cluster(*TWO_SITES, voters=voters), site)

    assert seen.quorum_survives is survives


def test_findings_say_what_each_loss_does_and_how_to_prevent_it() -> None:
    stretched = cluster(
        *TWO_SITES,
        topic("alone", (0,), min_insync_replicas="1"),
        topic("pairs", (0, 2), min_insync_replicas="2"),
    )

    without_a, without_b = site_findings(stretched)

    assert without_a.severity is Severity.PROBLEM
    assert without_a.what == (
        "without site a: brokers 0, 1 are gone; the quorum is lost (1 of 3 voters left), "
        "1 partition offline (alone-0), 1 partition below min.insync.replicas (pairs-0), "
        "no new leader for 1 partition led there: no quorum elects one"
    )
    assert "three sites" in without_a.fix
    assert without_b.severity is Severity.WARN
    assert "the quorum survives (2 of 3 voters left)" in without_b.what


@pytest.mark.parametrize(
    ("brokers", "expected"),
    [
        ((broker(0),), [Severity.OK]),
        ((broker(0), broker(1)), [Severity.NOTE]),
        ((broker(0, "a"), broker(1, "a")), [Severity.OK]),
        ((broker(0, "a"), broker(1)), [Severity.WARN, Severity.OK]),
        (THREE, [Severity.OK, Severity.OK, Severity.OK]),
    ],
)
def test_a_cluster_is_judged_by_the_racks_it_names(
    brokers: tuple[object, ...], expected: list[Severity]
) -> None:
    found = site_findings(cluster(*brokers))  # type: ignore[arg-type]

    assert severities(found) == expected


def test_an_even_quorum_is_warned_of() -> None:
    four = (*THREE, broker(3, "a"))

    found = site_findings(cluster(*four, voters=(0, 1, 2, 3)))

    assert found[0].severity is Severity.WARN
    assert "even number" in found[0].what
