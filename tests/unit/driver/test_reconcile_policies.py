"""What a driver decides about stalled lanes, and what that means for `run --once`."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import cast

import pytest

from heliograph import model
from heliograph.broker.clients import Clients
from heliograph.config.schema import ClusterConfig, FlowConfig, MirrorConfig
from heliograph.driver import policies, reconcile
from heliograph.driver.policies import DECIDED_S
from heliograph.driver.reconcile import Reconciler
from heliograph.errors import BrokerError, BrokerUnreachable, CorruptBatch, PluginFailed
from heliograph.ledger.leadership import Trouble
from heliograph.ledger.new_starts import Overrun, Waiting
from heliograph.ledger.service import LedgerService
from heliograph.model import (
    Awaited,
    ClusterAlias,
    Copying,
    FlowId,
    Idle,
    Lane,
    LaneId,
    LaneLoad,
    LaneProgress,
    LaneState,
    OffsetRange,
    SlotId,
    Stalled,
    StallReason,
    TopicId,
    TopicName,
    TopicPartition,
)
from heliograph.topics.observe import Observation

FLOW = FlowId(source=ClusterAlias("A"), target=ClusterAlias("B"))
PARTITION = TopicPartition(topic=TopicName("orders"), partition=0)
OLD, NEW = TopicId("old"), TopicId("new")
RECREATED = Stalled(reason=StallReason.TOPIC_RECREATED, detail="", since_ms=1)
OVERRUN = Stalled(
    reason=StallReason.RETENTION_OVERRUN,
    detail="",
    since_ms=1,
    lost=OffsetRange(start=3, end=7),
)


class Ledgers:
    """Notes what was decided; the source topic is `NEW`."""

    def __init__(self, refused: Mapping[int, BrokerError] | None = None) -> None:
        """`refused` is what the target answers for a partition."""
        self.decided: list[str] = []
        self.refused: Mapping[int, BrokerError] = refused or {}

    def skip(self, flow: FlowId, overrun: Sequence[Overrun]) -> list[BrokerError | None]:
        self.decided.append(" ".join(f"skip {at.lost.start}-{at.lost.end}" for at in overrun))
        return [self.refused.get(at.lane.id.source.partition) for at in overrun]

    def restart(self, flow: FlowId, lanes: Sequence[Waiting]) -> list[TopicId | BrokerError]:
        self.decided.append(" ".join(f"restart at {each.at.position}" for each in lanes))
        return [NEW for _ in lanes]


class Slots:
    def __init__(self, state: LaneState, lanes: int = 1) -> None:
        self.state, self.lanes = state, lanes
        self.resumed = 0
        self.resumed_lanes: list[LaneId] = []

    def apply(
        self,
        assignment: Mapping[SlotId, tuple[Lane, ...]],
        abandoned: frozenset[FlowId],
        stuck: frozenset[LaneId],
    ) -> None: ...

    def throttle(self, limits: Mapping[str, int]) -> None: ...

    def resume(self, ids: Iterable[LaneId]) -> None:
        self.resumed += 1
        self.resumed_lanes += ids

    def progress(self) -> Mapping[LaneId, LaneProgress]:
        found = [
            LaneProgress(
                lane=lane(OLD, number).id,
                state=self.state,
                position=5,
                source_next_offset=5,
                source_end_offset=5,
                source_start_offset=0,
                target_next_offset=5,
            )
            for number in range(self.lanes)
        ]
        return {at.lane: at for at in found}

    def loads(self) -> Mapping[LaneId, LaneLoad]:
        return {}

    def current(self) -> Mapping[LaneId, SlotId]:
        return {}


def lane(topic_id: TopicId, partition: int = 0) -> Lane:
    at = replace(PARTITION, partition=partition)
    return Lane(id=LaneId(flow=FLOW, source=at), target=at, source_topic_id=topic_id)


def reconciler(ledgers: Ledgers, *, acts: bool, topic_id: TopicId = OLD) -> Reconciler:
    """With one lane planned, of a flow whose policies act on what happens to it, or stall."""
    flow = FlowConfig(id=FLOW, enabled=True)
    if acts:
        flow = flow.model_copy(
            update={"on_topic_recreated": "restart", "on_retention_overrun": "skip"}
        )
    config = MirrorConfig(
        clusters={
            alias: ClusterConfig(alias=alias, bootstrap_servers=("127.0.0.1:1",))
            for alias in (FLOW.source, FLOW.target)
        },
        pairs=(flow,),
    )
    made = Reconciler(config, cast("LedgerService", ledgers), Clients(config), 1)
    state = made._flows[FLOW]
    state.lanes, state.ready, state.due_s = (lane(topic_id),), True, float("inf")
    return made


def followed(made: Reconciler, slots: Slots) -> bool:
    """One look of the driver; whether `run --once` would end after it."""
    return made.finished(asyncio.run(made.apply_policies(slots)))


@pytest.mark.parametrize("stall", [RECREATED, OVERRUN], ids=["recreated", "overrun"])
def test_a_lane_that_a_policy_lets_go_on_is_not_done_until_it_has_gone_on(stall: Stalled) -> None:
    """The decision is written, and the slot still reports the stall: `--once` must not end."""
    made, slots = reconciler(Ledgers(), acts=True), Slots(stall)

    ended = [followed(made, slots) for _ in range(3)]
    slots.state = Idle()

    assert ended == [False, False, False]
    assert followed(made, slots)


@pytest.mark.parametrize("stall", [RECREATED, OVERRUN], ids=["recreated", "overrun"])
def test_a_lane_that_waits_for_an_operator_is_done(stall: Stalled) -> None:
    ledgers = Ledgers()

    assert followed(reconciler(ledgers, acts=False), Slots(stall))
    assert ledgers.decided == []


def test_one_stall_is_decided_on_once_even_when_it_is_reported_for_the_lanes_next_topic() -> None:
    ledgers = Ledgers()
    made, slots = reconciler(ledgers, acts=True), Slots(RECREATED)

    followed(made, slots)
    due_in_s = made.due_in_s
    made._flows[FLOW].lanes = (lane(NEW),)
    followed(made, slots)

    assert ledgers.decided == ["restart at 5"]
    assert due_in_s == 0.0  # the lane learns the new topic's id from a new plan,
    assert slots.resumed == 0  # not from a resume


def test_a_lane_that_names_the_new_topic_already_is_resumed() -> None:
    slots = Slots(RECREATED)

    followed(reconciler(Ledgers(), acts=True, topic_id=NEW), slots)

    assert slots.resumed == 1


def test_the_same_stall_that_comes_again_is_decided_on_again() -> None:
    ledgers = Ledgers()
    made = reconciler(ledgers, acts=True)

    followed(made, Slots(RECREATED))
    followed(made, Slots(replace(RECREATED, since_ms=2)))
    followed(made, Slots(OVERRUN))
    followed(made, Slots(replace(OVERRUN, lost=OffsetRange(start=3, end=9))))

    assert ledgers.decided == ["restart at 5", "restart at 5", "skip 3-7", "skip 3-9"]


RETRYING = replace(RECREATED, reason=StallReason.SOURCE_UNREACHABLE, retrying=True)


def test_a_lane_that_is_tried_again_and_again_is_given_up_by_a_run_that_is_to_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made, slots = reconciler(Ledgers(), acts=False), Slots(RETRYING)
    now_s = 100.0
    monkeypatch.setattr(reconcile, "monotonic_s", lambda: now_s)

    ended = [followed(made, slots)]
    now_s += Reconciler.STALL_S_MAX - 1
    ended.append(followed(made, slots))
    slots.state = Idle()
    now_s += 10
    went_on = followed(made, slots)
    slots.state = RETRYING
    ended.append(followed(made, slots))
    now_s += Reconciler.STALL_S_MAX
    ended.append(followed(made, slots))

    assert went_on
    assert ended == [False, False, False, True]


@pytest.mark.parametrize(
    ("error", "waits"),
    [(BrokerError("cannot be created"), False), (BrokerUnreachable("no answer"), True)],
)
def test_a_flow_that_cannot_be_made_ready_is_over_at_once_unless_trying_again_may_help(
    error: BrokerError, waits: bool
) -> None:
    made = reconciler(Ledgers(), acts=False)
    state = made._flows[FLOW]
    state.lanes, state.ready = (), False
    fresh = made.finished({})
    state.trouble = Trouble.of(error, None)

    ended = made.finished({})
    state.trouble = replace(state.trouble, since_s=state.trouble.since_s - 60)

    assert not fresh
    assert ended is not waits
    assert made.finished({})
    assert made.failures == made.problems == {FLOW: str(error)}


def test_a_lane_that_waits_for_an_answer_has_not_caught_up() -> None:
    """`--once` ended when a source had not answered for long: the lane said what it knew before."""
    made, slots = reconciler(Ledgers(), acts=False), Slots(Copying())
    ended = []
    for awaited in Awaited:
        slots.state = model.Waiting(awaited=awaited, since_ms=1)
        ended.append(followed(made, slots))
    slots.state = Idle()
    ended.append(followed(made, slots))

    assert ended == [*(False for _ in Awaited), True]


def test_lanes_that_copy_are_waited_for_where_another_topic_cannot_be_created() -> None:
    made, slots = reconciler(Ledgers(), acts=False), Slots(Copying())
    made._flows[FLOW].trouble = Trouble.of(BrokerError("A.other cannot be created"), None)

    ended = [followed(made, slots)]
    slots.state = Idle()
    ended.append(followed(made, slots))

    assert ended == [False, True]


def test_a_stall_that_lasts_is_decided_on_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A decision for a place that the lane had left waits for nobody: the next one helps."""
    ledgers, slots, now_s = Ledgers(), Slots(OVERRUN), 1_000.0
    made = reconciler(ledgers, acts=True)
    monkeypatch.setattr(policies, "monotonic_s", lambda: now_s)
    decided = []
    for after_s in (0.0, DECIDED_S - 1, 2.0, 1.0):
        now_s += after_s
        followed(made, slots)
        decided.append(len(ledgers.decided))

    assert decided == [1, 1, 2, 2]
    assert slots.resumed == 2


