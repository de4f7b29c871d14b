"""Ids of schemas exchanged in keys and values, length unchanged, nothing decoded. Runs on
executors; `framing` says where an id may stand.

A GUID means the same to every registry, so records with one stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Final

from heliograph.config.registry import RegistryConfig
from heliograph.config.transforms import SchemaIdsConfig
from heliograph.model import TopicName
from heliograph.registry.client import Registry
from heliograph.registry.ids import IdMap
from heliograph.registry.pairing import Pairing, subject_names
from heliograph.topics.naming import naming_policy_of
from heliograph.transform.framing import (
    GLUE_MAGIC,
    GUID_FRAME_BYTES,
    GUID_HEADERS,
    GUID_MAGIC,
    IDS,
    MAGIC,
    NoSchemaId,
    UnknownSchemaId,
)
from heliograph.transform.record import Where
from heliograph.wire.opened import Content

_GLUE_FRAME_BYTES: Final = 18
_GLUE_COMPRESSIONS: Final = (0, 5)
_HEADS_MAX: Final = 100_000
_PLACES: Final = {"key": 1, "value": 2}
"""In a record's content."""
Lookup = Callable[[int], int | None]


class SchemaIds:
    """One step of a lane. Lanes that ask the same registries share what is known."""

    def __init__(self, config: SchemaIdsConfig, lookup: Lookup) -> None:
        self.parts: Final = config.parts
        self.marks: Final = frozenset(GUID_HEADERS[part] for part in config.parts)
        self._config, self._lookup = config, lookup
        self._id = IDS[config.id_bytes]
        self.head_bytes: Final = self._id.size
        self.heads: Final[dict[bytes, bytes | None]] = {}
        """What is known for good of the first bytes: what they become, None if they stay."""

    def __call__(
        self, where: Where, offsets: Sequence[int], contents: Sequence[Content]
    ) -> list[Content | None]:
        made: list[Content | None] = list(contents)
        for part in self.parts:
            made = self._patched(part, made)
        return made

    def _patched(self, part: str, contents: list[Content | None]) -> list[Content | None]:
        size, is_key, mark = self.head_bytes, part == "key", GUID_HEADERS[part]
        known, found_out = self.heads, self._found_out
        made: list[Content | None] = []
        for content in contents:
            if content is None:
                made.append(None)
                continue
            at, key, value, headers = content
            field = key if is_key else value
            if field is None or (headers and any(name == mark for name, _ in headers)):
                made.append(content)
                continue
            head = field[:size]
            new = known[head] if head in known else found_out(part, field)
            if new is None:
                made.append(content)
            elif is_key:
                made.append((at, new + field[size:], value, headers))
            else:
                made.append((at, key, new + field[size:], headers))
        return made

    def _found_out(self, part: str, field: bytes) -> bytes | None:
        """As in `heads`; raises where the record is to fail or to wait."""
        if len(field) < self.head_bytes or field[0] != MAGIC:
            if _is_guid_frame(field) or self._config.on_unframed == "pass":
                return None
            shown = field[: self.head_bytes].hex(" ")
            raise NoSchemaId(f"its {part} ({len(field)} bytes: {shown}) begins with no schema id")
        _, schema_id = self._id.unpack_from(field)
        found = self._lookup(schema_id)
        if found is None:
            if self._config.on_unknown == "pass":
                return None
            raise UnknownSchemaId(
                f"its {part} has schema id {schema_id}, which the source's registry does not know"
            )
        head = field[: self.head_bytes]
        if len(self.heads) >= _HEADS_MAX:
            self.heads.clear()
        self.heads[head] = None if found == schema_id else self._id.pack(MAGIC, found)
        return self.heads[head]


def _is_guid_frame(field: bytes) -> bool:
    if not field:
        return False
    if field[0] == GUID_MAGIC:
        return len(field) >= GUID_FRAME_BYTES
    is_glue = field[0] == GLUE_MAGIC and len(field) >= _GLUE_FRAME_BYTES
    return is_glue and field[1] in _GLUE_COMPRESSIONS


@lru_cache(maxsize=256)
def schema_ids(
    config: SchemaIdsConfig, source: RegistryConfig, target: RegistryConfig
) -> SchemaIds:
    """Shared by all lanes of a process that ask for the same."""
    place = f"{config.source}->{config.target}"
    policy = naming_policy_of(config.policy, config.source, place, config.routers)
    names = subject_names(config.rename, lambda topic: policy.target_topic(TopicName(topic)))
    of_source = Registry(config.source, source)
    of_target = Registry(config.target, target)
    return SchemaIds(config, IdMap(Pairing(of_source, of_target, names)).get)
