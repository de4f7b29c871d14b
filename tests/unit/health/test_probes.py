"""What the driver measures: clocks by its own leases, the end of certificates."""

from __future__ import annotations

import datetime
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest
import trustme
from aiokafka.record.default_records import DefaultRecordBatchBuilder

from heliograph.broker.clients import Clients
from heliograph.broker.view import TopicSetting
from heliograph.config.api import ApiConfig, ApiTlsConfig
from heliograph.config.schema import ClusterConfig, MirrorConfig, SecurityConfig
from heliograph.config.security import TlsConfig
from heliograph.errors import BrokerUnreachable
from heliograph.health import probes
from heliograph.health.certificates import certificates_of
from heliograph.health.horizons import Horizon
from heliograph.health.probes import Probes, leases_ahead_s
from heliograph.ledger.entries import LeaseEntry, MemoEntry
from heliograph.ledger.entry_codec import encode
from heliograph.model import ClusterAlias, TopicName
from heliograph.wire.batch import parse_header
from tests.kit.topics import wait_until
from tests.unit.health.sights import AB, FLOW

ME, YOU = "a" * 32, "b" * 32
LEASE = LeaseEntry(author=ME, host="h", pid=1, at_ms=10_000, lease_ms=8_000, slot_count=1)
_APPEND_TIME = 0x08


