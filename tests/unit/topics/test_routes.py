"""Topics that a `RegexRouter` renames, as the naming of a flow has them."""

from __future__ import annotations

from heliograph.model import TopicName
from heliograph.topics.naming import HEARTBEATS, canary_topic, naming_policy
from heliograph.topics.selection import Verdict, select_topics
from tests.unit.config.texts import problems_of, with_lines

JAVA = "org.apache.kafka.connect.transforms."
BARE = (
    "A->B.transforms = bare\n"
    f"A->B.transforms.bare.type = {JAVA}RegexRouter\n"
    r"A->B.transforms.bare.regex = A\\.(.*)" + "\n"
    "A->B.transforms.bare.replacement = $1\n"
)


def names(*lines: str, topics: tuple[str, ...]) -> list[str]:
    policy = naming_policy(with_lines(BARE + "".join(f"{line}\n" for line in lines)).flows[0])
    return [policy.target_topic(TopicName(topic)) for topic in topics]


def test_a_router_renames_what_the_policy_named() -> None:
    assert names(topics=("orders", "B.orders")) == ["orders", "B.orders"]


def test_the_mirrors_own_topics_keep_the_names_they_are_found_by() -> None:
    canaries = canary_topic("A")  # type: ignore[arg-type]

    assert names(topics=(HEARTBEATS, canaries)) == ["A.heartbeats", f"A.{canaries}"]


def test_topics_and_predicates_say_which_names_a_router_is_for() -> None:
    lines = (
        "A->B.transforms.bare.topics = o.*",
        "A->B.transforms.bare.predicate = old",
        "A->B.transforms.bare.negate = true",
        "A->B.predicates = old",
        f"A->B.predicates.old.type = {JAVA}predicates.TopicNameMatches",
        r"A->B.predicates.old.pattern = A\\.old.*",
    )

    assert names(*lines, topics=("orders", "old-orders", "payments")) == [
        "orders",
        "A.old-orders",
        "A.payments",
    ]


def test_two_topics_that_a_router_gives_one_name_are_a_clash_and_neither_is_mirrored() -> None:
    config = with_lines(BARE.replace("$1", "all") + "A->B.topics = o.*\n")

    decisions = select_topics(config.flows[0], [TopicName("o1"), TopicName("o2")]).decisions

    assert [each.verdict for each in decisions] == [Verdict.CLASH, Verdict.CLASH]


def test_a_name_that_no_topic_can_have_is_a_problem_of_that_topic() -> None:
    config = with_lines(BARE.replace("= $1", "=") + "A->B.topics = o.*\n")

    decisions = select_topics(config.flows[0], [TopicName("o1")]).decisions

    assert [each.verdict for each in decisions] == [Verdict.FAILED]


def test_a_router_cannot_go_by_records() -> None:
    text = (
        "clusters = A, B\nA.bootstrap.servers = a:1\nB.bootstrap.servers = b:1\n"
        "A->B.enabled = true\n" + BARE + "A->B.transforms.bare.predicate = p\n"
        f"A->B.predicates = p\nA->B.predicates.p.type = {JAVA}predicates.RecordIsTombstone\n"
    )

    assert "a topic is renamed as a whole" in "\n".join(problems_of(text))


def test_a_name_is_not_asked_for_before_the_router_that_changes_it() -> None:
    text = (
        "clusters = A, B\nA.bootstrap.servers = a:1\nB.bootstrap.servers = b:1\n"
        "A->B.enabled = true\n"
        + BARE.replace("= bare", "= drop, bare")
        + f"A->B.transforms.drop.type = {JAVA}Filter\nA->B.transforms.drop.predicate = p\n"
        f"A->B.predicates = p\nA->B.predicates.p.type = {JAVA}predicates.TopicNameMatches\n"
        "A->B.predicates.p.pattern = x\n"
    )

    assert "name the router first in `transforms`" in "\n".join(problems_of(text))
