"""A topology drawn from heartbeats that were seen, without any cluster."""

from __future__ import annotations

import io

from rich.console import Console

from heliograph.cli.output import EXIT_FAILED, EXIT_STALLED
from heliograph.cli.topology import as_document, as_graph, exit_code, rendered
from heliograph.compat.mirror_client import NewestHeartbeat
from heliograph.inspect.topology import ClusterSeen, FlowSeen, HeartbeatsSeen, Topology, draw
from heliograph.model import ClusterAlias, FlowId, TopicName
from tests.unit.config.texts import config_of

NOW_MS = 1_700_000_000_000
RING = """\
clusters = A, B, C
A.bootstrap.servers = a:9092
B.bootstrap.servers = b:9092
C.bootstrap.servers = c:9092
A->B.enabled = true
B->C.enabled = true
"""


def flow(text: str) -> FlowId:
    source, _, target = text.partition("->")
    return FlowId(source=ClusterAlias(source), target=ClusterAlias(target))


def beat(written_by: str, age_s: float, latency_s: float | None = None) -> NewestHeartbeat:
    emitted_ms = NOW_MS - int(age_s * 1000)
    received_ms = None if latency_s is None else emitted_ms + int(latency_s * 1000)
    return NewestHeartbeat(flow=flow(written_by), emitted_ms=emitted_ms, received_ms=received_ms)


def heartbeats(
    cluster: str, path: str, *beats: NewestHeartbeat, skipped: int = 0, problem: str = ""
) -> HeartbeatsSeen:
    aliases = tuple(map(ClusterAlias, path.split()))
    return HeartbeatsSeen(
        cluster=ClusterAlias(cluster),
        topic=TopicName(".".join([*aliases, "heartbeats"])),
        path=aliases,
        beats={each.flow: each for each in beats},
        skipped_records=skipped,
        problem=problem,
    )


def cluster(alias: str, *topics: HeartbeatsSeen, problem: str = "") -> ClusterSeen:
    return ClusterSeen(alias=ClusterAlias(alias), topics=topics, problem=problem)


def chain() -> Topology:
    """Heartbeats written to A come to B, and from there to C."""
    return draw(
        config_of(RING),
        [
            cluster("A", heartbeats("A", "", beat("B->A", 0.1))),
            cluster("B", heartbeats("B", "A", beat("B->A", 0.5, latency_s=0.02))),
            cluster(
                "C",
                heartbeats("C", "B", beat("A->B", 0.4)),
                heartbeats("C", "B A", beat("B->A", 2.0, latency_s=0.3)),
            ),
        ],
        NOW_MS,
    )


def found(topology: Topology, wanted: str) -> FlowSeen:
    (one,) = [seen for seen in topology.flows if str(seen.flow) == wanted]
    return one


def test_heartbeats_that_passed_two_flows_show_both() -> None:
    topology = chain()

    assert [str(seen.flow) for seen in topology.flows] == ["A->B", "B->C"]
    assert [seen.hops() for seen in topology.clusters] == [{}, {"A": 1}, {"A": 2, "B": 1}]
    assert not any(seen.problem for seen in topology.flows)
    assert exit_code(topology) == 0


def test_a_flow_is_judged_by_its_own_target_before_anybody_further_down() -> None:
    seen = found(chain(), "A->B")

    assert (seen.seen_on, seen.age_s, seen.latency_s) == ("B", 0.5, 0.02)


def test_the_newest_heartbeat_counts_and_latency_over_two_hops_is_not_that_of_one() -> None:
    topology = draw(
        config_of(RING),
        [
            cluster("A"),
            cluster("B"),
            cluster(
                "C",
                heartbeats("C", "B", beat("A->B", 9.0, latency_s=1.0)),
                heartbeats("C", "B A", beat("B->A", 2.0, latency_s=0.3)),
            ),
        ],
        NOW_MS,
    )

    seen = found(topology, "B->C")
    assert (seen.age_s, seen.latency_s) == (2.0, None)
    assert found(topology, "A->B").seen_on == "C"


def test_a_flow_tells_when_its_own_mirror_last_wrote() -> None:
    topology = draw(
        config_of(RING),
        [cluster("A"), cluster("B", heartbeats("B", "", beat("A->B", 7.0))), cluster("C")],
        NOW_MS,
    )

    assert found(topology, "A->B").written_age_s == 7.0
    assert found(topology, "B->C").written_age_s is None


def test_clocks_that_disagree_do_not_make_an_age_negative() -> None:
    topology = draw(
        config_of(RING),
        [cluster("A"), cluster("B", heartbeats("B", "A", beat("B->A", -3.0))), cluster("C")],
        NOW_MS,
    )

    assert found(topology, "A->B").age_s == 0.0


def test_clusters_and_flows_the_file_does_not_know_are_named() -> None:
    topology = draw(
        config_of(RING),
        [
            cluster("A", heartbeats("A", "", beat("Y->A", 1.0))),
            cluster("B", heartbeats("B", "A X", beat("Z->X", 1.0))),
            cluster("C"),
        ],
        NOW_MS,
    )

    assert topology.unknown == ("X", "Y")
    assert not found(topology, "X->A").in_file
    assert found(topology, "X->A").problem == ""


