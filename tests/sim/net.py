"""The network between slots and brokers: requests and answers wait until the schedule moves them.

A connection keeps its order, and a broker works on one request of it at a time. A connection that
ends loses the answers that were on their way; what was sent may still arrive.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Final

from kio.schema.errors import ErrorCode

from heliograph.broker.connection import Connection, OnAnswer, OnRoundTrip
from heliograph.errors import BrokerUnreachable
from heliograph.model import ClusterAlias
from heliograph.wire.fetch import FETCH_KEY, FetchFrom, PartitionKey
from heliograph.wire.produce import PRODUCE_KEY, PRODUCE_VERSION_BY_ID, PRODUCE_VERSION_MIN
from tests.kit.fake_brokers import APIS, FakeBrokers
from tests.kit.fake_frames import (
    FetchAsked,
    Fetched,
    Produced,
    fetch_answer,
    parse_fetch_request,
    parse_produce_request,
    produce_answer,
)
from tests.kit.fake_log import FakeLog
from tests.sim.loop import Process, VirtualLoop

_VERSIONS: Final = {
    key: (int(api.rpartition(".v")[2]), int(api.rpartition(".v")[2])) for key, api in APIS.items()
} | {PRODUCE_KEY: (PRODUCE_VERSION_MIN, PRODUCE_VERSION_BY_ID)}
_SESSIONS_MAX: Final = 8
Side = tuple[str, int]
"""A cluster's alias and one of its brokers."""
OnProduce = Callable[[str, FakeLog, bytes, int], None]
"""Cluster, log, batch and base offset of what was appended just now."""


