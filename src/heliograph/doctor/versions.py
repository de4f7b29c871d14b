"""Which versions of Kafka the brokers are, and what they lack. No I/O; runs anywhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from heliograph.doctor.facts import ClusterFacts, Untold
from heliograph.doctor.finding import Finding, Severity, listed
from heliograph.words import counted

CHECK: Final = "versions"
OLDEST: Final = "3.1"
_REQUIRED: Final[Mapping[str, tuple[int, int]]] = {
    "Fetch by topic id": (1, 13),
    "Produce": (0, 9),
    "ListOffsets": (2, 7),
    "Metadata": (3, 12),
    "OffsetForLeaderEpoch": (23, 4),
    "InitProducerId": (22, 4),
    "DescribeProducers": (61, 0),
}
"""What lanes ask brokers, by request and the version they need."""
_LACKING: Final[tuple[tuple[int, int, str, str], ...]] = (
    (55, 1, "3.4", "the quorum's state: clocks and voters cannot be checked"),
    (35, 4, "3.3", "sizes of volumes: whether the disks suffice cannot be checked"),
    (69, 0, "3.7", "groups of the new protocol (KIP-848)"),
    (16, 5, "3.8", "types of groups: streams and share groups are not seen"),
    (90, 0, "4.1", "share groups' offsets: share groups are not translated"),
)
"""Request, version, since which Kafka, and what is missing without it."""
_RELEASES: Final[tuple[tuple[int, str], ...]] = (
    (1, "3.0"),
    (2, "3.1"),
    (3, "3.2"),
    (4, "3.3"),
    (8, "3.4"),
    (9, "3.5"),
    (12, "3.6"),
    (15, "3.7"),
    (20, "3.8"),
    (21, "3.9"),
    (22, "4.0"),
    (26, "4.1"),
    (28, "4.2"),
    (30, "4.3"),
    (31, "4.4"),
)
"""The first level of `metadata.version` of each release."""


def release_of(level: int) -> str:
    """`4.1`; `4.3 or newer` above what is known here."""
    found = [name for first, name in _RELEASES if first <= level]
    if not found:
        return "older than 3.0"
    return found[-1] if found[-1] != _RELEASES[-1][1] else f"{found[-1]} or newer"


def lacks(brokers: Sequence[Mapping[int, tuple[int, int]]]) -> list[tuple[str, str]]:
    """Since which Kafka, and what: all that some of these brokers cannot do, beside lanes."""
    return [
        (since, what)
        for key, version, since, what in _LACKING
        if not all(_speaks(versions, key, version) for versions in brokers)
    ]


def version_findings(cluster: ClusterFacts) -> list[Finding]:
    about = f"cluster {cluster.alias}"
    known = {b.id: b.versions for b in cluster.brokers.values() if b.versions is not None}
    if not known:
        return [_finding(about, Severity.UNKNOWN, "no broker told which versions it speaks")]
    found: list[Finding] = []
    old = {
        broker: [name for name, need in _REQUIRED.items() if not _speaks(versions, *need)]
        for broker, versions in known.items()
    }
    too_old = [broker for broker, missing in old.items() if missing]
    if too_old:
        found.append(
            _finding(
                about,
                Severity.PROBLEM,
                f"brokers {listed(too_old)} lack {', '.join(old[too_old[0]])}",
                f"lanes need Kafka {OLDEST} or newer on both sides, and stall without",
                "upgrade these brokers",
            )
        )
    if len({tuple(sorted(versions.items())) for versions in known.values()}) > 1:
        found.append(
            _finding(
                about,
                Severity.NOTE,
                "its brokers are not all of one version",
                "an upgrade is under way, or has stopped half-way",
                "finish the upgrade",
            )
        )
    lacking = lacks(list(known.values()))
    for since, what in lacking:
        fix = f"Kafka {since} or newer has it"
        found.append(_finding(about, Severity.NOTE, f"its brokers lack {what}", "", fix))
    if not too_old:
        release = _release(cluster)
        what = f"{counted(len(known), 'broker')}{release}"
        what += "" if lacking else "; nothing that a mirror uses is missing"
        found.append(_finding(about, Severity.OK, what))
    return found


def _release(cluster: ClusterFacts) -> str:
    if isinstance(cluster.features, Untold):
        return ""
    level = cluster.features.get("metadata.version")
    return "" if level is None else f" of Kafka {release_of(level)} (metadata.version {level})"


def _speaks(versions: Mapping[int, tuple[int, int]], key: int, version: int) -> bool:
    low, high = versions.get(key, (0, -1))
    return low <= version <= high


def _finding(about: str, severity: Severity, what: str, why: str = "", fix: str = "") -> Finding:
    return Finding(check=CHECK, about=about, severity=severity, what=what, why=why, fix=fix)