def ahead(*entries: LeaseEntry | MemoEntry, append_ms: int, by_broker: bool = True) -> list[float]:
    """Of a batch with these entries, as a broker would have put its time on it."""
    builder = DefaultRecordBatchBuilder(2, 0, False, -1, -1, -1, 1 << 20)
    for number, entry in enumerate(entries):
        key, value = encode(entry)
        builder.append(number, append_ms, key, value, [])
    batch = bytes(builder.build())
    header = parse_header(memoryview(batch))
    assert header is not None
    if by_broker:
        header = header._replace(
            attributes=header.attributes | _APPEND_TIME, max_timestamp_ms=append_ms
        )
    return leases_ahead_s(header, memoryview(batch), ME)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ({4711: "", 9: ""}, "producer ids 9, 4711"),
        ({4711: "payments-1", 9: ""}, "producer ids 4711 (transactional id payments-1), 9"),
        ({9: "x" * 200}, f"producer ids 9 (transactional id {'x' * 60})"),
        ({}, "no producer id is known: one without idempotence has none"),
        (dict.fromkeys(range(10), ""), "producer ids 0, 1, 2, 3, 4 and more"),
        (BrokerUnreachable("no answer"), "writers are not known: no answer"),
    ],
)
def test_foreign_writers_are_named_by_what_the_broker_tells(
    found: dict[int, str] | BrokerUnreachable, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker tells producer ids and transactional ids, and no client ids."""

    async def asked(*_: object) -> dict[int, str]:
        if isinstance(found, BrokerUnreachable):
            raise found
        return found

    monkeypatch.setattr(Probes, "_producers", asked)
    config = MirrorConfig(clusters={}, pairs=(FLOW,))

    assert Probes(config, AB, Clients(config), author=ME).writers([], own=7) == expected


def test_every_topic_that_is_behind_is_asked_about_some_at_a_look(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[list[str]] = []

    class Admin:
        def topic_configs(self, names: list[TopicName]) -> dict[TopicName, dict[str, TopicSetting]]:
            asked.append([*names])
            policy = TopicSetting(name="cleanup.policy", value="compact")
            kept = TopicSetting(name="delete.retention.ms", value="60000")
            return {name: {"cleanup.policy": policy, "delete.retention.ms": kept} for name in names}

    monkeypatch.setattr(Clients, "admin", lambda *_: Admin())
    monkeypatch.setattr(Clients, "source", lambda *_: None)
    now_s = [1_000.0]
    monkeypatch.setattr(probes, "monotonic_s", lambda: now_s[0])
    config = MirrorConfig(clusters={}, pairs=(FLOW,))
    seen = Probes(config, AB, Clients(config), author=ME)
    topics = [TopicName(f"topic-{n:04}") for n in range(450)]

    known = [sum(found is not None for found in seen.horizons(topics).values()) for _ in range(4)]
    now_s[0] += 700.0
    still_known = sum(found is not None for found in seen.horizons(topics).values())

    assert known == [200, 400, 450, 450]
    assert sorted(name for names in asked[:3] for name in names) == topics
    assert still_known == 450
    assert [len(names) for names in asked[3:]] == [200]
    assert seen.horizons(topics[:1])[topics[0]] == Horizon(delete_retention_s=60.0)


def test_the_brokers_clock_is_known_by_what_it_put_on_this_drivers_leases() -> None:
    other = replace(LEASE, author=YOU, at_ms=0)
    let_go = replace(LEASE, lease_ms=0, at_ms=0)
    memo = MemoEntry(subject="fence", text="{}")

    assert ahead(LEASE, other, let_go, memo, append_ms=12_500) == [2.5]
    assert ahead(LEASE, append_ms=4_000) == [-6.0]
    assert ahead(LEASE, append_ms=4_000, by_broker=False) == []


@contextmanager
def listener(certificate: trustme.LeafCert) -> Iterator[str]:
    """Something that shows a certificate, and says nothing else."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificate.configure_cert(context)
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with suppress(OSError):
                while True:
                    plain, _ = server.accept()
                    with suppress(OSError), context.wrap_socket(plain, server_side=True) as shown:
                        shown.recv(1)

        threading.Thread(target=serve, daemon=True).start()
        yield f"127.0.0.1:{server.getsockname()[1]}"


def test_certificates_of_brokers_clients_and_the_rest_server_are_seen_also_when_they_have_ended(
    tmp_path: Path,
) -> None:
    authority = trustme.CA()
    past = datetime.datetime(2020, 1, 31, tzinfo=datetime.UTC)
    soon = datetime.datetime(2031, 1, 31, tzinfo=datetime.UTC)
    leaf = authority.issue_cert("127.0.0.1", not_after=past)
    client = authority.issue_cert("client", not_after=soon)
    rest = tmp_path / "rest.pem"
    rest.write_bytes(authority.issue_cert("rest", not_after=soon).cert_chain_pems[0].bytes())
    tls = TlsConfig(certificate_pem=client.cert_chain_pems[0].bytes().decode())

    with listener(leaf) as server:
        config = MirrorConfig(
            clusters={
                alias: ClusterConfig(
                    alias=alias,
                    bootstrap_servers=(server if alias == "A" else "127.0.0.1:1",),
                    security=SecurityConfig(protocol="SSL", tls=tls),
                )
                for alias in (ClusterAlias("A"), ClusterAlias("B"))
            },
            pairs=(FLOW,),
            api=ApiConfig(tls=ApiTlsConfig(certificate=str(rest), key=str(rest))),
        )
        found = {each.whose: each.ends_ms for each in certificates_of(config, AB)}

    assert found == {
        f"broker {server} of A": int(past.timestamp() * 1000),
        "the client of A": int(soon.timestamp() * 1000),
        "the client of B": int(soon.timestamp() * 1000),
        "the REST server": int(soon.timestamp() * 1000),
    }


@pytest.mark.parametrize("text", [b"", b"no certificate"])
def test_what_is_no_certificate_has_no_end(tmp_path: Path, text: bytes) -> None:
    file = tmp_path / "rest.pem"
    file.write_bytes(text)
    clusters = {
        alias: ClusterConfig(alias=alias, bootstrap_servers=("127.0.0.1:1",))
        for alias in (ClusterAlias("A"), ClusterAlias("B"))
    }
    api = ApiConfig(tls=ApiTlsConfig(certificate=str(file), key=str(file)))

    config = MirrorConfig(clusters=clusters, pairs=(FLOW,), api=api)

    assert certificates_of(config, AB) == ()


def test_a_cluster_that_does_not_answer_holds_up_no_look_and_is_not_asked_twice_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answers, asked = threading.Event(), list[list[TopicName]]()

    def held(_: object, topics: list[TopicName]) -> dict[TopicName, dict[str, str]]:
        asked.append(topics)
        assert answers.wait(60)
        return {name: {} for name in topics}

    monkeypatch.setattr(Probes, "_told_settings", held)
    monkeypatch.setattr(probes, "horizon_of", lambda _: Horizon())
    config = MirrorConfig(clusters={}, pairs=(FLOW,))
    seen = Probes(config, AB, Clients(config), author=ME)
    orders, logs = TopicName("orders"), TopicName("logs")

    began_s = time.monotonic()
    first, second = seen.horizons([orders]), seen.horizons([orders, logs])
    waited_s = time.monotonic() - began_s
    answers.set()
    wait_until(lambda: seen.horizons([orders])[orders] is not None, "the answer")

    assert waited_s < 10
    assert (first, second) == ({orders: None}, {orders: None, logs: None})
    assert asked == [[orders]]
