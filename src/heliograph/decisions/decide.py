"""Decisions as an operator makes them: checked, shown, written, withdrawn. Runs on the driver.

Commands and the REST server both come here. Nothing asks a driver: it finds the decision in the
ledger, as does the one that takes over after it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from heliograph.broker.cluster import Cluster, open_cluster
from heliograph.clock import now_ms
from heliograph.config.schema import FlowConfig, MirrorConfig
from heliograph.decisions.decision import (
    THROTTLES,
    WHOLE_FLOW,
    BadDecision,
    Decision,
    Scope,
    Verb,
    Withdrawal,
)
from heliograph.decisions.file import file_decisions
from heliograph.decisions.orders import FlowOrders, LaneOrders, orders_of, standing_of
from heliograph.decisions.record import (
    STANDING_MAX,
    decision_entry,
    decisions_of,
    forget_entries,
    new_id,
    withdrawal_entry,
)
from heliograph.errors import BrokerError, BrokerUnreachable, LeaderMoved
from heliograph.ledger.access import LedgerAccess, ensure_ledger, within
from heliograph.ledger.entries import LeaseEntry, ledger_topic
from heliograph.ledger.memo import forget_memo
from heliograph.ledger.view import LedgerView
from heliograph.model import FlowId, TopicName, TopicPartition
from heliograph.topics.selection import select_topics
from heliograph.words import counted

_SOURCE_S_MAX: Final = 10.0


class DecidedMeanwhile(BadDecision):
    """Another decision came first, and this one was to be made only if none did."""


class NoSuchDecision(BadDecision):
    """The flow has no decision of that id that could be withdrawn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A decision before it is one."""

    verb: Verb
    scope: Scope = WHOLE_FLOW
    who: str
    why: str = ""
    until_ms: int | None = None
    bytes_per_s: int | None = None
    slots: tuple[int, ...] = ()
    offset: int | None = None

    def decision(self) -> Decision:
        made = Decision(
            id=new_id(),
            verb=self.verb,
            scope=self.scope,
            who=self.who,
            at_ms=now_ms(),
            why=self.why,
            until_ms=self.until_ms,
            bytes_per_s=self.bytes_per_s,
            slots=self.slots,
            offset=self.offset,
        )
        made.check()
        if made.verb is Verb.REWIND and made.scope.patterns:
            # Where to is an offset of one log; a regex would take topics along that come later.
            raise BadDecision("a rewind is for topics by their names, not for a regex")
        if made.has_ended(made.at_ms):
            raise BadDecision("the end of the decision is in the past")
        return made


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What a decision does to a topic, or to one partition of it."""

    topic: TopicName
    partition: int | None
    """None: all partitions alike."""
    before: LaneOrders
    after: LaneOrders


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    flow: FlowId
    decision: Decision | None
    """None where nothing was to be changed."""
    written: bool
    changes: tuple[Change, ...]
    remarks: tuple[str, ...]
    holder: LeaseEntry | None
    """The driver that follows, if one leads the flow."""