class _Transport:
    """What a `Connection` needs of one."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    def get_write_buffer_size(self) -> int:
        return 0

    def get_extra_info(self, name: str) -> None:
        return None

    def abort(self) -> None:
        self._wire.closed()


class SimConnection(Connection):
    """Messages of kio travel as they are: to encode them would be most of the work."""

    def __init__(self, name: str, loop: VirtualLoop, on_round_trip: OnRoundTrip) -> None:
        super().__init__(name, _VERSIONS, on_round_trip=on_round_trip)
        self._loop = loop

    def open(self, wire: Wire) -> None:
        self.wire = wire
        self._transport = _Transport(wire)  # type: ignore[assignment]

    def send(self, api_key: int, version: int, parts: Sequence[Any], on_answer: OnAnswer) -> None:
        if self._transport is None:
            on_answer(self._closed_error())
            return
        payload = parts[0] if api_key not in (FETCH_KEY, PRODUCE_KEY) else b"".join(parts)
        self._waiting.append((0, self._loop.now_s, on_answer))
        self._written_bytes += 100
        self.wire.sent(api_key, version, payload)

    async def call(
        self, message: Any, answer_type: type[Any], timeout_s: float | None = None
    ) -> Any:
        key, version = int(message.__api_key__), int(message.__version__)
        answer = await self.request(key, version, [message], timeout_s=timeout_s)
        self._on_round_trip(self.answer_wait_s)
        return answer

    def take(self, answer: Any) -> None:
        _, sent_s, on_answer = self._waiting.popleft()
        self.answer_wait_s = self._loop.now_s - sent_s
        self.answer_bytes = len(answer) if isinstance(answer, memoryview) else 100
        self._heard_bytes += self.answer_bytes
        on_answer(answer)
        self._close_if_retired()


@dataclass(slots=True)
class _Session:
    epoch: int
    wanted: dict[PartitionKey, FetchFrom] = field(default_factory=dict)
    told: dict[PartitionKey, tuple[int, int]] = field(default_factory=dict)
    """High watermark and log start of each partition, as last answered."""


@dataclass(slots=True)
class _ParkedProduce:
    rows: list[Produced]
    needs: list[tuple[Produced, FakeLog, int, int]]
    """Rows that wait for the high watermark to reach an offset, in the epoch of the append."""


@dataclass(slots=True)
class _ParkedFetch:
    asked: FetchAsked
    session: _Session | None
    session_id: int
    until_s: float


class Wire:
    """One connection, from the broker's end to the slot's."""

    def __init__(self, net: Net, side: Side, owner: Process, connection: SimConnection) -> None:
        self.net, self.side, self.owner = net, side, owner
        self.comes_late = net.comes_late
        self.connection: SimConnection | None = connection
        self.inbound: deque[tuple[int, int, Any]] = deque()
        self.outbound: deque[Any] = deque()
        self.parked: _ParkedProduce | _ParkedFetch | None = None

    def sent(self, api_key: int, version: int, payload: Any) -> None:
        self.inbound.append((api_key, version, payload))

    def closed(self) -> None:
        """By the slot: nobody hears an answer; what was sent arrives all the same."""
        self.connection = None
        self.outbound.clear()
        # Questions that change nothing need not be answered to nobody.
        writes = (each for each in self.inbound if each[0] == PRODUCE_KEY)
        self.inbound = deque(writes if self.comes_late else ())
        if isinstance(self.parked, _ParkedFetch):
            self.parked = None

    def cut(self, *, drops: bool) -> None:
        """By the network, or since the slot is dead; with `drops` nothing sent arrives any more."""
        connection = self.connection
        self.closed()
        if drops:
            self.inbound.clear()
        if connection is not None and not self.owner.is_dead:
            self.owner.run(connection.close, ConnectionResetError("cut"))

    @property
    def is_over(self) -> bool:
        return self.connection is None and not self.inbound and self.parked is None

    @property
    def can_arrive(self) -> bool:
        return bool(self.inbound) and self.parked is None

    @property
    def can_answer(self) -> bool:
        return bool(self.outbound) and not self.owner.is_frozen


class Net:
    def __init__(
        self, loop: VirtualLoop, clusters: Mapping[ClusterAlias, FakeBrokers], on_produce: OnProduce
    ) -> None:
        self.loop, self.clusters, self._on_produce = loop, clusters, on_produce
        self.wires: list[Wire] = []
        self.comes_late = True
        """Whether what was sent may arrive after its connection ended."""
        self.down: set[Side] = set()
        self.hung_until_s: dict[Side, float] = {}
        self._sides = {
            host: (alias, broker)
            for alias, brokers in clusters.items()
            for broker, host in brokers.hosts.items()
        }
        self._sessions: dict[Side, dict[int, _Session]] = {
            side: {} for side in self._sides.values()
        }
        self._session_ids = count(1)
        self._fetch_timers: list[tuple[float, int, Wire]] = []
        self._timer_numbers = count()

    async def open(
        self,
        host: str,
        port: int,
        settings: dict[str, Any],
        *,
        cluster: str,
        on_round_trip: OnRoundTrip = lambda _: None,
    ) -> SimConnection:
        """In place of `heliograph.broker.connection.open_connection`."""
        side, owner = self._sides[host], settings["process"]
        if side in self.down or self.hung_until_s.get(side, 0) > self.loop.now_s:
            raise BrokerUnreachable(f"cluster {cluster}, broker {host}: refused")
        connection = SimConnection(f"{owner.name}>{host}", self.loop, on_round_trip)
        wire = Wire(self, side, owner, connection)
        connection.open(wire)
        self.wires.append(wire)
        return connection

    # -- what the schedule may do

    def moves(self) -> list[tuple[Wire, bool]]:
        """Wires on which something may move, and whether it is an answer."""
        found: list[tuple[Wire, bool]] = []
        has_over = False
        for wire in self.wires:
            if wire.outbound and not wire.owner.is_frozen:
                found.append((wire, True))
            if wire.inbound:
                if wire.parked is None and not self._is_silent(wire.side):
                    found.append((wire, False))
            elif wire.connection is None and wire.parked is None:
                has_over = True
        if has_over:
            self.wires = [wire for wire in self.wires if not wire.is_over]
        return found

    def _is_silent(self, side: Side) -> bool:
        if not self.hung_until_s:
            return False
        until_s = self.hung_until_s.get(side)
        if until_s is None:
            return False
        if until_s <= self.loop.now_s:
            del self.hung_until_s[side]
            return False
        return True

    def move(self, wire: Wire, is_answer: bool) -> None:
        if is_answer:
            answer = wire.outbound.popleft()
            if wire.connection is not None:
                wire.owner.run(wire.connection.take, answer)
        else:
            self._arrive(wire)

    def cut_side(self, side: Side, *, drops: bool) -> None:
        for wire in self._of(side):
            wire.cut(drops=drops)

    def is_producing(self, alias: str) -> bool:
        """Whether anything that writes is on its way to the cluster, or not answered."""
        return any(
            wire.side[0] == alias
            and (
                isinstance(wire.parked, _ParkedProduce)
                or any(api_key == PRODUCE_KEY for api_key, _, _ in wire.inbound)
                or bool(wire.outbound)
            )
            for wire in self.wires
        )

    def forget_sessions(self, side: Side) -> None:
        self._sessions[side].clear()

    def _of(self, side: Side) -> Iterator[Wire]:
        return (wire for wire in tuple(self.wires) if wire.side == side)

    # -- the broker's end

    def _arrive(self, wire: Wire) -> None:
        api_key, version, payload = wire.inbound.popleft()
        alias, broker = wire.side
        brokers = self.clusters[ClusterAlias(alias)]
        if api_key == PRODUCE_KEY:
            self._produce(wire, brokers, broker, payload, version)
        elif api_key == FETCH_KEY:
            self._fetch(wire, parse_fetch_request(payload))
        else:
            self._answer(wire, brokers.respond(api_key, payload, broker))

    def _answer(self, wire: Wire, answer: Any) -> None:
        if wire.connection is not None:
            wire.outbound.append(
                memoryview(bytearray(answer)) if isinstance(answer, bytes) else answer
            )

    def _produce(
        self, wire: Wire, brokers: FakeBrokers, broker: int, payload: bytes, version: int
    ) -> None:
        parked = _ParkedProduce([], [])
        for asked in parse_produce_request(payload, version):
            log = brokers.log_of(asked[0], asked[1])
            end = -1 if log is None else log.end
            (row,) = brokers.produce([asked], broker)
            parked.rows.append(row)
            if log is None or row.error_code:
                continue
            if log.end != end:
                self._on_produce(wire.side[0], log, asked[2], row.base_offset)
                needed = log.end
            else:
                needed = min(log.end, row.base_offset + 1)
            parked.needs.append((row, log, needed, log.epoch))
        wire.parked = parked
        self._poke(wire)
        self.poke()

    def _fetch(self, wire: Wire, asked: FetchAsked) -> None:
        sessions, session, session_id = self._sessions[wire.side], None, asked.session_id
        if asked.session_epoch == 0:
            sessions.pop(session_id, None)
            session_id = 0
            if len(sessions) < _SESSIONS_MAX:
                session_id = next(self._session_ids)
                session = sessions[session_id] = _Session(0)
        elif asked.session_epoch > 0:
            session = sessions.get(session_id)
            code = ErrorCode.none
            if session is None:
                code = ErrorCode.fetch_session_id_not_found
            elif session.epoch != asked.session_epoch:
                code = ErrorCode.invalid_fetch_session_epoch
            if code:
                self._answer(wire, fetch_answer({}, error_code=int(code)))
                return
        if session is not None:
            session.epoch += 1
            session.wanted.update(asked.wanted)
            for key in asked.forgotten:
                session.wanted.pop(key, None)
                session.told.pop(key, None)
        until_s = self.loop.now_s + asked.wait_ms_max / 1000
        wire.parked = _ParkedFetch(asked, session, session_id, until_s)
        heapq.heappush(self._fetch_timers, (until_s, next(self._timer_numbers), wire))
        self._poke(wire)

    def poke(self) -> None:
        """Something changed in the logs, or the time moved: answers may be due."""
        for wire in self.wires:
            if wire.parked is not None:
                self._poke(wire)

    def next_due_s(self) -> float | None:
        """When a Fetch has waited long enough."""
        timers = self._fetch_timers
        while timers and not _waits_until(timers[0][2].parked, timers[0][0]):
            heapq.heappop(timers)
        return timers[0][0] if timers else None

    def _poke(self, wire: Wire) -> None:
        parked = wire.parked
        if isinstance(parked, _ParkedProduce):
            self._poke_produce(wire, parked)
        elif parked is not None:
            self._poke_fetch(wire, parked)

    def _poke_produce(self, wire: Wire, parked: _ParkedProduce) -> None:
        waiting = []
        for need in parked.needs:
            row, log, needed, epoch = need
            if log.epoch != epoch:
                # The one that took it leads no more: whether it stays is not known.
                row.error_code = int(ErrorCode.not_leader_or_follower)
                row.base_offset = -1
            elif log.high_watermark < needed:
                waiting.append(need)
        parked.needs = waiting
        if not waiting:
            wire.parked = None
            self._answer(wire, produce_answer(parked.rows))

    def _poke_fetch(self, wire: Wire, parked: _ParkedFetch) -> None:
        alias, broker = wire.side
        asked, session = parked.asked, parked.session
        wanted = asked.wanted if session is None else session.wanted
        rows = self.clusters[ClusterAlias(alias)].fetch(asked, wanted, broker)
        if session is not None:
            rows = _news(session, rows)
        is_news = any(row.is_news for row in rows.values())
        if not is_news and self.loop.now_s < parked.until_s:
            return
        if session is not None:
            for key, row in rows.items():
                session.told[key] = row.high_watermark, row.log_start_offset
        wire.parked = None
        self._answer(wire, fetch_answer(rows, session_id=parked.session_id))


def _waits_until(parked: _ParkedProduce | _ParkedFetch | None, until_s: float) -> bool:
    return isinstance(parked, _ParkedFetch) and parked.until_s == until_s


def _news(session: _Session, rows: dict[PartitionKey, Fetched]) -> dict[PartitionKey, Fetched]:
    return {
        key: row
        for key, row in rows.items()
        if row.is_news or session.told.get(key) != (row.high_watermark, row.log_start_offset)
    }
