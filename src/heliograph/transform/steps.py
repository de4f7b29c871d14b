"""What each transform of a file does to records. Runs on executors.

Connect's classes do what they do to the records of MirrorMaker 2, whose topic is the target's name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any, Final, Protocol, runtime_checkable

from heliograph.config.plugins import UnusableClass, load_function
from heliograph.config.registry import RegistryConfig
from heliograph.config.transforms import PredicateConfig, RecordPart, TransformConfig
from heliograph.errors import InvariantError, TransformUnusable
from heliograph.transform.handler import handler_of
from heliograph.transform.record import Record, Where, checked_content
from heliograph.wire.opened import Content

Contents = Sequence[Content]
Condition = Callable[[Sequence[Content | None]], list[int]]
"""The rows that are meant, of those that are left."""
_name_of: Final = itemgetter(0)


class Step(Protocol):
    """One transform of a lane."""

    def __call__(
        self, where: Where, offsets: Sequence[int], contents: Contents
    ) -> list[Content | None]:
        """A successor for each record, or None; raises whatever the operator's function does."""


@runtime_checkable
class ChangesHeads(Protocol):
    """A step that changes nothing but the first bytes of keys or values, as long as they were."""

    @property
    def parts(self) -> tuple[RecordPart, ...]: ...
    @property
    def head_bytes(self) -> int: ...
    @property
    def heads(self) -> Mapping[bytes, bytes | None]:
        """What is known so far; None for one that stays."""
        ...

    @property
    def marks(self) -> frozenset[str]:
        """Headers of records that the step alone may judge."""
        ...


Registries = tuple[RegistryConfig, RegistryConfig]
"""Of the source and of the target."""
NO_REGISTRIES: Final[Registries] = (RegistryConfig(), RegistryConfig())


def step_of(config: TransformConfig, registries: Registries) -> Step:
    """Raises `TransformUnusable` where its function cannot be had."""
    match config.kind:
        case "columns":
            return _OnColumns(function_of(config))
        case "record":
            return _OnRecords(function_of(config))
        case "handler":
            return _OnRecords(handler_of(function_of(config), config))
        case "Filter":
            return _Drop()
        case "InsertHeader":
            return _InsertHeader(config.headers[0], config.literal.encode())
        case "DropHeaders":
            return _DropHeaders(frozenset(config.headers))
        case "RegexRouter":
            raise InvariantError(f"{config.name}: topics are named before there is a lane")
        case "SchemaIds":
            # Slots that ask no registry start without its client.
            from heliograph.transform.schema_ids import schema_ids

            if config.schema_ids is None or not all(each.is_set for each in registries):
                raise TransformUnusable(config.name, "no schema registries are known here")
            return schema_ids(config.schema_ids, *registries)


def function_of(config: TransformConfig) -> Callable[[Any], Any]:
    """The function itself, imported; raises `TransformUnusable`."""
    try:
        return load_function(config.function)
    except UnusableClass as exc:
        why = f"its type is `{config.function}`, {exc}"
        raise TransformUnusable(config.name, why) from exc


def condition_of(config: PredicateConfig, where: Where) -> Condition | bool:
    """Which records a predicate means; of a lane's name it means all or none."""
    negate = config.negate
    match config.kind:
        case "TopicNameMatches":
            return (re.fullmatch(config.text, where.target_topic) is not None) != negate
        case "HasHeaderKey":
            name = config.text
            # One expression: this is asked of every record.
            return lambda contents: [
                row
                for row, content in enumerate(contents)
                if content is not None
                and (bool(content[3]) and name in map(_name_of, content[3])) != negate
            ]
        case "HeaderNames":
            return _names_in_headers(frozenset(config.headers), config.text.encode(), negate)
        case "RecordIsTombstone":
            return lambda contents: [
                row
                for row, content in enumerate(contents)
                if content is not None and (content[2] is None) != negate
            ]


def _names_in_headers(headers: frozenset[str], text: bytes, negate: bool) -> Condition:
    """Each mirror frames the id its own way, so it may stand anywhere in the header."""

    def names_it(content: Content) -> bool:
        return any(
            name in headers and value is not None and text in value for name, value in content[3]
        )

    return lambda contents: [
        row
        for row, content in enumerate(contents)
        if content is not None and names_it(content) != negate
    ]


class _OnColumns:
    def __init__(self, function: Callable[[Any], Any]) -> None:
        # Slots that make no columns start without Arrow.
        from heliograph.transform.columns import apply_columns

        self._function, self._apply = function, apply_columns

    def __call__(
        self, where: Where, offsets: Sequence[int], contents: Contents
    ) -> list[Content | None]:
        return self._apply(self._function, where, offsets, contents)


class _OnRecords:
    def __init__(self, function: Callable[[Any], Any]) -> None:
        self._function = function

    def __call__(
        self, where: Where, offsets: Sequence[int], contents: Contents
    ) -> list[Content | None]:
        topic, partition, function = where.topic, where.partition, self._function
        made: list[Content | None] = []
        for offset, content in zip(offsets, contents, strict=True):
            given = Record(topic, partition, offset, *content)
            found = function(given)
            if found is given:
                made.append(content)
            else:
                made.append(None if found is None else checked_content(found, given))
        return made


class _Drop:
    def __call__(
        self, where: Where, offsets: Sequence[int], contents: Contents
    ) -> list[Content | None]:
        return [None] * len(contents)


class _InsertHeader:
    """Behind those that are there, one of the same name included."""

    def __init__(self, name: str, value: bytes) -> None:
        self._added = ((name, value),)

    def __call__(
        self, where: Where, offsets: Sequence[int], contents: Contents
    ) -> list[Content | None]:
        added = self._added
        return [(at, key, value, headers + added) for at, key, value, headers in contents]


class _DropHeaders:
    def __init__(self, names: frozenset[str]) -> None:
        self._names = names

    def __call__(
        self, where: Where, offsets: Sequence[int], contents: Contents
    ) -> list[Content | None]:
        names = self._names
        return [
            (at, key, value, tuple(each for each in headers if each[0] not in names))
            for at, key, value, headers in contents
        ]
