"""Ids of one registry as another has them, asked for beside the slot's loop."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from heliograph.errors import NotYetKnown
from heliograph.registry import asked
from heliograph.registry.client import Registry
from heliograph.registry.ids import IdMap
from heliograph.registry.pairing import Pairing, subject_names
from tests.kit.small_registry import SmallRegistry, small_registry

AVRO = '{"type":"string"}'


def id_map(source: SmallRegistry, target: SmallRegistry, rename: str = "{subject}") -> IdMap:
    names = subject_names(rename, lambda topic: f"A.{topic}")
    return IdMap(Pairing(Registry("A", source.config), Registry("B", target.config), names))


def settled(ask: Callable[[], int | None]) -> int | None:
    """The answer, once there is one."""
    due_s = time.monotonic() + 10
    while True:
        try:
            return ask()
        except NotYetKnown:
            assert time.monotonic() < due_s
            time.sleep(0.005)


def said(ask: Callable[[], int | None], part: str) -> NotYetKnown:
    due_s = time.monotonic() + 10
    while True:
        with pytest.raises(NotYetKnown) as caught:
            ask()
        if part in str(caught.value):
            return caught.value
        assert time.monotonic() < due_s, str(caught.value)
        time.sleep(0.005)


def test_nobody_waits_for_an_answer_and_it_is_asked_for_once() -> None:
    with small_registry() as source, small_registry(first_id=100) as target:
        number = source.put("orders-value", AVRO)
        target.put("orders-value", AVRO)
        held = id_map(source, target)

        with pytest.raises(NotYetKnown, match="asks the registries for schema id 1"):
            held.get(number)
        assert settled(lambda: held.get(number)) == 100
        asked = len(source.asked) + len(target.asked)
        assert held.get(number) == 100
        assert len(source.asked) + len(target.asked) == asked


def test_references_are_found_under_the_versions_that_the_target_has() -> None:
    with small_registry() as source, small_registry(first_id=100) as target:
        source.put("money", '"old"')
        source.put("money", '"new"')
        refers = {"references": [{"name": "Money", "subject": "money", "version": 2}]}
        number = source.put("orders-value", AVRO, **refers)
        target.put("money", '"new"')
        there = target.put(
            "A.orders-value",
            AVRO,
            references=[{"name": "Money", "subject": "money", "version": 1}],
        )

        assert settled(lambda: id_map_cached(source, target).get(number)) == there


_MAPS: dict[str, IdMap] = {}


def id_map_cached(source: SmallRegistry, target: SmallRegistry) -> IdMap:
    return _MAPS.setdefault(source.url, id_map(source, target, "topics"))


def test_an_id_that_the_source_does_not_know_is_unknown_for_a_while() -> None:
    with small_registry() as source, small_registry() as target:
        held = id_map(source, target)

        assert settled(lambda: held.get(77)) is None
        assert held.get(77) is None
        assert source.asked == ["GET /schemas/ids/77"]


def test_one_that_the_target_lacks_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asked, "AGAIN_S", 0.01)
    with small_registry() as source, small_registry(first_id=100) as target:
        number = source.put("orders-value", AVRO)
        held = id_map(source, target)

        said(lambda: held.get(number), "schema id 1 (orders-value version 1) is not in the schema")
        target.put("orders-value", AVRO)

        assert settled(lambda: held.get(number)) == 100


def test_a_registry_that_is_down_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asked, "AGAIN_S", 0.01)
    with small_registry() as source, small_registry(first_id=100) as target:
        number = source.put("orders-value", AVRO)
        target.put("orders-value", AVRO)
        target.hold = lambda *_: (503, b"")
        held = id_map(source, target)

        trouble = said(lambda: held.get(number), "schema registry of B: does not serve")
        assert trouble.waited_s > 0
        target.hold = None

        assert settled(lambda: held.get(number)) == 100


def test_subjects_of_topics_are_called_as_the_topics_are() -> None:
    names = subject_names("topics", lambda topic: f"A.{topic}")

    assert [names(each) for each in ("orders-value", ":.ctx:orders-key", "com.acme.Order")] == [
        "A.orders-value",
        ":.ctx:A.orders-key",
        "com.acme.Order",
    ]
    assert subject_names("x.{subject}", str)("a-value") == "x.a-value"
