"""The rows of `docs/reference/config.md`, made from the keys and the model. Runs anywhere.

A test compares them with the page; the page's text around the tables is written by hand.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum

from heliograph.config.keys import Effect, Key
from heliograph.config.mm2.keys import (
    API_KEYS,
    CLUSTER_KEYS,
    ENGINE_KEYS,
    FLOW_KEYS,
    PIPELINE_KEYS,
    REST_KEYS,
    WORKER_KEYS,
)


def reference_rows() -> dict[str, tuple[str, ...]]:
    """Rows of each table, by its heading."""
    return {
        "Flows": _rows(key for key in FLOW_KEYS if not key.own),
        "Flows, Heliograph's own": _rows(key for key in FLOW_KEYS if key.own),
        "Pipelines": _rows(PIPELINE_KEYS),
        "Clusters, Heliograph's own": _rows(CLUSTER_KEYS),
        "Engine": _rows(ENGINE_KEYS),
        "REST server": _rows(API_KEYS),
        "Connect workers": _rows(WORKER_KEYS),
        "Connect's REST server": _rows(REST_KEYS),
    }


def effect_rows() -> tuple[str, ...]:
    """What a change of each key does to a mirror that runs; those that act at once are the rest."""
    keys = (*FLOW_KEYS, *ENGINE_KEYS, *API_KEYS)
    named = {
        effect: [f"`{key.name}`" for key in keys if key.effect is effect and key.inert is None]
        for effect in (Effect.REPLANS, Effect.BEGINS_OR_ENDS, Effect.RESTART)
    }
    named[Effect.BEGINS_OR_ENDS].append("`clusters`")
    named[Effect.RESTART].append("`spark.*`")
    clients = ["`bootstrap.servers`, TLS and SASL, settings of clients"]
    return (
        f"| {Effect.AT_ONCE} | every key that is not below |",
        f"| {Effect.REPLANS} | {', '.join(named[Effect.REPLANS])} |",
        f"| {Effect.BEGINS_OR_ENDS} | {', '.join(named[Effect.BEGINS_OR_ENDS])} |",
        f"| {Effect.RECONNECTS} | {', '.join(clients)} |",
        f"| {Effect.RESTART} | {', '.join(named[Effect.RESTART])} |",
    )


def _rows(keys: Iterable[Key]) -> tuple[str, ...]:
    return tuple(_row(key) for key in keys)


def _row(key: Key) -> str:
    acts = "yes" if key.inert is None else "Connect only"
    default = _shown(key.default).replace("|", "\\|")
    return f"| `{key.name}` | {default} | {acts} | {key.meaning} |"


def _shown(value: object) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "`true`" if value else "`false`"
    if isinstance(value, Enum):
        return f"`{value.value}`"
    if isinstance(value, tuple):
        return ", ".join(f"`{item}`" for item in value) or "–"
    return f"`{value}`" if value != "" else "–"
