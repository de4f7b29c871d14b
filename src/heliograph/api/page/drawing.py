"""Sparklines and the map of clusters, as numbers for SVG. No I/O; runs anywhere."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from heliograph.api.page.words import UNKNOWN, count
from heliograph.lag.history import LaneHistory

SPARK_WIDTH: Final = 96
SPARK_HEIGHT: Final = 22
SPARK_S: Final = 120.0
CLUSTERS_MAX: Final = 12
"""On the map; more are a list alone."""
NODE_WIDTH: Final = 150
NODE_HEIGHT: Final = 44
_MAP_WIDTH: Final = 860
_NAME_CHARS_MAX: Final = 18


@dataclass(frozen=True, slots=True, kw_only=True)
class Spark:
    """The lag of a lane over the last minutes."""

    paths: tuple[str, ...]
    """Points of each stretch that is known; where it is not, the line is broken."""
    told: str


def spark(history: LaneHistory | None) -> Spark | None:
    """None where there is too little to draw."""
    if history is None or len(history.samples) < 2:
        return None
    end_s = history.samples[-1].at_s
    samples = [each for each in history.samples if each.at_s >= end_s - SPARK_S]
    known = [each.lag for each in samples if each.lag is not None]
    most = max(known, default=0)
    stretches: list[list[str]] = [[]]
    for each in samples:
        if each.lag is None:
            stretches.append([])
            continue
        x = SPARK_WIDTH * (1 - (end_s - each.at_s) / SPARK_S)
        y = SPARK_HEIGHT - 1 - (SPARK_HEIGHT - 2) * (each.lag / most if most else 0)
        stretches[-1].append(f"{x:.1f},{y:.1f}")
    seconds = round(end_s - samples[0].at_s)
    first, last = (count(each.lag) for each in (samples[0], samples[-1]))
    told = f"lag over the last {seconds} s: from {first} to {last} records, at most {count(most)}"
    if not known:
        told = f"lag over the last {seconds} s: {UNKNOWN}"
    return Spark(paths=tuple(" ".join(each) for each in stretches if len(each) > 1), told=told)


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    name: str
    label: str
    x: float
    y: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrow:
    source: str
    target: str
    path: str
    x: float
    y: float
    """Where the label stands."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawing:
    width: int
    height: int
    nodes: tuple[Node, ...]
    arrows: tuple[Arrow, ...]


def drawing(pairs: Sequence[tuple[str, str]]) -> Drawing | None:
    """The clusters of these flows and an arrow for each flow; None where they are too many."""
    names = sorted({name for pair in pairs for name in pair})
    if not 2 <= len(names) <= CLUSTERS_MAX:
        return None
    height = 110 if len(names) == 2 else 360
    nodes = {node.name: node for node in _placed(names, height)}
    return Drawing(
        width=_MAP_WIDTH,
        height=height,
        nodes=tuple(nodes.values()),
        arrows=tuple(_arrow(nodes[source], nodes[target]) for source, target in pairs),
    )


def _placed(names: Sequence[str], height: int) -> Iterable[Node]:
    """On an ellipse, the first one left."""
    for number, name in enumerate(names):
        angle = math.pi - 2 * math.pi * number / len(names)
        label = name if len(name) <= _NAME_CHARS_MAX else name[: _NAME_CHARS_MAX - 1] + "…"
        yield Node(
            name=name,
            label=label,
            x=round(_MAP_WIDTH / 2 + (_MAP_WIDTH / 2 - NODE_WIDTH / 2 - 4) * math.cos(angle), 1),
            y=round(height / 2 - (height / 2 - NODE_HEIGHT / 2 - 4) * math.sin(angle), 1),
        )


def _arrow(source: Node, target: Node) -> Arrow:
    """Bent to its left, so that there and back are two."""
    dx, dy = target.x - source.x, target.y - source.y
    length = math.hypot(dx, dy)
    bend = 34.0
    control_x = (source.x + target.x) / 2 + bend * dy / length
    control_y = (source.y + target.y) / 2 - bend * dx / length
    begin_x, begin_y = _edge(source, control_x, control_y)
    end_x, end_y = _edge(target, control_x, control_y)
    return Arrow(
        source=source.name,
        target=target.name,
        path=f"M{begin_x:.1f} {begin_y:.1f}"
        f"Q{control_x:.1f} {control_y:.1f} {end_x:.1f} {end_y:.1f}",
        x=round(0.25 * begin_x + 0.5 * control_x + 0.25 * end_x, 1),
        y=round(0.25 * begin_y + 0.5 * control_y + 0.25 * end_y, 1),
    )


def _edge(node: Node, to_x: float, to_y: float) -> tuple[float, float]:
    """Where the line from the middle of a node leaves its box, a little outside."""
    dx, dy = to_x - node.x, to_y - node.y
    share = min(
        (NODE_WIDTH / 2 + 5) / abs(dx) if dx else math.inf,
        (NODE_HEIGHT / 2 + 5) / abs(dy) if dy else math.inf,
    )
    return node.x + dx * share, node.y + dy * share
