"""How long the source keeps tombstones that a lane has yet to copy. No I/O; runs anywhere.

One that compaction has deleted before it was copied leaves its key on the target, and no record
tells of it. When retention deletes records that wait is for the lag model to say.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from heliograph.broker.view import TopicSetting
from heliograph.health.sight import LaneSight
from heliograph.lag.figures import NEVER


@dataclass(frozen=True, slots=True, kw_only=True)
class Horizon:
    """Of one topic of the source."""

    delete_retention_s: float = NEVER
    """`NEVER` where nothing is compacted."""


def horizon_of(settings: Mapping[str, TopicSetting]) -> Horizon:
    """By the settings in force."""
    policies = {part.strip() for part in _text(settings, "cleanup.policy").split(",")}
    if "compact" not in policies:
        return Horizon()
    return Horizon(delete_retention_s=_seconds(settings, "delete.retention.ms"))


def with_horizon(lane: LaneSight, horizon: Horizon | None) -> LaneSight:
    """The lane with what is left; nothing is left out of where it is not known."""
    if lane.lag_records == 0:
        return replace(lane, tombstones_s=NEVER)
    if horizon is None or lane.lag_s is None:
        return lane
    return replace(
        lane,
        delete_retention_s=horizon.delete_retention_s,
        tombstones_s=horizon.delete_retention_s - lane.lag_s,
    )


def _text(settings: Mapping[str, TopicSetting], name: str) -> str:
    found = settings.get(name)
    return "" if found is None or found.value is None else found.value


def _seconds(settings: Mapping[str, TopicSetting], name: str) -> float:
    text = _text(settings, name)
    try:
        milliseconds = int(text)
    except ValueError:
        return NEVER
    return NEVER if milliseconds < 0 else milliseconds / 1000
