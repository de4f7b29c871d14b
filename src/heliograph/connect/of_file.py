"""The flows of a driver's file as connectors: paused, resumed, stopped, restarted. Driver only.

Named as Strimzi names them, `A->B.MirrorSourceConnector`, for one server has many flows. What the
file says is changed in the file. What is wanted of a connector is a decision about its flow, as
`heliograph pause` makes one; so a pause that was decided elsewhere is one of the connector too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final, assert_never

from heliograph.clock import now_ms
from heliograph.config.keys import Key
from heliograph.config.load import real_environment
from heliograph.config.schema import FlowConfig, MirrorConfig
from heliograph.connect.herder import WorkerFacts, try_again
from heliograph.connect.model import Connector, TargetState
from heliograph.connect.offsets import Wanted, check_offsets, require_offsets
from heliograph.connect.plugins import (
    CLASS,
    NAME,
    SOURCE_ALIAS,
    SOURCE_SERVERS,
    TARGET_ALIAS,
    TARGET_SERVERS,
    Plugin,
    keys_of_plugin,
    value_text,
)
from heliograph.connect.problems import ConnectProblem
from heliograph.connect.translate import Errors, errors_of
from heliograph.decisions.decide import Draft, decide, decide_together, read_decisions
from heliograph.decisions.decision import TOPICS_MAX, Scope, Verb
from heliograph.decisions.orders import FlowOrders, orders_of
from heliograph.decisions.record import decisions_of
from heliograph.driver.live import LiveMirror
from heliograph.errors import BrokerError
from heliograph.model import FlowId, LaneId, TopicName

_OF_THE_FLOW: Final = frozenset({NAME, CLASS, SOURCE_ALIAS, TARGET_ALIAS, "enabled"})
_WHY: Final = "Kafka Connect's REST"
_REWOUND_S_MAX: Final = 30.0
_LOOK_S: Final = 0.2


class FileConnectors:
    """A herder whose connectors come from a file, and what is wanted of them from the ledger."""

    def __init__(self, live: LiveMirror, worker_id: str) -> None:
        self._live = live
        self._facts = WorkerFacts(worker_id=worker_id, alters_by_rewinds=True)
        self._made: tuple[MirrorConfig, tuple[Connector, ...]] | None = None
        self._deciding = asyncio.Lock()

    @property
    def facts(self) -> WorkerFacts:
        return self._facts

    def live(self) -> LiveMirror | None:
        return self._live

    def connectors(self) -> Sequence[Connector]:
        """Each as this driver follows what was decided about its flow."""
        config = self._live.config
        if self._made is None or self._made[0] is not config:
            self._made = config, tuple(connectors_of_file(config))
        return [replace(each, target_state=self._wanted(each)) for each in self._made[1]]

    def _wanted(self, connector: Connector) -> TargetState:
        orders = self._live.decided(connector.flow)
        if orders.stopped is not None:
            return TargetState.STOPPED  # its jobs rest too
        is_paused = orders.paused is not None and connector.plugin is Plugin.SOURCE
        return TargetState.PAUSED if is_paused else TargetState.STARTED

    def problems(self) -> Mapping[str, str]:
        return {}

    def errors_of(self, candidate: Connector) -> Errors:
        """By itself: none of a driver's file is changed by it."""
        return errors_of(candidate, (), (), real_environment())

    async def put(self, connector: Connector) -> None:
        raise _refused(connector)

    async def delete(self, connector: Connector) -> None:
        raise _refused(connector)

    def config_for(self, connector: Connector) -> MirrorConfig:
        return self._live.config

    async def want(self, connector: Connector, state: TargetState, who: str) -> None:
        if connector.plugin is not Plugin.SOURCE:
            raise ConnectProblem(
                403,
                f"Connector {connector.name} comes from the driver's file: only the "
                "MirrorSourceConnector of its flow can be paused or stopped; switch the other off "
                "in the file",
            )
        ledgers, config, flow = self._live.ledgers, self._live.config, connector.flow
        # One at a time, so that what is to be undone is what the one before left.
        async with self._deciding:
            try:
                _, made = await read_decisions(ledgers, config, flow)
                for verb in _verbs(state, orders_of(made, now_ms())):
                    await decide(ledgers, config, flow, Draft(verb=verb, who=who, why=_WHY))
            except BrokerError as exc:
                raise ConnectProblem(500, f"Error writing target state to Kafka: {exc}") from exc

    async def alter(self, connector: Connector, wanted: Wanted | None, who: str) -> None:
        """By rewinds, which the driver that leads the flow carries out: no slot has its lanes."""
        ledgers, config, flow = self._live.ledgers, self._live.config, connector.flow
        if wanted is not None:
            require_offsets(connector)
            await check_offsets(connector, config, wanted)
        elif connector.plugin is not Plugin.SOURCE:
            return
        async with self._deciding:
            if wanted is None:
                view, _ = await read_decisions(ledgers, config, flow)
                drafts = _rewinds(sorted({lane.topic for lane in view.begun()}), (), None)
            else:
                drafts = rewinds_of(wanted)
            asked = [replace(each, who=who) for each in drafts]
            outcomes = await decide_together(ledgers, config, flow, asked)
        ids = {each.decision.id for each in outcomes if each.decision is not None}
        async with asyncio.timeout(_REWOUND_S_MAX):
            while not ids <= await self._done(flow):
                await asyncio.sleep(_LOOK_S)

    async def _done(self, flow: FlowId) -> set[str]:
        made = decisions_of(await self._live.ledgers.view(flow))
        return {each.id for each in made if each.done_ms is not None}

    async def restart(self, connector: Connector, lanes: Sequence[LaneId] | None) -> None:
        if connector.plugin is Plugin.SOURCE:
            try_again(self._live, connector.flow, lanes)


