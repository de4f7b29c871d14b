"""Dates of certificates."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import trustme

from heliograph.clock import now_ms
from heliograph.config.security import TlsConfig
from heliograph.doctor.certificates import chain_of, date_findings, in_pem
from heliograph.doctor.facts import Certificate
from heliograph.doctor.finding import Severity
from tests.unit.doctor.clusters import severities

DAY_MS = 86_400_000
NOW_MS = 20_000 * DAY_MS


def certificate(begins_d: float, ends_d: float) -> Certificate:
    return Certificate(
        subject="CN=b0",
        issuer="CN=ca",
        begins_ms=int(NOW_MS + begins_d * DAY_MS),
        ends_ms=int(NOW_MS + ends_d * DAY_MS),
    )


@pytest.mark.parametrize(
    ("begins_d", "ends_d", "severity", "said"),
    [
        (-10, -1, Severity.PROBLEM, "ended on 2024-10-03"),
        (1, 90, Severity.PROBLEM, "is not good before 2024-10-05"),
        (-10, 3.5, Severity.PROBLEM, "ends in 3 d, on 2024-10-07"),
        (-10, 20, Severity.WARN, "ends in 20 d, on 2024-10-24"),
    ],
)
def test_a_certificate_is_judged_by_its_dates(
    begins_d: float, ends_d: float, severity: Severity, said: str
) -> None:
    chain = [certificate(begins_d, ends_d), certificate(-10, 900)]

    (found,) = date_findings("cluster A", [("broker 0", chain)], NOW_MS)

    assert (found.severity, found.what) == (severity, f"broker 0: the certificate CN=b0 {said}")


def test_good_chains_are_one_line_with_the_first_end() -> None:
    chains = [("b0", [certificate(-10, 400), certificate(-10, 90)]), ("b1", [certificate(-1, 100)])]

    (found,) = date_findings("cluster A", chains, NOW_MS)

    assert found.severity is Severity.OK
    assert found.what == (
        "certificates of 2 chains are good; the first to end does so on 2025-01-02"
    )


def test_a_bad_chain_does_not_hide_the_good_ones() -> None:
    chains = [("b0", [certificate(-10, 1)]), ("b1", [certificate(-1, 100)])]

    assert severities(date_findings("A", chains, NOW_MS)) == [Severity.PROBLEM, Severity.OK]


@contextmanager
def tls_server(authority: trustme.CA) -> Iterator[int]:
    """Accepts one client; its port."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)

    def serve() -> None:
        plain, _ = listener.accept()
        with plain, context.wrap_socket(plain, server_side=True) as secured:
            secured.recv(1)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        serving = threading.Thread(target=serve, daemon=True)
        serving.start()
        yield listener.getsockname()[1]
        serving.join(10)


def test_a_chain_is_read_though_its_authority_is_not_trusted() -> None:
    other = trustme.CA().cert_pem.bytes().decode()

    with tls_server(trustme.CA(organization_name="Heliograph")) as port:
        chain = chain_of("127.0.0.1", port, TlsConfig(ca_pem=other), 10)

    assert "O=Heliograph" in chain[0].issuer
    assert severities(date_findings("A", [("b0", chain)], now_ms())) == [Severity.OK]


def test_certificates_are_read_from_pem() -> None:
    authority = trustme.CA(organization_name="Heliograph")

    (found,) = in_pem(authority.cert_pem.bytes().decode())

    assert "O=Heliograph" in found.subject
    assert found.begins_ms < found.ends_ms
