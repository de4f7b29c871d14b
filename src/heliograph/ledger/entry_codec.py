"""The ledger's records as bytes; `entries` has what they say. Runs anywhere; does no I/O.

Keys are read and written by hand, because the many records (runs, heads) are found by them. JSON
values are declared once each, as a type that both sides go by; `runs_codec` has the binary ones.
"""

from __future__ import annotations

import json
import re
from enum import StrEnum
from typing import Annotated, Any, Final, TypeVar, assert_never
from urllib.parse import quote, unquote_to_bytes

from pydantic import AfterValidator, ConfigDict, Field, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from heliograph.acl import AclBinding, AclOperation, AclPattern, AclPermission
from heliograph.errors import InvariantError, WireError
from heliograph.ledger.entries import (
    TEXT_CHARS_MAX,
    AclEntry,
    AclKey,
    Entry,
    EntryKey,
    FlowEntry,
    FlowKey,
    HeadEntry,
    HeadKey,
    LeaseEntry,
    LeaseKey,
    LossEntry,
    LossKey,
    MemoEntry,
    MemoKey,
    RunsEntry,
    RunsKey,
    SegmentEntry,
    StartEntry,
    StartKey,
    key_of,
)
from heliograph.ledger.packed_runs import COARSE_VERSION, pack_anchors, pack_runs, parse_packed
from heliograph.ledger.packed_runs import VERSION as PACKED_VERSION
from heliograph.ledger.runs import OFFSET_MAX
from heliograph.ledger.runs_codec import decode_runs, encode_runs
from heliograph.model import FlowId, OffsetRange, StallReason, TopicId, TopicName

PARTITION_MAX: Final = 2**31 - 1
PRODUCER_EPOCH_MAX: Final = 2**15 - 1
LEADER_EPOCH_MAX: Final = 2**31 - 1
VERSION: Final = 1
JSON_BYTES_MAX: Final = 4_096
MEMO_BYTES_MAX: Final = 512 * 1024
"""Half of a broker's default record limit."""
_SHOWN_MAX: Final = 300
_TOPIC: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_AUTHOR: Final = re.compile(r"[0-9a-f]{32}")
_NUMBER: Final = re.compile(r"0|[1-9][0-9]{0,18}")
_VERSIONED: Final = frozenset({b"flow", b"lease", b"head", b"run", b"loss", b"start", b"acl"})
_TEXT_BYTES_MAX: Final = 2**15 - 1
"""Longest string in Kafka's ACL requests, so every ACL a broker can have fits."""
_TEXT_AS_IT_IS: Final = ":*,=/@"
"""What texts in keys may hold unescaped, beside letters, digits and `_.-~`."""

Word = TypeVar("Word", bound=StrEnum)

# -- JSON values, their fields in the order in which they are written; `v` comes before them


def _is_true(flag: bool) -> bool:
    # One spelling per value, so that what is read is what would be written.
    if not flag:
        raise ValueError("is left out where it is not true")
    return flag


_Version = Annotated[int, Field(ge=VERSION, le=VERSION)]
_Number = Annotated[int, Field(ge=0, le=OFFSET_MAX)]
_Text = Annotated[str, Field(max_length=TEXT_CHARS_MAX)]
_TopicId = Annotated[TopicId | None, Field(pattern="^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")]
_Flag = Annotated[bool, AfterValidator(_is_true)]


class _Fields(TypedDict):
    __pydantic_config__ = ConfigDict(strict=True, extra="forbid")  # type: ignore[misc]
    v: _Version


class _FlowFields(_Fields):
    source: _Text
    target: _Text
    producer_epoch: Annotated[int, Field(ge=0, le=PRODUCER_EPOCH_MAX)]
    source_cluster_id: _Text
    created_ms: _Number


class _LeaseFields(_Fields):
    host: _Text
    pid: _Number
    at_ms: _Number
    lease_ms: _Number
    slot_count: _Number


class _PlainHeadFields(_Fields):
    position: _Number
    source_next_offset: _Number
    source_end_offset: _Number
    target_next_offset: _Number
    source_topic_id: _TopicId
    target_topic_id: _TopicId
    at_ms: _Number
    state: _Text
    detail: _Text


