"""Keep the slots carrying what the configuration says. Runs on the driver.

*Look, decide, copy, settle*: `reconcile` looks at the clusters, decides which lanes there are,
makes the targets ready and hands the lanes to slots. It may be repeated after a crash at any line.
`apply_policies` follows the lanes in between and applies the policies for what the source lost.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from functools import partial

from heliograph.broker.admin import ClusterAdmin
from heliograph.broker.blocking import blocking
from heliograph.broker.clients import Clients
from heliograph.broker.racks import words_on_rack
from heliograph.broker.view import ClusterView
from heliograph.clock import monotonic_s, now_ms
from heliograph.config.schema import FlowConfig, MirrorConfig
from heliograph.decisions.file import orders_for
from heliograph.decisions.record import decisions_of
from heliograph.driver.assignment import assign, weigh
from heliograph.driver.decided import DecidedFlows, read_decisions
from heliograph.driver.deletions import delete_mirrored, find_deleted
from heliograph.driver.flow_state import FlowState, PlannedFlow, SlotPool
from heliograph.driver.policies import Policies
from heliograph.driver.prepare import prepare_target
from heliograph.driver.problems import problem_of
from heliograph.driver.rewinds import carry_out_rewinds
from heliograph.errors import MirrorError, NotAuthorised
from heliograph.ledger.access import LedgerAccess
from heliograph.ledger.leadership import Leaderships, Trouble
from heliograph.ledger.service import LedgerService
from heliograph.model import (
    ClusterAlias,
    FlowId,
    Idle,
    Lane,
    LaneId,
    LaneProgress,
    Paused,
    SlotId,
    Stalled,
    TopicName,
)
from heliograph.takeover.pending import PendingAdoption, words_on_unadopted
from heliograph.topics.deletions import GoneTopic
from heliograph.topics.lanes import plan_lanes
from heliograph.topics.naming import HEARTBEATS
from heliograph.topics.observe import observe, with_settings
from heliograph.topics.provisioning import Severity, plan_provisioning
from heliograph.topics.selection import Selection, select_between, words_on_twins

log = logging.getLogger(__name__)


class Reconciler:
    """All flows of one configuration, on the driver's loop.

    Clusters are looked at and changed on threads (`blocking`): there only the `notes`, `adoption`
    and `absences` of the flow that is planned change, and no two plans run at once.
    """

    RETRY_S = 5.0
    DECISIONS_S = 1.0
    """How old what is known of decisions may be."""
    STALL_S_MAX = 60.0
    """A run that is to end waits this long for a lane that stalls and is tried again."""

    def __init__(
        self,
        config: MirrorConfig,
        ledgers: LedgerService,
        clients: Clients,
        slot_count: int,
        leaderships: Leaderships | None = None,
    ) -> None:
        self._config = config
        self._leaderships = leaderships or Leaderships()
        self._ledgers = ledgers
        self._slot_ids = tuple(SlotId(number) for number in range(slot_count))
        self._admins: dict[ClusterAlias, ClusterAdmin] = {}
        for flow in config.flows:
            for alias, cluster in (
                (flow.id.source, clients.source(flow.id)),
                (flow.id.target, clients.target(flow.id)),
            ):
                if alias not in self._admins:
                    self._admins[alias] = clients.admin(cluster)
        self._flows = {
            flow.id: FlowState(flow, PendingAdoption(flow, clients.target(flow.id)))
            for flow in config.flows
        }
        configs = {flow.id: flow for flow in config.flows}
        self._sources = {flow.id: clients.source(flow.id) for flow in config.flows}
        self._policies = Policies(configs, ledgers)
        self.decided = DecidedFlows(configs)
        self._handing_out = asyncio.Lock()
        self._retrying_since_s: dict[LaneId, float] = {}
        self._began_s = monotonic_s()
        self._said_of_twins: set[str] = set()
        self._calm: Mapping[LaneId, LaneProgress] | None = None
        """The last progress in which no lane waited for a decision."""

    @property
    def lanes(self) -> tuple[Lane, ...]:
        """Of the flows that are led by this driver, those that are to be carried."""
        led = [s.lanes for flow, s in self._flows.items() if self._leaderships.leads(flow)]
        return tuple(lane for lanes in led for lane in self.decided.carried(lanes))

    @property
    def problems(self) -> Mapping[FlowId, str]:
        """Why a flow stands still or could not be planned; empty when all were."""
        failures = self.failures
        found = {
            flow: self._leaderships.why_not(flow)
            or failures.get(flow)
            or words_on_unadopted(state.unadopted)
            for flow, state in self._flows.items()
        }
        return {flow: problem for flow, problem in found.items() if problem}

    @property
    def failures(self) -> Mapping[FlowId, str]:
        """Why a flow, or a topic of it, could not be made ready, fenced ones apart."""
        found = {flow: self._trouble(flow) for flow in self._flows}
        return {
            flow: str(trouble.error)
            for flow, trouble in found.items()
            if trouble is not None and not self._leaderships.why_fenced(flow)
        }

    @property
    def fenced(self) -> frozenset[FlowId]:
        """Flows that no driver may carry until their fence is lifted."""
        return frozenset(flow for flow in self._flows if self._leaderships.why_fenced(flow))

    @property
    def unadopted(self) -> int:
        """Partitions that are not carried because MirrorMaker 2 has mirrored them."""
        return sum(state.unadopted for state in self._flows.values())

    @property
    def due_in_s(self) -> float:
        """How long `reconcile` has nothing to do, unless a leadership changes."""
        waits_s = [
            state.due_s - monotonic_s()
            if self._leaderships.leads(flow)
            else (0.0 if state.lanes else float("inf"))
            for flow, state in self._flows.items()
        ]
        return max(0.0, min(waits_s, default=float("inf")))

    async def reconcile(self, slots: SlotPool) -> None:
        """Bring what runs one step closer to what should run."""
        self._give_up_led_by_others()
        due = [
            state
            for flow, state in self._flows.items()
            if state.due_s <= monotonic_s() and self._leaderships.leads(flow)
        ]
        aliases = {
            alias for state in due for alias in (state.config.id.source, state.config.id.target)
        }
        seen = await observe([self._admins[alias] for alias in aliases])  # I/O: topics, leaders
        for text in words_on_twins(seen.views.values()):
            if text not in self._said_of_twins:
                self._said_of_twins.add(text)
                log.warning("%s", text)
        for state in due:
            flow = state.config.id
            unseen = seen.unseen.get(flow.source) or seen.unseen.get(flow.target)
            try:
                if unseen is not None:
                    # Lanes that are carried say what they wait for; others look as they did last.
                    state.lanes = state.lanes or state.known
                    raise unseen
                self._planned(state, await blocking(self._plan, state, seen.views))
            except Exception as exc:  # noqa: BLE001 - a flow's own problem: the others go on
                self._failed(state, problem_of(exc))
        await self._hand_out(slots)
        for state in due:
            if state.gone:
                try:
                    gone, state.gone = state.gone, ()
                    await blocking(self._delete_gone, state, gone, slots.current())
                except Exception as exc:  # noqa: BLE001 - as above
                    self._failed(state, problem_of(exc))

    async def drop_lost_flows(self, slots: SlotPool) -> None:
        """Lanes of flows that are not led any more leave the slots.

        May be called while `reconcile` waits for a dead cluster.
        """
        await self._hand_out(slots)

    async def follow_decisions(self, slots: SlotPool, ledgers: LedgerAccess) -> None:
        """Look at what operators decided about the flows that run, and do it."""
        changed = False
        for flow, state in self._flows.items():
            if not (state.ready and self._leaderships.leads(flow)):
                continue
            orders = self.decided.orders(flow)
            try:
                await carry_out_rewinds(self._config, ledgers, flow, orders, slots.current())
                found = await ledgers.ask_recent(flow, decisions_of, self.DECISIONS_S)
            except MirrorError:
                continue  # the lease's task says so, and lets go if it lasts
            news = self.decided.learn(flow, found)
            changed |= news.changed
            if news.replans:
                state.due_s = 0.0
        if changed:
            await self._hand_out(slots)

    async def rebalance(self, slots: SlotPool) -> None:
        """Move lanes away from a slot that carries far more than the others; usually nothing."""
        await self._hand_out(slots)

    async def apply_policies(self, slots: SlotPool) -> Mapping[LaneId, LaneProgress]:
        """Follow the lanes; apply policies where a lane waits for one."""
        progress = slots.progress()
        if progress is self._calm:
            return progress
        stalled = [
            at
            for at in progress.values()
            if isinstance(at.state, Stalled) and not at.state.retrying
        ]
        if not stalled:
            self._calm = progress
        lanes = {lane.id: lane for lane in self.lanes} if stalled else {}
        for flow, waiting in self._policies.undecided(stalled, lanes).items():
            try:
                outcome = await blocking(self._policies.decide, flow, waiting)
            except Exception as exc:  # noqa: BLE001 - shown, and decided at the next look
                self._failed(self._flows[flow], problem_of(exc, "not decided"))
                continue
            if outcome.resumed:
                slots.resume(outcome.resumed)
            if outcome.renewed:
                self._flows[flow].due_s = 0.0  # the lanes must learn the new topics' ids
            if outcome.problem is not None:
                self._failed(self._flows[flow], outcome.problem)
        return progress

    def finished(self, progress: Mapping[LaneId, LaneProgress]) -> bool:
        """Whether every lane has caught up, waits for an operator, or was tried long enough."""
        since_s = self._retrying_since_s
        self._retrying_since_s = {
            lane: since_s.get(lane, monotonic_s())
            for lane, at in progress.items()
            if isinstance(at.state, Stalled) and at.state.retrying
        }
        return all(
            self._leaderships.why_fenced(flow) or self._is_over(state, progress)
            for flow, state in self._flows.items()
        )

    def _is_over(self, state: FlowState, progress: Mapping[LaneId, LaneProgress]) -> bool:
        trouble = self._trouble(state.config.id)
        is_given_up = trouble is not None and trouble.is_final
        if not state.ready or (trouble is not None and not is_given_up):
            return is_given_up
        if self.decided.orders(state.config.id).rewinds:
            return False
        return all(
            (at := progress.get(lane.id)) is not None
            and (
                isinstance(at.state, Idle | Paused)
                or (
                    isinstance(at.state, Stalled)
                    and (is_given_up or self._waits_for_somebody(lane.id, at.state))
                )
            )
            for lane in self.decided.carried(state.lanes)
        )

    def _waits_for_somebody(self, lane: LaneId, state: Stalled) -> bool:
        """Whether nothing this driver or its slots do is likely to let the lane go on."""
        if state.retrying:
            return monotonic_s() - self._retrying_since_s[lane] >= self.STALL_S_MAX
        return not self._policies.lets_go_on(lane.flow, state)

    def _trouble(self, flow: FlowId) -> Trouble | None:
        return self._leaderships.troubles.get(flow) or self._flows[flow].trouble

    def _give_up_led_by_others(self) -> None:
        """Their lanes leave the slots; once the flow is ours again, it is planned anew."""
        for flow, state in self._flows.items():
            if not self._leaderships.leads(flow):
                state.lanes, state.ready, state.due_s = (), False, 0.0
                state.trouble, state.unadopted = None, 0

    def _plan(self, state: FlowState, views: Mapping[ClusterAlias, ClusterView]) -> PlannedFlow:
        """Look at one flow and make its target ready; blocks."""
        config = state.config
        source_admin, target_admin = self._admins[config.id.source], self._admins[config.id.target]
        source, target = views[config.id.source], views[config.id.target]
        decisions = read_decisions(self._ledgers, config.id, target)
        orders = orders_for(config, decisions, now_ms())
        if orders.stopped is not None:
            return PlannedFlow(decisions=decisions)
        selection = select_between(config, source, target, orders.choice)
        missing = [name for name, renamed in selection.mirrored if renamed not in target.topics]
        source = with_settings(source_admin, source, missing)
        provisioning = plan_provisioning(config, selection, source, target)
        for note in provisioning.notes:
            self._say(state, f"{config.id}: {note.topic}: {note.text}", note.weight)
        if text := words_on_rack(config, self._sources[config.id]):
            self._say(state, f"{config.id}: {text}", Severity.NOTE)
        prepared = prepare_target(target_admin, config, provisioning)  # I/O: topics before records
        for name, problem in prepared.problems.items():
            self._say(state, f"{config.id}: {name}: {problem}", Severity.PROBLEM)
        for remark in prepared.remarks:
            self._say(state, f"{config.id}: {remark}", Severity.NOTE)
        if prepared.created or prepared.grown:
            log.info("%s: %s", config.id, prepared.words)
            target = target_admin.describe()
        self._ledgers.open(config.id, source.cluster_id)
        hidden = self._hidden_topics(state, source_admin, selection, source)
        # Their lanes stay and show what is missing; without them nobody would see that they stand.
        kept = [lane for lane in state.lanes if lane.id.source.topic in hidden]
        planned = plan_lanes(config, selection, source, target)
        waiting = state.adoption.waiting(planned, target, self._ledgers)
        return PlannedFlow(
            decisions=decisions,
            lanes=(*(lane for lane in planned if lane.id not in waiting), *kept),
            waiting=len(waiting),
            gone=self._find_deleted(state, source, target),
            unready=prepared.problems,
            expects_heartbeats=self._expects_heartbeats(config, source),
        )

    def _planned(self, state: FlowState, planned: PlannedFlow) -> None:
        config = state.config
        holds = self.decided.planned(config.id, planned.decisions, is_first=not state.ready)
        state.lanes = state.known = planned.lanes
        state.gone = planned.gone
        state.ready, state.unadopted = True, planned.waiting
        if planned.waiting:
            text = f"{config.id}: {words_on_unadopted(planned.waiting)}"
            self._say(state, text, Severity.PROBLEM)
        unready = next(iter(planned.unready.values()), None)
        state.trouble = None if unready is None else Trouble.of(unready, state.trouble)
        interval_s = config.refresh_interval_s if config.refresh_enabled else float("inf")
        # A topic that is not ready is tried again soon, not at the next refresh.
        is_soon = planned.unready or planned.expects_heartbeats
        wait_s = self.RETRY_S if is_soon else interval_s
        state.due_s = monotonic_s() + (wait_s if holds else 0.0)

    def _expects_heartbeats(self, flow: FlowConfig, source: ClusterView) -> bool:
        """A job of this very run creates them, beside the first look at the topics."""
        if HEARTBEATS in source.topics or monotonic_s() - self._began_s > self.STALL_S_MAX:
            return False
        return flow.heartbeats.replicated and any(
            pair.heartbeats.enabled and pair.id.target == flow.id.source
            for pair in self._config.chosen_pairs
        )

    def _hidden_topics(
        self,
        state: FlowState,
        admin: ClusterAdmin,
        selection: Selection,
        source: ClusterView,
    ) -> frozenset[TopicName]:
        """Topics asked for by name, or mirrored until now, that the source does not let us see.

        A list of all topics leaves them out without a word; asked by name, a broker says so.
        """
        known = {lane.id.source.topic for lane in state.lanes} | set(selection.absent)
        asked = [TopicName(name) for name in known if name not in source.topics]
        found = admin.describe_each(asked) if asked else {}
        hidden = {n: why for n, why in found.items() if isinstance(why, NotAuthorised)}
        for why in hidden.values():
            self._say(state, f"{selection.flow}: {why}", Severity.PROBLEM)
        return frozenset(hidden)

    def _find_deleted(
        self, state: FlowState, source: ClusterView, target: ClusterView
    ) -> tuple[GoneTopic, ...]:
        found = find_deleted(
            state.config,
            self._config.every_flow,
            source_admin=self._admins[state.config.id.source],
            source=source,
            target=target,
            ledgers=self._ledgers,
            absences=state.absences,
        )
        for sentence in found.refused:
            self._say(state, f"{state.config.id}: {sentence}", Severity.PROBLEM)
        return found.to_delete

    def _delete_gone(
        self, state: FlowState, gone: tuple[GoneTopic, ...], carried: Mapping[LaneId, SlotId]
    ) -> None:
        deleted = delete_mirrored(
            state.config,
            gone,
            target_admin=self._admins[state.config.id.target],
            ledgers=self._ledgers,
            carried=carried.keys(),
        )
        for topic in deleted.topics:
            log.warning("%s: %s: deleted, as on the source", state.config.id, topic.target)
        for name, problem in deleted.problems.items():
            self._say(state, f"{state.config.id}: {name}: {problem}", Severity.PROBLEM)

    def _failed(self, state: FlowState, error: MirrorError) -> None:
        if state.trouble is None or str(state.trouble.error) != str(error):
            log.error("%s: %s; trying again every %.0f s", state.config.id, error, self.RETRY_S)
        state.trouble = Trouble.of(error, state.trouble)
        state.due_s = monotonic_s() + self.RETRY_S

    def _say(self, state: FlowState, text: str, weight: Severity) -> None:
        """Each remark once, not at every refresh."""
        if text not in state.notes:
            state.notes.add(text)
            log.log(logging.ERROR if weight is Severity.PROBLEM else logging.INFO, "%s", text)

    async def _hand_out(self, slots: SlotPool) -> None:
        # One at a time, so that an older assignment never replaces a newer one.
        async with self._handing_out:
            widths = {
                flow: state.config.tasks_max
                for flow, state in self._flows.items()
                if state.config.tasks_max is not None
            }
            weights = {lane: weigh(load) for lane, load in slots.loads().items()}
            lanes = [lane.id for lane in self.lanes]
            find = partial(assign, widths=widths, places=self.decided.places(lanes))
            # On a thread: 30 000 lanes take seconds, in which slots must hear from the driver.
            placed = await blocking(find, lanes, self._slot_ids, slots.current(), weights)
            assignment: dict[SlotId, list[Lane]] = {slot: [] for slot in self._slot_ids}
            # A flow may have been lost meanwhile; its lanes are no longer in `self.lanes`.
            for lane in self.lanes:
                if lane.id in placed:
                    assignment[placed[lane.id]].append(lane)
            abandoned = frozenset(filter(self._leaderships.abandons, self._flows))
            slots.throttle(self.decided.limits())  # before lanes that would run without
            slots.apply({slot: tuple(some) for slot, some in assignment.items()}, abandoned)
