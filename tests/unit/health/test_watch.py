"""The job that keeps alarms: noted before they are told, told once, also while nothing can be
noted."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar, cast

import pytest

from heliograph.broker.clients import Clients
from heliograph.config.health import AlarmsConfig, CanaryConfig
from heliograph.config.schema import ClusterConfig, FlowConfig, MirrorConfig
from heliograph.errors import BrokerUnreachable
from heliograph.health import watch
from heliograph.health.alarms import Alarm
from heliograph.health.conditions import Kind
from heliograph.health.note import AlarmsNote, ForeignNote, alarms_note, new_silence, silence_entry
from heliograph.health.probes import LedgerSeen, Probes
from heliograph.health.watch import WatchJob, grown, interval_s, together
from heliograph.lag.figures import LagReport, LaneLag, Motion
from heliograph.ledger.canary_note import CanaryNote, canary_entry
from heliograph.ledger.entries import Entry, MemoEntry, Tombstone
from heliograph.ledger.outage_note import outage_note
from heliograph.ledger.service import LedgerService
from heliograph.ledger.standby_note import StandbyDriver, with_standby
from heliograph.ledger.view import LedgerView
from heliograph.letters.notes import LettersNote, NotedLetter, note_entry
from heliograph.model import (
    Awaited,
    ClusterAlias,
    Copying,
    Idle,
    LaneId,
    LaneProgress,
    LoopPrevention,
    Paused,
    SlotId,
    Stalled,
    StallReason,
    TopicName,
    TopicPartition,
    Waiting,
)
from tests.unit.health.sights import AB, FLOW, WITH_CANARY, lane, with_alarms

T = TypeVar("T")


class Ledgers:
    """One ledger that can be broken."""

    author = "me"

    def __init__(self) -> None:
        self.view = LedgerView()
        self.writes: list[str] = []
        self.is_broken = False

    def ask_recent(self, _: object, question: Callable[[LedgerView], T], __: float) -> T:
        return question(self.view)

    def note(self, _: object, entries: Iterable[Entry | Tombstone]) -> None:
        if self.is_broken:
            raise BrokerUnreachable("cluster B: no answer")
        for entry in entries:
            assert isinstance(entry, MemoEntry)
            self.writes.append(entry.subject)
            self.view.apply(entry)

    @property
    def alarms(self) -> dict[str, str]:
        return {alarm.name: alarm.told for alarm in alarms_note(self.view).alarms if alarm.is_open}


class Scene:
    def __init__(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, **alarms: Any) -> None:
        self.out = tmp_path / "told"
        script = tmp_path / "hear.py"
        script.write_text(
            f"import sys; open({str(self.out)!r}, 'a').write(sys.stdin.read() + '\\n')\n"
            f"sys.exit(__import__('os').path.exists({str(tmp_path / 'deaf')!r}))\n"
        )
        self.deaf = tmp_path / "deaf"
        wants = AlarmsConfig(command=f"{sys.executable} {script}", clear_s=0, standby_s=1, **alarms)
        self.flow: FlowConfig = FLOW.model_copy(update={"alarms": wants})
        self.config = MirrorConfig(
            clusters={
                name: ClusterConfig(alias=name, bootstrap_servers=("127.0.0.1:1",))
                for name in (ClusterAlias("A"), ClusterAlias("B"))
            },
            pairs=(self.flow,),
        )
        self.ledgers = Ledgers()
        self.progress: dict[LaneId, LaneProgress] = {}
        self.lags: dict[LaneId, LaneLag] = {}
        self.seen = LedgerSeen(bytes=1)
        monkeypatch.setattr(Probes, "ledger", lambda _: self.seen)
        self.clocks: dict[str, float | None] = {"A": 0.0, "B": 0.0}
        self.slot_clocks: dict[SlotId, float] = {}
        monkeypatch.setattr(Probes, "clocks", lambda _: self.clocks)
        monkeypatch.setattr(Probes, "horizons", lambda *_: {})
        self.now_ms = 1_800_000_000_000
        monkeypatch.setattr(watch, "now_ms", lambda: self.now_ms)
        monkeypatch.setattr(watch, "monotonic_s", lambda: self.now_ms / 1000)
        self.job = self.driver()

    def driver(self) -> WatchJob:
        """A driver that comes to lead the flow, with nothing in its memory."""
        return WatchJob(
            self.config,
            self.flow,
            Clients(self.config),
            cast(LedgerService, self.ledgers),
            lambda: self.progress,
            lambda: LagReport(at_ms=self.now_ms, lanes=self.lags),
            lambda: self.slot_clocks,
        )

    def stall(self, *topics: str) -> None:
        for topic in topics:
            self.lane(topic, Stalled(reason=StallReason.BUG, detail="", since_ms=1))

    def lane(self, topic: str, state: Any = None, **more: Any) -> None:
        id_ = LaneId(flow=AB, source=TopicPartition(topic=TopicName(topic), partition=0))
        self.progress[id_] = LaneProgress(
            lane=id_,
            state=state or Idle(),
            position=1,
            source_next_offset=1,
            source_end_offset=1,
            source_start_offset=0,
            target_next_offset=1,
            **more,
        )

    def step(self, after_s: int = 10) -> None:
        self.now_ms += 1000 * after_s
        self.job.step()

    @property
    def told(self) -> list[tuple[str, str]]:
        lines = self.out.read_text().splitlines() if self.out.exists() else []
        return [
            (each["alarm"], each["state"])
            for line in lines
            for each in json.loads(line)["detail"]["alarms"]
        ]


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    return Scene(tmp_path, monkeypatch)


def test_an_alarm_is_noted_then_told_once_and_so_is_its_end(scene: Scene) -> None:
    scene.stall("orders", "logs")
    for _ in range(3):
        scene.step()
    during = scene.ledgers.alarms
    scene.lane("orders")
    scene.lane("logs")
    for _ in range(3):
        scene.step()

    assert during == {"stall:orders": "raised", "stall:logs": "raised"}
    assert scene.ledgers.alarms == {}
    assert sorted(scene.told[:2]) == [("stall:logs", "raised"), ("stall:orders", "raised")]
    assert sorted(scene.told[2:]) == [("stall:logs", "ended"), ("stall:orders", "ended")]
    # Raised and told, ended and told; nothing while nothing changes.
    assert [subject for subject in scene.ledgers.writes if subject == "alarms"] == ["alarms"] * 4


def test_a_successor_does_not_tell_again_and_tells_what_was_not_told(scene: Scene) -> None:
    scene.stall("orders")
    scene.step()
    scene.deaf.touch()
    scene.stall("logs")
    scene.step()
    scene.deaf.unlink()
    scene.job = scene.driver()

    scene.step()
    scene.step()

    tries = [alarm for alarm, _ in scene.told]
    assert tries == ["stall:orders", "stall:logs", "stall:logs"]
    assert scene.ledgers.alarms == {"stall:orders": "raised", "stall:logs": "raised"}


def test_who_does_not_hear_is_told_again_ever_later(scene: Scene) -> None:
    scene.deaf.touch()
    scene.stall("orders")
    for _ in range(20):
        scene.step()
    tries = len(scene.told)
    scene.deaf.unlink()
    for _ in range(40):
        scene.step()

    assert tries == 5  # after 0, 10, 30, 70 and 150 s
    assert len(scene.told) == tries + 1


def test_a_silenced_alarm_is_noted_and_told_when_the_silence_ends(scene: Scene) -> None:
    until_ms = scene.now_ms + 35_000
    made = new_silence("stall", who="ann", why="", at_ms=1, until_ms=until_ms)
    scene.ledgers.view.apply(silence_entry(made))
    scene.stall("orders")

    scene.step()
    during = (scene.ledgers.alarms, scene.told)
    scene.job = scene.driver()
    scene.step()
    after_restart = scene.told
    scene.step(20)

    assert during == ({"stall:orders": "nothing"}, [])
    assert after_restart == []
    assert scene.told == [("stall:orders", "raised")]


def test_while_the_target_does_not_answer_alarms_are_told_and_noted_later(scene: Scene) -> None:
    scene.lane("orders")
    scene.step()
    for _ in range(8):
        scene.now_ms += 10_000
        scene.job.step_lapsed("B does not answer")
    told = scene.told
    scene.step()
    noted = dict(scene.ledgers.alarms)
    scene.step()

    assert told == [("unknown", "raised")]
    assert noted in ({}, {"unknown": "raised"})
    assert scene.told == [("unknown", "raised"), ("unknown", "ended")]
    assert scene.ledgers.alarms == {}


def test_while_the_target_does_not_answer_nothing_ends_and_a_canary_that_was_due_is_late(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = Scene(tmp_path, monkeypatch, clock_s=5)
    canary = CanaryConfig(enabled=True, interval_s=60)
    scene.flow = scene.flow.model_copy(update={"canary": canary})
    scene.ledgers.view.apply(
        canary_entry(CanaryNote(at_ms=scene.now_ms, interval_s=60, sent_ms=scene.now_ms))
    )
    scene.clocks["A"] = 600.0
    scene.job = scene.driver()
    scene.lane("orders")
    scene.step(0)
    before, at_ms = scene.told, scene.now_ms
    raised_s = []
    for _ in range(12):
        scene.now_ms += 10_000
        scene.job.step_lapsed("B does not answer")
        if ("canary", "raised") in scene.told:
            raised_s.append((scene.now_ms - at_ms) / 1000)

    assert before == [("clock:A", "raised")]
    assert raised_s[0] <= 2 * 60
    assert ("clock:A", "ended") not in scene.told


def test_what_cannot_be_noted_is_not_told_twice_once_it_can(scene: Scene) -> None:
    scene.stall("orders")
    scene.ledgers.is_broken = True
    with pytest.raises(BrokerUnreachable):
        scene.step()
    scene.ledgers.is_broken = False
    scene.step()
    scene.step()

    assert scene.told == [("stall:orders", "raised")]


def test_lanes_that_no_slot_has_told_of_yet_end_no_alarm(scene: Scene) -> None:
    scene.stall("orders")
    scene.step()
    scene.progress.clear()
    scene.job = scene.driver()

    for _ in range(5):
        scene.step()

    assert scene.ledgers.alarms == {"stall:orders": "raised"}


def test_a_standby_that_was_seen_is_missed(scene: Scene) -> None:
    scene.lane("orders")
    standby = StandbyDriver(author="you", host="h", pid=1, at_ms=scene.now_ms, lasts_ms=30_000)
    scene.ledgers.view.apply(with_standby(scene.ledgers.view, standby))

    scene.step()
    before = scene.ledgers.alarms
    for _ in range(5):
        scene.step()

    assert before == {}
    assert list(scene.ledgers.alarms) == ["standby"]


def test_when_retention_deletes_what_waits_is_taken_from_the_lag_model(scene: Scene) -> None:
    scene.lane("orders", Copying(), behind_since_ms=scene.now_ms)
    (id_, at) = scene.progress.popitem()
    scene.progress[id_] = replace(at, source_end_offset=9)
    scene.lags[id_] = LaneLag(
        lane=id_, motion=Motion.MOVING, overrun_s=90.0, overrun_by="retention.bytes"
    )

    scene.step()

    texts = {alarm.name: alarm.text for alarm in alarms_note(scene.ledgers.view).alarms}
    assert texts == {
        "overrun:orders": "retention.bytes deletes records that wait in 90 s: orders-0"
    }


def test_a_clock_a_large_ledger_and_foreign_records_are_told(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Probes, "writers", lambda *_: "producer ids 4711")
    scene.seen = LedgerSeen(bytes=2**31, ahead_s=-30.0)
    scene.lane("orders", foreign_records=3, last_timestamp_ms=scene.now_ms + 3_600_000)

    scene.step()

    texts = {alarm.name: alarm.text for alarm in alarms_note(scene.ledgers.view).alarms}
    assert set(texts) == {"clock:B", "clock:A or its producers", "ledger", "foreign:orders"}
    assert texts["clock:B"] == "the clock of B is 30.0 s behind the driver's"
    assert texts["foreign:orders"].endswith("of other writers on the target: producer ids 4711")


def test_where_both_sides_take_writes_records_of_others_on_the_target_are_no_news(
    scene: Scene,
) -> None:
    both = scene.flow.model_copy(update={"loop_prevention": LoopPrevention.RETURNING})
    scene.flow, scene.config = both, scene.config.model_copy(update={"pairs": (both,)})
    scene.lane("orders", foreign_records=3)
    driver = scene.driver()

    driver.step()

    assert alarms_note(scene.ledgers.view) == AlarmsNote()
    assert "alarms" not in scene.ledgers.writes


def test_dead_letters_are_an_alarm_that_ends_some_time_after_the_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = Scene(tmp_path, monkeypatch, letters_s=60)
    scene.lane("orders")

    def write_letter(offset: int) -> None:
        note = LettersNote(
            topic=TopicName("orders.dead"),
            partition=0,
            from_offset=0,
            producer_id=1,
            producer_epoch=0,
            sequence=offset,
            position=offset,
            source_topic_id=None,
            at_ms=scene.now_ms,
            letters=(
                NotedLetter(
                    offset=offset, step="clean", error="E", why="no", stage="TRANSFORMATION"
                ),
            ),
        )
        source = TopicPartition(topic=TopicName("orders"), partition=0)
        scene.ledgers.view.apply(note_entry(source, note))

    for offset, pauses_s in ((7, (10, 40)), (8, (10, 40)), (9, (10, 55, 10))):
        write_letter(offset)
        for pause_s in pauses_s:
            scene.step(pause_s)

    (alarm,) = alarms_note(scene.ledgers.view).alarms
    assert alarm.text == "1 record went to the dead-letter topic so far"
    assert scene.told == [("letters:orders", "raised"), ("letters:orders", "ended")]


def test_clocks_of_both_clusters_and_of_slots_are_compared_and_one_that_is_not_known_ends_nothing(
    scene: Scene,
) -> None:
    scene.lane("orders")
    scene.clocks = {"A": 12.0, "B": -0.2}
    scene.slot_clocks = {SlotId(3): -11.0}

    scene.step()
    assert set(scene.ledgers.alarms) == {"clock:A", "clock:slot 3"}

    scene.clocks, scene.slot_clocks = {"A": None, "B": None}, {SlotId(3): 0.0}
    scene.step()
    assert set(scene.ledgers.alarms) == {"clock:A"}

    scene.clocks = {"A": 0.0, "B": None}
    scene.step()
    assert not scene.ledgers.alarms


def test_the_longest_outage_is_noted_rarely_and_outlives_drivers_and_outages(scene: Scene) -> None:
    def longest_s() -> float:
        note = outage_note(scene.ledgers.view)
        assert note is not None
        return note.longest_s

    scene.lane("orders")
    for _ in range(90):
        scene.step()  # a quarter of an hour, and all is well
    assert longest_s() == 0.0
    assert scene.ledgers.writes.count("outage") == 3

    scene.stall("orders")
    for _ in range(120):
        scene.step()
    stalled_s = longest_s()
    assert 1_100 < stalled_s <= 1_500
    assert scene.ledgers.writes.count("outage") < 45

    scene.lane("orders")
    scene.step()
    scene.job = scene.driver()
    scene.progress.clear()
    scene.step(86_400)  # nobody led the flow for a day, and lanes have only begun
    scene.lane("orders")
    scene.step()
    assert longest_s() == pytest.approx(86_410, abs=301)

    waits = Waiting(awaited=Awaited.SOURCE, since_ms=scene.now_ms)
    scene.lane("orders", waits)
    for _ in range(10_000):
        scene.step()
    assert longest_s() == pytest.approx(100_000, rel=0.05)


def test_no_lanes_a_pause_and_a_short_wait_are_no_outage(scene: Scene) -> None:
    for _ in range(120):
        scene.step()
    scene.lane("orders", Paused())
    for _ in range(120):
        scene.step()
    for _ in range(120):  # as it copies, it waits for a moment now and then
        scene.lane("orders", Waiting(awaited=Awaited.ROOM, since_ms=scene.now_ms))
        scene.step()

    note = outage_note(scene.ledgers.view)
    assert note is not None
    assert note.longest_ms == 0


@pytest.mark.parametrize(
    ("flow", "expected"), [(FLOW, 10), (WITH_CANARY, 10), (with_alarms(interval_s=7), 7)]
)
def test_it_looks_as_often_as_told(flow: FlowConfig, expected: float) -> None:
    assert interval_s(flow) == expected


def test_with_a_quick_canary_it_looks_more_often() -> None:
    quick = WITH_CANARY.canary.model_copy(update={"interval_s": 8})

    assert interval_s(WITH_CANARY.model_copy(update={"canary": quick})) == 2


def test_only_growth_of_foreign_records_is_news() -> None:
    known = (ForeignNote(topic=TopicName("orders"), records=3, grew_ms=5),)
    lanes = [lane(foreign_records=2), lane(partition=1, foreign_records=1), lane("logs")]

    same = grown(known, lanes, 9)
    more = grown(known, [*lanes, lane("logs", foreign_records=1)], 9)

    assert same == known
    assert more == (*known, ForeignNote(topic=TopicName("logs"), records=1, grew_ms=9))


def test_what_another_driver_noted_meanwhile_stays_and_what_was_told_here_counts() -> None:
    alarm = Alarm(kind=Kind.LAG, subject="orders", raised_ms=1)
    over = replace(alarm, subject="logs", ended_ms=5, told="ended")
    own = AlarmsNote(
        alarms=(
            replace(alarm, told="raised"),
            replace(alarm, subject="logs"),
            Alarm(kind=Kind.UNKNOWN, raised_ms=3, told="raised"),
        )
    )

    merged = together(AlarmsNote(alarms=(alarm, over)), own)

    assert merged.alarms == (
        replace(alarm, told="raised"),
        over,
        Alarm(kind=Kind.UNKNOWN, raised_ms=3, told="raised"),
    )
