"""What a registry may answer with, and what is made of it."""

from __future__ import annotations

import pickle
import socket
import ssl

import pytest
import trustme

from heliograph.config.registry import RegistryConfig
from heliograph.config.secrets import Secret
from heliograph.config.security import TlsConfig
from heliograph.errors import RegistryDown, RegistryError
from heliograph.registry import http
from heliograph.registry.client import Registry
from heliograph.registry.http import RegistryHttp
from tests.kit.small_registry import SmallRegistry, small_registry

AVRO = '{"type":"string"}'


def client(held: SmallRegistry, **settings: object) -> Registry:
    config = held.config.model_copy(update=settings)
    http = RegistryHttp("schema registry of A", config, sleep=lambda _: None)
    return Registry("A", config, http)


def test_schemas_are_asked_for_once() -> None:
    with small_registry() as held:
        number = held.put("orders-value", AVRO)
        asked = client(held)

        twice = [(asked.schema(number), asked.version("orders-value", 1)) for _ in range(2)]

        assert twice[0] == twice[1]
        assert twice[0][1].id == number
        assert held.asked == ["GET /schemas/ids/1", "GET /subjects/orders-value/versions/1"]


def test_names_of_subjects_may_have_anything_in_them() -> None:
    with small_registry() as held:
        held.put(":.ctx:a/b c?-value", AVRO)

        assert client(held).versions(":.ctx:a/b c?-value") == [1]


def test_what_is_not_there_is_none() -> None:
    with small_registry() as held:
        asked = client(held)

        assert asked.schema(77) is None
        assert asked.versions("nothing") == []
        assert asked.places(77) == []
        assert asked.compatibility("nothing") is None
        assert asked.mode("nothing") is None


def test_a_user_and_a_token_are_sent_and_a_refusal_does_not_quote_them() -> None:
    with small_registry(user_info="me:secret") as held:
        allowed = client(held, user_info=Secret("me:secret"))
        refused = client(held, user_info=Secret("me:other"))

        assert allowed.subjects() == []
        with pytest.raises(RegistryError, match="refuses the credentials") as caught:
            refused.subjects()
        assert "other" not in str(caught.value)
        assert pickle.loads(pickle.dumps(caught.value)).status == 401


def test_the_second_address_is_asked_when_the_first_is_silent() -> None:
    with socket.socket() as closed, small_registry() as held:
        closed.bind(("127.0.0.1", 0))
        gone = f"http://127.0.0.1:{closed.getsockname()[1]}"

        assert client(held, urls=(gone, held.url)).subjects() == []


def test_one_that_is_down_says_so_after_three_tries() -> None:
    with socket.socket() as closed, small_registry() as held:
        closed.bind(("127.0.0.1", 0))
        gone = f"http://127.0.0.1:{closed.getsockname()[1]}"

        with pytest.raises(
            RegistryDown, match=r"schema registry of A: does not serve: Conn\w+ ref"
        ):
            client(held, urls=(gone,)).subjects()


@pytest.mark.parametrize("status", [429, 500, 503])
def test_one_that_is_busy_is_asked_again(status: int) -> None:
    with small_registry() as held:
        times: list[int] = []

        def hold(method: str, path: str) -> tuple[int, bytes] | None:
            times.append(1)
            return (status, b'{"message":"elect\\u001bion"}') if len(times) < 3 else None

        held.hold = hold
        assert client(held).subjects() == []
        times.clear()
        held.hold = lambda *_: (status, b'{"message":"elect\\u001bion"}')
        with pytest.raises(RegistryDown, match=rf"answers {status} \(elect ion\)"):
            client(held).subjects()


@pytest.mark.parametrize(
    "body", [b"<html>", b"{}", b'["a", 1]', b'"text"'], ids=["html", "object", "mixed", "text"]
)
def test_nonsense_is_an_error_and_no_surprise(body: bytes) -> None:
    with small_registry() as held:
        held.hold = lambda *_: (200, body)

        with pytest.raises(RegistryError, match="schema registry of A"):
            client(held).subjects()


def test_no_redirect_is_followed() -> None:
    """It would take the credentials to another host."""
    with small_registry() as held:
        held.hold = lambda *_: (302, b"")

        with pytest.raises(RegistryError, match="names another address, which is not followed"):
            client(held).subjects()
        assert len(held.asked) == 1


def test_an_answer_without_an_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "ANSWER_BYTES_MAX", 1_000)
    with small_registry() as held:
        held.hold = lambda *_: (200, b"[" + b" " * 2_000 + b"]")

        with pytest.raises(RegistryError, match="more than 1000 bytes"):
            client(held).subjects()


def test_one_that_does_not_answer_in_time_is_down() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen(16)
        config = RegistryConfig(
            urls=(f"http://127.0.0.1:{silent.getsockname()[1]}",), timeout_ms=100
        )

        with pytest.raises(RegistryDown, match="no answer in time"):
            RegistryHttp("it", config, sleep=lambda _: None).ask("GET", "/subjects")


def test_https_trusts_the_authority_it_was_told_and_no_other() -> None:
    ours, others = trustme.CA(), trustme.CA()
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ours.issue_cert("127.0.0.1").configure_cert(tls)
    with small_registry(tls=tls) as held:
        number = held.put("orders-value", AVRO)
        trusting, strange = (
            client(held, tls=TlsConfig(ca_pem=each.cert_pem.bytes().decode()))
            for each in (ours, others)
        )

        assert trusting.subjects() == ["orders-value"]
        assert trusting.schema(number) is not None
        with pytest.raises(RegistryDown, match="certificate verify failed"):
            strange.subjects()


def test_https_shows_the_certificate_that_a_registry_asks_for() -> None:
    authority = trustme.CA()
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(tls)
    authority.configure_trust(tls)
    tls.verify_mode = ssl.CERT_REQUIRED
    own = authority.issue_cert("mirror@example.org")
    ca_pem = authority.cert_pem.bytes().decode()
    shown = TlsConfig(
        ca_pem=ca_pem,
        certificate_pem=own.cert_chain_pems[0].bytes().decode(),
        key_pem=Secret(own.private_key_pem.bytes().decode()),
    )
    with small_registry(tls=tls) as held:
        held.put("orders-value", AVRO)

        assert client(held, tls=shown).subjects() == ["orders-value"]
        with pytest.raises(RegistryDown):
            client(held, tls=TlsConfig(ca_pem=ca_pem)).subjects()
