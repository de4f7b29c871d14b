"""The page about configuration and the keys that exist say the same."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from heliograph.config.mm2.inert import WORKER_OTHER
from heliograph.config.mm2.keys import (
    API_KEYS,
    CLUSTER_KEYS,
    ENGINE_KEYS,
    FLOW_KEYS,
    PIPELINE_KEYS,
    REST_KEYS,
    WORKER_KEYS,
)
from heliograph.config.mm2.names import REMOVED, RENAMED, SECURITY_KEYS
from heliograph.config.reference import effect_rows, reference_rows
from heliograph.config.schema import FlowConfig
from heliograph.config.sections import IDENTITY_POLICY, Section
from heliograph.model import TopicName
from heliograph.topics.selection import select_topics
from tests.unit.config.texts import around, config_of, parse_config, problems_of, with_lines

EVERY_KEY = (
    "clusters",
    "bootstrap.servers",
    "config.providers",
    "spark.*",
    *(key.name for key in (*FLOW_KEYS, *ENGINE_KEYS, *API_KEYS, *REST_KEYS)),
    *(key.name for key in (*CLUSTER_KEYS, *WORKER_KEYS, *PIPELINE_KEYS)),
    *sorted(SECURITY_KEYS),
    *sorted(WORKER_OTHER),
    *RENAMED,
    *REMOVED,
)
PAGE = (Path(__file__).parents[3] / "docs/reference/config.md").read_text()


@pytest.mark.parametrize("name", EVERY_KEY)
def test_every_key_is_on_the_page(name: str) -> None:
    assert f"`{name}`" in PAGE


@pytest.mark.parametrize("heading", reference_rows())
def test_every_row_says_what_the_model_says(heading: str) -> None:
    lines = set(PAGE.splitlines())

    missing = [row for row in reference_rows()[heading] if row not in lines]

    assert missing == []


def test_the_page_says_what_a_change_of_each_key_does() -> None:
    lines = set(PAGE.splitlines())

    assert [row for row in effect_rows() if row not in lines] == []


def test_no_row_is_about_a_key_that_does_not_exist() -> None:
    rows = re.findall(r"^\| `([^`]+)` \| .* \| (?:yes|Connect only) \|", PAGE, re.MULTILINE)

    assert set(rows) <= set(EVERY_KEY)


def test_every_field_of_a_flow_has_a_key_or_is_put_together_from_several() -> None:
    together = {"id", "clients", "limits", "pipelines", "transforms"}

    fields = set(leaves(FlowConfig)) - together

    assert fields == {".".join(key.path) for key in FLOW_KEYS if key.inert is None}


def test_no_two_keys_of_a_scope_have_one_name() -> None:
    for keys in (
        FLOW_KEYS,
        ENGINE_KEYS,
        API_KEYS,
        CLUSTER_KEYS,
        WORKER_KEYS,
        REST_KEYS,
        PIPELINE_KEYS,
    ):
        assert len({key.name for key in keys}) == len(keys)


def leaves(model: type[Section], prefix: str = "") -> list[str]:
    found: list[str] = []
    for name, field in model.model_fields.items():
        inner = type(field.default)
        if issubclass(inner, Section) and name not in ("clients", "limits"):
            found += leaves(inner, f"{prefix}{name}.")
        else:
            found.append(prefix + name)
    return found


def test_the_smallest_file_of_the_page_loads() -> None:
    (smallest,) = re.findall(r"```properties\n(.*?)```", PAGE, re.DOTALL)

    assert config_of(smallest).flows[0].topics == ("orders.*", "payments")


def test_the_yaml_of_the_page_loads() -> None:
    (page_yaml,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    jaas = (
        b"jaas = org.apache.kafka.common.security.scram.ScramLoginModule required "
        b'username="u" password="p";'
    )

    config = parse_config(
        page_yaml,
        source="heliograph.yaml",
        around=around({"/etc/heliograph/a.properties": jaas}),
    )

    (flow,) = config.flows
    assert flow.topics == ("orders.*", "payments")
    assert flow.policy.class_path == IDENTITY_POLICY
    assert flow.replication_factor == 3
    assert config.source_of(flow.id).consumer == {"fetch.max.bytes": "33554432"}
    assert config.source_of(flow.id).security.sasl.username == "u"
    assert (config.engine.slots, config.engine.slot_cpus) == (4, 0.5)
    assert config.engine.spark == {"spark.ui.enabled": "false"}


def test_the_policy_and_the_filter_of_the_page_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (page_python,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    (tmp_path / "names_of_the_page.py").write_text(page_python)
    monkeypatch.syspath_prepend(str(tmp_path))
    config = with_lines(
        "A->B.replication.policy.class = names_of_the_page:Suffixed\n"
        "A->B.topic.filter.class = names_of_the_page:Gold\nA->B.topics = -gold\n"
    )

    selection = select_topics(config.flows[0], [TopicName("orders"), TopicName("x-gold")])

    assert selection.mirrored == (("x-gold", "x-gold-from-A"),)


def test_the_problems_on_the_page_are_what_is_said() -> None:
    text = "\n" * 3 + (
        "clusters = A, B\nA.bootstrap.servers = a:1\nB.bootstrap.servers = b:1\n"
        "A->B.enabled = true\n\nA->B.topcs = x\n\n\n\n\nslots.lease.ms.max = 500\n"
    )

    assert "\n".join(f"  {problem}" for problem in problems_of(text)) in PAGE
