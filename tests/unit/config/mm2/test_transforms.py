"""`transforms` and `predicates` of a file: what they become, what is refused with what instead."""

from __future__ import annotations

import inspect
import re

import pytest

from heliograph.config.mm2.transforms import _STRUCTS
from heliograph.config.transforms import PredicateConfig, TransformConfig
from heliograph.transform import fields
from tests.unit.config.texts import problems_of, with_lines

JAVA = "org.apache.kafka.connect.transforms."
FUNCTIONS = "tests.unit.transform.functions"
BEFORE = (
    "clusters = A, B\nA.bootstrap.servers = a:1\nB.bootstrap.servers = b:1\nA->B.enabled = true\n"
)


def transforms(*lines: str) -> tuple[TransformConfig, ...]:
    return with_lines("\n".join(lines) + "\n").flows[0].transforms


def problems(*lines: str) -> str:
    return "\n".join(problems_of(BEFORE + "\n".join(lines) + "\n"))


def test_a_file_of_mirrormaker_2_with_a_filter_loads_as_it_is() -> None:
    found = transforms(
        "A->B.transforms = tests, mark",
        f"A->B.transforms.tests.type = {JAVA}Filter",
        "A->B.transforms.tests.predicate = old",
        "A->B.transforms.tests.negate = true",
        f"A->B.transforms.mark.type = {JAVA}InsertHeader",
        "A->B.transforms.mark.header = by",
        "A->B.transforms.mark.value.literal = mirror",
        "A->B.predicates = old",
        f"A->B.predicates.old.type = {JAVA}predicates.TopicNameMatches",
        r"A->B.predicates.old.pattern = A\\.orders",
    )

    assert found == (
        TransformConfig(
            name="tests",
            kind="Filter",
            predicate=PredicateConfig(kind="TopicNameMatches", text=r"A\.orders", negate=True),
        ),
        TransformConfig(name="mark", kind="InsertHeader", headers=("by",), literal="mirror"),
    )


def test_a_python_function_is_on_columns_unless_told_and_for_all_topics() -> None:
    found = transforms(
        "A->B.transforms = a, b",
        f"A->B.transforms.a.type = {FUNCTIONS}:same",
        f"A->B.transforms.b.type = {FUNCTIONS}:marked",
        "A->B.transforms.b.on = record",
        "A->B.transforms.b.topics = orders.*, payments",
    )

    assert [(each.kind, each.topics) for each in found] == [
        ("columns", ()),
        ("record", ("orders.*", "payments")),
    ]


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        (["A->B.transforms = m"], "`m` has no type; set `A->B.transforms.m.type`"),
        (
            ["A->B.transforms = m", f"A->B.transforms.m.type = {JAVA}MaskField$Value"],
            "needs fields where a mirror has bytes, also in MirrorMaker 2; write a function on",
        ),
        (
            ["A->B.transforms = m", f"A->B.transforms.m.type = {JAVA}TimestampRouter"],
            "into topics by their times, so that no map could tell groups where they are",
        ),
        (
            ["A->B.transforms = m", "A->B.transforms.m.type = com.example.Own"],
            "a Java class that cannot run here; write a function on columns",
        ),
        (
            ["A->B.transforms = m", f"A->B.transforms.m.type = {FUNCTIONS}:absent"],
            "has no `absent`",
        ),
        (
            ["A->B.transforms = m", "A->B.transforms.m.type = no_such_module:f"],
            "whose module cannot be imported",
        ),
        (
            ["A->B.transforms = m", f"A->B.transforms.m.type = {JAVA}InsertHeader"],
            "InsertHeader needs `A->B.transforms.m.header`",
        ),
        (
            [
                "A->B.transforms = m",
                f"A->B.transforms.m.type = {JAVA}Filter",
                "A->B.transforms.m.fields = x",
            ],
            "A->B.transforms.m.fields: Filter has no such key",
        ),
        (
            [
                "A->B.transforms = m",
                f"A->B.transforms.m.type = {JAVA}Filter",
                "A->B.transforms.m.predicate = p",
            ],
            "not one of `predicates` (none)",
        ),
        (
            ["A->B.predicates = p", "A->B.predicates.p.type = com.example.Own"],
            "a Java class that cannot run here; write a function on columns, `type = "
            "module:function`, which may return a mask",
        ),
        (
            [f"A->B.transforms.m.type = {JAVA}Filter"],
            "belongs to no alias of `transforms` (none)",
        ),
    ],
)
def test_what_cannot_run_is_refused_with_what_to_write(lines: list[str], why: str) -> None:
    assert why in problems(*lines)


@pytest.mark.parametrize("name", sorted(_STRUCTS))
def test_each_class_of_connects_that_needs_fields_is_refused_with_what_does_it(name: str) -> None:
    """The helpers that are named are there, with the arguments that are named."""
    problem = problems("A->B.transforms = m", f"A->B.transforms.m.type = {JAVA}{name}$Value")

    assert "write a function on columns, `type = module:function`" in problem
    for helper, words in re.findall(r"(json_fields?)\(?([^)`]*)", problem):
        takes = inspect.signature(getattr(fields, helper)).parameters
        assert set(re.findall(r"(\w+)=", words)) <= set(takes)


def test_a_transform_that_changed_acts_at_once_and_is_told_by_its_alias() -> None:
    from heliograph.config.difference import difference
    from heliograph.config.keys import Effect

    def config(name: str) -> object:
        return with_lines(f"A->B.transforms = a\nA->B.transforms.a.type = {FUNCTIONS}:{name}\n")

    found = difference(config("same"), config("picky"))  # type: ignore[arg-type]

    assert [(each.what, each.effect) for each in found.changes] == [
        ("A->B: transform a: changed", Effect.AT_ONCE)
    ]


IDS = ("A.provenance.id = cluster-a-0000", "B.provenance.id = cluster-b-0000")


def test_headers_that_name_the_target_are_dropped_first_and_ours_is_written_last() -> None:
    found = transforms(
        *IDS,
        "A->B.provenance.drop = __replicator_id, ours",
        "A->B.provenance.write = ours",
        "A->B.transforms = own",
        f"A->B.transforms.own.type = {FUNCTIONS}:same",
    )

    first, own, last = found
    assert (first.kind, first.predicate) == (
        "Filter",
        PredicateConfig(
            kind="HeaderNames", text="cluster-b-0000", headers=("__replicator_id", "ours")
        ),
    )
    assert own.name == "own"
    assert (last.kind, last.headers, last.literal) == (
        "InsertHeader",
        ("ours",),
        "cluster-a-0000",
    )


def test_a_flow_that_says_nothing_of_provenance_opens_no_record() -> None:
    assert transforms(*IDS) == ()


@pytest.mark.parametrize(
    ("line", "needed"),
    [("A->B.provenance.drop = h", "B"), ("A->B.provenance.write = h", "A")],
)
def test_headers_need_the_id_of_the_cluster_they_name(line: str, needed: str) -> None:
    assert f"needs `{needed}.provenance.id`" in problems(line)


def test_an_id_so_short_that_it_would_be_found_by_chance_is_none() -> None:
    found = problems("B.provenance.id = B", "A->B.provenance.drop = h")

    assert "B.provenance.id" in found
    assert "8 letters or more" in found
    assert "needs" not in found
