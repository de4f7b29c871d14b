"""Which flows a throttle of a cluster is about. Runs on the driver."""

from __future__ import annotations

from enum import StrEnum

import typer

from heliograph.config.schema import MirrorConfig
from heliograph.decisions.decision import Verb


class Side(StrEnum):
    READ = "read"
    WRITE = "write"


def flows_of_cluster(
    config: MirrorConfig, cluster: str, side: Side | None
) -> dict[Verb, list[str]]:
    """By the verb each is decided with; both sides where none is named."""
    found = {
        Verb.THROTTLE_SOURCE: [str(each.id) for each in config.flows if each.id.source == cluster],
        Verb.THROTTLE_TARGET: [str(each.id) for each in config.flows if each.id.target == cluster],
    }
    if side is Side.READ:
        del found[Verb.THROTTLE_TARGET]
    elif side is Side.WRITE:
        del found[Verb.THROTTLE_SOURCE]
    found = {verb: flows for verb, flows in found.items() if flows}
    if not found:
        known = ", ".join(config.clusters)
        what = {Side.READ: "reads from", Side.WRITE: "writes to", None: "reads from or writes to"}
        raise typer.BadParameter(f"no flow {what[side]} cluster {cluster!r}; there are {known}")
    return found
