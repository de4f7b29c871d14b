"""The ledger's bytes: what is refused, and that docs/reference/ledger.md says what is written."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest

from heliograph.acl import AclBinding, AclOperation, AclPattern, AclPermission
from heliograph.errors import InvariantError, WireError
from heliograph.ledger.entries import (
    RUNS_PER_ENTRY_MAX,
    AclEntry,
    Entry,
    FlowEntry,
    HeadEntry,
    LeaseEntry,
    LossEntry,
    MemoEntry,
    RunsEntry,
    SegmentEntry,
    StartEntry,
    ledger_topic,
    new_author,
    runs_entries,
)
from heliograph.ledger.entry_codec import MEMO_BYTES_MAX, decode, encode
from heliograph.ledger.packed_runs import pack_anchors, pack_runs
from heliograph.ledger.runs import OFFSET_MAX, Run
from heliograph.model import (
    ClusterAlias,
    FlowId,
    OffsetRange,
    StallReason,
    TopicId,
    TopicName,
)

DOC = Path(__file__).parents[3] / "docs" / "reference" / "ledger.md"
ORDERS = TopicName("orders")
FLOW = FlowEntry(
    flow=FlowId(source=ClusterAlias("A"), target=ClusterAlias("B")),
    producer_id=7000,
    producer_epoch=0,
    source_cluster_id="5L6g3nShT-eMCtK--X86sw",
    created_ms=1_767_225_600_000,
)
AUTHOR = "6f1c0d5e8b7a4c3d9e2f10a1b2c3d4e5"
LEASE = LeaseEntry(
    author=AUTHOR,
    host="mirror-1",
    pid=4711,
    at_ms=1_767_225_600_000,
    lease_ms=15_000,
    slot_count=4,
)
START = StartEntry(
    topic=ORDERS,
    partition=3,
    position=0,
    author=AUTHOR,
    source_offset=66,
    target_offset=0,
    source_topic_id=TopicId("0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0"),
    target_topic_id=None,
    at_ms=1_767_225_600_000,
)
HEAD = HeadEntry(
    topic=ORDERS,
    partition=3,
    position=1234,
    source_next_offset=1300,
    source_end_offset=1310,
    target_next_offset=1234,
    source_topic_id=TopicId("0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0"),
    target_topic_id=None,
    at_ms=1_767_225_600_000,
    state="stalled: corrupt batch",
    detail="offset 1300: wrong CRC",
    source_leader_epoch=0,
    begun_at=1280,
)
RUNS = RunsEntry(
    topic=ORDERS,
    partition=3,
    author=AUTHOR,
    end_position=1400,
    runs=(
        Run(position=1234, source_offset=1300, target_offset=1234),
        Run(position=1334, source_offset=1401, target_offset=1334),
        Run(position=1335, source_offset=1403, target_offset=1340),
        Run(position=1345, source_offset=0, target_offset=1350),
    ),
)
SEGMENT = SegmentEntry(
    topic=ORDERS,
    partition=3,
    author=AUTHOR,
    packed=pack_runs(RUNS.runs[:3], 1400),
)
ANCHORS = SegmentEntry(
    topic=ORDERS,
    partition=3,
    author=AUTHOR,
    packed=pack_anchors(RUNS.runs[:3], 1400, is_identical=False),
)
LOSS = LossEntry(
    topic=ORDERS,
    partition=3,
    position=1234,
    lost=OffsetRange(start=1300, end=1450),
    reason=StallReason.RETENTION_OVERRUN,
    at_ms=1_767_225_600_000,
)
ACL = AclEntry(
    binding=AclBinding(
        name="A.orders",
        pattern=AclPattern.PREFIXED,
        principal="User:CN=Jo Müller",
        host="*",
        operation=AclOperation.READ,
        permission=AclPermission.ALLOW,
    ),
    at_ms=1_767_225_600_000,
)
MEMO = MemoEntry(
    subject="failover/3f2a9c41d07b/stop producers", text='{"v":1,"name":"stop producers"}'
)
EXAMPLES: dict[str, Entry] = {
    "flow": FLOW,
    "lease": LEASE,
    "start": START,
    "head": HEAD,
    "run": RUNS,
    "segment": SEGMENT,
    "anchors": ANCHORS,
    "loss": LOSS,
    "acl": ACL,
    "memo": MEMO,
}


def test_every_kind_of_entry_has_an_example() -> None:
    assert {type(entry) for entry in EXAMPLES.values()} == set(get_args(Entry))


@pytest.mark.parametrize("kind", EXAMPLES)
def test_the_reference_shows_the_bytes_of_its_example_and_they_read_back(kind: str) -> None:
    key, value = documented_bytes(kind)

    assert encode(EXAMPLES[kind]) == (key, value)
    assert decode(key, value) == EXAMPLES[kind]


@pytest.mark.parametrize("kind", ["flow", "lease", "start", "head", "loss", "acl"])
def test_the_reference_lists_every_field_of_a_value_in_its_order(kind: str) -> None:
    _, value = encode(EXAMPLES[kind])

    assert documented_fields(kind) == list(json.loads(value))


def test_the_reference_names_the_topic_and_the_largest_entry() -> None:
    text = DOC.read_text()

    assert f"`{ledger_topic(ClusterAlias('<source>'))}`" in text
    assert f"{RUNS_PER_ENTRY_MAX:,} runs" in text
    assert f"{MEMO_BYTES_MAX:,} bytes" in text


def documented_bytes(kind: str) -> tuple[bytes, bytes]:
    """From the section's block of `key` and `value` lines; what follows two spaces is a remark."""
    block = re.search(r"```hex\n(.*?)```", section(kind), re.DOTALL)
    assert block is not None
    parts = {"key": b"", "value": b""}
    name = ""
    for line in block[1].splitlines():
        label, digits = line[:7].strip(), line[7:].split("  ")[0]
        name = label or name
        parts[name] += bytes.fromhex(digits)
    return parts["key"], parts["value"]


