"""`heliograph connect`: connectors that are POSTed, kept in a topic, and mirrored. Driver only.

Any number of workers may share a topic: each follows it, and of the workers that run a flow one
leads, as any drivers do. What is wanted of a connector is in the topic too, so it outlives the
worker.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Final

from heliograph.broker.records import Record
from heliograph.config.schema import MirrorConfig
from heliograph.config.secrets import Environment
from heliograph.connect.herder import WorkerFacts, try_again
from heliograph.connect.model import Connector, TargetState
from heliograph.connect.offsets import Wanted, alter_offsets, reset_offsets
from heliograph.connect.problems import ConnectProblem, not_found
from heliograph.connect.store import ConnectorTopic, records_of, tombstones_of
from heliograph.connect.translate import Errors, errors_of, translate
from heliograph.connect.worker_file import WorkerFile
from heliograph.driver.changes import ConfigChanges
from heliograph.driver.heap import settled_heap
from heliograph.driver.live import LiveMirror
from heliograph.driver.run import run_mirror
from heliograph.driver.stop import StopRequest
from heliograph.errors import MirrorError
from heliograph.model import LaneId

log = logging.getLogger("heliograph")

_FOLLOW_S: Final = 1.0
_AGAIN_S: Final = 5.0
_STOPPED_S_MAX: Final = 60.0


class ConnectWorker:
    """The herder of a worker. All state is on the loop."""

    def __init__(self, file: WorkerFile, around: Environment, stop: StopRequest) -> None:
        self._file, self._around, self._stop = file, around, stop
        self._topic = ConnectorTopic(
            file.cluster, file.config_topic, replication_factor=file.replication_factor
        )
        self._changes = ConfigChanges()
        self._wanted = file.config
        self._live: LiveMirror | None = None
        self._problems: Mapping[str, str] = {}
        self._said: set[str] = set()
        self._worker_id = ""

    def listens_at(self, address: str) -> None:
        self._worker_id = address

    # -- what there is

    @property
    def facts(self) -> WorkerFacts:
        return WorkerFacts(
            worker_id=self._worker_id,
            kafka_cluster_id=self._topic.cluster_id,
            tracks_topics=self._file.tracks_topics,
            allows_topic_reset=self._file.allows_topic_reset,
        )

    def live(self) -> LiveMirror | None:
        return self._live

    def connectors(self) -> Sequence[Connector]:
        return self._topic.connectors

    def problems(self) -> Mapping[str, str]:
        problem = self._changes.status.problem
        if problem:
            return {**{each.name: problem for each in self.connectors()}, **self._problems}
        return self._problems

    def errors_of(self, candidate: Connector) -> Errors:
        beside = [each for each in self.connectors() if _is_started(each)]
        return errors_of(candidate, beside, self._file.base, self._around)

    def config_for(self, connector: Connector) -> MirrorConfig:
        together = [
            each
            for each in self.connectors()
            if each.flow == connector.flow and each.name != connector.name
        ]
        found = translate([connector, *together], self._file.base, self._around)
        if connector.name in found.problems:
            raise ConnectProblem(400, _sentence(found.problems[connector.name]))
        return found.config

    # -- changes

    async def put(self, connector: Connector) -> None:
        before = self._named(connector.name)
        await self._write_and_apply(records_of(connector, before))

    async def delete(self, connector: Connector) -> None:
        await self._write_and_apply(tombstones_of(connector))

    async def want(self, connector: Connector, state: TargetState, who: str) -> None:
        """A stop is awaited: what is stopped may be altered at once."""
        before = self._named(connector.name)
        if before is None:
            raise not_found(connector.name)
        await self._write_and_apply(records_of(replace(before, target_state=state), before))
        if state is TargetState.STOPPED:
            async with asyncio.timeout(_STOPPED_S_MAX):
                await self._changes.followed()

    async def alter(self, connector: Connector, wanted: Wanted | None, who: str) -> None:
        config = self.config_for(connector)
        if wanted is None:
            await reset_offsets(connector, config)
        else:
            await alter_offsets(connector, config, wanted)

    async def restart(self, connector: Connector, lanes: Sequence[LaneId] | None) -> None:
        self._apply()  # what it refers to may be there by now
        try_again(self._live, connector.flow, lanes)

    def _named(self, name: str) -> Connector | None:
        return next((each for each in self.connectors() if each.name == name), None)

    async def _write_and_apply(self, records: Sequence[Record]) -> None:
        await self._topic.write(records)
        self._apply()

    def _apply(self) -> None:
        """Mirror what the topic says by now."""
        started = [each for each in self.connectors() if _is_started(each)]
        found = translate(started, self._file.base, self._around)
        self._problems = {name: _sentence(errors) for name, errors in found.problems.items()}
        for sentence in (
            *found.notes,
            *(f"connector {name}: {why}" for name, why in self._problems.items()),
        ):
            if sentence not in self._said:
                self._said.add(sentence)
                log.info("%s", sentence)
        if found.config != self._wanted:
            self._wanted = found.config
            self._changes.offer(found.config)

    # -- running

    async def run(self) -> None:
        """Until stopped. Raises `MirrorError` where Spark cannot run or the topic not be used."""
        following = asyncio.create_task(self._follow(), name="connectors")
        # Without its connectors a worker has nothing to go by.
        following.add_done_callback(lambda task: None if task.cancelled() else self._stop.make())
        try:
            await run_mirror(
                self._file.config,
                stop=self._stop,
                services=(settled_heap, self._shown),
                changes=self._changes,
            )
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
            await self._topic.close()
        if not following.cancelled():
            following.result()

    @asynccontextmanager
    async def _shown(self, live: LiveMirror) -> AsyncIterator[None]:
        self._live = live
        try:
            yield
        finally:
            self._live = None

    async def _follow(self) -> None:
        """The topic, which other workers write too."""
        await self._open()
        self._apply()
        problem = ""
        while True:
            await asyncio.sleep(_FOLLOW_S)
            try:
                if await self._topic.catch_up():
                    self._apply()
                problem = ""
            except MirrorError as exc:
                if str(exc) != problem:
                    log.error("connectors are not followed: %s; trying again", exc)
                problem = str(exc)

    async def _open(self) -> None:
        while True:
            try:
                return await self._topic.open()
            except MirrorError as exc:
                if not exc.retriable:
                    raise
                log.error("connectors cannot be read: %s; trying again", exc)
                await asyncio.sleep(_AGAIN_S)


def _is_started(connector: Connector) -> bool:
    return connector.target_state is TargetState.STARTED


def _sentence(errors: Errors) -> str:
    return "\n".join(sentence for key in sorted(errors) for sentence in errors[key])
