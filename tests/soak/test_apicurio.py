"""Schemas between two real registries: open-source ones, which have no import mode."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from heliograph.config.registry import RegistryConfig, SchemasConfig
from heliograph.errors import NotYetKnown
from heliograph.registry.client import Registry
from heliograph.registry.ids import IdMap
from heliograph.registry.pairing import Pairing, subject_names
from heliograph.registry.schema import Reference, Schema
from heliograph.schemas.copying import SchemaCopier, SchemasCopied
from tests.kit.apicurio import apicurio

MONEY = '{"type":"record","name":"Money","fields":[{"name":"cents","type":"long"}]}'
RICHER = (
    '{"type":"record","name":"Money","fields":[{"name":"cents","type":"long"},'
    '{"name":"currency","type":"string","default":"EUR"}]}'
)
POORER = '{"type":"record","name":"Money","fields":[{"name":"euros","type":"int"}]}'
ORDER = '{"type":"record","name":"Order","fields":[{"name":"price","type":"Money"}]}'
PROTO = 'syntax = "proto3"; message Payment { int64 cents = 1; }'


@pytest.fixture(scope="module")
def registries(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Registry, Registry]]:
    folder = tmp_path_factory.mktemp("apicurio")
    with apicurio(folder / "a") as a, apicurio(folder / "b") as b:
        source, target = (
            Registry(alias, RegistryConfig(urls=(url,))) for alias, url in (("A", a), ("B", b))
        )
        yield source, target


def copied(registries: tuple[Registry, Registry], **settings: object) -> SchemasCopied:
    config = SchemasConfig.model_validate(settings)
    copier = SchemaCopier(config, *registries, subject_names(config.rename, str))
    return copier.copy(copier.look(), lambda _: None)


def test_schemas_go_from_one_real_registry_to_another(
    registries: tuple[Registry, Registry],
) -> None:
    source, target = registries
    target.register("their-value", Schema(text='{"type":"string"}'))
    source.set_compatibility("money", "BACKWARD")
    source.register("money", Schema(text=MONEY))
    source.register("money", Schema(text=RICHER))
    refers = (Reference(name="Money", subject="money", version=2),)
    order = source.register("orders-value", Schema(text=ORDER, references=refers))
    payment = source.register("payments-value", Schema(text=PROTO, kind="PROTOBUF"))

    kept = copied(registries, ids="keep")
    first = copied(registries)
    again = copied(registries)

    assert len(kept.problems) == 3
    assert "has no import mode, so ids cannot be kept" in kept.problems[0]
    assert (first.problems, len(first.registered)) == ((), 4)
    assert again == SchemasCopied()
    assert target.versions("money") == [1, 2]
    assert target.compatibility("money") == "BACKWARD"
    held = IdMap(Pairing(source, target, subject_names("{subject}", str)))
    for number, subject in ((order, "orders-value"), (payment, "payments-value")):
        there = target.version(subject, 1)
        assert _settled(held, number) == there.id != number
        assert there.schema.references == source.version(subject, 1).schema.references
    assert _settled(held, 987_654) is None


def test_what_a_real_registry_refuses_is_one_sentence(
    registries: tuple[Registry, Registry],
) -> None:
    source, target = registries
    for registry in registries:
        registry.register("cash-value", Schema(text=MONEY))
    for registry in registries:
        registry.set_compatibility("cash-value", "NONE")
    source.register("cash-value", Schema(text=POORER))
    target.register("cash-value", Schema(text=RICHER))
    for registry in registries:
        registry.set_compatibility("cash-value", "FULL")

    done = copied(registries, include=("cash-value",))

    assert done.problems == (
        "cash-value: version 2 is not compatible with what cash-value has in the schema registry "
        "of B",
    )
    assert target.versions("cash-value") == [1, 2]


def _settled(held: IdMap, number: int) -> int | None:
    due_s = time.monotonic() + 30
    while True:
        try:
            return held.get(number)
        except NotYetKnown:
            assert time.monotonic() < due_s
            time.sleep(0.02)