class _HeadFields(_PlainHeadFields, total=False):
    source_leader_epoch: Annotated[int, Field(ge=0, le=LEADER_EPOCH_MAX)]
    begun_at: _Number


class _LossFields(_Fields):
    lost_end: _Number
    reason: StallReason
    at_ms: _Number


class _PlainStartFields(_Fields):
    source_offset: _Number
    target_offset: _Number
    source_topic_id: _TopicId
    target_topic_id: _TopicId
    at_ms: _Number


class _StartFields(_PlainStartFields, total=False):
    adopted: _Flag


class _AclFields(_Fields):
    at_ms: _Number


class _Value:
    """One kind of JSON value: written compactly, read with suspicion."""

    __slots__ = ("_adapter", "_names", "_optional")

    def __init__(self, fields: Any) -> None:
        """`fields` is one of the types above, which mypy knows no type of."""
        self._adapter: TypeAdapter[dict[str, Any]] = TypeAdapter(fields)
        self._names = [name for name in fields.__annotations__ if name != "v"]
        self._optional: frozenset[str] = fields.__optional_keys__

    def read(self, value: bytes) -> dict[str, Any]:
        """The fields by name, as `entries` types them; without the version."""
        if len(value) > JSON_BYTES_MAX:
            raise WireError(
                f"ledger value has {len(value)} bytes, expected at most {JSON_BYTES_MAX}"
            )
        try:
            fields = self._adapter.validate_json(value)
        except ValidationError as exc:
            raise WireError(f"ledger value: {first_problem(exc)}") from exc
        del fields["v"]
        return fields

    def write(self, entry: Entry, **otherwise: object) -> bytes:
        """The entry's attributes of those names, but for what `otherwise` has."""
        fields: dict[str, object] = {"v": VERSION}
        for name in self._names:
            field = otherwise[name] if name in otherwise else getattr(entry, name)
            is_left_out = name in self._optional and (field is None or field is False)
            if not is_left_out:
                fields[name] = field
        return json.dumps(fields, separators=(",", ":")).encode("ascii")


_FLOW: Final = _Value(_FlowFields)
_LEASE: Final = _Value(_LeaseFields)
_HEAD: Final = _Value(_HeadFields)
_LOSS: Final = _Value(_LossFields)
_START: Final = _Value(_StartFields)
_ACL: Final = _Value(_AclFields)


def encode(entry: Entry) -> tuple[bytes, bytes]:
    """Key and value; `decode` gives back an equal entry. What it would refuse is never written."""
    key = encode_key(key_of(entry))
    match entry:
        case FlowEntry():
            value = _FLOW.write(entry, source=entry.flow.source, target=entry.flow.target)
        case LeaseEntry():
            value = _LEASE.write(entry)
        case HeadEntry():
            value = _HEAD.write(entry)
        case RunsEntry():
            # Checked by its codec; reading thousands of runs back for each write would show.
            return key, encode_runs(entry.runs, entry.end_position)
        case SegmentEntry():
            return key, entry.packed.value
        case LossEntry():
            value = _LOSS.write(entry, lost_end=entry.lost.end)
        case StartEntry():
            value = _START.write(entry)
        case AclEntry():
            value = _ACL.write(entry)
        case MemoEntry():
            value = entry.text.encode()
        case _:
            assert_never(entry)
    try:
        decode(key, value)
    except WireError as exc:
        # A record nobody can read would stop every reader of the topic, for good.
        raise InvariantError(f"not fit for the ledger: {_shortened(entry)}: {exc}") from exc
    return key, value


def decode(key: bytes, value: bytes | None) -> Entry | None:
    """The entry, or None for a tombstone; bytes that mean nothing raise `WireError`."""
    parsed = decode_key(key)
    if value is None:
        return None
    match parsed:
        case FlowKey():
            return _decode_flow(parsed, value)
        case LeaseKey():
            return LeaseEntry(author=parsed.author, **_LEASE.read(value))
        case HeadKey():
            return HeadEntry(topic=parsed.topic, partition=parsed.partition, **_HEAD.read(value))
        case RunsKey():
            return decode_runs_entry(parsed, value)
        case LossKey():
            return _decode_loss(parsed, value)
        case StartKey():
            return StartEntry(
                topic=parsed.topic,
                partition=parsed.partition,
                position=parsed.position,
                author=parsed.author,
                **_START.read(value),
            )
        case AclKey():
            return AclEntry(binding=parsed.binding, **_ACL.read(value))
        case MemoKey():
            return MemoEntry(subject=parsed.subject, text=_memo_text(value))
        case _:
            assert_never(parsed)


