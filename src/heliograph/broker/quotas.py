"""Client quotas and the names of SCRAM users of one cluster. Blocks; runs on the driver.

Quotas need DESCRIBE_CONFIGS on the cluster to be read and ALTER_CONFIGS to be set; users need
DESCRIBE on it. Brokers tell of a user which mechanisms it has, never what proves it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from kio.schema.alter_client_quotas.v1 import request as alter_request
from kio.schema.alter_client_quotas.v1 import response as alter_response
from kio.schema.describe_client_quotas.v1 import request as describe_request
from kio.schema.describe_client_quotas.v1 import response as describe_response
from kio.schema.describe_user_scram_credentials.v0 import request as users_request
from kio.schema.describe_user_scram_credentials.v0 import response as users_response

from heliograph.broker.admin import TIMEOUT_S_DEFAULT
from heliograph.broker.cluster import Cluster, open_cluster
from heliograph.broker.codes import NONE, broker_error
from heliograph.config.schema import ClusterConfig
from heliograph.errors import BrokerError, BrokerUnreachable

_READS: Final = "DESCRIBE_CONFIGS on the cluster"
_WRITES: Final = "ALTER_CONFIGS on the cluster"
_USERS: Final = "DESCRIBE on the cluster"
_MECHANISMS: Final = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
Entity = tuple[tuple[str, str | None], ...]
"""Whom a quota is for: pairs of `user`, `client-id` or `ip` and a name, None for the default."""


@dataclass(frozen=True, slots=True)
class QuotaKey:
    entity: Entity
    name: str
    """Of the quota, as `producer_byte_rate`."""

    def __str__(self) -> str:
        whom = ", ".join(
            f"{kind} {'(default)' if name is None else name}" for kind, name in self.entity
        )
        return f"{self.name} of {whom}"


class QuotaAdmin:
    """Opens a connection for each question; needs a thread without a loop."""

    def __init__(self, cluster: ClusterConfig, *, timeout_s: float = TIMEOUT_S_DEFAULT) -> None:
        self._config, self._timeout_s = cluster, timeout_s

    def quotas(self) -> dict[QuotaKey, float]:
        """Every one that is set."""
        answer = self._ask(
            describe_request.DescribeClientQuotasRequest(components=(), strict=False),
            describe_response.DescribeClientQuotasResponse,
        )
        self._check(answer.error_code, answer.error_message, _READS)
        return {
            QuotaKey(_entity(entry), str(value.key)): float(value.value)
            for entry in answer.entries or ()
            for value in entry.values
        }

    def change(self, wanted: Mapping[QuotaKey, float | None]) -> dict[QuotaKey, BrokerError]:
        """Set these, and remove those without a value; returns what was refused."""
        by_entity: dict[Entity, list[QuotaKey]] = {}
        for key in wanted:
            by_entity.setdefault(key.entity, []).append(key)
        if not by_entity:
            return {}
        entries = tuple(
            alter_request.EntryData(
                entity=tuple(
                    alter_request.EntityData(entity_type=kind, entity_name=name)
                    for kind, name in entity
                ),
                ops=tuple(_operation(key, wanted[key]) for key in keys),
            )
            for entity, keys in by_entity.items()
        )
        message = alter_request.AlterClientQuotasRequest(entries=entries, validate_only=False)
        answer = self._ask(message, alter_response.AlterClientQuotasResponse)
        refused: dict[QuotaKey, BrokerError] = {}
        for entry in answer.entries:
            try:
                self._check(entry.error_code, entry.error_message, _WRITES)
            except BrokerError as exc:
                refused.update(dict.fromkeys(by_entity.get(_entity(entry), ()), exc))
        return refused

    def scram_users(self) -> dict[str, tuple[str, ...]]:
        """Names of users, each with its mechanisms."""
        answer = self._ask(
            users_request.DescribeUserScramCredentialsRequest(users=None),
            users_response.DescribeUserScramCredentialsResponse,
        )
        self._check(answer.error_code, answer.error_message, _USERS)
        return {
            str(found.user): tuple(
                _MECHANISMS.get(int(each.mechanism), f"mechanism {each.mechanism}")
                for each in found.credential_infos
            )
            for found in answer.results
        }

    def _ask(self, message: Any, answer_type: type[Any]) -> Any:
        return asyncio.run(self._asked(message, answer_type))

    async def _asked(self, message: Any, answer_type: type[Any]) -> Any:
        cluster: Cluster = open_cluster(self._config, "admin")
        try:
            async with asyncio.timeout(self._timeout_s):
                return await cluster.ask_any(message, answer_type)
        except TimeoutError as exc:
            said = f"cluster {self._config.alias}: no answer within {self._timeout_s:g} s"
            raise BrokerUnreachable(said) from exc
        finally:
            cluster.close()

    def _check(self, code: Any, message: str | None, permission: str) -> None:
        if code != NONE:
            where = f"cluster {self._config.alias}"
            raise broker_error(where, int(code), message, permission=permission)


def _entity(entry: Any) -> Entity:
    pairs = (
        (str(each.entity_type), None if each.entity_name is None else str(each.entity_name))
        for each in entry.entity
    )
    return tuple(sorted(pairs, key=str))


def _operation(key: QuotaKey, value: float | None) -> alter_request.OpData:
    return alter_request.OpData(
        key=key.name,
        value=0.0 if value is None else value,  # type: ignore[arg-type]
        remove=value is None,
    )
