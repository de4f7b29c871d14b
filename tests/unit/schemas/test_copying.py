"""Subjects copied whole or not at all, between two registries behind real HTTP."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from heliograph.config.registry import SchemasConfig
from heliograph.errors import RegistryDown
from heliograph.registry.client import Registry
from heliograph.registry.pairing import subject_names
from heliograph.schemas.copying import Importing, SchemaCopier, SchemasCopied
from tests.kit.small_registry import SmallRegistry, small_registry

Pair = tuple[SmallRegistry, SmallRegistry]


@pytest.fixture
def pair() -> Iterator[Pair]:
    with small_registry() as source, small_registry(first_id=100) as target:
        yield source, target


def copier(pair: Pair, **settings: object) -> SchemaCopier:
    config = SchemasConfig.model_validate({"enabled": True, **settings})
    source, target = (Registry(alias, held.config) for alias, held in zip("AB", pair, strict=True))
    return SchemaCopier(config, source, target, subject_names(config.rename, lambda t: f"A.{t}"))


def copied(pair: Pair, **settings: object) -> SchemasCopied:
    made = copier(pair, **settings)
    return made.copy(made.look(), lambda _: None)


def test_subjects_versions_and_levels_are_copied_and_then_nothing_is_left(pair: Pair) -> None:
    source, target = pair
    for text in ('"a1"', '"a2"'):
        source.put("a-value", text)
    source.put("b-value", '"b1"', schemaType="PROTOBUF")
    source.levels["a-value"] = "FULL"

    made = copier(pair)
    first = made.copy(made.look(), lambda _: None)
    asked = len(target.writes)
    plan = made.look()
    second = made.copy(plan, lambda _: None)

    assert [str(each) for each in first.registered] == [
        "a-value version 1",
        "a-value version 2",
        "b-value version 1",
    ]
    assert target.ids_of("a-value") == {1: 100, 2: 101}
    assert target.subjects["b-value"][1]["schemaType"] == "PROTOBUF"
    assert target.levels == {"a-value": "FULL"}
    assert plan.ids == {1: 100, 2: 101, 3: 102}
    assert second == SchemasCopied()
    assert len([each for each in target.writes[asked:] if each.endswith("/versions")]) == 0


def test_what_is_referred_to_comes_first_and_is_copied_along(pair: Pair) -> None:
    source, target = pair
    for text in ('"m1"', '"m2"'):
        source.put("zz-money", text)
    refers = [{"name": "Money", "subject": "zz-money", "version": 2}]
    source.put("orders-value", '"order"', references=refers)

    done = copied(pair, include=("orders-.*",))

    assert [str(each) for each in done.registered] == [
        "zz-money version 2",
        "orders-value version 1",
    ]
    assert target.subjects["orders-value"][1]["references"] == [
        {"name": "Money", "subject": "zz-money", "version": 1}
    ]


def test_subjects_are_chosen_renamed_and_of_versions_the_last_may_do(pair: Pair) -> None:
    source, target = pair
    for subject in ("orders-value", "payments-value", "secret-value"):
        source.put(subject, f'"{subject} 1"')
        source.put(subject, f'"{subject} 2"')

    copied(pair, exclude=("secret.*",), rename="topics", versions="latest")

    assert {name: list(held) for name, held in target.subjects.items()} == {
        "A.orders-value": [1],
        "A.payments-value": [1],
    }


def test_ids_are_kept_by_import_and_the_mode_is_put_back(pair: Pair) -> None:
    source, target = pair
    source.first_id = 57
    for text in ('"a1"', '"a2"'):
        source.put("a-value", text)
    noted: list[tuple[Importing, ...]] = []
    made = copier(pair, ids="keep")

    made.copy(made.look(), noted.append)

    assert target.ids_of("a-value") == {1: 57, 2: 58}
    assert target.modes == {}
    assert [[each.subject for each in some] for some in noted] == [["a-value"], []]


def test_an_id_that_is_taken_keeps_its_subject_out_and_no_other(pair: Pair) -> None:
    source, target = pair
    source.first_id = target.first_id = 57
    source.put("a-value", '"a1"')
    source.put("b-value", '"b1"')
    refers = [{"name": "A", "subject": "a-value", "version": 1}]
    source.put("c-value", '"c1"', references=refers)
    target.put("other", '"other"')

    done = copied(pair, ids="keep")

    assert done.problems == (
        "a-value: id 57 of version 1 is another schema's in the schema registry of B",
        "c-value: version 1 refers to a-value, which is not copied",
    )
    assert sorted(target.subjects) == ["b-value", "other"]
    assert target.modes == {}


def test_without_import_mode_nothing_is_registered_under_another_id(pair: Pair) -> None:
    """Some registries take the id that is asked for, and give another without a word."""
    source, target = pair
    target.has_modes = False
    source.put("a-value", '"a1"')

    done = copied(pair, ids="keep")

    assert done.problems == (
        "a-value: the schema registry of B has no import mode, so ids cannot be kept",
    )
    assert target.subjects == {}
    assert copied(pair).problems == ()


def test_a_version_that_is_not_compatible_keeps_its_subject_as_it_is(pair: Pair) -> None:
    source, target = pair
    target.put("a-value", '"a0"')
    target.levels["a-value"] = "BACKWARD"
    source.put("a-value", '"a1 breaking"')
    source.put("b-value", '"b1"')

    done = copied(pair)

    assert done.problems == (
        "a-value: version 1 is not compatible with what a-value has in the schema registry of B",
    )
    assert target.ids_of("a-value") == {1: 100}
    assert list(target.ids_of("b-value")) == [1]


def test_a_history_that_its_level_would_not_allow_today_is_copied_to_a_new_subject(
    pair: Pair,
) -> None:
    source, target = pair
    source.levels["a-value"] = "NONE"
    for text in ('"a1"', '"a2 breaking"'):
        source.put("a-value", text)
    source.levels["a-value"] = "FULL"

    done = copied(pair)

    assert done.problems == ()
    assert target.ids_of("a-value") == {1: 100, 2: 101}
    assert target.levels == {"a-value": "FULL"}


def test_a_target_that_only_reads_is_left_alone(pair: Pair) -> None:
    source, target = pair
    source.put("a-value", '"a1"')
    target.mode = "READONLY"

    done = copied(pair)

    assert done.problems == ("a-value: the schema registry of B is in mode READONLY",)
    assert [each for each in target.asked if not each.startswith(("GET", "POST /subjects/a"))] == []


def test_a_subject_that_the_source_cannot_show_keeps_no_other_from_being_copied(
    pair: Pair,
) -> None:
    source, target = pair
    source.put("a-value", '"a1"')
    source.put("b-value", '"b1"')
    source.hold = lambda method, path: (
        (404, b'{"error_code":40402,"message":"gone"}')
        if path.endswith("a-value/versions/1")
        else None
    )

    done = copied(pair)

    assert done.problems == ("a-value: schema registry of A: answers 404: gone",)
    assert list(target.subjects) == ["b-value"]


def test_a_registry_that_is_down_is_one_error(pair: Pair) -> None:
    source, target = pair
    source.put("a-value", '"a1"')
    target.hold = lambda *_: (503, b"")

    with pytest.raises(RegistryDown, match="schema registry of B: does not serve: answers 503"):
        copier(pair).look()


def test_what_was_lost_on_the_target_is_registered_again(pair: Pair) -> None:
    source, target = pair
    source.put("a-value", '"a1"')
    made = copier(pair)
    made.copy(made.look(), lambda _: None)
    target.drop("a-value")

    done = made.copy(made.look(), lambda _: None)

    assert [str(each) for each in done.registered] == ["a-value version 1"]
