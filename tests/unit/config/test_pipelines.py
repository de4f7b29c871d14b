"""`A->B.pipeline.NAME.…`: what is read, and what is said of what cannot be."""

from __future__ import annotations

import pytest

from heliograph.config.difference import difference
from tests.unit.config.texts import TWO_CLUSTERS, config_of, problems_of, with_lines

WHOLE = """\
A->B.pipeline.large.topics = orders.*, payments
A->B.pipeline.large.sql = SELECT key, value FROM records WHERE length(value) > 10
A->B.pipeline.large.folder = /shared/large/
A->B.pipeline.large.target.topic = large
"""


def test_a_pipeline_is_read_with_its_defaults() -> None:
    (pipeline,) = with_lines(WHOLE).flows[0].pipelines

    assert (pipeline.name, pipeline.topics) == ("large", ("orders.*", "payments"))
    assert pipeline.sql == "SELECT key, value FROM records WHERE length(value) > 10"
    assert pipeline.checkpoint_folder == "/shared/large/checkpoint"
    assert pipeline.staging_folder == "/shared/large/staged"
    assert pipeline.as_topic == "pipeline:large"


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        ("A->B.pipeline.p.topics = a", "A->B.pipeline.p.folder: missing; name the folder"),
        ("A->B.pipeline.p.folder = /f", "A->B.pipeline.p.topics: missing; name the topics"),
        ("A->B.pipeline.p.topics = a", "A->B.pipeline.p.function: missing; a pipeline has a"),
        ("A->B.pipeline.p.sqll = a", "unknown key; did you mean `A->B.pipeline.p.sql`?"),
        ("A->B.pipeline.a+b.sql = a", "a pipeline is named with letters, digits"),
        ("A->B.pipeline.p.folder = here", "is `here`, not an absolute path, nor a URI"),
        ("A->B.pipeline.p.function = os:nothing", "but `os` has no `nothing`"),
        ("A->B.pipeline.p.function = os:name", "not a function"),
        ("A->B.pipeline.p.function = os", "not `module:function`"),
        (WHOLE + "A->B.pipeline.large.function = os:getcwd", "one is enough"),
        (
            WHOLE + WHOLE.replace("A->B", "B->A").replace("large", "p") + "B->A.pipeline.p.x = 1",
            "unknown key",
        ),
    ],
)
def test_what_is_wrong_is_said(lines: str, problem: str) -> None:
    assert any(problem in each for each in problems_of(TWO_CLUSTERS + lines))


def test_two_pipelines_of_one_name_cannot_write_to_one_cluster() -> None:
    three = TWO_CLUSTERS.replace("A, B", "A, B, C") + "C.bootstrap.servers = c:1\n"

    found = problems_of(three + WHOLE + WHOLE.replace("A->B", "C->B"))

    assert [each for each in found if "`A->B` has a pipeline `large` too" in each]


def test_a_changed_pipeline_concerns_its_flow_and_acts_at_once() -> None:
    before = config_of(TWO_CLUSTERS + WHOLE)
    after = config_of(TWO_CLUSTERS + WHOLE + "A->B.pipeline.large.trigger.ms = 5\n")

    found = difference(before, after)

    assert found.words == ("A->B: pipeline.large.trigger.ms: 1000 -> 5",)
    assert found.concerned == {before.flows[0].id} and not found.refused
    assert difference(config_of(TWO_CLUSTERS), before).words == ("A->B: pipeline large: added",)