def documented_fields(kind: str) -> list[str]:
    return re.findall(r"^\| `(\w+)` \|", section(kind), re.MULTILINE)


def section(kind: str) -> str:
    return DOC.read_text().split(f"\n## `{kind}`", 1)[1].split("\n## ", 1)[0]


def test_the_ledger_is_named_after_the_source() -> None:
    assert ledger_topic(ClusterAlias("us-west")) == "heliograph-ledger.us-west.internal"


@pytest.mark.parametrize("entry", EXAMPLES.values(), ids=EXAMPLES)
def test_a_null_value_is_a_tombstone(entry: Entry) -> None:
    key, _ = encode(entry)

    assert decode(key, None) is None


@pytest.mark.parametrize(
    "key",
    [
        b"",
        b"head",
        b"head|orders",
        b"head|orders|3|4",
        b"head|or ders|3",
        b"head||3",
        b"head|" + b"x" * 250 + b"|3",
        b"head|orders|-1",
        b"head|orders|03",
        b"head|orders|2147483648",
        b"head|orders|3\n",
        b"head|orders|\xd9\xa3",
        b"lease",
        b"lease|me",
        b"run|orders|3|4",
        b"run|orders|3|9223372036854775808|" + AUTHOR.encode(),
        b"run|orders|3|" + b"9" * 5_000 + b"|" + AUTHOR.encode(),
        b"start|orders|3|0",
        b"start|orders|3|0|a b",
        b"start|orders|3|0|" + b"a" * 33,
        b"tail|orders|3",
        b"acl|PREFIXED|A.orders|User:jo|*|READ",
        b"acl|prefixed|A.orders|User:jo|*|READ|ALLOW",
        b"acl|MATCH|A.orders|User:jo|*|READ|ALLOW",
        b"acl|LITERAL|A.orders|User:jo|*|ANY|ALLOW",
        b"acl|LITERAL|A.orders|User:jo|*|READ|GRANT",
        b"acl|LITERAL||User:jo|*|READ|ALLOW",
        b"acl|LITERAL|A.orders|User:j o|*|READ|ALLOW",
        b"acl|LITERAL|A.orders|User%3Ajo|*|READ|ALLOW",
        b"acl|LITERAL|A.orders|User:%c3%bc|*|READ|ALLOW",
        b"acl|LITERAL|A.orders|User:%C3|*|READ|ALLOW",
        b"acl|LITERAL|A.orders|User:%|*|READ|ALLOW",
        b"acl|LITERAL|" + b"x" * 32_768 + b"|User:jo|*|READ|ALLOW",
        b"memo",
        b"memo|",
        b"memo|a|b",
        b"memo|stop producers",
        b"memo|" + b"x" * 32_768,
        b"\xff\xfe",
    ],
)
def test_a_key_that_is_none_of_ours_is_refused_even_for_a_tombstone(key: bytes) -> None:
    with pytest.raises(WireError):
        decode(key, None)