class Failing(Ledgers):
    """Raises what it has, once for each."""

    def __init__(self, *problems: Exception) -> None:
        super().__init__()
        self.problems = list(problems)

    def skip(self, flow: FlowId, overrun: Sequence[Overrun]) -> list[BrokerError | None]:
        if self.problems:
            raise self.problems.pop(0)
        return super().skip(flow, overrun)


@pytest.mark.parametrize(
    "problem",
    [
        BrokerUnreachable("the ledger did not answer"),
        TimeoutError(),
        CorruptBatch(7, "checksum does not match its bytes"),
        ValueError("our own bug"),
    ],
    ids=lambda problem: type(problem).__name__,
)
def test_a_decision_that_fails_is_shown_and_made_at_the_next_look(problem: Exception) -> None:
    ledgers, slots = Failing(problem), Slots(OVERRUN)
    made = reconciler(ledgers, acts=True)

    followed(made, slots)
    shown, decided = dict(made.problems), list(ledgers.decided)
    followed(made, slots)

    assert list(shown) == [FLOW]
    assert decided == []
    assert ledgers.decided == ["skip 3-7"]
    assert slots.resumed == 1


@pytest.mark.parametrize("stall", [RECREATED, OVERRUN], ids=["recreated", "overrun"])
def test_a_thousand_lanes_are_decided_on_with_one_look_at_the_ledger(stall: Stalled) -> None:
    ledgers, slots = Ledgers(), Slots(stall, lanes=1_000)
    made = reconciler(ledgers, acts=True)
    made._flows[FLOW].lanes = tuple(lane(NEW, number) for number in range(1_000))

    followed(made, slots)
    followed(made, slots)

    assert len(ledgers.decided) == 1
    assert slots.resumed == 1
    assert len(slots.resumed_lanes) == 1_000


