"""Text of a setting about hooks into its type: commands, web addresses, paths. No I/O; anywhere.

As in `values`, a reason never quotes the text.
"""

from __future__ import annotations

import re
import shlex
from pathlib import PurePosixPath
from typing import Final
from urllib.parse import SplitResult, urlsplit

from heliograph.config.mm2.values import BadValue
from heliograph.config.secrets import Secret

_VISIBLE_ASCII: Final = re.compile(r"[!-~]+")


def command(value: str) -> str:
    """A command line without a shell; kept as written, split again where it is run."""
    try:
        words = shlex.split(value)
    except ValueError as exc:
        raise BadValue("a command with an unclosed quote") from exc
    if not words or not words[0]:
        raise BadValue("not a command")
    if "\0" in value:
        raise BadValue("a command with a NUL in it")
    return value


def web_address(value: str) -> Secret:
    """Secret, since many webhooks have their password in the path."""
    require_url(value, "failover.webhook.token")
    return Secret(value)


def require_url(value: str, key_of_user: str) -> SplitResult:
    """The parts of an `http` or `https` URL without a user, who is told by another key."""
    # What is no visible ASCII could end the request's first line and begin another header.
    if _VISIBLE_ASCII.fullmatch(value) is None:
        raise BadValue("not a URL: spaces and special characters must be percent-encoded")
    try:
        parts = urlsplit(value)
        _ = parts.port
    except ValueError as exc:
        raise BadValue("not a URL") from exc
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise BadValue("not an `http://` or `https://` URL")
    if "@" in parts.netloc:
        raise BadValue(f"a URL with a user or password; use `{key_of_user}`")
    return parts


def bearer_token(value: str) -> Secret:
    if _VISIBLE_ASCII.fullmatch(value) is None:
        raise BadValue("not a token: empty, or with characters that an HTTP header cannot hold")
    return Secret(value)


def absolute_path(value: str) -> str:
    """Of a file: commands are run from anywhere, and all must mean the same one."""
    path = PurePosixPath(value)
    if not path.is_absolute() or value.endswith("/") or "\0" in value:
        raise BadValue("not the absolute path of a file")
    return value