def _verbs(state: TargetState, orders: FlowOrders) -> Iterator[Verb]:
    """What has to be decided; a decision that would change nothing is not written."""
    match state:
        case TargetState.STOPPED:
            yield Verb.STOP
            return
        case TargetState.PAUSED:
            yield Verb.PAUSE
        case TargetState.STARTED:
            if orders.about_all(Verb.RESUME) is not None:
                yield Verb.RESUME
        case _:
            assert_never(state)
    # Last, so that a flow that is started and stays paused copies nothing in between.
    if orders.about_all(Verb.START) is not None:
        yield Verb.START


def rewinds_of(wanted: Wanted) -> Iterator[Draft]:
    """As few as say it: lanes that go to the same offset, of topics with the same partitions."""
    partitions: dict[tuple[TopicName, int | None], list[int]] = {}
    for lane, last in wanted.items():
        partitions.setdefault((lane.topic, last), []).append(lane.partition)
    topics: dict[tuple[tuple[int, ...], int | None], list[TopicName]] = {}
    for (topic, last), numbers in partitions.items():
        topics.setdefault((tuple(sorted(numbers)), last), []).append(topic)
    for (chosen, last), named in topics.items():
        yield from _rewinds(named, chosen, None if last is None else last + 1)


def _rewinds(
    topics: Sequence[TopicName], partitions: tuple[int, ...], offset: int | None
) -> Iterator[Draft]:
    for at in range(0, len(topics), TOPICS_MAX):
        scope = Scope(topics=tuple(sorted(topics[at : at + TOPICS_MAX])), partitions=partitions)
        yield Draft(verb=Verb.REWIND, scope=scope, who="", why=_WHY, offset=offset)


def connectors_of_file(config: MirrorConfig) -> Iterator[Connector]:
    for pair in config.chosen_pairs:
        if pair.enabled:
            yield _connector(Plugin.SOURCE, pair, config)
        if pair.enabled and (pair.checkpoints.enabled or pair.groups.sync_offsets_enabled):
            yield _connector(Plugin.CHECKPOINT, pair, config)
        if pair.heartbeats.enabled:
            yield _connector(Plugin.HEARTBEAT, pair, config)


def _connector(plugin: Plugin, pair: FlowConfig, config: MirrorConfig) -> Connector:
    name = f"{pair.id}.{plugin}"
    servers = {
        key: ",".join(config.clusters[alias].bootstrap_servers)
        for key, alias in ((SOURCE_SERVERS, pair.id.source), (TARGET_SERVERS, pair.id.target))
    }
    told = {
        key.name: value_text(_value(key, pair))
        for key in keys_of_plugin(plugin)
        if key.path and key.name not in _OF_THE_FLOW and _value(key, pair) != key.default
    }
    return Connector(
        name=name,
        config={
            NAME: name,
            CLASS: plugin.class_path,
            SOURCE_ALIAS: pair.id.source,
            TARGET_ALIAS: pair.id.target,
            **servers,
            **told,
        },
    )


def _value(key: Key, pair: FlowConfig) -> object:
    found: object = pair
    for name in key.path:
        found = getattr(found, name)
    return found


def _refused(connector: Connector) -> ConnectProblem:
    return ConnectProblem(
        403,
        f"Connector {connector.name} cannot be changed here: the driver's flows come from its "
        "file; change the file, or run connectors with `heliograph connect`",
    )
