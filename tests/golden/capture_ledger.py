"""Write `ledger-eeaabf2.json` with the code of that commit; see README.md. Not a test.

    PYTHONPATH=<a clone at eeaabf2>/src python tests/golden/capture_ledger.py TAP... > FILE

Modules are imported by name: most of them are called otherwise since.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import Any, Final

AUTHOR: Final = "6f1c0d5e8b7a4c3d9e2f10a1b2c3d4e5"
TOPIC_ID: Final = "0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0"
AT_MS: Final = 1_767_225_600_000
TEXT: Final = 'a "bar" | ü \N{SNOWMAN} \\ \x1f\x7f'
OFFSET_MAX: Final = 2**63 - 1
LANE: Final = {"topic": "orders", "partition": 3}


def main(taps: list[str]) -> None:
    codec = import_module("heliograph.ledger.entry_codec")
    made = [codec.encode(entry) for entry in entries()]
    tombstones = [(key, None) for key, _ in made]
    rows = [row(codec, *record) for record in (*made, *tombstones, *one_of_each(taps))]
    # One a line, so that a change shows in a diff.
    lines = "[\n" + ",\n".join(json.dumps(each) for each in rows) + "\n]"
    whole = json.dumps({"records": "ROWS", "procedures": procedures(taps)})
    sys.stdout.write(whole.replace('"ROWS"', lines) + "\n")


def row(codec: Any, key: bytes, value: bytes | None) -> dict[str, Any]:
    entry = codec.decode(key, value)
    is_binary = key.startswith(b"run|")
    return {
        "key": key.decode(),
        "value": None if value is None else value.hex() if is_binary else value.decode(),
        "decoded": None if entry is None else [type(entry).__name__, asdict(entry)],
    }


def entries() -> Iterator[Any]:
    """Every kind, with what may be left out both there and not, at both ends of its range."""
    kinds, acl = import_module("heliograph.ledger.entries"), import_module("heliograph.acl")
    model = import_module("heliograph.model")
    runs = import_module("heliograph.ledger.runs")
    for number, text in ((0, ""), (7000, TEXT), (OFFSET_MAX, "x" * 255)):
        yield kinds.FlowEntry(
            flow=model.FlowId(source=text, target=text),
            producer_id=number,
            producer_epoch=min(number, 2**15 - 1),
            source_cluster_id=text,
            created_ms=number,
        )
        yield kinds.LeaseEntry(
            author=AUTHOR, host=text, pid=number, at_ms=number, lease_ms=number, slot_count=number
        )
        for source_id, target_id in ((None, None), (TOPIC_ID, None), (TOPIC_ID, TOPIC_ID)):
            for adopted in (False, True):
                yield kinds.StartEntry(
                    **LANE,
                    position=number,
                    author=AUTHOR,
                    source_offset=number,
                    target_offset=number,
                    source_topic_id=source_id,
                    target_topic_id=target_id,
                    at_ms=number,
                    adopted=adopted,
                )
            for state in ("copying", kinds.ADOPTED, kinds.RELEASED, text):
                yield kinds.HeadEntry(
                    **LANE,
                    position=number,
                    source_next_offset=number,
                    source_end_offset=number,
                    target_next_offset=number,
                    source_topic_id=source_id,
                    target_topic_id=target_id,
                    at_ms=number,
                    state=state,
                    detail=text,
                )
    for reason in model.StallReason:
        lost = model.OffsetRange(start=5, end=9)
        yield kinds.LossEntry(**LANE, position=4, lost=lost, reason=reason, at_ms=AT_MS)
    for pattern in acl.AclPattern:
        for operation in acl.AclOperation:
            binding = acl.AclBinding(
                pattern=pattern,
                name=TEXT,
                principal="User:" + TEXT,
                host="*",
                operation=operation,
                permission=list(acl.AclPermission)[operation == "READ"],
            )
            yield kinds.AclEntry(binding=binding, at_ms=AT_MS)
    far = OFFSET_MAX - 100
    for end in (None, 60, OFFSET_MAX):
        for offsets in ([(0, 0, 0)], [(7, 9, 8), (11, 3, 40), (12, far, 41)]):
            yield kinds.RunsEntry(
                **LANE,
                author=AUTHOR,
                runs=tuple(
                    runs.Run(position=position, source_offset=source, target_offset=target)
                    for position, source, target in offsets
                ),
                end_position=end,
            )
    yield from memos()


def memos() -> Iterator[Any]:
    """What no test of a cluster had occasion to write."""
    fence, drill = (
        import_module("heliograph.services.fence"),
        import_module("heliograph.services.drill_memo"),
    )
    audit = import_module("heliograph.services.audit")
    findings, model = import_module("heliograph.audit.findings"), import_module("heliograph.model")
    yield fence.put_up(fence.Fence(at_ms=AT_MS, why=TEXT))
    yield drill.schedule_memo(drill.Schedule(every_s=60, set_ms=1, sample_records=1))
    yield drill.schedule_memo(
        drill.Schedule(
            every_s=604_800,
            set_ms=AT_MS,
            sample_records=500,
            group="b.*|ü",
            rpo_s_max=5.0,
            rto_s_max=0.5,
        )
    )
    yield drill.last_memo(drill.LastDrill(at_ms=AT_MS, verdict="not done", reasons=()))
    yield drill.last_memo(
        drill.LastDrill(
            at_ms=AT_MS,
            verdict="fail",
            reasons=("x" * 900, TEXT),
            rpo_records=3,
            rpo_s=2.0,
            rto_s=1.25,
            groups=2,
            compared_records=100,
            repeated_records=1,
            lost_records=4,
            host="mirror-1",
        )
    )
    lane = model.TopicPartition(topic="orders", partition=3)
    some = model.OffsetRange(start=3, end=5)
    found = tuple(
        findings.Finding(kind=kind, source=source, target=target, records=2, note=note)
        for kind, source, target, note in zip(
            findings.FindingKind,
            (some, some, some, some, None),
            (None, some, some, some, some),
            ("", "value", TEXT, "", ""),
            strict=True,
        )
    )
    for is_over in (False, True):
        note = audit.LaneNote(position=9, at_ms=AT_MS, is_over=is_over, findings=found)
        yield audit.lane_memo(lane, note)
    yield audit.end_memo(at_ms=AT_MS, records=10, counts={found[0].kind: 2})
    yield audit.end_memo(at_ms=AT_MS, records=10, counts={})
    yield audit.repairs_memo(lane, ())
    yield audit.repairs_memo(lane, (some, model.OffsetRange(start=9, end=10)))


def one_of_each(taps: list[str]) -> list[tuple[bytes, bytes | None]]:
    """Of what was tapped, the first record of every kind, subject, step and set of fields."""
    first: dict[object, tuple[bytes, bytes | None]] = {}
    for key, value in tapped(taps):
        kind, _, rest = key.decode().partition("|")
        shape: list[object] = [kind, value is None]
        if kind == "memo":
            head, *tail = rest.split("/")
            is_part = len(tail) > 2
            shape += [head, tail[1:2], is_part, is_part and tail[2] == "begun"]
        if value is not None and kind != "run":
            fields = json.loads(value)
            facts, choices = fields.get("facts", {}), fields.get("choices", {})
            shape += [*fields, *facts, choices.get("mode"), choices.get("how")]
            shape += [fields.get("ended_ms") is None]
        first.setdefault(json.dumps(shape), (key, value))
    return list(first.values())


def procedures(taps: list[str]) -> list[dict[str, Any]]:
    """Half done: all that was recorded of the first of its kind that came past these steps."""
    wanted = (
        ("failover", "planned", "verify"),
        ("failover", "unplanned", "groups/1"),
        ("failback", "resync", "clear"),
        ("failback", "wipe", "begin"),
        ("failback", "none", "find"),
    )
    return [half_done(list(tapped(taps)), *each) for each in wanted]


def half_done(
    records: list[tuple[bytes, bytes | None]], kind: str, choice: str, last: str
) -> dict[str, Any]:
    for number, (key, value) in enumerate(records):
        if key != f"memo|{kind}".encode() or value is None:
            continue
        fields = json.loads(value)
        if choice not in fields["choices"].values() or fields["ended_ms"] is not None:
            continue
        prefix = f"memo|{kind}/{fields['id']}/"
        kept: list[tuple[bytes, bytes | None]] = [(key, value)]
        for then in records[number:]:
            if then[0].decode().startswith(prefix) and then[1] is not None:
                kept.append(then)
                if then[0].decode() == prefix + last:
                    return {"kind": kind, "until": last, "records": texts(kept)}
    raise SystemExit(f"no {choice} {kind} came to {last}")


def texts(records: list[tuple[bytes, bytes | None]]) -> list[list[str]]:
    return [[key.decode(), (value or b"").decode()] for key, value in records]


def tapped(taps: list[str]) -> Iterator[tuple[bytes, bytes | None]]:
    for tap in taps:
        for line in Path(tap).read_text().splitlines():
            key, value = json.loads(line)
            yield bytes.fromhex(key), None if value is None else bytes.fromhex(value)


if __name__ == "__main__":
    main(sys.argv[1:])
