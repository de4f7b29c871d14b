"""Which ACLs of topics the target should have because the source has them. No I/O; runs anywhere.

MirrorMaker 2's rules come first, in both modes: an ACL goes with its topic, under the topic's name
on the target; ALLOW WRITE stays behind, since only the mirror writes mirrored topics; ALLOW ALL
becomes ALLOW READ for the same reason. MirrorMaker 2 knows literal names only and never takes an
ACL back. Mode `follow` goes on from there:

    source                       target, names get a prefix      target, any other policy
    PREFIXED orders              PREFIXED A.orders               LITERAL of each mirrored orders…
    LITERAL *                    PREFIXED A.                     LITERAL of each mirrored topic
    revoked, and ours            removed                         removed

A literal `*` is copied as it is in no mode. Under a policy that keeps names it would hold for all
topics of the target, also for those that are none of the source's business (MirrorMaker 2 does
that); under one that renames, it would name a topic that cannot be.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from typing import Final

from heliograph.acl import WILDCARD, AclBinding, AclOperation, AclPattern, AclPermission
from heliograph.config.schema import FlowConfig
from heliograph.model import FlowId, TopicName
from heliograph.topics.naming import DefaultReplicationPolicy, NamingPolicy, naming_policy
from heliograph.topics.provisioning import PlanNote, Severity
from heliograph.topics.selection import Selection, select_topics

_TOPIC: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_NAMED_MAX: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class AclPlan:
    flow: FlowId
    to_create: tuple[AclBinding, ...]
    """Wanted, and not on the target."""
    to_remove: tuple[AclBinding, ...]
    """Written by this flow, still on the target, and not wanted any more."""
    to_forget: tuple[AclBinding, ...]
    """Written by this flow, not wanted any more, and gone from the target by itself."""
    notes: tuple[PlanNote, ...]


def plan_acls(
    flow: FlowConfig,
    selection: Selection,
    source_acls: Collection[AclBinding],
    target_acls: Collection[AclBinding],
    written: Collection[AclBinding],
    fenced: Collection[TopicName] = (),
) -> AclPlan:
    """Compare both sides; `written` is what this flow once created on the target.

    Only bindings of `written` are ever removed, and in mode `mirrormaker2` none are. ACLs that name
    a topic that was failed over alone, one of `fenced`, stay as they are on the target.
    """
    policy = naming_policy(flow)
    own = {policy.target_topic(topic) for topic in fenced}

    def may_change(binding: AclBinding) -> bool:
        return binding.pattern is not AclPattern.LITERAL or binding.name not in own

    rules = _Rules(flow, selection, source_acls)
    wanted = {binding for acl in source_acls for binding in rules.on_target(acl)}
    wanted = set(filter(may_change, wanted))
    present, written = frozenset(target_acls), frozenset(filter(may_change, written))
    stale = written - wanted if flow.acls.mode == "follow" else frozenset()
    return AclPlan(
        flow=flow.id,
        to_create=tuple(sorted(wanted - present)),
        to_remove=tuple(sorted(stale & present)),
        to_forget=tuple(sorted(stale - present)),
        notes=tuple(_notes(flow, rules, source_acls)),
    )


class _Rules:
    """What becomes of one ACL of the source under a flow's policy and mode."""

    def __init__(
        self, flow: FlowConfig, selection: Selection, source_acls: Collection[AclBinding]
    ) -> None:
        self._follows = flow.acls.mode == "follow"
        self.prefix = _prefix_of(naming_policy(flow))
        """What every name gets on the target; None where names stay or nobody can say."""
        self._mirrored = selection.mirrored
        # An ACL may be there before its topic and stays when that is deleted, so the name alone
        # decides, as in MirrorMaker 2.
        literal = {
            TopicName(acl.name)
            for acl in source_acls
            if acl.pattern is AclPattern.LITERAL and _TOPIC.fullmatch(acl.name)
        }
        self._target_of = dict(select_topics(flow, literal).mirrored)

    def on_target(self, acl: AclBinding) -> Iterator[AclBinding]:
        operation = _operation_on_target(acl)
        if operation is None:
            return
        for pattern, name in self._places(acl):
            if _TOPIC.fullmatch(name):
                yield replace(acl, name=name, pattern=pattern, operation=operation)

    def _places(self, acl: AclBinding) -> Iterator[tuple[AclPattern, str]]:
        if acl.pattern is AclPattern.LITERAL and not acl.is_wildcard:
            target = self._target_of.get(TopicName(acl.name))
            if target is not None:
                yield AclPattern.LITERAL, target
            return
        if not self._follows:
            return
        start = "" if acl.is_wildcard else acl.name
        # Mirrored topics only: an ACL that came from the target would else go back and forth
        # between two clusters, one prefix longer each time.
        matching = [target for topic, target in self._mirrored if topic.startswith(start)]
        if matching and self.prefix is not None:
            yield AclPattern.PREFIXED, f"{self.prefix}{start}"
        elif self.prefix is None:
            yield from ((AclPattern.LITERAL, target) for target in matching)


def _prefix_of(policy: NamingPolicy) -> str | None:
    # Not isinstance: a policy derived from it may do anything to names.
    if type(policy) is DefaultReplicationPolicy:
        return f"{policy.source}{policy.separator}"
    return None


def _operation_on_target(acl: AclBinding) -> AclOperation | None:
    """None where the ACL stays behind."""
    if acl.permission is AclPermission.ALLOW and acl.operation is AclOperation.WRITE:
        return None
    if acl.permission is AclPermission.ALLOW and acl.operation is AclOperation.ALL:
        return AclOperation.READ
    return acl.operation


def _notes(
    flow: FlowConfig, rules: _Rules, source_acls: Collection[AclBinding]
) -> Iterator[PlanNote]:
    why = "as it is it would hold for the target's own topics too"
    if any(acl.is_wildcard and _operation_on_target(acl) for acl in source_acls):
        if flow.acls.mode == "mirrormaker2":
            text = f"an ACL on every topic is not copied: {why}"
        elif rules.prefix is not None:
            text = f"an ACL on every topic becomes one on the prefix {rules.prefix}: {why}"
        else:
            text = f"an ACL on every topic becomes one on each mirrored topic: {why}"
        yield PlanNote(topic=TopicName(WILDCARD), weight=Severity.NOTE, text=text)
    if flow.acls.mode != "mirrormaker2":
        return
    prefixes = sorted({acl.name for acl in source_acls if acl.pattern is AclPattern.PREFIXED})
    if prefixes:
        text = "ACLs on a prefix are not copied, since sync.topic.acls.mode is mirrormaker2"
        named = ", ".join([*prefixes[:_NAMED_MAX], *(["…"] if prefixes[_NAMED_MAX:] else [])])
        yield PlanNote(topic=TopicName(named), weight=Severity.NOTE, text=text)