def decode_runs_entry(key: RunsKey, value: bytes) -> RunsEntry | SegmentEntry:
    """All of it, checked; `view` decodes only what is asked for."""
    if value.startswith((bytes([PACKED_VERSION]), bytes([COARSE_VERSION]))):
        return _decode_segment(key, value)
    runs, end_position = decode_runs(key.position, value)
    return RunsEntry(
        topic=key.topic,
        partition=key.partition,
        author=key.author,
        runs=runs,
        end_position=end_position,
    )


def _decode_segment(key: RunsKey, value: bytes) -> SegmentEntry:
    packed = parse_packed(key.position, value)
    columns = packed.columns()
    runs = [columns.run(index) for index in range(len(columns.positions))]
    if packed.is_coarse:
        again = pack_anchors(runs, packed.end_position, is_identical=packed.is_identical)
    else:
        again = pack_runs(runs, packed.end_position)
    if again != packed:
        raise WireError("ledger runs: they are not what their header says")
    return SegmentEntry(topic=key.topic, partition=key.partition, author=key.author, packed=packed)


def newer_version(key: bytes, value: bytes | None) -> int | None:
    """The version of a record of ours that only a newer Heliograph can read; None of others."""
    kind = key.partition(b"|")[0]
    if not value or kind not in _VERSIONED:
        return None
    if kind == b"run":
        return value[0] if value[0] > COARSE_VERSION else None
    try:
        version = json.loads(value)["v"]
    except (ValueError, RecursionError, KeyError, TypeError):
        return None
    return version if isinstance(version, int) and version > VERSION else None


def encode_key(key: EntryKey) -> bytes:
    match key:
        case FlowKey():
            parts: tuple[str | int, ...] = ("flow", key.producer_id)
        case LeaseKey():
            parts = ("lease", key.author)
        case HeadKey():
            parts = ("head", key.topic, key.partition)
        case RunsKey():
            parts = ("run", key.topic, key.partition, key.position, key.author)
        case LossKey():
            parts = ("loss", key.topic, key.partition, key.position, key.lost_start)
        case StartKey():
            parts = ("start", key.topic, key.partition, key.position, key.author)
        case AclKey():
            parts = ("acl", *_acl_parts(key.binding))
        case MemoKey():
            parts = ("memo", quote(key.subject, safe=_TEXT_AS_IT_IS))
        case _:
            assert_never(key)
    encoded = "|".join(str(part) for part in parts).encode()
    try:
        decode_key(encoded)
    except WireError as exc:
        raise InvariantError(f"not fit for the ledger: {_shortened(key)}") from exc
    return encoded


def _shortened(what: Entry | EntryKey) -> str:
    text = str(what)
    return text if len(text) <= _SHOWN_MAX else f"{text[:_SHOWN_MAX]}… ({len(text):,} characters)"