def test_a_flow_without_heartbeats_says_why() -> None:
    silent_source = draw(config_of(RING), [cluster("A"), cluster("B"), cluster("C")], NOW_MS)
    not_yet = draw(
        config_of(RING), [cluster("A", heartbeats("A", "")), cluster("B"), cluster("C")], NOW_MS
    )
    switched_off = draw(
        config_of(RING + "heartbeats.replication.enabled = false\n"),
        [cluster("A"), cluster("B"), cluster("C")],
        NOW_MS,
    )
    unwritten = draw(
        config_of(RING + "emit.heartbeats.enabled = false\n"),
        [cluster("A"), cluster("B"), cluster("C")],
        NOW_MS,
    )

    assert "A has no topic heartbeats" in found(silent_source, "A->B").problem
    assert found(not_yet, "A->B").problem == "no heartbeat of A was mirrored yet"
    assert "heartbeats.replication.enabled" in found(switched_off, "A->B").problem
    assert "emit.heartbeats.enabled" in found(unwritten, "A->B").problem
    assert exit_code(silent_source) == EXIT_STALLED


def test_heartbeats_that_stopped_coming_are_a_problem_after_a_minute_or_ten_intervals() -> None:
    def problem(age_s: float, settings: str = "") -> str:
        seen = [cluster("A"), cluster("B", heartbeats("B", "A", beat("C->A", age_s))), cluster("C")]
        return found(draw(config_of(RING + settings), seen, NOW_MS), "A->B").problem

    assert problem(59.0) == ""
    assert problem(61.0).startswith("silent")
    assert problem(299.0, "emit.heartbeats.interval.seconds = 30\n") == ""
    assert problem(301.0, "emit.heartbeats.interval.seconds = 30\n").startswith("silent")


def test_a_topic_that_holds_none_or_cannot_be_read_is_a_problem_of_its_flow() -> None:
    topology = draw(
        config_of(RING),
        [
            cluster("A"),
            cluster("B", heartbeats("B", "A", skipped=4)),
            cluster("C", heartbeats("C", "B", problem="cluster C: missing permission READ")),
        ],
        NOW_MS,
    )

    assert found(topology, "A->B").problem == "the heartbeats topic on B is empty"
    assert found(topology, "B->C").problem == "cluster C: missing permission READ"


def test_a_cluster_that_cannot_be_asked_is_told_and_its_flows_are_not_blamed() -> None:
    topology = draw(
        config_of(RING),
        [
            cluster("A"),
            cluster("B", heartbeats("B", "A", beat("C->A", 1.0))),
            cluster("C", problem="cluster C: unreachable: refused"),
        ],
        NOW_MS,
    )

    assert topology.unreachable == {"C": "cluster C: unreachable: refused"}
    assert found(topology, "B->C").problem == "unknown: cluster C does not answer"
    assert exit_code(topology) == EXIT_FAILED


def test_the_document_has_what_the_drawing_has() -> None:
    document = as_document(chain()).plain()

    cluster_c = document["clusters"][2]
    assert cluster_c["hops"] == {"A": 2, "B": 1}
    assert cluster_c["heartbeats"][1] == {
        "topic": "B.A.heartbeats",
        "path": ["B", "A"],
        "hops": 2,
        "newest_ms": NOW_MS - 2000,
        "age_s": 2.0,
        "latency_s": 0.3,
        "written_by": {"B->A": NOW_MS - 2000},
        "skipped_records": 0,
        "problem": None,
    }
    assert document["flows"][0]["flow"] == "A->B"
    assert document["unknown_clusters"] == []


def shown(topology: Topology) -> str:
    written = io.StringIO()
    Console(file=written, width=160).print(rendered(topology))
    return written.getvalue()


def test_the_drawing_nests_what_is_further_away() -> None:
    lines = shown(chain()).splitlines()

    assert [line.rstrip() for line in lines[:6]] == [
        "A",
        "└── no cluster mirrors to it",
        "B",
        "└── A  1 hop, heartbeat 0.5 s ago, 0.020 s late",
        "C",
        "└── B  1 hop, heartbeat 0.4 s ago",
    ]
    assert lines[6].rstrip() == "    └── A  2 hops, heartbeat 2.0 s ago, 0.300 s late"


def test_the_table_tells_latency_where_it_is_known_and_a_bound_where_not() -> None:
    text = shown(chain())

    assert "0.020 s" in next(line for line in text.splitlines() if line.startswith("A->B"))
    assert "at most 0.4 s" in next(line for line in text.splitlines() if line.startswith("B->C"))


def test_a_cluster_on_the_way_without_heartbeats_of_its_own_is_drawn() -> None:
    topology = draw(
        config_of(RING),
        [cluster("A"), cluster("B"), cluster("C", heartbeats("C", "B A", beat("B->A", 1.0)))],
        NOW_MS,
    )

    assert "B  1 hop, no heartbeats of its own" in shown(topology)


def test_names_out_of_records_give_no_orders_to_a_terminal() -> None:
    topology = draw(
        config_of(RING),
        [
            cluster("A", heartbeats("A", "", beat("\x1b[31mevil->A", 1.0), skipped=1200)),
            cluster("B"),
            cluster("C"),
        ],
        NOW_MS,
    )

    text = shown(topology)

    assert "\x1b" not in text
    assert "evil" in text
    assert "1,200 records in heartbeats topics could not be read" in text
    assert "\x1b" not in as_graph(topology)


def test_the_graph_has_an_arrow_for_every_flow() -> None:
    topology = draw(
        config_of(RING),
        [cluster("A"), cluster("B", heartbeats("B", "A X", beat("C->X", 1.0))), cluster("C")],
        NOW_MS,
    )

    assert as_graph(topology).splitlines() == [
        "digraph topology {",
        '  "A";',
        '  "B";',
        '  "C";',
        '  "X" [style=dashed];',
        '  "A" -> "B" [label="1.0 s ago"];',
        '  "B" -> "C" [label="no heartbeats", color=red];',
        '  "X" -> "A" [label="1.0 s ago", style=dashed];',
        "}",
    ]
