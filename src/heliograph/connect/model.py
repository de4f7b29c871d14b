"""A connector as Connect knows it: a name, texts, and what somebody wants of it. Runs anywhere."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from heliograph.connect.plugins import (
    CLASS,
    SOURCE_ALIAS,
    TARGET_ALIAS,
    TARGET_ALIAS_DEFAULT,
    Plugin,
    plugin_named,
)
from heliograph.model import ClusterAlias, FlowId


class TargetState(StrEnum):
    """What somebody wants of a connector; by Connect's names, as its topic keeps them."""

    STARTED = "STARTED"
    PAUSED = "PAUSED"
    STOPPED = "STOPPED"


@dataclass(frozen=True, slots=True, kw_only=True)
class Connector:
    name: str
    config: Mapping[str, str] = field(repr=False)
    """As it was given, references to config providers and all."""
    target_state: TargetState = TargetState.STARTED

    @property
    def plugin(self) -> Plugin | None:
        """None for a class that is none of the three."""
        return plugin_named(self.config.get(CLASS, ""))

    @property
    def flow(self) -> FlowId:
        """An alias may be missing, and then is empty; `translate` says so."""
        return FlowId(
            source=ClusterAlias(self.config.get(SOURCE_ALIAS, "").strip()),
            target=ClusterAlias(self.config.get(TARGET_ALIAS, TARGET_ALIAS_DEFAULT).strip()),
        )
