"""Schemas that functions on columns read and write by, asked of a registry. Runs on executors.

A lane waits for one it does not know yet, and no other lane does. Imported by the operator's
modules, through `transform.avro` and `transform.protobuf`.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Generic, TypeVar
from urllib.parse import urlsplit

from heliograph.config.hook_values import bearer_token
from heliograph.config.mm2.values import BadValue
from heliograph.config.registry import RegistryConfig, registry_addresses, registry_user
from heliograph.config.security import TlsConfig
from heliograph.errors import RegistryError
from heliograph.registry.asked import Asked
from heliograph.registry.client import Registry
from heliograph.registry.schema import Schema
from heliograph.transform.fields import NoFields
from heliograph.transform.framing import UnknownSchemaId

T = TypeVar("T")
_NEEDED_MAX = 1_000


@dataclass(frozen=True, slots=True)
class WholeSchema:
    """With all it refers to."""

    schema: Schema
    needed: tuple[tuple[str, Schema], ...] = ()
    """By the name that it is referred to by; each stands behind those it needs itself."""


def registry(
    *urls: str,
    user_info: str | None = None,
    token: str | None = None,
    ca_pem: str | None = None,
    timeout_ms: int = 10_000,
) -> RegistryConfig:
    """Where schemas are asked for: the addresses of one registry, and how it lets one in. Raises
    `BadValue`, which quotes nothing of it."""
    if not urls:
        raise BadValue("no URL of a schema registry")
    return RegistryConfig(
        urls=registry_addresses(urls, "user_info"),
        user_info=None if user_info is None else registry_user(user_info),
        token=None if token is None else bearer_token(token),
        tls=TlsConfig(ca_pem=ca_pem),
        timeout_ms=timeout_ms,
    )


class KnownSchemas(Generic[T]):
    """Of one registry, in the form that `parse` gives them."""

    def __init__(self, config: RegistryConfig, parse: Callable[[WholeSchema], T]) -> None:
        self._registry = Registry(_name_of(config.urls[0]), config)
        self._parse = parse
        asks = f"asks the {self._registry.where} for schema"
        self._asked: Asked[int | uuid.UUID, T | NoFields] = Asked(self._find, asks)

    def get(self, key: int | uuid.UUID) -> T:
        """Raises `NotYetKnown`, `UnknownSchemaId` where the registry has none of that name, and
        `NoFields` where it is of another kind."""
        found = self._asked.get(key)
        if found is None:
            raise UnknownSchemaId(f"the {self._registry.where} does not know schema {key}")
        if isinstance(found, NoFields):
            # It is kept: raised itself, it would keep the frames of all who asked.
            raise NoFields(str(found))
        return found

    def _find(self, key: int | uuid.UUID) -> tuple[T | NoFields | None, str]:
        asked = self._registry
        schema = asked.schema(key) if isinstance(key, int) else asked.schema_of_guid(key)
        if schema is None:
            return None, ""
        needed: dict[str, Schema] = {}
        self._gather(schema, needed, 0)
        try:
            return self._parse(WholeSchema(schema, tuple(needed.items()))), ""
        except NoFields as exc:
            # Schemas never change under their id.
            return NoFields(str(exc)), ""

    def _gather(self, schema: Schema, needed: dict[str, Schema], depth: int) -> None:
        for each in schema.references:
            if each.name in needed:
                continue
            if depth > _NEEDED_MAX or len(needed) > _NEEDED_MAX:
                raise RegistryError(self._registry.where, "has schemas that need too many others")
            found = self._registry.version(each.subject, each.version).schema
            self._gather(found, needed, depth + 1)
            needed[each.name] = found


def _name_of(url: str) -> str:
    """Host and port, and nothing that might be a password."""
    return urlsplit(url).netloc.rpartition("@")[2]


@lru_cache(maxsize=64)
def _shared(config: RegistryConfig, parse: Callable[[WholeSchema], Any]) -> KnownSchemas[Any]:
    return KnownSchemas(config, parse)


def known_schemas(config: RegistryConfig, parse: Callable[[WholeSchema], T]) -> KnownSchemas[T]:
    """Shared by all functions of a process that ask the same."""
    return _shared(config, parse)
