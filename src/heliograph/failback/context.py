"""What the steps of a failback share. Driver only."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from heliograph.broker.admin import ClusterAdmin
from heliograph.config.schema import FlowConfig
from heliograph.errors import BrokerError
from heliograph.failback.divergence import (
    Choice,
    Resolution,
    TopicDivergence,
    treatment,
)
from heliograph.failback.export import FOLDER_DEFAULT, unmirrored_topic
from heliograph.failback.lane import ClusterPair
from heliograph.failback.outputs import FIND_PARTS, FailbackChoices
from heliograph.ledger.access import OpenLedger, open_ledger
from heliograph.ledger.entries import LEDGER_PARTITIONS, ledger_topic
from heliograph.ledger.settings import ensure_ledger_topic
from heliograph.model import FlowId, Offsets, TopicName
from heliograph.procedure.journal import Journal, Procedure, StepKind
from heliograph.procedure.runner import Say, StepEvent
from heliograph.processes import operator


@dataclass(frozen=True, slots=True, kw_only=True)
class FailbackOrder:
    flow: FlowId
    """The flow that was failed over: its source is the old primary, its target the present one."""
    choice: Choice = Choice.NONE
    export_topic: TopicName | None = None
    export_dir: Path = FOLDER_DEFAULT
    may_delete: bool = False
    topics: tuple[TopicName, ...] | None = None
    """Those that were failed over alone; None for the whole flow."""
    who: str = field(default_factory=operator, compare=False)
    """Who asks for it, for the history."""

    @property
    def choices(self) -> FailbackChoices:
        return FailbackChoices(
            how=self.choice,
            export_topic=self.topic,
            export_directory=str(self.export_dir.absolute()),
            topics=None if self.topics is None else tuple(sorted(set(self.topics))),
        )

    @property
    def topic(self) -> TopicName:
        """On the present primary, for records that only the old one has."""
        return self.export_topic or unmirrored_topic(self.flow.source)


@dataclass(slots=True)
class Looked:
    """What was found before the first step, so that nothing is looked for twice."""

    divergences: tuple[TopicDivergence, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FailbackContext:
    order: FailbackOrder
    pair: ClusterPair
    journal: Journal[FailbackChoices]
    is_renaming: bool
    say: Say
    looked: Looked = field(default_factory=Looked)

    @property
    def back(self) -> FlowId:
        return self.pair.back

    @property
    def back_flow(self) -> FlowConfig:
        return self.pair.config.flow(self.back)

    @property
    def preserve(self) -> bool:
        return self.back_flow.offsets is Offsets.PRESERVE

    def tell(self, step: StepKind[Any], text: str) -> None:
        """Report the progress of a step."""
        self.say(StepEvent(step=step.name, what="goes on", text=text))

    def resolutions(
        self, divergences: tuple[TopicDivergence, ...]
    ) -> Mapping[TopicName, Resolution | None]:
        choice = self.order.choice
        return {each.topic: treatment(each, choice, preserve=self.preserve) for each in divergences}

    async def divergences(
        self, procedure: Procedure[FailbackChoices]
    ) -> tuple[TopicDivergence, ...]:
        """As the step recorded them: by now the old primary may look different."""
        parts = await self.journal.parts(procedure, FIND_PARTS)
        return tuple(parts[name].topic(name) for name in sorted(parts))

    @asynccontextmanager
    async def back_ledger(self) -> AsyncIterator[OpenLedger]:
        """The ledger of the way back, on the old primary; made if there is none."""
        name = ledger_topic(self.back.source)
        admin = ClusterAdmin(self.pair.config.target_of(self.back))
        ensure_ledger_topic(admin, name, replication_factor=self.back_flow.replication_factor)
        shown = admin.await_partitions({name: LEDGER_PARTITIONS})[name]
        if isinstance(shown, BrokerError):
            raise shown
        async with open_ledger(self.pair.config, self.back) as ledger:
            await ledger.store.catch_up()
            yield ledger