def test_a_lane_whose_target_does_not_answer_is_decided_on_again_and_the_others_go_on() -> None:
    ledgers, slots = Ledgers({1: BrokerUnreachable("no leader")}), Slots(OVERRUN, lanes=3)
    made = reconciler(ledgers, acts=True)
    made._flows[FLOW].lanes = tuple(lane(OLD, number) for number in range(3))

    followed(made, slots)
    shown = dict(made.problems)
    ledgers.refused = {}
    followed(made, slots)

    assert [each.source.partition for each in slots.resumed_lanes] == [0, 2, 1]
    assert shown == {FLOW: "A->B/orders-1: not decided: no leader"}


def test_a_plugin_that_fails_is_a_problem_of_its_own_flow(monkeypatch: pytest.MonkeyPatch) -> None:
    made = reconciler(Ledgers(), acts=False)
    made._flows[FLOW].due_s = 0.0

    async def nothing_seen(_: object) -> Observation:
        return Observation(views={}, unseen={})

    def refuse(*_: object) -> None:
        raise PluginFailed("own.py: Policy raised KeyError")

    monkeypatch.setattr(reconcile, "observe", nothing_seen)
    monkeypatch.setattr(made, "_plan", refuse)

    asyncio.run(made.reconcile(Slots(Idle())))

    assert made.problems == {FLOW: "own.py: Policy raised KeyError"}
