"""What a changed file means for a mirror that runs."""

from __future__ import annotations

import pytest

from heliograph.config.difference import Difference, difference
from heliograph.config.keys import Effect
from heliograph.config.mm2.keys import API_KEYS, ENGINE_KEYS, FLOW_KEYS
from heliograph.config.schema import MirrorConfig
from heliograph.model import ClusterAlias, FlowId
from tests.unit.config.texts import TWO_CLUSTERS, config_of, with_lines

AB = FlowId(source=ClusterAlias("A"), target=ClusterAlias("B"))
BA = FlowId(source=ClusterAlias("B"), target=ClusterAlias("A"))
THREE = (
    "clusters = A, B, C\nA.bootstrap.servers = a:1\nB.bootstrap.servers = b:1\n"
    "C.bootstrap.servers = c:1\nA->B.enabled = true\nA->C.enabled = true\n"
    "emit.heartbeats.enabled = false\n"
)
SCRAM = (
    "security.protocol = SASL_PLAINTEXT\nsasl.mechanism = SCRAM-SHA-512\n"
    "sasl.jaas.config = org.apache.kafka.common.security.scram.ScramLoginModule required "
    'username="u" password="%s";\n'
)


def after_lines(lines: str, *, before: str = "") -> Difference:
    quiet = "emit.heartbeats.enabled = false\n"
    return difference(with_lines(quiet + before), with_lines(quiet + lines))


def effects(found: Difference) -> set[Effect]:
    return {each.effect for each in found.changes}


def test_the_same_again_changes_nothing() -> None:
    found = after_lines("A->B.topics = a\n", before="A->B.topics = a\n")

    assert found == Difference(
        changes=(), begun=(), ended=(), concerned=frozenset(), reconnected=(), refused=()
    )


def test_other_topics_plan_their_flow_anew_and_no_other() -> None:
    before, after = (config_of(THREE + f"A->B.topics = {topics}\n") for topics in ("a", "a, b.*"))

    found = difference(before, after)

    assert found.words == ("A->B: topics: a -> a, b.*",)
    assert effects(found) == {Effect.REPLANS}
    assert (found.concerned, found.refused) == (frozenset({AB}), ())
    assert (found.begun, found.ended, found.reconnected) == ((), (), ())


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ("A->B.throttle.bytes.per.second = 5\n", "A->B: throttle.bytes.per.second: unset -> 5"),
        ("A->B.tasks.max = 2\n", "A->B: tasks.max: unset -> 2"),
        ("A->B.on.retention.overrun = skip\n", "A->B: on.retention.overrun: stall -> skip"),
        ("A->B.sync.topic.acls.enabled = false\n", "A->B: sync.topic.acls.enabled: true -> false"),
        ("slots = 3\n", "slots: unset -> 3"),
        ("A->B.failover.webhook.token = abcdefgh\n", "A->B: failover.webhook.token: changed"),
    ],
)
def test_keys_that_act_at_once(lines: str, words: str) -> None:
    found = after_lines(lines)

    assert found.words == (words,)
    assert effects(found) == {Effect.AT_ONCE}
    assert found.refused == ()


def test_limits_of_a_flow_s_consumer_are_named_without_their_values() -> None:
    found = after_lines("A->B.consumer.fetch.max.bytes = 5000000\n")

    assert found.words == ("A->B: consumer: fetch.max.bytes: changed",)
    assert found.concerned == {AB}


def test_flows_begin_and_end() -> None:
    text = TWO_CLUSTERS + "emit.heartbeats.enabled = false\n"
    one_way, other_way = config_of(text), config_of(text.replace("A->B", "B->A"))

    found = difference(one_way, other_way)

    assert (found.begun, found.ended, found.concerned) == ((BA,), (AB,), frozenset({AB, BA}))
    assert found.words == ("B->A: mirroring begins", "A->B: mirroring ends")


def test_a_cluster_that_comes_brings_its_flow_and_touches_no_other() -> None:
    before = config_of(
        THREE.replace("A, B, C", "A, B")
        .replace("A->C.enabled = true\n", "")
        .replace("C.bootstrap.servers = c:1\n", "")
    )

    found = difference(before, config_of(THREE))

    assert found.concerned == {FlowId(source=ClusterAlias("A"), target=ClusterAlias("C"))}
    assert found.words == ("cluster C: added", "A->C: mirroring begins")
    assert found.refused == ()


def test_a_password_reconnects_its_cluster_and_is_not_shown() -> None:
    def with_password(text: str) -> MirrorConfig:
        return config_of(THREE + "".join(f"C.{line}\n" for line in (SCRAM % text).splitlines()))

    found = difference(with_password("old-word"), with_password("new-word"))

    assert found.reconnected == ("C",)
    assert found.words == ("C: security.sasl.password: changed",)
    assert effects(found) == {Effect.RECONNECTS}
    assert found.concerned == {FlowId(source=ClusterAlias("A"), target=ClusterAlias("C"))}


def test_the_password_of_one_client_reconnects_too() -> None:
    lines = [f"A.consumer.{line}\n" for line in (SCRAM % "p").splitlines()]

    found = after_lines("".join(lines))

    assert found.reconnected == ("A",)
    assert "A: consumer.security.sasl.password: changed" in found.words


def test_other_servers_are_shown() -> None:
    found = difference(config_of(TWO_CLUSTERS), config_of(TWO_CLUSTERS.replace("b1:", "b2:")))

    assert found.words == ("B: bootstrap.servers: b1:9092 -> b2:9092",)
    assert found.reconnected == ("B",)


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ("master = local[3]\n", "master: unset -> local[3]: needs a restart"),
        ("slots.cpus = 0.5\n", "slots.cpus: 0.25 -> 0.5: needs a restart"),
        ("link.host = h\n", "link.host: unset -> h: needs a restart"),
        ("spark.ui.enabled = true\n", "spark.ui.enabled: changed: needs a restart"),
        ("api.listen = 127.0.0.1:80\n", "api.listen: unset -> 127.0.0.1:80: needs a restart"),
    ],
)
def test_keys_that_need_a_restart_are_named(lines: str, words: str) -> None:
    assert after_lines(lines + "A->B.topics = x\n").refused == (words,)


def test_a_cluster_under_another_name_is_refused() -> None:
    renamed = TWO_CLUSTERS.replace("A.", "C.").replace("A->", "C->").replace("= A", "= C")

    (why,) = difference(config_of(TWO_CLUSTERS), config_of(renamed)).refused

    assert why.startswith("cluster A is called C: its flows would begin again")


def test_a_key_that_all_flows_share_is_one_line() -> None:
    found = difference(config_of(THREE), config_of(THREE + "refresh.topics.interval.seconds = 5\n"))

    assert found.words == ("A->B, A->C: refresh.topics.interval.seconds: 600 -> 5",)


def test_no_key_of_the_engine_or_the_server_acts_on_a_flow() -> None:
    """What plans a flow anew is told by its flow; theirs act at once or need a restart."""
    of_flows = {key.effect for key in FLOW_KEYS}
    of_others = {key.effect for key in (*ENGINE_KEYS, *API_KEYS)}

    assert Effect.RESTART not in of_flows
    assert of_others == {Effect.AT_ONCE, Effect.RESTART}
