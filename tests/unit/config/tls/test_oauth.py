"""Bearer tokens, asked for at a real HTTP server on loopback."""

from __future__ import annotations

import asyncio
import base64
import json
import sys
import threading
import types
from collections.abc import Callable, Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from heliograph.broker.admin import ClusterAdmin
from heliograph.broker.groups import GroupAdmin
from heliograph.broker.range_reader import PartitionReader
from heliograph.clock import monotonic_s, now_ms
from heliograph.config.schema import ClusterConfig
from heliograph.config.secrets import Secret
from heliograph.config.security import AwsSigning, OAuthConfig, SaslConfig, SecurityConfig
from heliograph.config.tls.oauth import BearerTokens, issue_token, require_signer
from heliograph.errors import BrokerUnreachable, ConfigError, MirrorError, NotAuthorised
from heliograph.model import ClusterAlias


class Endpoint(HTTPServer):
    """Answers `status` and `body` to every request and keeps what was asked."""

    status = 200
    body: object = {"access_token": "ticket", "expires_in": 60}
    asked: list[tuple[str | None, bytes]]

    def config(self) -> OAuthConfig:
        return OAuthConfig(
            token_endpoint_url=f"http://127.0.0.1:{self.server_port}/token",
            client_id="mirror",
            client_secret=Secret("hunter2"),
            scope="kafka",
        )


class Answering(BaseHTTPRequestHandler):
    server: Endpoint

    def do_POST(self) -> None:
        form = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.asked.append((self.headers["Authorization"], form))
        self.send_response(self.server.status)
        self.end_headers()
        self.wfile.write(json.dumps(self.server.body).encode())

    def log_message(self, format: str, *args: object) -> None:
        """Tests are quiet."""


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    server = Endpoint(("127.0.0.1", 0), Answering)
    server.asked = []
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def test_client_credentials_are_exchanged_for_a_token(endpoint: Endpoint) -> None:
    issued = issue_token(endpoint.config())

    ((authorization, form),) = endpoint.asked
    assert issued.text == "ticket"
    assert issued.life_s == 60
    assert authorization == "Basic " + base64.b64encode(b"mirror:hunter2").decode()
    assert form == b"grant_type=client_credentials&scope=kafka"
    assert "ticket" not in repr(issued)


def test_connections_share_a_token_until_it_grows_old(endpoint: Endpoint) -> None:
    async def asked_twice(life_s: int) -> int:
        endpoint.asked.clear()
        endpoint.body = {"access_token": "ticket", "expires_in": life_s}
        tokens = BearerTokens(endpoint.config())
        assert await tokens.token() == await tokens.token() == "ticket"
        return len(endpoint.asked)

    assert asyncio.run(asked_twice(60)) == 1
    assert asyncio.run(asked_twice(0)) == 2


@pytest.mark.parametrize(
    ("status", "body", "error", "message"),
    [
        (401, {}, NotAuthorised, "the token endpoint refused the client: HTTP 401"),
        (503, {}, BrokerUnreachable, "the token endpoint answered HTTP 503"),
        (
            200,
            {"token": "hunter3"},
            BrokerUnreachable,
            "the token endpoint answered without an access_token",
        ),
        (
            200,
            ["hunter3"],
            BrokerUnreachable,
            "the token endpoint answered without an access_token",
        ),
        (
            200,
            {"access_token": 1},
            BrokerUnreachable,
            "the token endpoint answered without an access_token",
        ),
    ],
)
def test_an_endpoint_that_gives_no_token_is_one_sentence(
    endpoint: Endpoint, status: int, body: object, error: type[MirrorError], message: str
) -> None:
    endpoint.status, endpoint.body = status, body

    with pytest.raises(error) as caught:
        issue_token(endpoint.config())

    assert str(caught.value) == message
    assert caught.value.__cause__ is None


def test_an_endpoint_that_is_not_there_can_be_asked_again_later(endpoint: Endpoint) -> None:
    nobody = endpoint.config().model_copy(update={"token_endpoint_url": "http://127.0.0.1:1/"})

    with pytest.raises(BrokerUnreachable) as caught:
        issue_token(nobody)

    assert caught.value.retriable
    assert "hunter2" not in str(caught.value)


def test_an_address_that_is_no_web_address_is_refused() -> None:
    with pytest.raises(ConfigError):
        issue_token(OAuthConfig(token_endpoint_url="file:///etc/passwd"))


def test_an_unsecured_token_says_who_and_until_when() -> None:
    issued = issue_token(OAuthConfig(subject="mirror", extensions={"a": "b"}))

    header, claims, signature = issued.text.split(".")
    decoded = json.loads(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))
    assert json.loads(base64.urlsafe_b64decode(header + "==")) == {"alg": "none"}
    assert decoded["sub"] == "mirror"
    assert decoded["exp"] - decoded["iat"] == issued.life_s
    assert signature == ""


