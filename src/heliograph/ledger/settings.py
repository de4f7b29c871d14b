"""How the ledger's topic is set up, so that it stays small and is read in seconds. Driver only.

Compaction never touches a segment that is written to, so segments are small and end soon; it begins
when a tenth of the log is new. What was removed is remembered for a quarter of an hour: whoever
looked at the ledger before that reads all of it again (`store.READ_AGAIN_AFTER_S`).

Records carry the broker's time: it refuses those of a clock an hour ahead of its own, ends segments
and forgets producers by them. And no replica that missed records may lead: nothing shows what went.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from heliograph.broker.admin import Change, ClusterAdmin
from heliograph.broker.topic_changes import ConfigChange, TopicConfigChanges
from heliograph.broker.view import ConfigOrigin, TopicSetting
from heliograph.errors import BrokerError, NotAuthorised
from heliograph.ledger.entries import LEDGER_PARTITIONS
from heliograph.model import TopicName


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedSetting:
    value: str
    least: float = 0.0
    most: float = float("inf")
    """What an operator may set instead without a remark."""
    otherwise: str
    """What happens beyond that."""


LEDGER_SETTINGS: Final = {
    "segment.bytes": WantedSetting(
        value=str(8 * 1024 * 1024),
        most=64 * 1024 * 1024,
        otherwise="a driver or slot that starts reads up to that many bytes more",
    ),
    "segment.ms": WantedSetting(
        value=str(3_600_000),
        most=86_400_000,
        otherwise="a quiet ledger is compacted that much later",
    ),
    "min.cleanable.dirty.ratio": WantedSetting(
        value="0.1", most=0.5, otherwise="the ledger grows by that part before it is compacted"
    ),
    "delete.retention.ms": WantedSetting(
        value=str(900_000),
        least=900_000,
        most=86_400_000,
        otherwise="below 900000 a reader may miss that something was removed; above, removed keys "
        "fill the ledger",
    ),
    "max.message.bytes": WantedSetting(
        value=str(1_048_588), least=65_536, otherwise="what Heliograph writes is cut into pieces"
    ),
    "message.timestamp.type": WantedSetting(
        value="LogAppendTime",
        otherwise="a driver or slot whose clock is an hour ahead cannot write to the ledger",
    ),
    "unclean.leader.election.enable": WantedSetting(
        value="false",
        otherwise="a replica that missed what was written may lead, and records may be repeated",
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerPrepared:
    change: Change
    remarks: tuple[str, ...] = ()
    """What of the topic's settings is not as it should be, and was not corrected."""


def ensure_ledger_topic(
    admin: ClusterAdmin, name: TopicName, *, replication_factor: int
) -> LedgerPrepared:
    """Make the ledger's topic unless it is there; correct what nobody has set on it.

    What an operator has set on the topic stays, with a remark where it does harm. Raises
    `BrokerError` where there can be no ledger.
    """
    change = admin.ensure_compacted_topic(
        name,
        partitions=LEDGER_PARTITIONS,
        replication_factor=replication_factor,
        configs={key: wanted.value for key, wanted in LEDGER_SETTINGS.items()},
    )
    if change is not Change.ALREADY:
        return LedgerPrepared(change=change)
    present = admin.topic_configs([name]).get(name, {})
    if isinstance(present, NotAuthorised):
        return LedgerPrepared(change=change, remarks=(str(present),))
    remarks = [
        f"{name}: {key} is set to {setting.value}: {wanted.otherwise}"
        for key, wanted in LEDGER_SETTINGS.items()
        if (setting := present.get(key)) is not None
        and _is_chosen(setting)
        and not _is_within(setting, wanted)
    ]
    missing = {
        key: wanted.value
        for key, wanted in LEDGER_SETTINGS.items()
        if (setting := present.get(key)) is not None
        and not _is_chosen(setting)
        and setting.value != wanted.value
    }
    if missing:
        remarks += _corrected(admin, name, missing)
    return LedgerPrepared(change=change, remarks=tuple(remarks))


def _corrected(admin: ClusterAdmin, name: TopicName, missing: dict[str, str]) -> list[str]:
    changes = tuple(
        ConfigChange(name=key, value=value, before=None) for key, value in missing.items()
    )
    outcome = admin.alter_topic_configs([TopicConfigChanges(topic=name, changes=changes)])[name]
    if not isinstance(outcome, BrokerError):
        return []
    wanted = ",".join(f"{key}={value}" for key, value in missing.items())
    return [f"{name}: should have {wanted}, which could not be set: {outcome}"]


def _is_chosen(setting: TopicSetting) -> bool:
    return setting.origin is ConfigOrigin.TOPIC


def _is_within(setting: TopicSetting, wanted: WantedSetting) -> bool:
    if setting.value == wanted.value:
        return True
    try:
        return wanted.least <= float(setting.value or "nan") <= wanted.most
    except ValueError:
        return False
