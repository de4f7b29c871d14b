"""Ledger records that an earlier version wrote: today's code reads and writes the same bytes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final, cast

import pytest

from heliograph.audit.plan import (
    AuditEndNote,
    end_memo,
    lane_memo,
    note_of,
    repairs_memo,
    repairs_of,
)
from heliograph.failback import outputs as failback
from heliograph.failover import outputs as failover
from heliograph.ledger.drill_note import last_memo, last_of, schedule_memo, schedule_of
from heliograph.ledger.entries import Entry, MemoEntry, RunsEntry, Tombstone
from heliograph.ledger.entry_codec import decode, decode_key, encode, encode_key
from heliograph.ledger.fence import fence_entry, fence_of
from heliograph.ledger.memo import Memo
from heliograph.ledger.store import LedgerStore
from heliograph.ledger.view import LedgerView
from heliograph.model import ClusterAlias, FlowId, TopicName, TopicPartition
from heliograph.procedure.journal import Journal, NoOutput, PartKind, Procedure, StepKind
from heliograph.procedure.runner import Outcome, Step, resume_or_begin, run_steps

GOLDEN: Final = json.loads((Path(__file__).parent / "ledger-eeaabf2.json").read_text())
RECORDS: Final[list[dict[str, Any]]] = GOLDEN["records"]
FLOW: Final = FlowId(source=ClusterAlias("A"), target=ClusterAlias("B"))
KINDS: Final = ("flow", "lease", "start", "head", "run", "loss", "acl", "memo")

ADDED_SINCE: Final[dict[str, dict[str, Any]]] = {
    "HeadEntry": {"source_leader_epoch": None, "begun_at": None}
}
"""Fields that the version of the golden file did not have, as its records are read."""


def key_of(row: dict[str, Any]) -> bytes:
    return str(row["key"]).encode()


def value_of(row: dict[str, Any]) -> bytes | None:
    text = row["value"]
    if text is None:
        return None
    return bytes.fromhex(text) if key_of(row).startswith(b"run|") else str(text).encode()


def fields_of(entry: Entry) -> dict[str, Any]:
    fields = asdict(entry)
    if isinstance(entry, RunsEntry):
        fields["runs"] = [run._asdict() for run in entry.runs]
    return fields


def of_kind(kind: str) -> list[dict[str, Any]]:
    return [row for row in RECORDS if row["key"].startswith(f"{kind}|")]


@pytest.mark.parametrize("kind", KINDS)
def test_records_of_an_earlier_version_are_read_as_it_read_them(kind: str) -> None:
    for row in of_kind(kind):
        entry = decode(key_of(row), value_of(row))

        # Through JSON, as the file was: tuples are lists there and enums their values.
        found = None if entry is None else [type(entry).__name__, fields_of(entry)]
        expected = row["decoded"]
        if expected is not None:
            name, fields = expected
            expected = [name, {**fields, **ADDED_SINCE.get(name, {})}]
        assert json.loads(json.dumps(found)) == expected


@pytest.mark.parametrize("kind", KINDS)
def test_what_was_read_is_written_to_the_very_same_bytes(kind: str) -> None:
    for row in of_kind(kind):
        entry = decode(key_of(row), value_of(row))

        assert encode_key(decode_key(key_of(row))) == key_of(row)
        if entry is not None:
            assert encode(entry) == (key_of(row), value_of(row))


def test_the_golden_file_has_every_kind_with_and_without_what_may_be_left_out() -> None:
    fields = {kind: {row["value"] is None for row in of_kind(kind)} for kind in KINDS}
    starts = [row["decoded"][1] for row in of_kind("start") if row["decoded"]]

    assert fields == {kind: {False, True} for kind in KINDS}
    assert {(start["adopted"], start["source_topic_id"] is None) for start in starts} == {
        (adopted, is_unknown) for adopted in (False, True) for is_unknown in (False, True)
    }


def written_again(view: LedgerView, subject: str) -> MemoEntry | None:
    """What is read of a memo by the module that owns its subject, as that module writes it."""
    head, *rest = subject.split("/")
    if head == "fence":
        fence = fence_of(view)
        return None if fence is None else fence_entry(fence)
    if head == "drill":
        schedule = schedule_of(view)
        return None if schedule is None else schedule_memo(schedule)
    if head == "drill.last":
        last = last_of(view)
        return None if last is None else last_memo(last)
    if not rest:
        end = Memo[AuditEndNote](AuditEndNote).read(view, subject)
        if end is None:
            return None
        return end_memo(at_ms=end.at_ms, records=end.records, counts=end.findings)
    lane = TopicPartition(topic=TopicName(rest[0]), partition=int(rest[1]))
    if head == "audit.repaired":
        return repairs_memo(lane, repairs_of(view, lane))
    note = note_of(view, lane)
    return None if note is None else lane_memo(lane, note)


@pytest.mark.parametrize("owner", ["fence", "drill", "drill.last", "audit", "audit.repaired"])
def test_memos_of_an_earlier_version_are_read_and_written_to_the_same_bytes(owner: str) -> None:
    rows = [
        row
        for row in of_kind("memo")
        if row["key"].removeprefix("memo|").split("/")[0] == owner and row["value"] is not None
    ]

    assert len(rows) > 1
    for row in rows:
        view = LedgerView()
        view.apply_record(key_of(row), value_of(row))
        entry = written_again(view, row["key"].removeprefix("memo|"))

        assert entry is not None
        assert encode(entry) == (key_of(row), value_of(row))


STEPS: Final[dict[str, tuple[StepKind[Any], ...]]] = {
    "failover": (
        failover.CHECK,
        failover.STOP_PRODUCERS,
        failover.DRAIN,
        failover.VERIFY,
        failover.FENCE,
        failover.GROUPS,
        failover.SWITCH,
    ),
    "failback": (
        failback.CHECK,
        failback.FIND,
        failback.EXPORT,
        failback.CLEAR,
        failback.BEGIN,
        failback.GROUPS,
        failback.OPEN,
    ),
}
PARTS: Final[dict[str, PartKind[Any]]] = {
    "failover/groups": failover.GROUPS_PARTS,
    "failback/find": failback.FIND_PARTS,
}
PROCEDURES: Final[list[dict[str, Any]]] = GOLDEN["procedures"]


class Paper:
    """A ledger without a broker: what is written is folded and kept as bytes."""

    def __init__(self, records: Iterable[tuple[str, str]]) -> None:
        self.view = LedgerView()
        self.written: list[tuple[str, str | None]] = []
        for key, value in records:
            self.view.apply_record(key.encode(), value.encode())

    async def catch_up(self) -> None:
        """Everything is there already."""

    async def write_or_refuse(self, entries: Iterable[Entry | Tombstone]) -> None:
        for entry in entries:
            key, value = (
                (encode_key(entry.key), None) if isinstance(entry, Tombstone) else encode(entry)
            )
            self.written.append((key.decode(), None if value is None else value.decode()))
            self.view.apply_record(key, value)


def journal(paper: Paper, kind: str) -> Journal[Any]:
    store = cast(LedgerStore, paper)
    if kind == "failover":
        return Journal(store, "failover", failover.FailoverChoices)
    return Journal(store, "failback", failback.FailbackChoices)


def name_of(procedure: dict[str, Any]) -> str:
    return f"{procedure['kind']} up to {procedure['until']}"


@pytest.mark.parametrize("owner", STEPS)
def test_every_output_that_an_earlier_version_recorded_has_a_type_that_writes_the_same(
    owner: str,
) -> None:
    seen: set[str] = set()
    for row in of_kind("memo"):
        subject = row["key"].removeprefix("memo|").replace("%20", " ")
        head, *rest = subject.split("/")
        if head != owner or not rest or row["value"] is None:
            continue
        facts = json.loads(row["value"])["facts"]
        _, name, *part = rest
        typed: Any = PARTS[f"{head}/{name}"].part if part else kind_of(owner, name).output

        assert typed.dump(typed.load(subject, facts)) == facts
        seen.add(name)

    assert seen == {kind.name for kind in STEPS[owner]}


def kind_of(owner: str, name: str) -> StepKind[Any]:
    return next(kind for kind in STEPS[owner] if kind.name == name)


@pytest.mark.parametrize("golden", PROCEDURES, ids=name_of)
def test_what_a_procedure_of_an_earlier_version_recorded_is_read_and_written_the_same(
    golden: dict[str, Any],
) -> None:
    paper = Paper(golden["records"])
    book = journal(paper, golden["kind"])

    async def write_again() -> None:
        procedure = await book.read()
        assert procedure is not None
        assert not procedure.is_over
        await book._write_head(procedure)
        for done in procedure.done:
            kind = kind_of(golden["kind"], done.name)
            output = kind.output.dump(procedure.output(kind))
            await book.record_step(procedure, replace(done, outputs=output))
        for step, parts in PARTS.items():
            if step.startswith(golden["kind"]):
                for name, part in (await book.parts(procedure, parts)).items():
                    await book.record_part(procedure, parts, name, part)

    asyncio.run(write_again())

    assert sorted(paper.written) == sorted((key, value) for key, value in golden["records"])


@pytest.mark.parametrize("golden", PROCEDURES, ids=name_of)
def test_a_procedure_of_an_earlier_version_is_resumed_at_the_step_it_was_cut_off_at(
    golden: dict[str, Any],
) -> None:
    paper = Paper(golden["records"])
    book, kinds = journal(paper, golden["kind"]), STEPS[golden["kind"]]
    ran: list[str] = []

    def fake(kind: StepKind[Any]) -> Step[Any]:
        async def run(_: Procedure[Any]) -> Outcome[Any]:
            ran.append(kind.name)
            return Outcome(summary="", output=NoOutput())

        return Step(kind=replaced(kind), run=run)

    async def resume() -> Procedure[Any]:
        begun = await book.read()
        assert begun is not None
        paper.view.apply_record(b"memo|" + golden["kind"].encode(), elsewhere(golden))
        procedure = await resume_or_begin(book, FLOW, begun.choices)
        return await run_steps(book, procedure, [fake(kind) for kind in kinds], lambda _: None)

    procedure = asyncio.run(resume())

    recorded = {
        key.split("/")[2].replace("%20", " ")
        for key, _ in golden["records"][1:]
        if key.count("/") == 2
    }
    assert ran == [kind.name for kind in kinds if kind.name not in recorded]
    assert procedure.is_over


def replaced(kind: StepKind[Any]) -> StepKind[Any]:
    return StepKind(kind.name, NoOutput)


def elsewhere(golden: dict[str, Any]) -> bytes:
    """The head as another host wrote it: a pid of this one may be in use again."""
    head = json.loads(golden["records"][0][1])
    return json.dumps(head | {"host": "gone"}).encode()