def test_extensions_travel_with_the_token() -> None:
    assert BearerTokens(OAuthConfig(extensions={"a": "b"})).extensions() == {"a": "b"}


class PlayedSigner:
    """As `aws_msk_iam_sasl_signer.MSKAuthTokenProvider`: a token, and when it ends in ms."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, tuple[str, ...], dict[str, str]]] = []
        self.error: Exception | None = None

    def __getattr__(self, name: str) -> Callable[..., tuple[str, int]]:
        def sign(*args: str, **named: str) -> tuple[str, int]:
            self.calls.append((name, args, named))
            if self.error is not None:
                raise self.error
            return f"signed-{len(self.calls)}", now_ms() + 900_000

        return sign


@pytest.fixture
def signer(monkeypatch: pytest.MonkeyPatch) -> PlayedSigner:
    played = PlayedSigner()
    module = types.SimpleNamespace(MSKAuthTokenProvider=played)
    monkeypatch.setitem(sys.modules, "aws_msk_iam_sasl_signer", module)
    return played


@pytest.mark.parametrize(
    ("aws", "call"),
    [
        (AwsSigning(region="eu-1"), ("generate_auth_token", ("eu-1",), {})),
        (
            AwsSigning(region="eu-1", profile="p"),
            ("generate_auth_token_from_profile", ("eu-1", "p"), {}),
        ),
        (
            AwsSigning(region="eu-1", profile="p", role_arn="r", role_session_name="s"),
            ("generate_auth_token_from_role_arn", ("eu-1", "r"), {"sts_session_name": "s"}),
        ),
    ],
)
def test_a_token_for_amazon_is_signed_as_the_login_asks(
    signer: PlayedSigner, aws: AwsSigning, call: tuple[str, tuple[str, ...], dict[str, str]]
) -> None:
    token = issue_token(OAuthConfig(aws=aws))

    assert signer.calls == [call]
    assert token.text == "signed-1"
    assert 890 < token.life_s <= 900


def test_a_signer_that_fails_is_a_sentence_and_is_asked_again(signer: PlayedSigner) -> None:
    signer.error = LookupError("Unable to locate credentials")
    config = OAuthConfig(aws=AwsSigning(region="eu-1"))

    with pytest.raises(BrokerUnreachable, match="LookupError: Unable to locate credentials"):
        issue_token(config)
    signer.error = None

    assert issue_token(config).text == "signed-2"


@pytest.mark.parametrize("answer", [None, "token", ("token", None)])
def test_a_signer_that_answers_nonsense_is_a_sentence(
    monkeypatch: pytest.MonkeyPatch, answer: object
) -> None:
    played = types.SimpleNamespace(generate_auth_token=lambda _: answer)
    module = types.SimpleNamespace(MSKAuthTokenProvider=played)
    monkeypatch.setitem(sys.modules, "aws_msk_iam_sasl_signer", module)

    with pytest.raises(BrokerUnreachable, match="no token could be signed for AWS_MSK_IAM: "):
        issue_token(OAuthConfig(aws=AwsSigning(region="eu-1")))


@pytest.mark.parametrize(
    "open_client", [ClusterAdmin, GroupAdmin, partial(PartitionReader, read_committed=True)]
)
def test_a_client_without_a_token_says_why_and_does_not_wait(
    signer: PlayedSigner, open_client: Callable[[ClusterConfig], object]
) -> None:
    """librdkafka would wait for ten seconds and say that no token was set."""
    signer.error = LookupError("Unable to locate credentials")
    sasl = SaslConfig(mechanism="OAUTHBEARER", oauth=OAuthConfig(aws=AwsSigning(region="eu-1")))
    cluster = ClusterConfig(
        alias=ClusterAlias("msk"),
        bootstrap_servers=("127.0.0.1:1",),
        security=SecurityConfig(protocol="SASL_PLAINTEXT", sasl=sasl),
    )
    began_s = monotonic_s()

    with pytest.raises(
        BrokerUnreachable,
        match="cluster msk: no token could be signed for AWS_MSK_IAM: LookupError: Unable to",
    ):
        open_client(cluster)

    assert monotonic_s() - began_s < 5


def test_a_machine_without_the_signer_is_told_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "aws_msk_iam_sasl_signer", None)
    aws = OAuthConfig(aws=AwsSigning(region="eu-1"))
    sasl = SaslConfig(mechanism="OAUTHBEARER", oauth=aws)
    security = SecurityConfig(protocol="SASL_SSL", sasl=sasl)
    cluster = ClusterConfig(alias=ClusterAlias("A"), bootstrap_servers=("a:1",), security=security)

    with pytest.raises(ConfigError, match=r"install heliograph\[msk\]"):
        require_signer([cluster])