def decode_key(key: bytes) -> EntryKey:
    try:
        parts = key.decode("ascii").split("|")
    except UnicodeDecodeError as exc:
        raise WireError("ledger key is not ASCII") from exc
    match parts:
        case ["flow", producer_id]:
            return FlowKey(producer_id=_number(producer_id))
        case ["lease", author] if _AUTHOR.fullmatch(author):
            return LeaseKey(author=author)
        case ["head", topic, partition]:
            return HeadKey(topic=_topic(topic), partition=_number(partition, PARTITION_MAX))
        case ["run", topic, partition, position, author] if _AUTHOR.fullmatch(author):
            return RunsKey(
                topic=_topic(topic),
                partition=_number(partition, PARTITION_MAX),
                position=_number(position),
                author=author,
            )
        case ["loss", topic, partition, position, lost_start]:
            return LossKey(
                topic=_topic(topic),
                partition=_number(partition, PARTITION_MAX),
                position=_number(position),
                lost_start=_number(lost_start),
            )
        case ["start", topic, partition, position, author] if _AUTHOR.fullmatch(author):
            return StartKey(
                topic=_topic(topic),
                partition=_number(partition, PARTITION_MAX),
                position=_number(position),
                author=author,
            )
        case ["acl", pattern, name, principal, host, operation, permission]:
            return AclKey(
                binding=AclBinding(
                    pattern=_one_of(AclPattern, pattern),
                    name=_text(name),
                    principal=_text(principal),
                    host=_text(host),
                    operation=_one_of(AclOperation, operation),
                    permission=_one_of(AclPermission, permission),
                )
            )
        case ["memo", subject]:
            return MemoKey(subject=_text(subject))
    raise WireError(f"ledger key of no known kind: {key[:80]!r}")


def _topic(text: str) -> TopicName:
    if _TOPIC.fullmatch(text) is None:
        raise WireError(f"ledger key: not a topic name: {text[:80]!r}")
    return TopicName(text)


def _number(text: str, most: int = OFFSET_MAX) -> int:
    # One spelling per number: two keys for one thing would survive compaction side by side.
    if _NUMBER.fullmatch(text) is None or int(text) > most:
        raise WireError(f"ledger key: not a number up to {most}: {text[:80]!r}")
    return int(text)


def _acl_parts(binding: AclBinding) -> tuple[str, ...]:
    """Names and principals may hold anything, a bar or an umlaut too; keys are ASCII."""
    return (
        binding.pattern.value,
        quote(binding.name, safe=_TEXT_AS_IT_IS),
        quote(binding.principal, safe=_TEXT_AS_IT_IS),
        quote(binding.host, safe=_TEXT_AS_IT_IS),
        binding.operation.value,
        binding.permission.value,
    )


def _text(escaped: str) -> str:
    raw = unquote_to_bytes(escaped)
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as exc:
        raise WireError(f"ledger key: not UTF-8: {escaped[:80]!r}") from exc
    # One spelling per text, as for numbers.
    if not 0 < len(raw) <= _TEXT_BYTES_MAX or quote(text, safe=_TEXT_AS_IT_IS) != escaped:
        raise WireError(f"ledger key: not a text: {escaped[:80]!r}")
    return text


def _one_of(kind: type[Word], text: str) -> Word:
    try:
        return kind(text)
    except ValueError as exc:
        raise WireError(f"ledger key: not a {kind.__name__}: {text[:80]!r}") from exc


def _decode_flow(key: FlowKey, value: bytes) -> FlowEntry:
    fields = _FLOW.read(value)
    flow = FlowId(source=fields.pop("source"), target=fields.pop("target"))
    return FlowEntry(flow=flow, producer_id=key.producer_id, **fields)


def _decode_loss(key: LossKey, value: bytes) -> LossEntry:
    fields = _LOSS.read(value)
    lost_end = fields.pop("lost_end")
    if lost_end < key.lost_start:
        raise WireError(f"ledger loss ends at {lost_end}, before it starts at {key.lost_start}")
    return LossEntry(
        topic=key.topic,
        partition=key.partition,
        position=key.position,
        lost=OffsetRange(start=key.lost_start, end=lost_end),
        **fields,
    )


def _memo_text(value: bytes) -> str:
    if len(value) > MEMO_BYTES_MAX:
        raise WireError(f"ledger memo of {len(value)} bytes, more than {MEMO_BYTES_MAX}")
    try:
        text = value.decode("utf-8")
        parsed = json.loads(text)
    except (ValueError, RecursionError) as exc:
        raise WireError("ledger memo is not JSON") from exc
    if not isinstance(parsed, dict):
        raise WireError("ledger memo is not a JSON object")
    return text


def first_problem(exc: ValidationError) -> str:
    """Which field is wrong, and how."""
    problem = exc.errors(include_input=False, include_url=False, include_context=False)[0]
    field = ".".join(str(step) for step in problem["loc"])
    return f"{field}: {problem['msg']}" if field else problem["msg"]
