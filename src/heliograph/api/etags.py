"""Versions of what is served, so that two operators at once notice each other. Runs anywhere."""

from __future__ import annotations

import hashlib
import json
import re
from typing import Final

from heliograph.api.problems import ApiProblem

_TAG: Final = re.compile(r'(?:W/)?"[\x21\x23-\x7e]*"')


def etag(value: object) -> str:
    """The version of a value that JSON can hold, as the header has it."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), default=str)
    return f'"{hashlib.sha256(text.encode()).hexdigest()[:16]}"'


def etag_of_bytes(body: bytes) -> str:
    # Half of SHA-256's time, which counts for a page of megabytes.
    return f'"{hashlib.blake2b(body, digest_size=8).hexdigest()}"'


def require_match(if_match: str | None, current: str, what: str) -> None:
    """Raises 412 unless the caller has seen `what` as it is now; without the header all do.

    A weak tag never matches: nothing here is only alike (RFC 9110, 13.1.1).
    """
    if if_match is None or if_match.strip() == "*":
        return
    tags = [part.strip() for part in if_match.split(",")]
    if not all(_TAG.fullmatch(tag) for tag in tags):
        raise ApiProblem(400, 'If-Match is not "tag", a list of them, or *')
    if current not in tags:
        raise ApiProblem(
            412,
            f"{what} has changed since it was read; read it again and decide anew",
            details={"etag": current},
        )
