"""Which subjects are copied, in which order, and what the ledger keeps of their ids."""

from __future__ import annotations

from heliograph.config.registry import SchemasConfig
from heliograph.ledger.view import LedgerView
from heliograph.registry.schema import Reference, Registered, Schema
from heliograph.schemas.copying import Importing
from heliograph.schemas.note import (
    importing_entry,
    importing_of,
    schema_ids_entries,
    schema_ids_of,
)
from heliograph.schemas.plan import in_order, is_wanted


def at(subject: str, *references: str) -> Registered:
    refers = tuple(Reference(name=each, subject=each, version=1) for each in references)
    return Registered(subject=subject, version=1, id=1, schema=Schema(text="", references=refers))


def test_exclusion_is_stronger_and_patterns_match_whole_names() -> None:
    config = SchemasConfig(include=("orders.*",), exclude=(".*-key",))

    assert is_wanted(config, "orders-value")
    assert not is_wanted(config, "orders-key")
    assert not is_wanted(config, "my-orders-value")


def test_what_is_referred_to_comes_first_and_a_ring_ends() -> None:
    wanted = {"a": [at("a", "c")], "b": [at("b")], "c": [at("c", "b")], "x": [at("x", "y")]}
    ring = {**wanted, "y": [at("y", "x")]}

    assert list(in_order(wanted)) == ["b", "c", "a", "y", "x"]
    assert sorted(in_order(ring)) == ["a", "b", "c", "x", "y"]


def test_ids_are_kept_in_notes_of_a_thousand_and_never_forgotten() -> None:
    view = LedgerView()
    first = {1: 10, 999: 11, 1_000: 12, 70_001: 13}

    for entry in schema_ids_entries({}, first):
        view.apply(entry)
    for entry in schema_ids_entries(first, {1: 20}):
        view.apply(entry)

    assert sorted(view.memos) == ["schema-ids/0", "schema-ids/1", "schema-ids/70"]
    assert schema_ids_of(view) == {**first, 1: 20}
    assert schema_ids_entries(first, {1: 10}) == []


def test_a_mode_that_is_to_be_put_back_is_remembered() -> None:
    view = LedgerView()
    held = (Importing(subject="a-value", mode=None, at_ms=5),)

    view.apply(importing_entry(held))  # type: ignore[arg-type]

    assert importing_of(view) == held
