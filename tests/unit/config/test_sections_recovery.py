"""Keys about failover and audits: what they become, what is refused, what is never shown."""

from __future__ import annotations

import pytest

from heliograph.config.explain import explain_flow
from heliograph.config.load import parse_explained
from heliograph.config.sections import RecoveryConfig
from tests.unit.config.texts import TWO_CLUSTERS, around, parse_config, problems_with, with_lines

PROVIDER = (
    "config.providers = env\n"
    "config.providers.env.class = org.apache.kafka.common.config.provider.EnvVarConfigProvider\n"
)
LINES = """\
A->B.failover.before.command = /opt/stop-producers --of "the shop"
failover.after.command = /opt/dns.sh
A->B.failover.webhook.url = https://hooks.example/T1/hunter2?x=1
A->B.failover.webhook.token = hunter3
A->B.failover.bootstrap.file = /etc/kafka/primary.properties
failover.hook.timeout.seconds = 5
A->B.audit.interval.seconds = 3600
"""


def recovery_of(lines: str) -> RecoveryConfig:
    (flow,) = with_lines(lines).flows
    return flow.recovery


def test_every_key_reaches_the_flow() -> None:
    found = recovery_of(LINES)

    assert found.before_command == '/opt/stop-producers --of "the shop"'
    assert found.after_command == "/opt/dns.sh"
    assert found.webhook_url is not None
    assert found.webhook_url.reveal() == "https://hooks.example/T1/hunter2?x=1"
    assert found.webhook_token is not None
    assert found.webhook_token.reveal() == "hunter3"
    assert found.bootstrap_file == "/etc/kafka/primary.properties"
    assert (found.hook_timeout_s, found.audit_interval_s) == (5, 3600)


def test_a_flow_without_them_has_no_hooks_and_no_audits() -> None:
    assert recovery_of("") == RecoveryConfig()
    assert recovery_of("").hook_timeout_s == 30
    assert recovery_of("").audit_interval_s is None


def test_yaml_nests_them() -> None:
    text = (
        "clusters:\n  A:\n    bootstrap.servers: a:1\n  B:\n    bootstrap.servers: b:1\n"
        "flows:\n  A->B:\n    enabled: true\n    failover:\n"
        "      before.command: /opt/stop --all\n"
        "      webhook:\n        url: https://hooks.example/x\n        token: hunter3\n"
        "      hook.timeout.seconds: 7\n    audit.interval.seconds: 60\n"
    )

    (flow,) = parse_config(text, source="heliograph.yaml", around=around()).flows

    assert flow.recovery.before_command == "/opt/stop --all"
    assert flow.recovery.webhook_token is not None
    assert (flow.recovery.hook_timeout_s, flow.recovery.audit_interval_s) == (7, 60)


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("failover.before.command = stop 'all", "is `stop 'all`, a command with an unclosed quote"),
        ("failover.after.command =", "is ``, not a command"),
        ("failover.webhook.url = ftp://hunter2/", "is (hidden), not an `http://` or `https://`"),
        ("failover.webhook.url = https:///hunter2", "is (hidden), not an `http://` or `https://`"),
        ("failover.webhook.url = http://h:99999/hunter2", "is (hidden), not a URL"),
        ("failover.webhook.url = http://h/hunter2 x", "is (hidden), not a URL: spaces and special"),
        ("failover.webhook.url = http://u:hunter2@h/", "a URL with a user or password; use"),
        ("failover.webhook.token = hunter2 x", "is (hidden), not a token"),
        ("failover.webhook.token =", "is (hidden), not a token"),
        ("failover.bootstrap.file = primary.properties", "not the absolute path of a file"),
        ("failover.bootstrap.file = /etc/kafka/", "not the absolute path of a file"),
        ("failover.hook.timeout.seconds = 0", "is `0`, less than 1"),
        ("failover.hook.timeout.seconds = 3601", "is `3601`, more than 3600"),
        ("audit.interval.seconds = 1h", "is `1h`, not a whole number"),
        ("failover.webhok.url = x", "did you mean `A->B.failover.webhook.url`?"),
    ],
)
def test_what_makes_no_sense_is_a_problem_that_shows_no_secret(line: str, sentence: str) -> None:
    (problem,) = problems_with(f"A->B.{line}\n")

    assert sentence in problem
    assert "hunter2" not in problem


def test_neither_the_webhook_nor_its_token_is_ever_shown() -> None:
    explained = parse_explained(TWO_CLUSTERS + LINES, source="x.properties", around=around())
    (flow,) = explained.config.flows

    told = [value for each in explain_flow(explained, flow.id, {}) for value in each.values]

    shown = {value.name: value.value for value in told}
    assert shown["failover.before.command"] == '/opt/stop-producers --of "the shop"'
    assert shown["failover.webhook.url"] == shown["failover.webhook.token"] == "********"
    assert not any(word in repr(explained.config) for word in ("hunter2", "hunter3"))
    assert not any(word in flow.model_dump_json() for word in ("hunter2", "hunter3"))


def test_variables_that_hold_them_are_known_as_secrets() -> None:
    lines = "failover.webhook.url = ${env:HOOK}\nfailover.webhook.token = ${env:WORD}\n"
    environment = {"HOOK": "https://h/hunter2", "WORD": "hunter3"}

    config = parse_config(
        TWO_CLUSTERS + PROVIDER + lines,
        source="mm2.properties",
        around=around(environment=environment),
    )

    assert config.secret_variables == {"HOOK", "WORD"}