@pytest.mark.parametrize(
    "change",
    [
        {"v": 2},
        {"v": True},
        {"position": -1},
        {"position": 1.0},
        {"position": True},
        {"position": None},
        {"position": OFFSET_MAX + 1},
        {"source_topic_id": "short"},
        {"source_topic_id": 3},
        {"state": "x" * 256},
        {"detail": None},
        {"more": 1},
    ],
    ids=str,
)
def test_a_value_with_a_field_that_cannot_be_is_refused(change: dict[str, object]) -> None:
    key, value = encode(HEAD)

    with pytest.raises(WireError):
        decode(key, json.dumps(json.loads(value) | change).encode())


@pytest.mark.parametrize(
    "value",
    [b"", b"{", b"[]", b"1", b"\xff", b"{}", b"[" * 4_000, b" " * 5_000, b'{"v":' + b"9" * 4_000],
    ids=["empty", "cut", "list", "number", "no text", "no fields", "deep", "long", "digits"],
)
def test_a_value_that_is_not_our_json_is_refused(value: bytes) -> None:
    key, _ = encode(HEAD)

    with pytest.raises(WireError):
        decode(key, value)


def test_a_loss_that_ends_before_it_starts_or_has_no_known_reason_is_refused() -> None:
    key, value = encode(LOSS)

    for change in ({"lost_end": 1299}, {"reason": "boredom"}):
        with pytest.raises(WireError):
            decode(key, json.dumps(json.loads(value) | change).encode())


@pytest.mark.parametrize(
    "value",
    [
        "",
        "00",
        "02 00 00 00",
        "01",
        "01 00 00",
        "01 00 00 80",
        "01 00 00 00 02",
        "01 00 00 00 02 00",
        "01 00 01 00",
        "01 00 00 01",
        "01 00 80 00 00",
        "01 00 00 00 00 00 00",
        "01 00 00 00 01 00 00",
        "01 00 00 00 02 03 00",
        "01 00 00 00 02 00 01",
        "01 00 00 ff ff ff ff ff ff ff ff ff ff 01",
        "01 00 00 fe ff ff ff ff ff ff ff ff 7f",
        "01 00 fe ff ff ff ff ff ff ff ff 01 00 02 00 00",
        "01 01 00 00",
        "01 02 00 00 02 00 00",
        "01 fe ff ff ff ff ff ff ff ff 7f 00 00",
    ],
)
def test_runs_that_are_cut_or_cannot_be_are_refused(value: str) -> None:
    with pytest.raises(WireError):
        decode(f"run|orders|3|0|{AUTHOR}".encode(), bytes.fromhex(value))


def test_a_position_that_leaves_63_bits_is_refused() -> None:
    with pytest.raises(WireError):
        decode(
            f"run|orders|3|{OFFSET_MAX}|{AUTHOR}".encode(), bytes.fromhex("01 00 00 00 02 00 00")
        )


def test_a_run_for_each_transaction_of_a_topic_takes_three_bytes() -> None:
    transactions = tuple(
        Run(position=at * 20, source_offset=at * 21, target_offset=at * 20) for at in range(1_000)
    )

    _, value = encode(replace(RUNS, runs=transactions, end_position=None))

    assert len(value) == 1 + 3 * len(transactions)


