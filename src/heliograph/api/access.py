"""Who may do what: roles, the file with the tokens, and a bound on wrong ones. Driver only.

A line of the file is `NAME ROLES TOKEN`. Roles are `look`, `operate` and `recover`, each with all
of the ones before it, separated by commas; `operate:A->B` is the role for one flow. A token may
stand as `sha256:` and the hash of it in hexadecimal, so that the file holds none.
"""

from __future__ import annotations

import hashlib
import ipaddress
import logging
import os
import re
import stat
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from heliograph.clock import monotonic_s
from heliograph.errors import ConfigError
from heliograph.model import FlowId

log = logging.getLogger("heliograph")

TOKEN_CHARS_MIN: Final = 16
TOKEN_CHARS_MAX: Final = 512
TRIES_MAX: Final = 10
"""Wrong tokens from one address within `TRIES_S`; then it has to wait."""
TRIES_S: Final = 60.0
_ADDRESSES_MAX: Final = 4_096
_FILE_BYTES_MAX: Final = 1024 * 1024
_LOOK_S: Final = 1.0
_OTHERS: Final = stat.S_IWGRP | stat.S_IRWXO
"""A group may read the file, as where Kubernetes mounts a secret for one."""
_NAME: Final = re.compile(r"[\w.@-]{1,64}", re.ASCII)
_TOKEN: Final = re.compile(r"[!-~]+")
_HASHED: Final = re.compile(r"sha256:([0-9a-f]{64})")


class Role(StrEnum):
    LOOK = "look"
    OPERATE = "operate"
    RECOVER = "recover"

    @property
    def rank(self) -> int:
        return list(Role).index(self)


@dataclass(frozen=True, slots=True)
class Grant:
    role: Role
    flow: str | None = None
    """As `A->B`; None: every flow."""


@dataclass(frozen=True, slots=True)
class Caller:
    name: str
    grants: tuple[Grant, ...]

    def may(self, role: Role, flow: FlowId | None = None) -> bool:
        """Without a flow: whether for any."""
        return any(
            grant.role.rank >= role.rank
            and (flow is None or grant.flow is None or grant.flow == str(flow))
            for grant in self.grants
        )


UNNAMED: Final = Caller("unnamed", (Grant(Role.RECOVER),))
"""Who calls where no tokens are asked for."""


def parse_tokens(text: str, source: str) -> Mapping[bytes, Caller]:
    """Callers by the SHA-256 of their token; raises `ConfigError`, which quotes no token."""
    callers: dict[bytes, Caller] = {}
    problems: list[str] = []
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        try:
            digest, caller = _caller(words)
            if digest in callers:
                raise ValueError("has the token of an earlier line")
            callers[digest] = caller
        except ValueError as exc:
            problems.append(f"line {number}  {exc}")
    if not callers and not problems:
        problems.append("has no token: write lines of `NAME ROLES TOKEN`")
    if problems:
        raise ConfigError(source, tuple(problems))
    return callers


def _caller(words: list[str]) -> tuple[bytes, Caller]:
    if len(words) != 3:
        raise ValueError("is not `NAME ROLES TOKEN`")
    name, roles, token = words
    if _NAME.fullmatch(name) is None:
        raise ValueError("has a name that is not letters, digits, `_`, `.`, `@` and `-`")
    hashed = _HASHED.fullmatch(token)
    if hashed is not None:
        digest = bytes.fromhex(hashed[1])
    elif token.startswith("sha256:"):
        raise ValueError("has `sha256:` without 64 hexadecimal digits behind it")
    elif _TOKEN.fullmatch(token) is None:
        raise ValueError("has a token with characters that an HTTP header cannot hold")
    elif not TOKEN_CHARS_MIN <= len(token) <= TOKEN_CHARS_MAX:
        raise ValueError(f"has a token that is not {TOKEN_CHARS_MIN} to {TOKEN_CHARS_MAX} long")
    else:
        digest = hashlib.sha256(token.encode()).digest()
    return digest, Caller(name, tuple(map(_grant, roles.split(","))))


def _grant(text: str) -> Grant:
    role, _, flow = text.partition(":")
    if role not in set(Role):
        raise ValueError("has a role that is not look, operate or recover")
    if ":" in text and "->" not in flow:
        raise ValueError("has a role for something that is no flow such as `A->B`")
    return Grant(Role(role), flow or None)


class Tokens:
    """The tokens of a file, read again when it has changed; a bad file changes nothing."""

    def __init__(self, path: Path, clock_s: Callable[[], float] = monotonic_s) -> None:
        """Raises `ConfigError` where the file cannot be used."""
        self._path, self._clock_s = path, clock_s
        self._seen, self._callers = self._read()
        self._due_s = clock_s() + _LOOK_S

    def caller(self, token: str) -> Caller | None:
        if self._clock_s() >= self._due_s:
            self._due_s = self._clock_s() + _LOOK_S
            self._read_again()
        return self._callers.get(hashlib.sha256(token.encode()).digest())

    def _read_again(self) -> None:
        try:
            found = _identity(self._path.stat())
        except OSError:
            found = None
        if found == self._seen:
            return
        try:
            self._seen, self._callers = self._read()
            log.info("%s: %d tokens were read again", self._path, len(self._callers))
        except ConfigError as exc:
            # Said once: the next look compares with the file as it is now.
            self._seen = found
            log.error("the tokens stay as they were: %s", exc)

    def _read(self) -> tuple[object, Mapping[bytes, Caller]]:
        source = str(self._path)
        try:
            with self._path.open("rb") as file:
                at = os.fstat(file.fileno())
                content = file.read(_FILE_BYTES_MAX + 1)
        except OSError as exc:
            why = exc.strerror or type(exc).__name__
            raise ConfigError(source, (f"cannot be read: {why}",)) from exc
        if at.st_mode & _OTHERS:
            others = "can be read or changed by other users: make it `chmod 600`"
            raise ConfigError(source, (others,))
        if len(content) > _FILE_BYTES_MAX:
            raise ConfigError(source, (f"is larger than {_FILE_BYTES_MAX:,} bytes",))
        try:
            text = content.decode()
        except UnicodeDecodeError as exc:
            raise ConfigError(source, ("is not UTF-8",)) from exc
        return _identity(at), parse_tokens(text, source)


def _identity(at: os.stat_result) -> object:
    return at.st_ino, at.st_mtime_ns, at.st_size, at.st_mode


class FailedTries:
    """How often an address showed a token that is none, lately."""

    def __init__(self, clock_s: Callable[[], float] = monotonic_s) -> None:
        self._clock_s = clock_s
        self._tries: OrderedDict[str, deque[float]] = OrderedDict()

    def wait_s(self, address: str) -> float:
        """Until the address may show another one; 0 where it may now."""
        tries = self._tries.get(_neighbourhood(address))
        if tries is None or len(tries) < TRIES_MAX:
            return 0.0
        return max(0.0, tries[0] + TRIES_S - self._clock_s())

    def failed(self, address: str) -> None:
        key = _neighbourhood(address)
        self._tries.setdefault(key, deque(maxlen=TRIES_MAX)).append(self._clock_s())
        self._tries.move_to_end(key)
        if len(self._tries) > _ADDRESSES_MAX:
            self._tries.popitem(last=False)


def _neighbourhood(address: str) -> str:
    """One machine has a whole /64 of IPv6 addresses to try from."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return address
    if found.version == 4:
        return address
    return str(ipaddress.ip_network((found, 64), strict=False))
