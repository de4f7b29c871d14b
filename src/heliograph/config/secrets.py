"""Secrets that do not show themselves, and `${provider:path:key}` resolved. Runs anywhere.

The environment and the files come in as `Environment`, which only `config.load` fills with the
real ones. A value that came through a provider is never quoted in a message: the reference is.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from os.path import normpath
from pathlib import Path
from typing import Any, Final

from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

from heliograph.config.mm2.properties import MalformedProperty, decode_properties, parse_properties

_PACKAGE: Final = "org.apache.kafka.common.config.provider."
FILE_PROVIDER: Final = _PACKAGE + "FileConfigProvider"
ENV_PROVIDER: Final = _PACKAGE + "EnvVarConfigProvider"
DIRECTORY_PROVIDER: Final = _PACKAGE + "DirectoryConfigProvider"
PROVIDER_CLASSES: Final = (FILE_PROVIDER, ENV_PROVIDER, DIRECTORY_PROVIDER)

# The shape of Kafka's ConfigTransformer: the path ends at the first colon, the key at the brace.
_REFERENCE: Final = re.compile(r"\$\{([^}:]*):(?:([^}:]*):)?([^}]*)\}")
_SECRET_NAME: Final = re.compile(
    r"passw|passphrase|secret|jaas|token(?!\.endpoint|s\.file)|credential|user\.?info"
    r"|webhook\.url|ssl\.keystore\.key|(?:api|access|private|encryption|signing)[._-]?key(?!\.file)",
    re.IGNORECASE,
)
_SECRET_VALUE: Final = re.compile(
    r"passw|passphrase|secret|://[^/\s@]*:[^/\s@]*@|-----BEGIN", re.IGNORECASE
)


_PASSWORD_IN_URL: Final = re.compile(r"://[^/\s@]*:[^/\s@]*@")


class Secret:
    """A value that every `repr`, `str`, format and dump masks; `reveal` is the only way to it."""

    __slots__ = ("_value",)
    MASK: Final = "********"

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        return self._value

    def __repr__(self) -> str:
        return f"Secret({self.MASK})"

    def __str__(self) -> str:
        return self.MASK

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        return hmac.compare_digest(self._value.encode(), other._value.encode())

    def __hash__(self) -> int:
        return hash(self._value)

    def __reduce__(self) -> tuple[type[Secret], tuple[str]]:
        return Secret, (self._value,)

    @classmethod
    def __get_pydantic_core_schema__(
        cls, source: type[Any], handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return core_schema.is_instance_schema(
            cls,
            serialization=core_schema.plain_serializer_function_ser_schema(str, when_used="json"),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """What the outside offers to a configuration; tests give their own."""

    environment: Mapping[str, str]
    read_bytes: Callable[[Path], bytes]
    """Raises OSError, whose `strerror` is shown."""
    names_in: Callable[[Path], Sequence[str]] = lambda _: ()
    """The files of a folder; raises OSError."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Provider:
    """One entry of `config.providers`."""

    name: str
    class_path: str
    allowed_paths: tuple[Path, ...] = ()
    """`param.allowed.paths`; empty allows every path."""
    allowed_names: str | None = None
    """`param.allowlist.pattern` of the environment provider."""


class Unresolved(ValueError):
    """A reference that leads nowhere; the message names the reference, never a value."""


def is_secret_key(name: str) -> bool:
    """Whether a Java key of this name holds something that must not be shown."""
    return _SECRET_NAME.search(name) is not None


def looks_secret(value: str) -> bool:
    """Whether a value holds a secret whatever its key: Java options, URLs with a password."""
    return _SECRET_VALUE.search(value) is not None


def has_password(value: str) -> bool:
    """Whether a value has a URL with a password in it."""
    return _PASSWORD_IN_URL.search(value) is not None


def has_reference(text: str) -> bool:
    return _REFERENCE.search(text) is not None


def referred_names(text: str) -> frozenset[str]:
    """The keys that the references in `text` ask their providers for."""
    return frozenset(matched.group(3) for matched in _REFERENCE.finditer(text))


def referred_providers(text: str) -> frozenset[str]:
    """The providers that the references in `text` name."""
    return frozenset(matched.group(1) for matched in _REFERENCE.finditer(text))


def resolve(text: str, providers: Mapping[str, Provider], around: Environment) -> str:
    """Replace every reference in `text`; raises `Unresolved` for the first that leads nowhere."""

    def looked_up(found: re.Match[str]) -> str:
        name, path, key = found.group(1), found.group(2) or "", found.group(3)
        provider = providers.get(name)
        if provider is None:
            raise Unresolved(f"`{found.group()}` needs `{name}` in `config.providers`")
        try:
            return _look_up(provider, path, key, around)
        except Unresolved as exc:
            raise Unresolved(f"`{found.group()}` cannot be resolved: {exc}") from exc

    return _REFERENCE.sub(looked_up, text)


def _look_up(provider: Provider, path: str, key: str, around: Environment) -> str:
    if provider.class_path == ENV_PROVIDER:
        if path:
            raise Unresolved("the environment has no paths")
        return _from_environment(provider, key, around)
    if not path:
        raise Unresolved("the path is missing")
    if provider.class_path == DIRECTORY_PROVIDER:
        if "/" in key or key in ("", ".", ".."):
            raise Unresolved(f"`{key}` is not the name of a file in the directory")
        return _read(provider, Path(path) / key, around).decode("utf-8", "replace")
    return _from_file(provider, Path(path), key, around)


def _from_environment(provider: Provider, key: str, around: Environment) -> str:
    allowed = provider.allowed_names
    if allowed is not None and re.fullmatch(allowed, key) is None:
        raise Unresolved(f"`{key}` does not match `allowlist.pattern`")
    if key not in around.environment:
        raise Unresolved(f"the environment has no `{key}`")
    return around.environment[key]


def _from_file(provider: Provider, path: Path, key: str, around: Environment) -> str:
    # Java keeps the last of equal keys, and so does this walk.
    found: str | None = None
    for entry in parse_properties(decode_properties(_read(provider, path, around))):
        if isinstance(entry, MalformedProperty):
            raise Unresolved(f"line {entry.line} of {path}: {entry.why}")
        if entry.key == key:
            found = entry.value
    if found is None:
        raise Unresolved(f"{path} has no `{key}`")
    return found


def _read(provider: Provider, path: Path, around: Environment) -> bytes:
    if provider.allowed_paths:
        # Without `..`, as Kafka does it, or an allowed path would open every path; and what was
        # judged is what is read, since behind a link `..` leads elsewhere.
        normal = Path(normpath(path))
        if not any(normal.is_relative_to(allowed) for allowed in provider.allowed_paths):
            raise Unresolved(f"{path} is not under `allowed.paths`")
        path = normal
    try:
        return around.read_bytes(path)
    except OSError as exc:
        raise Unresolved(f"{path}: {exc.strerror or type(exc).__name__}") from exc
