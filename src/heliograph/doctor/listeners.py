"""Whether every advertised listener is reached from every machine. No I/O; runs anywhere."""

from __future__ import annotations

from typing import Final

from heliograph.doctor.certificates import date_findings
from heliograph.doctor.finding import Finding, Severity, ms_words
from heliograph.doctor.place import ListenerSeen, PlaceSeen
from heliograph.model import ClusterAlias
from heliograph.words import counted

CHECK: Final = "listeners"
_TLS_WORDS: Final = ("certificate", "ssl", "tls")
_CREDENTIAL_WORDS: Final = ("credentials", "authenti")


def listener_findings(place: str, seen: PlaceSeen, cluster: ClusterAlias) -> list[Finding]:
    """`place` is `the driver` or an executor by its host."""
    about = f"cluster {cluster}"
    mine = [each for each in seen.listeners if each.listener.cluster == cluster]
    failed = [each for each in mine if each.error]
    found = [_failure(place, about, each) for each in failed]
    trips = [each.round_trip_s for each in mine if each.round_trip_s is not None]
    if trips:
        reached = f"{len(trips)} of {counted(len(mine), 'listener')} reached from {place}"
        spread = ms_words(min(trips))
        if len(trips) > 1:
            spread += f" to {ms_words(max(trips))}"
        found.append(
            Finding(
                check=CHECK,
                about=about,
                severity=Severity.OK,
                what=f"{reached}, round trip {spread}",
            )
        )
    chains = [(str(each.listener), each.chain) for each in mine if each.chain]
    return found + date_findings(about, chains, seen.at_ms)


def _failure(place: str, about: str, seen: ListenerSeen) -> Finding:
    return Finding(
        check=CHECK,
        about=about,
        severity=Severity.PROBLEM,
        what=f"{seen.listener} is not reached from {place}: {seen.error}",
        why="clients come back to what a broker advertises, whatever they began with: lanes of its "
        "partitions would stall",
        fix=_fix(seen),
    )


def _fix(seen: ListenerSeen) -> str:
    host, text = seen.listener.host, seen.error.lower()
    if not seen.is_resolved:
        return f"make {host} resolvable there, or advertise another name (advertised.listeners)"
    if any(word in text for word in _CREDENTIAL_WORDS):
        return "check user and mechanism (sasl.*) of the role that connects"
    if any(word in text for word in _TLS_WORDS):
        return "check ssl.truststore.*, and that the certificate names the advertised host"
    return f"open {host}:{seen.listener.port} from there, or start the broker"
