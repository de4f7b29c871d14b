"""What the loss of each site of a stretched cluster would do. No I/O; runs anywhere.

A site is what brokers call their rack. A partition stays online while one of its in-sync replicas
survives, since no other may become its leader; it takes records with `acks=all` while at least
`min.insync.replicas` of its in-sync replicas do. For new leaders to be elected at all, a majority
of the controller quorum must survive.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from heliograph.doctor.facts import ClusterFacts, QuorumFacts, TopicFacts, Untold
from heliograph.doctor.finding import Finding, Severity, listed
from heliograph.model import TopicPartition
from heliograph.words import counted

CHECK: Final = "sites"


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteLoss:
    """What is left of a cluster without one site."""

    site: str
    brokers: tuple[int, ...]
    """Those that would be gone."""
    offline: tuple[TopicPartition, ...]
    """Partitions without an in-sync replica elsewhere."""
    unclean: tuple[TopicPartition, ...]
    """Of those, the ones whose topic lets a replica lead that lacks records: a loss."""
    not_writable: tuple[TopicPartition, ...]
    """Online, with fewer in-sync replicas than `min.insync.replicas`."""
    unsure: tuple[TopicPartition, ...]
    """Whose `min.insync.replicas` is not told."""
    leaders_moved: int
    """Partitions that would get another leader."""
    quorum_survives: bool | None
    """None where it depends on controllers whose site is not known."""
    voters_lost: tuple[int, ...] = ()


def site_losses(cluster: ClusterFacts) -> tuple[SiteLoss, ...]:
    """One for each rack that brokers name, in their order."""
    return tuple(_without(cluster, site) for site in sorted(cluster.racks))


def _without(cluster: ClusterFacts, site: str) -> SiteLoss:
    lost = frozenset(b.id for b in cluster.brokers.values() if b.rack == site)
    offline: list[TopicPartition] = []
    unclean: list[TopicPartition] = []
    not_writable: list[TopicPartition] = []
    unsure: list[TopicPartition] = []
    moved = 0
    for topic in cluster.topics.values():
        for number, partition in topic.partitions.items():
            place = TopicPartition(topic=topic.name, partition=number)
            survivors = [node for node in partition.in_sync if node not in lost]
            if not survivors:
                offline.append(place)
                if _elects_uncleanly(topic) and set(partition.replicas) - lost:
                    unclean.append(place)
                continue
            moved += partition.leader in lost
            needed = topic.number("min.insync.replicas")
            if needed is None:
                unsure.append(place)
            elif len(survivors) < needed:
                not_writable.append(place)
    survives, voters = _quorum_without(cluster, lost)
    return SiteLoss(
        site=site,
        brokers=tuple(sorted(lost)),
        offline=tuple(offline),
        unclean=tuple(unclean),
        not_writable=tuple(not_writable),
        unsure=tuple(unsure),
        leaders_moved=moved,
        quorum_survives=survives,
        voters_lost=voters,
    )


def _elects_uncleanly(topic: TopicFacts) -> bool:
    return topic.text("unclean.leader.election.enable") == "true"


def _quorum_without(
    cluster: ClusterFacts, lost: frozenset[int]
) -> tuple[bool | None, tuple[int, ...]]:
    if isinstance(cluster.quorum, Untold):
        return None, ()
    voters = frozenset(cluster.quorum.voters)
    gone = voters & lost
    # The others have no rack to be known by: they are no brokers, or brokers without one.
    elsewhere = {v for v in voters - lost if v in cluster.brokers and cluster.brokers[v].rack}
    majority = len(voters) // 2 + 1
    at_best, at_worst = len(voters) - len(gone), len(elsewhere)
    survives = True if at_worst >= majority else False if at_best < majority else None
    return survives, tuple(sorted(gone))


def site_findings(cluster: ClusterFacts) -> list[Finding]:
    """Of a cluster without racks only that: where its brokers are is not known."""
    about = f"cluster {cluster.alias}"
    racks = cluster.racks
    if not racks:
        if len(cluster.brokers) == 1:
            return [Finding(check=CHECK, about=about, severity=Severity.OK, what="one broker")]
        what = f"{counted(len(cluster.brokers), 'broker')}, none with a rack"
        why = "what the loss of a site would do cannot be told"
        fix = "set broker.rack, if the cluster is spread over sites"
        note = Severity.NOTE
        return [Finding(check=CHECK, about=about, severity=note, what=what, why=why, fix=fix)]
    homeless = [b.id for b in cluster.brokers.values() if b.rack is None]
    found: list[Finding] = []
    if homeless:
        found.append(
            Finding(
                check=CHECK,
                about=about,
                severity=Severity.WARN,
                what=f"brokers {listed(homeless)} have no rack, the others have",
                why="new topics cannot be spread over sites, and Kafka refuses automatic placement",
                fix="set broker.rack on every broker",
            )
        )
    if len(racks) == 1:
        what = f"all brokers are in one rack, {min(racks)}"
        found.append(Finding(check=CHECK, about=about, severity=Severity.OK, what=what))
        return found
    found += _quorum_spread(cluster, about)
    for loss in site_losses(cluster):
        found.append(_loss_finding(cluster, about, loss))
    return found


def _quorum_spread(cluster: ClusterFacts, about: str) -> Iterator[Finding]:
    quorum = cluster.quorum
    if isinstance(quorum, Untold):
        yield Finding(
            check=CHECK,
            about=about,
            severity=Severity.UNKNOWN,
            what=f"the controller quorum is not told: {quorum.why}",
            why="without a majority of its voters no partition gets a new leader",
            fix="grant DESCRIBE on the cluster to the admin client",
        )
        return
    if len(quorum.voters) % 2 == 0:
        yield Finding(
            check=CHECK,
            about=about,
            severity=Severity.WARN,
            what=f"the controller quorum has {len(quorum.voters)} voters, an even number",
            why="one voter more is needed for a majority, and no further loss is survived for it",
            fix="use three or five voters, on three sites",
        )


def _loss_finding(cluster: ClusterFacts, about: str, loss: SiteLoss) -> Finding:
    bad = loss.quorum_survives is False or bool(loss.offline)
    severity = Severity.OK
    if loss.not_writable or loss.unsure or loss.quorum_survives is None:
        severity = Severity.WARN if loss.not_writable else Severity.UNKNOWN
    if bad:
        severity = Severity.PROBLEM
    fixes = []
    if loss.quorum_survives is False:
        fixes.append("put the voters on three sites, so that none has a majority")
    if loss.offline:
        fixes.append("place replicas on more than one site (kafka-reassign-partitions)")
    if loss.not_writable:
        fixes.append("more replicas elsewhere, or a smaller min.insync.replicas")
    return Finding(
        check=CHECK,
        about=about,
        severity=severity,
        what=f"without site {loss.site}: {loss_words(cluster, loss)}",
        why="a site that is lost takes its brokers and voters at once" if fixes else "",
        fix="; ".join(fixes),
    )


def loss_words(cluster: ClusterFacts, loss: SiteLoss) -> str:
    """`broker 2 is gone; quorum survives; 3 partitions offline (a-0, b-0), …`."""
    parts = [f"{_gone(loss.brokers)}; {_quorum_words(cluster.quorum, loss)}"]
    if loss.offline:
        parts.append(f"{counted(len(loss.offline), 'partition')} offline ({listed(loss.offline)})")
    if loss.unclean:
        parts.append(f"{len(loss.unclean)} of them elect a replica that lacks records")
    if loss.not_writable:
        count = counted(len(loss.not_writable), "partition")
        parts.append(f"{count} below min.insync.replicas ({listed(loss.not_writable)})")
    if loss.unsure:
        parts.append(f"{counted(len(loss.unsure), 'partition')} whose min.insync is not told")
    is_led = loss.quorum_survives is not False or not loss.leaders_moved
    if is_led and not (loss.offline or loss.not_writable or loss.unsure):
        parts.append("every partition stays online and takes records")
    if not is_led:
        count = counted(loss.leaders_moved, "partition")
        parts.append(f"no new leader for {count} led there: no quorum elects one")
    elif loss.leaders_moved:
        parts.append(f"{counted(loss.leaders_moved, 'leader')} move")
    return ", ".join(parts)


def _gone(brokers: tuple[int, ...]) -> str:
    if len(brokers) == 1:
        return f"broker {brokers[0]} is gone"
    return f"brokers {', '.join(map(str, brokers))} are gone"


def _quorum_words(quorum: QuorumFacts | Untold, loss: SiteLoss) -> str:
    if isinstance(quorum, Untold):
        return "the quorum is not known"
    left = len(quorum.voters) - len(loss.voters_lost)
    of = f"{left} of {len(quorum.voters)} voters left"
    if loss.quorum_survives is None:
        return f"whether the quorum survives depends on controllers without a rack ({of})"
    return f"the quorum {'survives' if loss.quorum_survives else 'is lost'} ({of})"