@pytest.mark.parametrize(
    "entry",
    [
        replace(START, author=""),
        replace(START, source_offset=-1),
        replace(HEAD, position=-1),
        replace(HEAD, topic=TopicName("a|b")),
        replace(HEAD, topic=TopicName("ä")),
        replace(HEAD, partition=-1),
        replace(FLOW, producer_id=-1),
        replace(FLOW, source_cluster_id="x" * 256),
        replace(LOSS, at_ms=-1),
        replace(RUNS, runs=()),
        replace(RUNS, runs=RUNS.runs[::-1]),
        replace(RUNS, author="me"),
        replace(RUNS, end_position=RUNS.runs[-1].position),
        replace(RUNS, end_position=OFFSET_MAX + 1),
        replace(LEASE, author=AUTHOR.upper()),
        replace(HEAD, detail="x" * 256),
        replace(ACL, at_ms=-1),
        replace(ACL, binding=replace(ACL.binding, principal="")),
        replace(ACL, binding=replace(ACL.binding, name="x" * 32_768)),
        replace(MEMO, subject=""),
        replace(MEMO, text=""),
        replace(MEMO, text="[]"),
        replace(MEMO, text='{"v":' + "1" * MEMO_BYTES_MAX + "}"),
    ],
    ids=lambda entry: type(entry).__name__,
)
def test_what_could_not_be_read_back_is_never_written(entry: Entry) -> None:
    with pytest.raises(InvariantError):
        encode(entry)


@pytest.mark.parametrize(
    "principal", ["User:a|b", "User:50%", "User:%7C", "User:\N{SNOWMAN}", "User:" + "ü" * 16_000]
)
def test_principals_may_hold_anything_a_broker_takes(principal: str) -> None:
    entry = replace(ACL, binding=replace(ACL.binding, principal=principal))

    key, value = encode(entry)

    assert key.isascii()
    assert key.count(b"|") == 6
    assert decode(key, value) == entry


@pytest.mark.parametrize(
    "value",
    [b"", b"{", b"[]", b"1", b"null", b"\xff", b"[" * 100_000, b" " * (MEMO_BYTES_MAX + 1)],
    ids=["empty", "cut", "list", "number", "null", "no text", "deep", "long"],
)
def test_a_memo_that_is_no_json_object_of_reasonable_size_is_refused(value: bytes) -> None:
    key, _ = encode(MEMO)

    with pytest.raises(WireError):
        decode(key, value)


def test_many_runs_are_split_into_entries_that_a_broker_takes() -> None:
    count = 2 * RUNS_PER_ENTRY_MAX + 1
    runs = [
        Run(position=at * 2**40, source_offset=at * 2**46, target_offset=at * 2**45)
        for at in range(count)
    ]

    entries = runs_entries(ORDERS, 3, runs, author=AUTHOR, end_position=OFFSET_MAX)

    assert [len(entry.runs) for entry in entries] == [RUNS_PER_ENTRY_MAX, RUNS_PER_ENTRY_MAX, 1]
    assert [run for entry in entries for run in entry.runs] == runs
    ends = [entry.end_position for entry in entries]
    assert ends == [entry.runs[0].position for entry in entries[1:]] + [OFFSET_MAX]
    assert max(len(encode(entry)[1]) for entry in entries) < 500_000
    assert runs_entries(ORDERS, 3, [], author=AUTHOR, end_position=None) == []


def test_runs_without_end_are_split_into_entries_without_end() -> None:
    count = RUNS_PER_ENTRY_MAX + 1
    runs = [Run(position=at, source_offset=2 * at, target_offset=at) for at in range(count)]

    entries = runs_entries(ORDERS, 3, runs, author=AUTHOR, end_position=None)

    assert [entry.end_position for entry in entries] == [None, None]


def test_each_author_is_another() -> None:
    first, second = new_author(), new_author()

    assert first != second
    assert decode(*encode(replace(LEASE, author=first))) == replace(LEASE, author=first)


def test_a_start_says_that_it_was_adopted_only_where_it_was() -> None:
    key, plain = encode(START)

    _, value = encode(replace(START, adopted=True))

    assert b"adopted" not in plain
    assert value == plain[:-1] + b',"adopted":true}'
    assert decode(key, value) == replace(START, adopted=True)


@pytest.mark.parametrize("flag", [b"false", b"1", b"null"])
def test_a_flag_in_another_spelling_is_refused(flag: bytes) -> None:
    key, plain = encode(START)

    with pytest.raises(WireError):
        decode(key, plain[:-1] + b',"adopted":' + flag + b"}")
