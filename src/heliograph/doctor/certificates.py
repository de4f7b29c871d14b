"""Certificates of brokers and clients: read, and how long they are good for. Runs on the driver."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Final

from cryptography import x509

from heliograph.config.clients import ssl_context
from heliograph.config.security import TlsConfig
from heliograph.doctor.facts import Certificate
from heliograph.doctor.finding import Finding, Severity, rank

CHECK: Final = "tls"
_DAY_MS: Final = 86_400_000
_SOON_DAYS: Final = 30
_VERY_SOON_DAYS: Final = 7


def chain_of(host: str, port: int, tls: TlsConfig, timeout_s: float) -> tuple[Certificate, ...]:
    """What the server shows, the server's own first; raises `OSError`. Blocks.

    Nothing is verified here, so that a chain that is not trusted can be shown too; whether it is
    trusted shows when a client connects.
    """
    context = ssl_context(tls)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with (
        socket.create_connection((host, port), timeout_s) as plain,
        context.wrap_socket(plain, server_hostname=host) as secured,
    ):
        inner = getattr(secured, "_sslobj", None)
        # Public from Python 3.13 on; before that only the server's own certificate is.
        chain = getattr(inner, "get_unverified_chain", None)
        if chain is not None:
            shown = [each.public_bytes(ssl._ssl.ENCODING_DER) for each in chain()]  # type: ignore[attr-defined]
        else:
            own = secured.getpeercert(binary_form=True)
            shown = [] if own is None else [own]
    return tuple(_read(x509.load_der_x509_certificate(der)) for der in shown)


def in_pem(text: str) -> tuple[Certificate, ...]:
    return tuple(map(_read, x509.load_pem_x509_certificates(text.encode())))


def _read(found: x509.Certificate) -> Certificate:
    return Certificate(
        subject=found.subject.rfc4514_string() or "(no subject)",
        issuer=found.issuer.rfc4514_string() or "(no issuer)",
        begins_ms=int(found.not_valid_before_utc.timestamp() * 1000),
        ends_ms=int(found.not_valid_after_utc.timestamp() * 1000),
    )


def date_findings(
    about: str, chains: Iterable[tuple[str, Sequence[Certificate]]], now_ms: int
) -> list[Finding]:
    """One for each chain that ends soon or has not begun, and one for all the others together."""
    found: list[Finding] = []
    fine = 0
    ends: list[int] = []
    for what, chain in chains:
        bad = [finding for each in chain if (finding := _dated(about, what, each, now_ms))]
        found += sorted(bad, key=lambda finding: rank(finding.severity))[:1]
        fine += not bad
        ends += [each.ends_ms for each in chain]
    if fine and ends:
        first = min(ends)
        what = f"certificates of {fine} chains are good; the first to end does so on {_day(first)}"
        what = what.replace("1 chains", "1 chain")
        found.append(Finding(check=CHECK, about=about, severity=Severity.OK, what=what))
    return found


def _dated(about: str, what: str, one: Certificate, now_ms: int) -> Finding | None:
    days = (one.ends_ms - now_ms) // _DAY_MS
    if one.begins_ms > now_ms:
        severity, said = Severity.PROBLEM, f"is not good before {_day(one.begins_ms)}"
    elif one.ends_ms <= now_ms:
        severity, said = Severity.PROBLEM, f"ended on {_day(one.ends_ms)}"
    elif days < _SOON_DAYS:
        severity = Severity.PROBLEM if days < _VERY_SOON_DAYS else Severity.WARN
        said = f"ends in {days} d, on {_day(one.ends_ms)}"
    else:
        return None
    return Finding(
        check=CHECK,
        about=about,
        severity=severity,
        what=f"{what}: the certificate {one.subject} {said}",
        why="clients refuse a certificate outside its dates, so lanes would stall",
        fix="renew it before that day (or set the clock right, if it is wrong)",
    )


def _day(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).date().isoformat()
