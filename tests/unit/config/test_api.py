"""Keys of the REST server: what they become, and what is refused."""

from __future__ import annotations

import pytest

from heliograph.config.api import Address, ApiConfig
from heliograph.config.explain import explain_engine
from heliograph.config.load import parse_explained
from tests.unit.config.texts import TWO_CLUSTERS, around, parse_config, problems_with, with_lines

TLS = "api.tls.certificate = /tls/api.pem\napi.tls.key = /tls/api.key\n"
TOKENS = "api.tokens.file = /etc/heliograph/tokens\n"


def test_a_file_without_them_has_no_server() -> None:
    assert with_lines("").api == ApiConfig()
    assert with_lines("").api.listen is None


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:8080", Address("127.0.0.1", 8080)),
        ("[::1]:0", Address("::1", 0)),
        ("localhost:65535", Address("localhost", 65535)),
    ],
)
def test_an_address_of_this_machine_needs_nothing_else(text: str, address: Address) -> None:
    found = with_lines(f"api.listen = {text}\n").api.listen

    assert found == address
    assert str(found) == text


def test_an_address_that_others_reach_has_tls_and_tokens() -> None:
    found = with_lines(f"api.listen = 0.0.0.0:8080\n{TLS}{TOKENS}").api

    assert found.listen == Address("0.0.0.0", 8080)
    assert (found.tls.certificate, found.tls.key) == ("/tls/api.pem", "/tls/api.key")
    assert found.tokens_file == "/etc/heliograph/tokens"


@pytest.mark.parametrize(
    ("lines", "sentence"),
    [
        (
            "api.listen = 0.0.0.0:8080\n",
            "is 0.0.0.0:8080, which other machines reach; that needs api.tls.certificate and "
            "api.tokens.file",
        ),
        (f"api.listen = db-1:8080\n{TLS}", "that needs api.tokens.file"),
        (f"api.listen = [::]:8080\n{TOKENS}", "that needs api.tls.certificate"),
        ("api.ureplicator.listen = 0.0.0.0:9000\n", "that needs api.tls.certificate and"),
        ("api.listen = 8080\n", "not `host:port`"),
        ("api.listen = 127.0.0.1:65536\n", "not `host:port`"),
        ("api.tokens.file = tokens\n", "not the absolute path of a file"),
        ("api.tls.certificate = /tls/api.pem\n", "and api.tls.key need each other"),
        ("api.tls.client.ca = /tls/ca.pem\n", "needs api.tls.certificate and api.tls.key"),
        ("api.listn = 127.0.0.1:8080\n", "did you mean `api.listen`?"),
    ],
)
def test_what_is_not_safe_or_not_whole_is_refused(lines: str, sentence: str) -> None:
    (problem,) = problems_with(lines)

    assert sentence in problem


def test_the_path_of_the_tokens_is_no_secret() -> None:
    explained = parse_explained(TWO_CLUSTERS + TOKENS, source="mm2.properties", around=around())

    (api,) = [each for each in explain_engine(explained) if each.about == "api"]

    assert {row.name: row.value for row in api.values}["api.tokens.file"] == (
        "/etc/heliograph/tokens"
    )


def test_yaml_nests_them() -> None:
    text = (
        "clusters:\n  A:\n    bootstrap.servers: a:1\n  B:\n    bootstrap.servers: b:1\n"
        "flows:\n  A->B:\n    enabled: true\n"
        "api:\n  listen: 127.0.0.1:8080\n  tokens.file: /t\n"
    )

    config = parse_config(text, source="heliograph.yaml", around=around())

    assert config.api.listen == Address("127.0.0.1", 8080)
