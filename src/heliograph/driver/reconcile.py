"""Keep the slots carrying what the configuration says. Runs on the driver.

*Look, decide, copy, settle*: `reconcile` looks at the clusters, decides which lanes there are,
makes the targets ready and hands the lanes to slots. It may be repeated after a crash at any line.
`apply_policies` follows the lanes in between and applies the policies for what the source lost.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Mapping
from dataclasses import replace
from functools import partial

from heliograph.broker.admin import ClusterAdmin
from heliograph.broker.blocking import blocking
from heliograph.broker.clients import Clients
from heliograph.broker.racks import words_on_rack
from heliograph.broker.view import ClusterView
from heliograph.clock import monotonic_s, now_ms
from heliograph.config.schema import FlowConfig, MirrorConfig
from heliograph.decisions.decision import Decision
from heliograph.decisions.file import orders_for
from heliograph.decisions.record import decisions_of
from heliograph.driver.assignment import assign, by_slot, weigh
from heliograph.driver.decided import DecidedFlows, read_decisions
from heliograph.driver.deletions import delete_mirrored, find_deleted
from heliograph.driver.fences import read_fences
from heliograph.driver.flow_state import FlowState, PlannedFlow, SlotPool
from heliograph.driver.policies import Policies
from heliograph.driver.prepare import prepare_target
from heliograph.driver.problems import problem_of
from heliograph.driver.rewinds import carry_out_rewinds
from heliograph.driver.unseen import expects_own_topics, hidden_topics
from heliograph.errors import MirrorError
from heliograph.ledger.access import LedgerAccess
from heliograph.ledger.fence import Fence, topic_fences
from heliograph.ledger.fenced_topics import unless_fenced
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
from heliograph.takeover.group_start import begun_by_group
from heliograph.takeover.pending import PendingAdoption, words_on_unadopted
from heliograph.topics.deletions import GoneTopic
from heliograph.topics.lanes import plan_lanes
from heliograph.topics.observe import observe, with_settings
from heliograph.topics.provisioning import Severity, plan_provisioning
from heliograph.topics.selection import select_between, words_on_twins

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
        self._config, self._clients, self._ledgers = config, clients, ledgers
        self._leaderships = leaderships or Leaderships()
        self._slot_ids = tuple(SlotId(number) for number in range(slot_count))
        self._avoided: Mapping[LaneId, frozenset[SlotId]] = {}
        self._admins: dict[ClusterAlias, ClusterAdmin] = {}
        self._flows: dict[FlowId, FlowState] = {}
        self._configs: dict[FlowId, FlowConfig] = {}
        """Of the flows there are; others look into it."""
        self._policies = Policies(self._configs, ledgers)
        self.decided = DecidedFlows(self._configs)
        self._unsettled: frozenset[FlowId] = frozenset()
        self._handing_out = asyncio.Lock()
        self._retrying_since_s: dict[LaneId, float] = {}
        self._began_s = monotonic_s()
        self._said_of_twins: set[str] = set()
        self._calm: Mapping[LaneId, LaneProgress] | None = None
        """The last progress in which no lane waited for a decision."""
        self.use(config, frozenset())

    def use(self, config: MirrorConfig, concerned: Collection[FlowId]) -> None:
        """Carry by this configuration from here on; the clients are its already.

        Flows that are `concerned` are planned anew, with the next `reconcile`. Lanes of those that
        ended leave the slots with it; of all others nothing is touched.
        """
        self._config = config
        clients, flows = self._clients, {flow.id: flow for flow in config.flows}
        for ended in self._flows.keys() - flows.keys():
            del self._flows[ended], self._configs[ended]
            self.decided.forget(ended)
        admins: dict[ClusterAlias, ClusterAdmin] = {}
        for flow_id, flow in flows.items():
            for alias, cluster in (
                (flow_id.source, clients.source(flow_id)),
                (flow_id.target, clients.target(flow_id)),
            ):
                if alias not in admins:
                    admins[alias] = clients.admin(cluster)
            state = self._flows.get(flow_id)
            if state is not None and flow_id not in concerned:
                continue
            self._configs[flow_id] = flow
            adoption = PendingAdoption(flow, clients.target(flow_id))
            if state is None:
                self._flows[flow_id] = FlowState(flow, adoption)
            else:
                # Another object: a plan that is being made for the one before counts for nothing.
                self._flows[flow_id] = replace(state, config=flow, adoption=adoption, due_s=0.0)
        # Those of flows that ended stay until the next look: a plan may be asking them.
        self._admins.update(admins)

    def abandon(self, ended: frozenset[FlowId]) -> None:
        """Lanes of these flows leave the slots without what was fetched and not appended yet."""
        self._unsettled = ended

    def _is_current(self, state: FlowState) -> bool:
        return self._flows.get(state.config.id) is state

    @property
    def lanes(self) -> tuple[Lane, ...]:
        """Of the flows that are led by this driver, those that are to be carried."""
        fenced = {flow: self._leaderships.fenced_topics(flow) for flow in self.led}
        return tuple(
            lane
            for flow, topics in fenced.items()
            for lane in self.decided.carried(self._flows[flow].lanes)
            if lane.id.source.topic not in topics
        )

    @property
    def led(self) -> tuple[FlowId, ...]:
        """Flows that are led by this driver."""
        return tuple(filter(self._leaderships.leads, self._flows))

    @property
    def lane_count(self) -> int:
        """Of these flows, also those not to be carried now; 0 before they are planned."""
        return sum(len(self._flows[flow].lanes) for flow in self.led)

    @property
    def problems(self) -> Mapping[FlowId, str]:
        """Why a flow stands still or could not be planned; empty when all were."""
        why_not, failures = self._leaderships.why_not, self.failures
        found = {
            flow: why_not(flow) or failures.get(flow) or words_on_unadopted(state.unadopted)
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
        known = {alias for flow in self._flows for alias in (flow.source, flow.target)}
        self._admins = {alias: self._admins[alias] for alias in known}
        due = [
            state
            for flow, state in self._flows.items()
            if state.due_s <= monotonic_s() and self._leaderships.leads(flow)
        ]
        aliases = {
            alias for each in due for alias in (each.config.id.source, each.config.id.target)
        }
        seen = await observe([self._admins[alias] for alias in aliases])  # I/O: topics, leaders
        for text in set(words_on_twins(seen.views.values())) - self._said_of_twins:
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
                planned = await blocking(self._plan, state, seen.views)
                if self._is_current(state):
                    self._planned(state, planned)
            except Exception as exc:  # noqa: BLE001 - a flow's own problem: the others go on
                if self._is_current(state):
                    self._failed(state, problem_of(exc))
        await self._hand_out(slots)
        for state in due:
            if state.gone and self._is_current(state):
                try:
                    gone, state.gone = state.gone, ()
                    await blocking(self._delete_gone, state, gone, slots.current())
                except Exception as exc:  # noqa: BLE001 - as above
                    self._failed(state, problem_of(exc))

    async def drop_lost_flows(self, slots: SlotPool) -> None:
        """Lanes of flows not led any more, and of topics that were failed over, leave the slots.

        May be called while `reconcile` waits for a dead cluster.
        """
        for flow, state in self._flows.items():
            ids = frozenset(each.id for each in self._leaderships.fenced_topics(flow).values())
            if ids != state.fences:
                state.fences, state.due_s = ids, 0.0
        await self._hand_out(slots)

    async def follow_decisions(self, slots: SlotPool, ledgers: LedgerAccess) -> None:
        """Look at what operators decided about the flows that run, and do it."""
        changed = False
        for flow in tuple(self._flows):
            state = self._flows.get(flow)  # one that ended meanwhile has none
            if state is None or not (state.ready and self._leaderships.leads(flow)):
                continue
            rewinds = self._rewinds(flow)
            age_s = 0.0 if rewinds else self.DECISIONS_S  # what was just done is not done again
            try:
                if rewinds:
                    await carry_out_rewinds(self._config, ledgers, flow, rewinds, slots.current())
                found = await ledgers.ask_recent(flow, decisions_of, age_s)
            except MirrorError:
                continue  # the lease's task says so, and lets go if it lasts
            if flow not in self._flows:
                continue
            news = self.decided.learn(flow, found)
            changed |= news.changed
            if news.replans:
                self._flows[flow].due_s = 0.0
        if changed:
            await self._hand_out(slots)

    def use_slots(
        self, slots: Collection[SlotId], avoided: Mapping[LaneId, frozenset[SlotId]]
    ) -> None:
        """From here on lanes are handed to these slots, none to one where it did not get on."""
        self._slot_ids, self._avoided = tuple(sorted(slots)), avoided

    async def rebalance(self, slots: SlotPool) -> None:
        """Move lanes away from a slot that carries far more than the others; usually nothing."""
        await self._hand_out(slots)

    async def apply_policies(self, slots: SlotPool) -> Mapping[LaneId, LaneProgress]:
        """Follow the lanes; apply policies where a lane waits for one."""
        progress = slots.progress()
        if progress is self._calm:
            return progress
        every = progress.values()
        stalled = [at for at in every if isinstance(at.state, Stalled) and not at.state.retrying]
        if not stalled:
            self._calm = progress
        lanes = {lane.id: lane for lane in self.lanes} if stalled else {}
        for flow, waiting in self._policies.undecided(stalled, lanes).items():
            try:
                outcome = await blocking(self._policies.decide, flow, waiting)
            except Exception as exc:  # noqa: BLE001 - shown, and decided at the next look
                if flow in self._flows:
                    self._failed(self._flows[flow], problem_of(exc, "not decided"))
                continue
            if flow not in self._flows:
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
        if self._rewinds(state.config.id):
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

    def _rewinds(self, flow: FlowId) -> list[Decision]:
        """To be carried out; those of topics that were failed over wait until these come back."""
        fenced = self._leaderships.fenced_topics(flow)
        rewinds = self.decided.orders(flow).rewinds
        return [each for each in rewinds if not any(map(each.scope.has_topic, fenced))]

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
        fences = read_fences(self._ledgers, config, self._config.every_flow, source, target)
        selection = select_between(config, source, target, unless_fenced(fences, orders.choice))
        missing = [name for name, renamed in selection.mirrored if renamed not in target.topics]
        source = with_settings(source_admin, source, missing)
        provisioning = plan_provisioning(config, selection, source, target)
        for note in provisioning.notes:
            self._say(state, f"{config.id}: {note.topic}: {note.text}", note.weight)
        if text := words_on_rack(config, self._clients.source(config.id)):
            self._say(state, f"{config.id}: {text}", Severity.NOTE)
        prepared = prepare_target(target_admin, config, provisioning)  # I/O: topics before records
        for name, problem in prepared.problems.items():
            self._say(state, f"{config.id}: {name}: {problem}", Severity.PROBLEM)
        for remark in prepared.remarks:
            self._say(state, f"{config.id}: {remark}", Severity.NOTE)
        if provisioning.to_create or provisioning.to_grow:  # by this flow, or another this moment
            log.info("%s: %s", config.id, prepared.words or "its topics were created meanwhile")
            target = target_admin.describe()
        self._ledgers.open(config.id, source.cluster_id)
        carried = {lane.id.source.topic for lane in state.lanes}
        hidden = hidden_topics(source_admin, {*carried, *selection.absent}, source)
        for why in hidden.values():
            self._say(state, f"{config.id}: {why}", Severity.PROBLEM)
        # Their lanes stay and show what is missing; without them nobody would see that they stand.
        kept = [lane for lane in state.lanes if lane.id.source.topic in hidden]
        planned = plan_lanes(config, selection, source, target)
        planned = begun_by_group(
            self._config, config, self._clients, self._ledgers, planned, state.lanes
        )
        waiting = state.adoption.waiting(planned, target, self._ledgers)
        return PlannedFlow(
            decisions=decisions,
            lanes=(*(lane for lane in planned if lane.id not in waiting), *kept),
            waiting=len(waiting),
            gone=self._find_deleted(state, source, target, fences),
            unready=prepared.problems,
            expects_own_topics=monotonic_s() - self._began_s <= self.STALL_S_MAX
            and expects_own_topics(config, self._config.chosen_pairs, source),
        )

    def _planned(self, state: FlowState, planned: PlannedFlow) -> None:
        config = state.config
        holds = self.decided.planned(config.id, planned.decisions, is_first=not state.ready)
        state.lanes = state.known = planned.lanes
        state.gone, state.ready, state.unadopted = planned.gone, True, planned.waiting
        if planned.waiting:
            text = f"{config.id}: {words_on_unadopted(planned.waiting)}"
            self._say(state, text, Severity.PROBLEM)
        unready = next(iter(planned.unready.values()), None)
        state.trouble = None if unready is None else Trouble.of(unready, state.trouble)
        interval_s = config.refresh_interval_s if config.refresh_enabled else float("inf")
        # A topic that is not ready is tried again soon, not at the next refresh.
        wait_s = self.RETRY_S if planned.unready or planned.expects_own_topics else interval_s
        state.due_s = monotonic_s() + (wait_s if holds else 0.0)

    def _find_deleted(
        self,
        state: FlowState,
        source: ClusterView,
        target: ClusterView,
        fences: Mapping[TopicName, Fence],
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
        return tuple(topic for topic in found.to_delete if topic.source not in fences)

    def _delete_gone(
        self, state: FlowState, gone: tuple[GoneTopic, ...], carried: Mapping[LaneId, SlotId]
    ) -> None:
        # Asked for again: one that was failed over since belongs to its clients there.
        fences = self._ledgers.ask(state.config.id, topic_fences)
        deleted = delete_mirrored(
            state.config,
            [topic for topic in gone if topic.source not in fences],
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
        state.failed(error, monotonic_s() + self.RETRY_S)

    def _say(self, state: FlowState, text: str, weight: Severity) -> None:
        """Each remark once, not at every refresh."""
        if text not in state.notes:
            state.notes.add(text)
            log.log(logging.ERROR if weight is Severity.PROBLEM else logging.INFO, "%s", text)

    async def _hand_out(self, slots: SlotPool) -> None:
        # One at a time, so that an older assignment never replaces a newer one.
        async with self._handing_out:
            most = {flow: state.config.tasks_max for flow, state in self._flows.items()}
            widths = {flow: count for flow, count in most.items() if count is not None}
            weights = {lane: weigh(load) for lane, load in slots.loads().items()}
            lanes = [lane.id for lane in self.lanes]
            slot_ids, avoided = self._slot_ids, self._avoided
            places = replace(self.decided.places(lanes), avoided=avoided)
            find = partial(assign, widths=widths, places=places)
            # On a thread: 30 000 lanes take seconds, in which slots must hear from the driver.
            placed = await blocking(find, lanes, slot_ids, slots.current(), weights)
            # A flow may have been lost meanwhile; its lanes are no longer in `self.lanes`.
            wanted = by_slot(self.lanes, placed, slot_ids)
            abandoned = frozenset(filter(self._leaderships.abandons, self._flows)) | self._unsettled
            slots.throttle(self.decided.limits())  # before lanes that would run without
            slots.apply(wanted, abandoned, frozenset(avoided))
