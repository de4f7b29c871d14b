"""What a flow watches itself for: alarms, canary, cut-over. Runs anywhere."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import Field

from heliograph.config.hook_values import bearer_token, command, web_address
from heliograph.config.keys import INT_MAX, LONG_MAX, Own, Seconds
from heliograph.config.mm2.values import replicas
from heliograph.config.secrets import Secret
from heliograph.config.sections import Section

_DAY_S: Final = 86_400
GIB: Final = 1024**3


class CanaryConfig(Section):
    """A record that is sent now and then, and looked for on the target."""

    enabled: Annotated[bool, Own("canary.enabled")] = False
    """Whether a canary is written to the source and looked for on the target."""
    interval_s: Annotated[Seconds, Own("canary.interval.seconds")] = 60
    """Time between two canaries."""
    replication_factor: Annotated[int, Own("canary.topic.replication.factor", replicas)] = -1
    """Replication factor of the canary topic on the source; -1 is the broker's default."""


class AlarmsConfig(Section):
    """When an alarm is raised, when it ends, and who is told."""

    enabled: Annotated[bool, Own("alarms.enabled")] = True
    """Whether the driver that leads the flow watches it."""
    interval_s: Annotated[Seconds, Own("alarms.interval.seconds")] = 10
    """Time between two looks; with a canary at most a quarter of its interval."""
    clear_s: Annotated[int, Own("alarms.clear.seconds")] = Field(default=60, ge=0, le=INT_MAX)
    """How long all must be well before an alarm ends."""
    stall_s: Annotated[int, Own("alarms.stall.seconds")] = Field(default=60, ge=0, le=INT_MAX)
    """How long a lane that is retried may be stalled; one that is not retried is told at once."""
    lag_s: Annotated[Seconds, Own("alarms.lag.seconds")] = 300
    """How old the first record that waits may be."""
    overrun_s: Annotated[Seconds, Own("alarms.overrun.seconds")] = 3_600
    """Time left until retention deletes records that wait; at most half of the retention."""
    tombstones_s: Annotated[Seconds, Own("alarms.tombstones.seconds")] = 3_600
    """Time left until compaction deletes tombstones that wait; at most half of that time."""
    loss_s: Annotated[Seconds, Own("alarms.loss.seconds")] = _DAY_S
    """How long records that are lost are told of."""
    letters_s: Annotated[Seconds, Own("alarms.letters.seconds")] = _DAY_S
    """How long records that went to a dead-letter topic are told of."""
    foreign_s: Annotated[Seconds, Own("alarms.foreign.seconds")] = _DAY_S
    """How long records of other writers on the target are told of."""
    canary_s: Annotated[int | None, Own("alarms.canary.seconds")] = Field(
        default=None, ge=1, le=INT_MAX
    )
    """Longest way of a canary; unset is half of `canary.interval.seconds`."""
    standby: Annotated[Literal["seen", "expected", "off"], Own("alarms.standby")] = "seen"
    """Whether a standby driver is missed: once one was `seen` in the last week, always, never."""
    standby_s: Annotated[Seconds, Own("alarms.standby.seconds")] = 300
    """How long a standby driver may be missing."""
    ledger_bytes: Annotated[int, Own("alarms.ledger.bytes")] = Field(default=GIB, ge=1, le=LONG_MAX)
    """Size of the ledger that is large."""
    clock_s: Annotated[Seconds, Own("alarms.clock.seconds")] = 10
    """Most seconds between the clocks of the driver and of a cluster."""
    certificate_days: Annotated[int, Own("alarms.certificate.days")] = Field(
        default=14, ge=0, le=3_650
    )
    """Days left of a certificate that is near its end."""
    webhook_url: Annotated[Secret | None, Own("alarms.webhook.url", web_address)] = None
    """URL to which alarms are posted as JSON when they are raised and when they end."""
    webhook_token: Annotated[Secret | None, Own("alarms.webhook.token", bearer_token)] = None
    """Token sent to that URL as `Authorization: Bearer`."""
    command: Annotated[str | None, Own("alarms.command", command)] = None
    """Command run when alarms are raised and when they end; no shell, the same JSON on stdin."""
    timeout_s: Annotated[int, Own("alarms.timeout.seconds")] = Field(default=30, ge=1, le=3_600)
    """Longest time for the command, and for the post."""


class CutoverConfig(Section):
    """What `heliograph verdict` asks of a flow before it is ready to cut over."""

    quiet_s: Annotated[int, Own("cutover.quiet.seconds")] = Field(default=60, ge=0, le=INT_MAX)
    """How long producers must not have written to the source."""
    audit_s: Annotated[int, Own("cutover.audit.seconds")] = Field(
        default=7 * _DAY_S, ge=0, le=INT_MAX
    )
    """Age of the last audit at most; 0 asks for none."""
    drill_s: Annotated[int, Own("cutover.drill.seconds")] = Field(
        default=30 * _DAY_S, ge=0, le=INT_MAX
    )
    """Age of the last drill at most; 0 asks for none."""
