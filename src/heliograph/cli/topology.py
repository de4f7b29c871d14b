"""`heliograph topology`: who mirrors to whom, drawn from the heartbeats. Runs on the driver."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Annotated, Final

import typer
from pydantic import BeforeValidator, ValidationInfo
from rich.console import Group, RenderableType
from rich.text import Text as Styled
from rich.tree import Tree

from heliograph.cli.document import At, Document, OrNull, Text
from heliograph.cli.options import AsJson, File
from heliograph.cli.output import (
    EXIT_FAILED,
    EXIT_STALLED,
    EXIT_USAGE,
    remarks,
    results,
)
from heliograph.cli.tables import UNKNOWN, new_table
from heliograph.compat.mirror_client import NewestHeartbeat
from heliograph.config.load import load_config
from heliograph.inspect.topology import (
    ClusterSeen,
    FlowSeen,
    HeartbeatsSeen,
    Topology,
    read_topology,
)
from heliograph.model import ClusterAlias, FlowId
from heliograph.words import counted

TOPOLOGY_HELP: Final = """Draw which cluster mirrors to which, from the heartbeats that arrive.

Reads the heartbeats topics of every cluster of the file, written by Heliograph or MirrorMaker 2.
`B.A.heartbeats` on C means that A is two hops away, through B. The age of the newest heartbeat is
an upper bound of the mirroring latency; the exact latency is shown where the broker stamps the
topic (message.timestamp.type=LogAppendTime).

Also shown: flows of the file without heartbeats and why, upstream clusters that the file does not
name, clusters that do not answer.

Exits with 3 when a flow of the file has no heartbeat, or none within the last minute, with 1 when
a cluster cannot be reached.

Examples:

  heliograph topology mm2.properties

  heliograph topology mm2.properties --json

  heliograph topology mm2.properties --dot | dot -Tsvg > topology.svg
"""


def _age_s(newest: NewestHeartbeat | None, info: ValidationInfo) -> float | None:
    at_ms: int = (info.context or {})["at_ms"]
    return None if newest is None else newest.age_s(at_ms)


def _written_by(beats: Mapping[FlowId, NewestHeartbeat]) -> dict[str, int]:
    return {str(flow): beat.emitted_ms for flow, beat in sorted(beats.items())}


class _Heartbeats(Document):
    topic: str
    path: tuple[str, ...]
    hops: int
    newest_ms: int | None = At("newest.emitted_ms", None)
    age_s: Annotated[float | None, BeforeValidator(_age_s)] = At("newest")
    latency_s: Annotated[
        float | None, BeforeValidator(lambda ms: None if ms is None else ms / 1000)
    ] = At("newest.latency_ms", None)
    written_by: Annotated[dict[str, int], BeforeValidator(_written_by)] = At("beats")
    skipped_records: int
    problem: OrNull


class _Cluster(Document):
    cluster: str = At("alias")
    problem: OrNull
    hops: Annotated[dict[str, int], BeforeValidator(lambda hops: dict(sorted(hops().items())))]
    heartbeats: tuple[_Heartbeats, ...] = At("topics")


class _Flow(Document):
    flow: Text
    in_file: bool
    seen_on: str | None
    newest_ms: int | None
    age_s: float | None
    latency_s: float | None
    written_age_s: float | None
    problem: OrNull


class TopologyDocument(Document):
    at_ms: int
    unreachable: dict[str, str]
    unknown_clusters: tuple[str, ...] = At("unknown")
    clusters: tuple[_Cluster, ...]
    flows: tuple[_Flow, ...]


def as_document(found: Topology) -> TopologyDocument:
    return TopologyDocument.of(found, context={"at_ms": found.at_ms})


def topology(
    file: File,
    as_json: AsJson = False,
    as_dot: Annotated[
        bool, typer.Option("--dot", help="Print a Graphviz graph to stdout, one arrow per flow.")
    ] = False,
) -> None:
    if as_json and as_dot:
        remarks().print("--json and --dot cannot be combined")
        raise typer.Exit(EXIT_USAGE)
    found = read_topology(load_config(file))
    if as_json:
        as_document(found).print()
    elif as_dot:
        results().print(as_graph(found), soft_wrap=True)
    else:
        results().print(rendered(found))
    raise typer.Exit(exit_code(found))


def exit_code(found: Topology) -> int:
    """A flow that is silent weighs more than a cluster that cannot tell."""
    if any(flow.problem for flow in found.flows if not _is_untold(flow, found)):
        return EXIT_STALLED
    return EXIT_FAILED if found.unreachable else 0


def rendered(found: Topology) -> RenderableType:
    parts: list[RenderableType] = [cluster_tree(seen, found.at_ms) for seen in found.clusters]
    if found.flows:
        parts += ["", _flow_table(found.flows)]
    if found.unknown:
        names = ", ".join(_shown(alias) for alias in found.unknown)
        parts += ["", Styled(f"upstream clusters that the file does not name: {names}")]
    skipped = sum(topic.skipped_records for seen in found.clusters for topic in seen.topics)
    if skipped:
        parts += [
            "",
            Styled(f"{counted(skipped, 'record')} in heartbeats topics could not be read"),
        ]
    return Group(*parts)


def cluster_tree(seen: ClusterSeen, at_ms: int) -> Tree:
    """One cluster and what is mirrored to it; every level is one hop further away."""
    if seen.problem:
        return Tree(Styled(f"{seen.alias}  {seen.problem}", style="red"))
    tree = Tree(Styled(seen.alias, style="bold"))
    by_path = {topic.path: topic for topic in seen.upstreams}
    paths = {path[:hops] for path in by_path for hops in range(1, len(path) + 1)}
    if not paths:
        tree.add("no cluster mirrors to it")
    branches: dict[tuple[ClusterAlias, ...], Tree] = {(): tree}
    for path in sorted(paths):
        label = f"{path[-1]}  {_hops(len(path))}, {_beat(by_path.get(path), at_ms)}"
        branches[path] = branches[path[:-1]].add(Styled(label))
    return tree


def as_graph(found: Topology) -> str:
    """In Graphviz's language; dashed is what the file does not know, red what does not work."""
    return "\n".join(["digraph topology {", *_graph_lines(found), "}"])


