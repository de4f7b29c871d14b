"""Kafka Connect's dialect meets anything: no body is a bug, and every error is Connect's."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.kit.soaking import in_soak
from tests.unit.api.connecting import MIRROR, app_of, client_of, config_of, kept
from tests.unit.api.pretend_herder import PretendHerder

HERDER = PretendHerder(kept("src"), kept("stopped", source_cluster_alias="S"))
CLIENT = client_of(app_of(HERDER))
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=6,
)
KEYS = st.sampled_from(
    [
        "name",
        "connector.class",
        "topics",
        "tasks.max",
        "source.cluster.alias",
        "source.cluster.bootstrap.servers",
        "source.cluster.sasl.jaas.config",
        "target.cluster.alias",
        "target.cluster.ssl.truststore.location",
        "transforms",
        "replication.policy.class",
        "clusters",
    ]
)
CONFIGS = st.dictionaries(
    KEYS | st.text(max_size=12), VALUES | st.just(f"{MIRROR}MirrorSourceConnector"), max_size=6
)
PATCHED = st.builds(lambda more: {**config_of(), **more}, CONFIGS)
ROUTES = st.sampled_from(
    [
        ("POST", "/connectors"),
        ("PUT", "/connectors/src/config"),
        ("PUT", "/connectors/new/config"),
        ("PATCH", "/connectors/src/config"),
        ("PATCH", "/connectors/src/offsets"),
        ("PUT", "/connector-plugins/MirrorSource/config/validate"),
        ("PUT", "/admin/loggers/heliograph.connect.fuzz"),
    ]
)


@given(route=ROUTES, body=VALUES | CONFIGS | PATCHED | st.builds(dict, name=VALUES, config=CONFIGS))
@settings(
    max_examples=in_soak(1_000, ci=100), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
def test_no_body_is_a_bug(route: tuple[str, str], body: Any) -> None:
    method, path = route
    HERDER.kept = {"src": kept("src")}

    response = CLIENT.request(
        method,
        path,
        content=json.dumps(body).encode("utf-8", "surrogatepass"),
        headers={"Content-Type": "application/json"},
    )

    assert response.status_code < 500, (response.status_code, response.text)
    if response.status_code >= 400:
        answered = response.json()
        assert set(answered) == {"error_code", "message"}
        assert answered["error_code"] == response.status_code
