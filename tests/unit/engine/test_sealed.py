"""Credentials that travel on the link."""

from __future__ import annotations

import pytest

from heliograph.config.schema import ClusterConfig
from heliograph.config.secrets import Secret
from heliograph.config.security import SaslConfig, SecurityConfig
from heliograph.copy.flow import FetchLimits
from heliograph.engine.messages import Configure, decode_down, encode_down
from heliograph.engine.sealed import SlotSettings, seal, unseal
from heliograph.errors import LinkError
from heliograph.model import ClusterAlias, FlowId

TOKEN = b"t" * 32
A = ClusterAlias("A")
SETTINGS = SlotSettings(
    clusters={
        A: ClusterConfig(
            alias=A,
            bootstrap_servers=("a:1",),
            security=SecurityConfig(
                protocol="SASL_PLAINTEXT",
                sasl=SaslConfig(mechanism="PLAIN", username="u", password=Secret("hunter2")),
            ),
        )
    },
    limits={FlowId(source=A, target=ClusterAlias("B")): FetchLimits(bytes_max=5)},
    bytes_max=7,
)


def test_settings_arrive_as_they_were_and_nobody_reads_them_on_the_way() -> None:
    body = encode_down(Configure(version=1, sealed=seal(SETTINGS, TOKEN)))

    message = decode_down(body)

    assert b"hunter2" not in body
    assert isinstance(message, Configure)
    assert unseal(message.sealed, TOKEN) == SETTINGS
    assert "hunter2" not in repr(SETTINGS)


@pytest.mark.parametrize("sealed", [seal(SETTINGS, b"x" * 32), seal(SETTINGS, TOKEN)[:-2], "", "%"])
def test_what_another_sealed_is_not_opened(sealed: str) -> None:
    with pytest.raises(LinkError, match="not sealed"):
        unseal(sealed, TOKEN)
