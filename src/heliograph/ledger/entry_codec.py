"""The ledger's records as bytes; `entries` has what they say. Pure; runs anywhere."""

from __future__ import annotations

import json
import re
from enum import StrEnum
from typing import Final, TypeVar, assert_never
from urllib.parse import quote, unquote_to_bytes

from heliograph.acl import AclBinding, AclOperation, AclPattern, AclPermission
from heliograph.errors import InvariantError, WireError
from heliograph.ledger.entries import (
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
    StartEntry,
    StartKey,
    key_of,
)
from heliograph.ledger.json_value import Fields, to_json
from heliograph.ledger.runs import OFFSET_MAX
from heliograph.ledger.runs_codec import decode_runs, encode_runs
from heliograph.model import ClusterAlias, FlowId, OffsetRange, StallReason, TopicId, TopicName

PARTITION_MAX: Final = 2**31 - 1
PRODUCER_EPOCH_MAX: Final = 2**15 - 1
MEMO_BYTES_MAX: Final = 512 * 1024
"""Half of a broker's default record limit."""
_TOPIC: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_AUTHOR: Final = re.compile(r"[0-9a-f]{32}")
_NUMBER: Final = re.compile(r"0|[1-9][0-9]{0,18}")
_TEXT_BYTES_MAX: Final = 2**15 - 1
"""Longest string in Kafka's ACL requests, so every ACL a broker can have fits."""
_TEXT_AS_IT_IS: Final = ":*,=/@"
"""What texts in keys may hold unescaped, beside letters, digits and `_.-~`."""
_FLOW_FIELDS: Final = frozenset(
    {"source", "target", "producer_epoch", "source_cluster_id", "created_ms"}
)
_HEAD_FIELDS: Final = frozenset(
    {
        "position",
        "source_next_offset",
        "source_end_offset",
        "target_next_offset",
        "source_topic_id",
        "target_topic_id",
        "at_ms",
        "state",
        "detail",
    }
)
_START_FIELDS: Final = frozenset(
    {"source_offset", "target_offset", "source_topic_id", "target_topic_id", "at_ms"}
)
_START_FLAGS: Final = frozenset({"adopted"})
_LEASE_FIELDS: Final = frozenset({"host", "pid", "at_ms", "lease_ms", "slot_count"})
_LOSS_FIELDS: Final = frozenset({"lost_end", "reason", "at_ms"})
_ACL_FIELDS: Final = frozenset({"at_ms"})

Word = TypeVar("Word", bound=StrEnum)


def encode(entry: Entry) -> tuple[bytes, bytes]:
    """Key and value; `decode` gives back an equal entry. What it would refuse is never written."""
    key = encode_key(key_of(entry))
    match entry:
        case FlowEntry():
            value = _flow_value(entry)
        case LeaseEntry():
            value = _lease_value(entry)
        case HeadEntry():
            value = _head_value(entry)
        case RunsEntry():
            # Checked by its codec; reading thousands of runs back for each write would show.
            return key, encode_runs(entry.runs, entry.end_position)
        case LossEntry():
            value = _loss_value(entry)
        case StartEntry():
            value = _start_value(entry)
        case AclEntry():
            value = to_json({"at_ms": entry.at_ms})
        case MemoEntry():
            value = entry.text.encode()
        case _:
            assert_never(entry)
    try:
        decode(key, value)
    except WireError as exc:
        # A record nobody can read would stop every reader of the topic, for good.
        raise InvariantError(f"not fit for the ledger: {entry}") from exc
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
            return _decode_lease(parsed, value)
        case HeadKey():
            return _decode_head(parsed, value)
        case RunsKey():
            return decode_runs_entry(parsed, value)
        case LossKey():
            return _decode_loss(parsed, value)
        case StartKey():
            return _decode_start(parsed, value)
        case AclKey():
            at_ms = Fields(value, _ACL_FIELDS).number("at_ms")
            return AclEntry(binding=parsed.binding, at_ms=at_ms)
        case MemoKey():
            return MemoEntry(subject=parsed.subject, text=_memo_text(value))
        case _:
            assert_never(parsed)


def decode_runs_entry(key: RunsKey, value: bytes) -> RunsEntry:
    runs, end_position = decode_runs(key.position, value)
    return RunsEntry(
        topic=key.topic,
        partition=key.partition,
        author=key.author,
        runs=runs,
        end_position=end_position,
    )


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
        raise InvariantError(f"not fit for the ledger: {key}") from exc
    return encoded


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