def _graph_lines(found: Topology) -> Iterator[str]:
    for seen in found.clusters:
        yield f"  {_quoted(seen.alias)}{' [color=red]' if seen.problem else ''};"
    for alias in found.unknown:
        yield f"  {_quoted(alias)} [style=dashed];"
    for flow in found.flows:
        told = "no heartbeats" if flow.age_s is None else f"{flow.age_s:.1f} s ago"
        style = "" if flow.in_file else ", style=dashed"
        color = ", color=red" if flow.problem else ""
        ends = f"{_quoted(flow.flow.source)} -> {_quoted(flow.flow.target)}"
        yield f"  {ends} [label={_quoted(told)}{style}{color}];"


def _quoted(text: str) -> str:
    # Graphviz reads the escapes of JSON for quotes and backslashes.
    return json.dumps(text, ensure_ascii=False)


def _flow_table(flows: tuple[FlowSeen, ...]) -> RenderableType:
    table = new_table(
        [
            ("flow", "left"),
            ("mirrored heartbeat", "right"),
            ("latency", "right"),
            ("own heartbeat", "right"),
            ("seen on", "left"),
            ("remarks", "left"),
        ]
    )
    for flow in flows:
        note = flow.problem or ("" if flow.in_file else "not a flow of the file")
        table.add_row(
            str(flow.flow),
            _ago(flow.age_s),
            _latency(flow),
            _ago(flow.written_age_s),
            flow.seen_on or "",
            Styled(note, style="red" if flow.problem else ""),
        )
    return table


def _beat(topic: HeartbeatsSeen | None, at_ms: int) -> str:
    if topic is None:
        return "no heartbeats of its own"
    if topic.problem:
        return topic.problem
    newest = topic.newest
    if newest is None:
        return f"no heartbeat in {topic.topic}"
    told = f"heartbeat {_ago(newest.age_s(at_ms))}"
    return told if newest.latency_ms is None else f"{told}, {newest.latency_ms / 1000:.3f} s late"


def _shown(alias: ClusterAlias) -> str:
    """A name that was read from a record may hold anything, orders to a terminal too."""
    return alias if alias.isprintable() and alias else repr(alias)


def _hops(count: int) -> str:
    return "1 hop" if count == 1 else f"{count} hops"


def _ago(age_s: float | None) -> str:
    return "none" if age_s is None else f"{age_s:,.1f} s ago"


def _latency(flow: FlowSeen) -> str:
    if flow.latency_s is not None:
        return f"{flow.latency_s:.3f} s"
    return UNKNOWN if flow.age_s is None else f"at most {flow.age_s:,.1f} s"


def _is_untold(flow: FlowSeen, found: Topology) -> bool:
    """Whether the only cluster that could tell is down."""
    return flow.age_s is None and flow.flow.target in found.unreachable
