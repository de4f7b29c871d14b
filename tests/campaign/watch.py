"""Looks at the mirror from outside while it runs: a lane that does not move must say why.

Asked over REST, as an operator would. What the source has is asked of the source itself.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka import IsolationLevel, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from heliograph_tools.localkafka.cluster import LocalCluster
from tests.campaign.drivers import Driver, Drivers, NoAnswer
from tests.campaign.layout import Channel

SILENT_S_MAX: Final = 10.0
_LOOK_S: Final = 1.0
_ANSWER_S_MAX: Final = 5.0
_SAYS_WHY: Final = frozenset({"waiting", "stalled", "paused"})
_LANES_MAX: Final = 10_000

Place = tuple[str, str, int]
"""Flow, topic, partition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """A lane that has something to do and was seen not to get further, since when, by whom."""

    driver: int
    read_offset: int
    since_s: float


def lane_rows(drivers: Drivers) -> dict[Place, tuple[Driver, Mapping[str, Any]]]:
    """Every lane as the driver that leads its flow tells it."""
    found: dict[Place, tuple[Driver, Mapping[str, Any]]] = {}
    for driver in drivers.answering():
        led = drivers.led_by(driver)
        if not led:
            continue
        try:
            rows = driver.get(f"/v1/lanes?page_size={_LANES_MAX}")["lanes"]
        except NoAnswer:
            continue
        for row in rows:
            if row["flow"] in led:
                found[row["flow"], row["topic"], row["partition"]] = (driver, row)
    return found


class Ends:
    """Where the logs of a cluster end; one client for many questions."""

    def __init__(self, cluster: LocalCluster) -> None:
        self._config = {**cluster.librdkafka_config, "log_level": 0}
        self._admin = AdminClient(self._config)

    def of(
        self, places: Iterable[tuple[str, int]], *, committed: bool = True
    ) -> dict[tuple[str, int], int]:
        """Where a reader comes to; of committed records, before the first open transaction.

        Without those that have no leader just now, or no topic: nothing is known of them.
        """
        level = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
        asked = {TopicPartition(*place): OffsetSpec.latest() for place in places}
        if not asked:
            return {}
        answers = self._admin.list_offsets(
            asked, isolation_level=level, request_timeout=_ANSWER_S_MAX
        )
        found: dict[tuple[str, int], int] = {}
        deadline_s = time.monotonic() + 2 * _ANSWER_S_MAX
        for partition, answer in answers.items():
            try:
                end = answer.result(max(0.0, deadline_s - time.monotonic())).offset
            except (KafkaException, TimeoutError):
                # A client whose broker was stopped for long may not find it again.
                self._admin = AdminClient(self._config)
            else:
                found[partition.topic, partition.partition] = end
        return found


class Watch:
    """A thread that looks every second."""

    def __init__(
        self,
        drivers: Drivers,
        ends: Mapping[str, Ends],
        places: Callable[[], dict[Channel, int]],
    ) -> None:
        self._drivers, self._ends, self._places = drivers, ends, places
        self._standing: dict[Place, Standing] = {}
        self._told: set[Place] = set()
        self._stop = threading.Event()
        self.silent: list[str] = []
        self.looks = 0
        self.states: Counter[str] = Counter()
        """How often lanes were seen in which state, with the reason."""
        self._failed: BaseException | None = None
        self._thread = threading.Thread(target=self._guarded, name="watch", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._stop.set()
        self._thread.join(60)
        if self._failed is not None:
            raise self._failed

    def _guarded(self) -> None:
        try:
            while not self._stop.wait(_LOOK_S):
                self._look()
        except BaseException as exc:  # noqa: BLE001 - raised again by `close`
            self._failed = exc

    def _look(self) -> None:
        places = self._places()
        ends = {
            alias: asked.of(
                (channel.topic, number)
                for channel, count in places.items()
                if channel.source == alias
                for number in range(count)
            )
            for alias, asked in self._ends.items()
        }
        clusters = {(str(channel.flow), channel.topic): channel.source for channel in places}
        rows = lane_rows(self._drivers)
        self.looks += 1
        for place in list(self._standing):
            if place not in rows:
                # Its driver is gone or does not answer: another one has to find out first.
                del self._standing[place]
        for place, (driver, row) in rows.items():
            flow, topic, number = place
            self.states[f"{row['state']}: {row['reason']}" if row["reason"] else row["state"]] += 1
            alias = clusters.get((flow, topic))
            end = None if alias is None else ends[alias].get((topic, number))
            self._judge(place, driver, row, end)

    def _judge(self, place: Place, driver: Driver, row: Mapping[str, Any], end: int | None) -> None:
        before = self._standing.pop(place, None)
        read = row["source_read_offset"]
        # A throttled lane names the decision.
        if end is None or row["state"] in _SAYS_WHY or row["decisions"] or read >= end:
            self._told.discard(place)
            return
        now_s = time.monotonic()
        if before is None or (before.driver, before.read_offset) != (driver.run.pid, read):
            self._standing[place] = Standing(driver=driver.run.pid, read_offset=read, since_s=now_s)
            return
        self._standing[place] = before
        silent_s = now_s - before.since_s
        if silent_s > SILENT_S_MAX and place not in self._told:
            self._told.add(place)
            self.silent.append(
                f"{place[0]}/{place[1]}-{place[2]}: {row['state']} at source offset {read} for "
                f"{silent_s:.0f} s while the source ends at {end}, without a reason"
            )