def _flow_value(entry: FlowEntry) -> bytes:
    return to_json(
        {
            "source": entry.flow.source,
            "target": entry.flow.target,
            "producer_epoch": entry.producer_epoch,
            "source_cluster_id": entry.source_cluster_id,
            "created_ms": entry.created_ms,
        }
    )


def _decode_flow(key: FlowKey, value: bytes) -> FlowEntry:
    fields = Fields(value, _FLOW_FIELDS)
    return FlowEntry(
        flow=FlowId(
            source=ClusterAlias(fields.text("source")), target=ClusterAlias(fields.text("target"))
        ),
        producer_id=key.producer_id,
        producer_epoch=fields.number("producer_epoch", PRODUCER_EPOCH_MAX),
        source_cluster_id=fields.text("source_cluster_id"),
        created_ms=fields.number("created_ms"),
    )


def _lease_value(entry: LeaseEntry) -> bytes:
    return to_json(
        {
            "host": entry.host,
            "pid": entry.pid,
            "at_ms": entry.at_ms,
            "lease_ms": entry.lease_ms,
            "slot_count": entry.slot_count,
        }
    )


def _decode_lease(key: LeaseKey, value: bytes) -> LeaseEntry:
    fields = Fields(value, _LEASE_FIELDS)
    return LeaseEntry(
        author=key.author,
        host=fields.text("host"),
        pid=fields.number("pid"),
        at_ms=fields.number("at_ms"),
        lease_ms=fields.number("lease_ms"),
        slot_count=fields.number("slot_count"),
    )


def _head_value(entry: HeadEntry) -> bytes:
    return to_json(
        {
            "position": entry.position,
            "source_next_offset": entry.source_next_offset,
            "source_end_offset": entry.source_end_offset,
            "target_next_offset": entry.target_next_offset,
            "source_topic_id": entry.source_topic_id,
            "target_topic_id": entry.target_topic_id,
            "at_ms": entry.at_ms,
            "state": entry.state,
            "detail": entry.detail,
        }
    )


def _decode_head(key: HeadKey, value: bytes) -> HeadEntry:
    fields = Fields(value, _HEAD_FIELDS)
    return HeadEntry(
        topic=key.topic,
        partition=key.partition,
        position=fields.number("position"),
        source_next_offset=fields.number("source_next_offset"),
        source_end_offset=fields.number("source_end_offset"),
        target_next_offset=fields.number("target_next_offset"),
        source_topic_id=_topic_id(fields, "source_topic_id"),
        target_topic_id=_topic_id(fields, "target_topic_id"),
        at_ms=fields.number("at_ms"),
        state=fields.text("state"),
        detail=fields.text("detail"),
    )


def _topic_id(fields: Fields, name: str) -> TopicId | None:
    text = fields.topic_id(name)
    return None if text is None else TopicId(text)


def _loss_value(entry: LossEntry) -> bytes:
    return to_json({"lost_end": entry.lost.end, "reason": entry.reason.value, "at_ms": entry.at_ms})


def _decode_loss(key: LossKey, value: bytes) -> LossEntry:
    fields = Fields(value, _LOSS_FIELDS)
    lost_end = fields.number("lost_end")
    if lost_end < key.lost_start:
        raise WireError(f"ledger loss ends at {lost_end}, before it starts at {key.lost_start}")
    reason = fields.text("reason")
    if reason not in {known.value for known in StallReason}:
        raise WireError(f"ledger loss for no known reason: {reason[:80]!r}")
    return LossEntry(
        topic=key.topic,
        partition=key.partition,
        position=key.position,
        lost=OffsetRange(start=key.lost_start, end=lost_end),
        reason=StallReason(reason),
        at_ms=fields.number("at_ms"),
    )


def _start_value(entry: StartEntry) -> bytes:
    return to_json(
        {
            "source_offset": entry.source_offset,
            "target_offset": entry.target_offset,
            "source_topic_id": entry.source_topic_id,
            "target_topic_id": entry.target_topic_id,
            "at_ms": entry.at_ms,
        }
        | ({"adopted": True} if entry.adopted else {})
    )


def _decode_start(key: StartKey, value: bytes) -> StartEntry:
    fields = Fields(value, _START_FIELDS, flags=_START_FLAGS)
    return StartEntry(
        topic=key.topic,
        partition=key.partition,
        position=key.position,
        author=key.author,
        source_offset=fields.number("source_offset"),
        target_offset=fields.number("target_offset"),
        source_topic_id=_topic_id(fields, "source_topic_id"),
        target_topic_id=_topic_id(fields, "target_topic_id"),
        at_ms=fields.number("at_ms"),
        adopted=fields.flag("adopted"),
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
