"""Versions of what is served, so that two operators at once notice each other. Driver only."""

from __future__ import annotations

import hashlib
import json
import re
from typing import Final

from heliograph.api.problems import ApiProblem
from heliograph.procedure.runner import PlanChanged

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
    tags = _tags(if_match)
    if tags is not None and current not in tags:
        raise ApiProblem(
            412,
            f"{what} has changed since it was read; read it again and decide anew",
            details={"etag": current},
        )


class Shown:
    """What the caller of a verb has seen of `what`: its version, or the plan of a dry run, whose
    tag begins with the version that the plan was made of."""

    def __init__(self, if_match: str | None, version: str, what: str) -> None:
        tags = _tags(if_match)
        self._version, self._what = version, what
        self._plans = [tag for tag in tags or () if tag.startswith(f"{version[:-1]}.")]
        self.is_plan: Final = bool(self._plans) and version not in (tags or ())
        """Whether it has to be compared with the plan as it is now."""
        if not self.is_plan:
            require_match(if_match, version, what)

    def tag(self, plan: object) -> str:
        return f"{self._version[:-1]}.{etag(plan)[1:]}"

    def require(self, plan: object) -> None:
        """Raises `PlanChanged` where another plan was shown; may be called on any thread."""
        if self.is_plan and self.tag(plan) not in self._plans:
            raise PlanChanged(
                f"{self._what}: what would be done now is not what the dry run showed; look at it "
                "again and decide anew"
            )


def _tags(if_match: str | None) -> list[str] | None:
    """None where everything matches."""
    if if_match is None or if_match.strip() == "*":
        return None
    tags = [part.strip() for part in if_match.split(",")]
    if not all(_TAG.fullmatch(tag) for tag in tags):
        raise ApiProblem(400, 'If-Match is not "tag", a list of them, or *')
    return tags
