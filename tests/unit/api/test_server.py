"""The server over real sockets: TLS, client certificates, tokens, and its port afterwards."""

from __future__ import annotations

import asyncio
import signal
import socket
import ssl
from pathlib import Path

import httpx2 as httpx
import pytest
import trustme
from uvicorn.protocols.http.h11_impl import H11Protocol

from heliograph.api.server import _listening, api_service
from heliograph.config.api import Address, ApiConfig, ApiTlsConfig
from heliograph.errors import ConfigError
from tests.unit.api.pretend import live

TOKEN = "t" * 20
HERE = Address("127.0.0.1", 0)


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def secured(tmp_path: Path, authority: trustme.CA) -> ApiConfig:
    leaf = authority.issue_cert("127.0.0.1")
    leaf.cert_chain_pems[0].write_to_path(tmp_path / "api.pem")
    leaf.private_key_pem.write_to_path(tmp_path / "api.key")
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    tokens = tmp_path / "tokens"
    tokens.write_text(f"ann look {TOKEN}\n")
    tokens.chmod(0o600)
    tls = ApiTlsConfig(
        certificate=str(tmp_path / "api.pem"),
        key=str(tmp_path / "api.key"),
        client_ca=str(tmp_path / "ca.pem"),
    )
    return ApiConfig(listen=HERE, tokens_file=str(tokens), tls=tls)


def test_a_plain_server_answers_leaves_signals_alone_and_frees_its_port() -> None:
    before = signal.getsignal(signal.SIGTERM)

    async def played() -> tuple[int, object, Address]:
        async with api_service(ApiConfig(listen=HERE))(live()) as address:
            assert isinstance(address, Address)
            async with httpx.AsyncClient() as client:
                found = await client.get(f"http://{address}/v1/flows")
            during = signal.getsignal(signal.SIGTERM)
        async with api_service(ApiConfig(listen=address))(live()):
            return found.status_code, during, address

    status, during, _ = asyncio.run(played())

    assert status == 200
    assert during is before


def test_the_parts_of_an_answer_do_not_wait_for_each_other() -> None:
    with (
        _listening(HERE) as listener,
        socket.create_connection(listener.getsockname()),
        listener.accept()[0] as accepted,
    ):
        option = accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)

    assert option != 0


def test_a_scrape_that_takes_gzip_gets_it_and_another_does_not() -> None:
    async def played() -> tuple[httpx.Response, httpx.Response]:
        async with (
            api_service(ApiConfig(listen=HERE))(live()) as address,
            httpx.AsyncClient(base_url=f"http://{address}") as client,
        ):
            zipped = await client.get("/metrics", headers={"Accept-Encoding": "gzip"})
            plain = await client.get("/metrics", headers={"Accept-Encoding": "identity"})
        return zipped, plain

    zipped, plain = asyncio.run(played())

    assert zipped.headers["content-encoding"] == "gzip"
    assert "content-encoding" not in plain.headers
    assert int(zipped.headers["content-length"]) < int(plain.headers["content-length"]) / 4
    assert "Accept-Encoding" in plain.headers["vary"]
    assert names(zipped.text) == names(plain.text)


def names(body: str) -> list[str]:
    return [line.split(" ")[0] for line in body.splitlines()]


def test_a_connection_that_was_not_told_of_the_end_is_closed_with_the_server(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # As one that is accepted between the server's last look and its end.
    monkeypatch.setattr(H11Protocol, "shutdown", lambda _: None)
    monkeypatch.setattr("heliograph.api.server._STOP_S_MAX", 0.1)

    async def played() -> bytes:
        async with api_service(ApiConfig(listen=HERE))(live()) as address:
            assert isinstance(address, Address)
            reader, writer = await asyncio.open_connection(address.host, address.port)
            await asyncio.sleep(0.05)
        try:
            return await asyncio.wait_for(reader.read(), 1)
        except ConnectionResetError:
            return b""
        finally:
            writer.close()

    assert asyncio.run(played()) == b""


def test_a_client_needs_a_certificate_and_a_token(
    secured: ApiConfig, authority: trustme.CA
) -> None:
    known, stranger = ssl.create_default_context(), ssl.create_default_context()
    authority.configure_trust(known)
    authority.configure_trust(stranger)
    authority.issue_cert("client").configure_cert(known)
    bearer = {"Authorization": f"Bearer {TOKEN}"}

    async def played() -> tuple[int, int]:
        async with api_service(secured)(live()) as address:
            url = f"https://{address}/v1/flows"
            async with httpx.AsyncClient(verify=known) as client:
                with_token = await client.get(url, headers=bearer)
                without = await client.get(url)
            async with httpx.AsyncClient(verify=stranger) as client:
                with pytest.raises(httpx.TransportError):
                    await client.get(url, headers=bearer)
        return with_token.status_code, without.status_code

    assert asyncio.run(played()) == (200, 401)


def enter(config: ApiConfig) -> None:
    async def entered() -> None:
        async with api_service(config)(live()):
            pass

    asyncio.run(entered())


def test_a_port_that_is_taken_is_one_sentence() -> None:
    async def played() -> None:
        async with api_service(ApiConfig(listen=HERE))(live()) as address:
            assert isinstance(address, Address)
            async with api_service(ApiConfig(listen=address))(live()):
                pass

    with pytest.raises(ConfigError, match="Address already in use"):
        asyncio.run(played())


def test_tokens_that_others_can_read_are_refused(secured: ApiConfig) -> None:
    assert secured.tokens_file is not None
    Path(secured.tokens_file).chmod(0o644)

    with pytest.raises(ConfigError, match="chmod 600"):
        enter(secured)


def test_a_key_that_is_none_is_refused_without_a_question(secured: ApiConfig) -> None:
    assert secured.tls.key is not None
    Path(secured.tls.key).write_text("no key")

    with pytest.raises(ConfigError, match="cannot be used"):
        enter(secured)