AsShown = Callable[[Sequence[Outcome]], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """The topics of a flow: those it mirrors, and those it has mirrored."""

    topics: Mapping[TopicName, frozenset[int]]
    """Partitions by topic."""
    on_source: frozenset[TopicName] | None
    """Every topic of the source, mirrored or not; None where the source does not answer."""
    remarks: tuple[str, ...] = ()


async def decide(
    ledgers: LedgerAccess,
    config: MirrorConfig,
    flow: FlowId,
    draft: Draft,
    *,
    write: bool = True,
    seen: frozenset[str] | None = None,
    as_shown: AsShown = lambda _: None,
) -> Outcome:
    """Make a decision, or say what it would change; raises `MirrorError`.

    With `seen`, ids of the decisions that held when the operator looked, it is made only if none
    came in between: of two that race the first in the ledger stands. `as_shown` gets what changes
    before it is written, and may refuse it.
    """
    (outcome,) = await decide_together(
        ledgers, config, flow, [draft], write=write, seen=seen, as_shown=as_shown
    )
    return outcome


async def decide_together(
    ledgers: LedgerAccess,
    config: MirrorConfig,
    flow: FlowId,
    drafts: Sequence[Draft],
    *,
    write: bool = True,
    seen: frozenset[str] | None = None,
    as_shown: AsShown = lambda _: None,
) -> list[Outcome]:
    """As `decide`, all of them or none: the driver finds them in one look, and each outcome says
    what changes behind those before it."""
    made = [draft.decision() for draft in drafts]
    view = await _view(ledgers, config, flow, write=write)
    before, at_ms = decisions_of(view), now_ms()
    _require_seen(before, seen, at_ms, flow)
    if len(standing_of(before, at_ms)) + len(made) > STANDING_MAX:
        raise BadDecision(
            f"{flow} has {STANDING_MAX} decisions that hold; withdraw some with "
            "`heliograph decisions --withdraw`"
        )
    said = file_decisions(config.flow(flow))
    known = await known_topics(config, flow, view, orders_of((*said, *before), at_ms))
    outcomes: list[Outcome] = []
    after = before
    for decision in made:
        outcome = _outcome(config, flow, decision, after, known, _holder(view), at_ms)
        outcomes.append(outcome)
        if outcome.decision is not None:
            after = (*after, outcome.decision)
    as_shown(outcomes)
    new = after[len(before) :]
    if not new or not write:
        return outcomes
    await ledgers.note(flow, [*map(decision_entry, new), *forget_entries(before, at_ms)])
    if seen is not None:
        await _require_first(ledgers, flow, new, before)
    return [replace(each, written=each.decision is not None) for each in outcomes]


def _outcome(
    config: MirrorConfig,
    flow: FlowId,
    decision: Decision,
    before: Sequence[Decision],
    known: Known,
    holder: LeaseEntry | None,
    at_ms: int,
) -> Outcome:
    """Of a decision that is not written yet; raises `BadDecision`."""
    known = _with_pipelines(known, config.flow(flow), decision.verb)
    remarks = [*known.remarks, *_check_scope(decision, known, flow)]
    remarks += _check_slots(decision, holder, flow, is_auto=config.engine.slots is None)
    earlier = (*file_decisions(config.flow(flow)), *before)
    changes = changes_of(earlier, (*earlier, decision), known, at_ms)
    is_new = not _is_nothing_new(decision, earlier, changes, at_ms)
    if is_new:
        remarks += _words_on_stronger(decision, orders_of((*before, decision), at_ms))
    else:
        remarks.append("nothing changes: it is so already")
    return Outcome(
        flow=flow,
        decision=decision if is_new else None,
        written=False,
        changes=changes if is_new else (),
        remarks=tuple(remarks),
        holder=holder,
    )


async def withdraw(
    ledgers: LedgerAccess,
    config: MirrorConfig,
    flow: FlowId,
    id_: str,
    who: str,
    *,
    write: bool = True,
    seen: frozenset[str] | None = None,
    as_shown: AsShown = lambda _: None,
) -> Outcome:
    """Take a decision back, as if its end had come; raises `NoSuchDecision`."""
    view = await _view(ledgers, config, flow, write=write)
    before, at_ms = decisions_of(view), now_ms()
    _require_seen(before, seen, at_ms, flow)
    found = next((each for each in standing_of(before, at_ms) if each.id == id_), None)
    if found is None:
        raise NoSuchDecision(f"{flow} has no decision {id_} that holds")
    withdrawal = Withdrawal(who=who, at_ms=at_ms)
    gone = replace(found, withdrawn=withdrawal)
    gone.check()
    earlier = (*file_decisions(config.flow(flow)), *before)
    after = tuple(gone if each.id == id_ else each for each in earlier)
    known = await known_topics(config, flow, view, orders_of(earlier, at_ms))
    known = _with_pipelines(known, config.flow(flow), found.verb)
    outcome = Outcome(
        flow=flow,
        decision=gone,
        written=write,
        changes=changes_of(earlier, after, known, at_ms),
        remarks=known.remarks,
        holder=_holder(view),
    )
    as_shown([outcome])
    if write:
        await ledgers.note(flow, [withdrawal_entry(id_, withdrawal)])
    return outcome


async def read_decisions(
    ledgers: LedgerAccess, config: MirrorConfig, flow: FlowId
) -> tuple[LedgerView, tuple[Decision, ...]]:
    """All of a flow, over or not; none where its ledger is not there yet."""
    view = await _view(ledgers, config, flow, write=False)
    return view, decisions_of(view)


async def known_topics(
    config: MirrorConfig, flow: FlowId, view: LedgerView, orders: FlowOrders
) -> Known:
    """Of the ledger and, if it answers in time, the source."""
    topics: dict[TopicName, set[int]] = {}
    for lane in view.begun():
        topics.setdefault(lane.topic, set()).add(lane.partition)
    source = open_cluster(config.source_of(flow), "consumer", only_reads=True)
    try:
        seen = await within(_partitions(source), _SOURCE_S_MAX, f"cluster {flow.source}")
    except BrokerError as exc:
        remark = f"the source does not answer, so only topics that were mirrored are known: {exc}"
        return Known(topics=_frozen(topics), on_source=None, remarks=(remark,))
    finally:
        source.close()
    mirrored = {name for name, _ in select_topics(config.flow(flow), seen).mirrored}
    chosen = {
        name for name in seen if (found := orders.chosen(name)) and found.verb is Verb.INCLUDE
    }
    for name in mirrored | chosen:
        topics.setdefault(name, set()).update(range(seen[name]))
    return Known(topics=_frozen(topics), on_source=frozenset(seen))


def _with_pipelines(known: Known, flow: FlowConfig, verb: Verb) -> Known:
    """Pipelines beside lanes, where the verb is for both: named as no topic can be."""
    if verb.aspect not in (Verb.PAUSE.aspect, Verb.STOP.aspect) or not flow.pipelines:
        return known
    named = {TopicName(each.as_topic): frozenset({0}) for each in flow.pipelines}
    return replace(known, topics={**known.topics, **named})


async def _partitions(source: Cluster) -> dict[TopicName, int]:
    return {name: topic.partition_count for name, topic in (await source.refresh_all()).items()}


def _frozen(topics: Mapping[TopicName, set[int]]) -> dict[TopicName, frozenset[int]]:
    return {name: frozenset(numbers) for name, numbers in sorted(topics.items())}


def changes_of(
    before: Sequence[Decision], after: Sequence[Decision], known: Known, at_ms: int
) -> tuple[Change, ...]:
    """Topic by topic; a topic whose partitions differ is told partition by partition."""
    old, new = orders_of(before, at_ms), orders_of(after, at_ms)
    found: list[Change] = []
    for topic, numbers in known.topics.items():
        lanes = [TopicPartition(topic=topic, partition=number) for number in sorted(numbers)]
        pairs = [(old.lane(lane), new.lane(lane)) for lane in lanes]
        if all(was == now for was, now in pairs):
            continue
        if len(set(pairs)) == 1:
            was, now = pairs[0]
            found.append(Change(topic=topic, partition=None, before=was, after=now))
            continue
        for lane, (was, now) in zip(lanes, pairs, strict=True):
            if was != now:
                change = Change(topic=topic, partition=lane.partition, before=was, after=now)
                found.append(change)
    return tuple(found)


async def _view(
    ledgers: LedgerAccess, config: MirrorConfig, flow: FlowId, *, write: bool
) -> LedgerView:
    try:
        return await ledgers.view(flow)
    except LeaderMoved:
        if not write:
            # Perhaps nothing was mirrored yet; otherwise the next try tells.
            return LedgerView()
    await ensure_ledger(config, flow)
    return await ledgers.view(flow)


def _require_seen(
    before: Sequence[Decision], seen: frozenset[str] | None, at_ms: int, flow: FlowId
) -> None:
    standing = frozenset(each.id for each in standing_of(before, at_ms))
    if seen is not None and seen != standing:
        raise DecidedMeanwhile(f"other decisions about {flow} hold than those that were seen")


async def _require_first(
    ledgers: LedgerAccess, flow: FlowId, made: Sequence[Decision], before: Sequence[Decision]
) -> None:
    """Take the decisions back if another came between the look and their own place."""
    known = {each.id for each in before}
    ours = {each.id for each in made}
    for each in decisions_of(await ledgers.view(flow)):
        if each.id in ours:
            return
        if each.id not in known:
            await ledgers.note(flow, [forget_memo(decision_entry(own).subject) for own in made])
            raise DecidedMeanwhile(f"{each.who} made another decision about {flow} meanwhile")
    raise BrokerUnreachable(
        f"{flow}: the ledger {ledger_topic(flow.source)} does not show the decision written to it"
    )


def _check_scope(decision: Decision, known: Known, flow: FlowId) -> Iterable[str]:
    """Raises `BadDecision` for a scope without a lane; what is odd about it otherwise."""
    scope, remarks = decision.scope, list[str]()
    including = decision.verb is Verb.INCLUDE
    candidates = frozenset(known.topics)
    if including and known.on_source is not None:
        candidates |= known.on_source
    for topic in scope.topics:
        name = TopicName(topic)
        gone = known.on_source is not None and name not in known.on_source
        if name not in candidates and not including:
            raise BadDecision(f"{flow} mirrors no topic {topic}")
        if gone:
            remarks.append(f"{topic} is not on the source at the moment")
        missing = [n for n in scope.partitions if n not in known.topics.get(name, ())]
        if missing:
            raise BadDecision(f"{topic} has no partition {', '.join(map(str, missing))}")
    patterns = Scope(patterns=scope.patterns)
    if scope.patterns and not any(patterns.has_topic(topic) for topic in candidates):
        raise BadDecision(f"no topic of {flow} matches {', '.join(scope.patterns)}")
    return remarks


def _check_slots(
    decision: Decision, holder: LeaseEntry | None, flow: FlowId, *, is_auto: bool
) -> Iterable[str]:
    if not decision.slots:
        return ()
    if holder is None or not holder.slot_count:
        return ("no driver is seen, so it is not known which slots there are",)
    count = holder.slot_count
    missing = [slot for slot in decision.slots if slot >= count]
    if missing and is_auto and decision.verb is Verb.PIN:
        named = ", ".join(map(str, missing))
        return (f"there is no slot {named} yet: it is added if Spark has room for it",)
    if missing:
        raise BadDecision(
            f"{flow} has {counted(count, 'slot')}, numbered from 0: there is no slot "
            f"{', '.join(map(str, missing))}"
        )
    if decision.verb is Verb.DRAIN and len(set(decision.slots)) >= count:
        raise BadDecision(f"all {counted(count, 'slot')} would be drained; stop the flow instead")
    return ()


def _holder(view: LedgerView) -> LeaseEntry | None:
    return view.holder if view.holder is not None and view.holder.until_ms >= now_ms() else None


def _is_nothing_new(
    decision: Decision, before: Sequence[Decision], changes: Sequence[Change], at_ms: int
) -> bool:
    """Whether it repeats what holds, or takes back what does not."""
    if decision.verb is Verb.REWIND:
        return False
    standing = [each for each in standing_of(before, at_ms) if each.key == decision.key]
    if standing:
        last = standing[-1]
        same = replace(decision, id=last.id, who=last.who, at_ms=last.at_ms, why=last.why)
        return same == last
    aspect = [
        each for each in standing_of(before, at_ms) if each.verb.aspect == decision.verb.aspect
    ]
    undoes = decision.verb in (Verb.RESUME, Verb.START) or (
        decision.verb in (*THROTTLES, Verb.PIN, Verb.DRAIN)
        and decision.bytes_per_s is None
        and not decision.slots
    )
    return undoes and not aspect and not changes


def _words_on_stronger(decision: Decision, after: FlowOrders) -> Iterable[str]:
    """Narrower decisions of the same aspect stay in force; the operator may not know of them."""
    for each in after.standing:
        if (
            each.id != decision.id
            and each.verb.aspect == decision.verb.aspect
            and each.scope.breadth > decision.scope.breadth
            and each.verb is not decision.verb
        ):
            yield f"{each.scope}: {each.verb} of {each.who} stays, it is narrower ({each.id})"
