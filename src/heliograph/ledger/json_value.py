"""The ledger's small JSON values: written compactly, read with suspicion. Pure; runs anywhere."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Final

from heliograph.errors import WireError
from heliograph.ledger.runs import OFFSET_MAX

VERSION: Final = 1
JSON_BYTES_MAX: Final = 4_096
TEXT_CHARS_MAX: Final = 255
_TOPIC_ID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def to_json(fields: Mapping[str, str | int | None]) -> bytes:
    return json.dumps({"v": VERSION, **fields}, separators=(",", ":")).encode("ascii")


class Fields:
    """The members of one JSON object that must have exactly these names, and a known version.

    Flags may be left out, which is how they are false; where they are there, they are true.
    """

    __slots__ = ("_members",)

    def __init__(
        self, value: bytes, names: frozenset[str], *, flags: frozenset[str] = frozenset()
    ) -> None:
        if len(value) > JSON_BYTES_MAX:
            raise WireError(
                f"ledger value has {len(value)} bytes, expected at most {JSON_BYTES_MAX}"
            )
        try:
            members = json.loads(value)
        # Bytes that are no text, text that is no JSON, brackets nested beyond the parser's stack.
        except (ValueError, RecursionError) as exc:
            raise WireError("ledger value is not JSON") from exc
        if not isinstance(members, dict):
            raise WireError("ledger value is not a JSON object")
        if type(members.get("v")) is not int or members["v"] != VERSION:
            raise WireError(f"ledger value of another version than {VERSION}")
        if members.keys() - flags != names | {"v"}:
            raise WireError(f"ledger value does not have exactly the fields {sorted(names)}")
        # One spelling per value, so that what is read is what would be written.
        if any(members[flag] is not True for flag in flags & members.keys()):
            raise WireError(f"ledger value: one of {sorted(flags)} is there and not true")
        self._members: dict[str, object] = members

    def flag(self, name: str) -> bool:
        return name in self._members

    def number(self, name: str, most: int = OFFSET_MAX) -> int:
        member = self._members[name]
        # JSON's true would pass as an int.
        if type(member) is not int or not 0 <= member <= most:
            raise WireError(f"ledger value: {name} is not a number from 0 to {most}")
        return member

    def text(self, name: str) -> str:
        member = self._members[name]
        if not isinstance(member, str) or len(member) > TEXT_CHARS_MAX:
            raise WireError(f"ledger value: {name} is not a text of at most {TEXT_CHARS_MAX}")
        return member

    def topic_id(self, name: str) -> str | None:
        if self._members[name] is None:
            return None
        text = self.text(name)
        if _TOPIC_ID.fullmatch(text) is None:
            raise WireError(f"ledger value: {name} is not a topic id")
        return text
