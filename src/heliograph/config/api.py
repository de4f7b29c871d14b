"""How the driver's REST server is reached, and by whom. Runs anywhere.

The file with the tokens is read by the server, not with the configuration: it may change while the
driver runs.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from typing import Annotated, Final, Self

from pydantic import model_validator

from heliograph.config.hook_values import absolute_path
from heliograph.config.keys import Effect, Own
from heliograph.config.metrics import MetricsConfig
from heliograph.config.mm2.values import BadValue
from heliograph.config.sections import Section

_ADDRESS: Final = re.compile(
    r"(?:\[(?P<six>[0-9A-Fa-f:.]+)\]|(?P<name>[^\s:\[\]/@]+)):(?P<port>\d{1,5})"
)


@dataclass(frozen=True, slots=True)
class Address:
    """Where a server listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine reaches it; a name that is not `localhost` may be anything."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"


def listen_address(value: str) -> Address:
    """`host:port`; an IPv6 address stands in brackets, port 0 takes any free one."""
    found = _ADDRESS.fullmatch(value)
    if found is None or int(found["port"]) > 65_535:
        raise BadValue("not `host:port`, as in `127.0.0.1:8080`")
    return Address(found["six"] or found["name"], int(found["port"]))


class ApiTlsConfig(Section):
    """TLS of the REST server."""

    certificate: Annotated[
        str | None, Own("api.tls.certificate", absolute_path, effect=Effect.RESTART)
    ] = None
    """PEM file with the server's certificate, and those between it and its authority."""
    key: Annotated[str | None, Own("api.tls.key", absolute_path, effect=Effect.RESTART)] = None
    """PEM file with the key of that certificate, unencrypted."""
    client_ca: Annotated[
        str | None, Own("api.tls.client.ca", absolute_path, effect=Effect.RESTART)
    ] = None
    """PEM file with the authorities of client certificates; set, every client needs one."""


class ApiConfig(Section):
    """The REST server of the driver."""

    listen: Annotated[Address | None, Own("api.listen", listen_address, effect=Effect.RESTART)] = (
        None
    )
    """Where `heliograph run` serves `/v1`; unset, it serves nothing."""
    ureplicator_listen: Annotated[
        Address | None, Own("api.ureplicator.listen", listen_address, effect=Effect.RESTART)
    ] = None
    """Where `heliograph run` answers as uReplicator's controller; unset, nowhere."""
    tokens_file: Annotated[
        str | None, Own("api.tokens.file", absolute_path, effect=Effect.RESTART)
    ] = None
    """File with the tokens of clients and their roles; unset, every client may do everything."""
    tls: ApiTlsConfig = ApiTlsConfig()
    """TLS of the REST server."""
    metrics: MetricsConfig = MetricsConfig()
    """What `/metrics` tells, and what is pushed."""

    @model_validator(mode="after")
    def _only_friends_without_protection(self) -> Self:
        if (self.tls.certificate is None) != (self.tls.key is None):
            raise ValueError("api.tls.certificate and api.tls.key need each other")
        if self.tls.client_ca is not None and self.tls.certificate is None:
            raise ValueError("api.tls.client.ca needs api.tls.certificate and api.tls.key")
        for key, listen in (
            ("api.listen", self.listen),
            ("api.ureplicator.listen", self.ureplicator_listen),
        ):
            if listen is not None and not listen.is_loopback:
                self._require_protection(key, listen)
        return self

    def _require_protection(self, key: str, listen: Address) -> None:
        missing = [
            name
            for name, value in (
                ("api.tls.certificate", self.tls.certificate),
                ("api.tokens.file", self.tokens_file),
            )
            if value is None
        ]
        if missing:
            raise ValueError(
                f"{key} is {listen}, which other machines reach; that needs {' and '.join(missing)}"
            )
