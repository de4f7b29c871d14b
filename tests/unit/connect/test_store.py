"""Connectors as records of Connect's own topic."""

from __future__ import annotations

from dataclasses import replace

from heliograph.broker.records import Record
from heliograph.connect.model import Connector, TargetState
from heliograph.connect.store import Kept, records_of, tombstones_of

A = Connector(name="a", config={"name": "a", "tasks.max": "1"})


def kept(*records: Record) -> Kept:
    found = Kept()
    for record in records:
        found.apply(record.key, record.value)
    return found


def test_a_connector_is_written_as_connect_writes_it() -> None:
    (record,) = records_of(A, None)

    assert record.key == b"connector-a"
    assert record.value == b'{"properties":{"name":"a","tasks.max":"1"}}'


def test_stopped_is_paused_to_workers_that_know_no_stopped() -> None:
    (record,) = records_of(replace(A, target_state=TargetState.STOPPED), A)

    assert record.key == b"target-state-a"
    assert record.value == b'{"state":"PAUSED","state.v2":"STOPPED"}'


def test_what_was_written_is_read_back() -> None:
    stopped = replace(A, target_state=TargetState.STOPPED)

    found = kept(*records_of(stopped, None))

    assert found.connectors == (stopped,)


def test_a_deleted_connector_is_gone_with_what_was_wanted_of_it() -> None:
    stopped = replace(A, target_state=TargetState.STOPPED)

    found = kept(*records_of(stopped, None), *tombstones_of(A), *records_of(A, None))

    assert found.connectors == (A,)


def test_connects_other_records_and_garbage_change_nothing() -> None:
    found = kept(*records_of(A, None))

    for key, value in (
        (b"task-a-0", b'{"properties":{}}'),
        (b"commit-a", b'{"tasks":1}'),
        (b"session-key", b"{}"),
        (b"target-state-a", b'{"state":"ASLEEP"}'),
        (b"target-state-a", b"[]"),
        (b"connector-b", b"not json"),
        (b"connector-b", b'{"properties":[]}'),
        (b"connector-b", b"[" * 100_000),
        (b"\xff", b"x"),
        (None, None),
    ):
        found.apply(key, value)

    assert found.connectors == (A,)


def test_an_old_worker_wrote_one_field() -> None:
    found = kept(*records_of(A, None), Record(key=b"target-state-a", value=b'{"state":"PAUSED"}'))

    assert found.connectors[0].target_state is TargetState.PAUSED
