"""Keep the ACLs of mirrored topics as they are on the source. Runs on the driver.

The ledger knows which ACLs of the target are this flow's, so that what the source revokes can be
taken back and nothing else is ever touched.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Final

from heliograph.acl import AclBinding
from heliograph.broker.acls import AclAdmin
from heliograph.broker.admin import Outcome
from heliograph.broker.clients import Clients
from heliograph.compat.acl_plan import AclPlan, plan_acls
from heliograph.config.schema import ClusterConfig, FlowConfig
from heliograph.errors import AuthorizerOff, BrokerError, NotAuthorised
from heliograph.ledger.entries import FlowEntry
from heliograph.ledger.fence import topic_fences
from heliograph.ledger.service import LedgerService
from heliograph.ledger.view import LedgerView
from heliograph.log_once import LogOnce
from heliograph.model import TopicName
from heliograph.topics.selection import select_topics

log = logging.getLogger(__name__)


class AclsJob:
    """Looks at both sides and creates, or removes, what differs.

    A cluster without an authorizer, or one that does not let us look or write, is no failure: it is
    said once for all flows, with what it disables, and looked at again at the next interval.
    """

    what: Final = "acls"

    def __init__(self, flow: FlowConfig, clients: Clients, ledgers: LedgerService) -> None:
        self.flow: Final = flow.id
        self.interval_s: Final = float(flow.acls.interval_s)
        self._config = flow
        self._clients = clients
        self._ledgers = ledgers
        self._of_clusters = clients.said
        self._of_flow = LogOnce()
        self._was_refused = False

    def step(self) -> None:
        source, target = self._clients.source(self.flow), self._clients.target(self.flow)
        source_acls, target_acls = self._topic_acls(source), self._topic_acls(target)
        if source_acls is None or target_acls is None:
            return
        seen = self._clients.admin(source).describe()
        producer, written, fences = self._ledgers.ask(self.flow, _remembered)
        if producer is not None and producer.source_cluster_id != seen.cluster_id:
            if self._of_flow.is_new("other source"):
                log.error(
                    "%s: the source is not the cluster the flow began with: no ACL is removed",
                    self.flow,
                )
            written = frozenset()
        selection = select_topics(self._config, seen.topics)
        plan = plan_acls(self._config, selection, source_acls, target_acls, written, fenced=fences)
        for note in plan.notes:
            if self._of_flow.is_new(f"{note.topic}: {note.text}"):
                log.info("%s: %s: %s", self.flow, note.topic, note.text)
        self._apply(plan, target)

    def _topic_acls(self, cluster: ClusterConfig) -> frozenset[AclBinding] | None:
        try:
            return self._clients.acls(cluster).topic_acls()
        except AuthorizerOff as exc:
            # The default of Kafka: there is nothing to follow, and nothing to warn of.
            if self._of_clusters.is_new(str(exc)):
                log.info("%s: ACLs are not followed from or to it", exc)
            return None
        except NotAuthorised as exc:
            self._say(f"{exc}: ACLs are not followed from or to it")
            return None

    def _apply(self, plan: AclPlan, target: ClusterConfig) -> None:
        admin = self._clients.acls(target)
        # A permission that was missing is tried with one ACL: the ledger need not hear of all of
        # them at every interval.
        first = plan.to_create[:1] if self._was_refused else plan.to_create
        problems = self._create(admin, first)
        if not self._was_refused:
            problems += self._create(admin, plan.to_create[len(first) :])
        kept = _refused(admin.delete(plan.to_remove))
        _log_done(f"{self.flow}: removed ACL", plan.to_remove, kept)
        gone = [binding for binding in plan.to_remove if binding not in kept]
        self._ledgers.note_acls(self.flow, removed=(*gone, *plan.to_forget))
        self._tell([*problems, *kept.values()])

    def _create(self, admin: AclAdmin, wanted: Sequence[AclBinding]) -> list[BrokerError]:
        if not wanted:
            return []
        # Before the ACLs: one that the ledger does not know would never be taken back.
        self._ledgers.note_acls(self.flow, added=wanted)
        refused = _refused(admin.create(wanted))
        self._ledgers.note_acls(self.flow, removed=tuple(refused))
        _log_done(f"{self.flow}: created ACL", wanted, refused)
        self._was_refused = any(isinstance(error, NotAuthorised) for error in refused.values())
        return list(refused.values())

    def _tell(self, problems: Sequence[BrokerError]) -> None:
        others = [problem for problem in problems if not isinstance(problem, NotAuthorised)]
        for problem in problems:
            if isinstance(problem, NotAuthorised):
                self._say(f"{problem}: ACLs are not changed there")
        if others:
            raise BrokerError(f"{len(others)} ACLs were refused: {others[0]}")

    def _say(self, text: str) -> None:
        if self._of_clusters.is_new(text):
            log.warning("%s", text)


def _remembered(
    view: LedgerView,
) -> tuple[FlowEntry | None, frozenset[AclBinding], frozenset[TopicName]]:
    return view.flow, view.acls, frozenset(topic_fences(view))


def _refused(outcomes: Mapping[AclBinding, Outcome]) -> dict[AclBinding, BrokerError]:
    return {b: outcome for b, outcome in outcomes.items() if isinstance(outcome, BrokerError)}


def _log_done(
    what: str, bindings: Sequence[AclBinding], refused: Mapping[AclBinding, BrokerError]
) -> None:
    for binding in bindings:
        if binding not in refused:
            log.info("%s: %s", what, binding)
