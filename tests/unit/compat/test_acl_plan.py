"""ACLs of topics: MirrorMaker 2's rules to the letter, and what following adds to them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any

import pytest

from heliograph.acl import AclBinding, AclOperation, AclPattern, AclPermission
from heliograph.compat.acl_plan import AclPlan, plan_acls
from heliograph.config.sections import TopicAclsSync
from heliograph.model import TopicName
from heliograph.topics.selection import select_topics
from tests.unit.topics.views import flow_with

LITERAL, PREFIXED = AclPattern.LITERAL, AclPattern.PREFIXED
ALLOW, DENY = AclPermission.ALLOW, AclPermission.DENY
READ, WRITE, ALL = AclOperation.READ, AclOperation.WRITE, AclOperation.ALL
DEFAULT, IDENTITY = "DefaultReplicationPolicy", "IdentityReplicationPolicy"
TOPICS = ("orders", "orders-eu", "payments")


def acl(
    name: str,
    operation: AclOperation = READ,
    permission: AclPermission = ALLOW,
    pattern: AclPattern = LITERAL,
    principal: str = "User:alice",
) -> AclBinding:
    return AclBinding(
        name=name,
        pattern=pattern,
        principal=principal,
        host="10.0.0.1",
        operation=operation,
        permission=permission,
    )


def prefixed(name: str, **fields: Any) -> AclBinding:
    return replace(acl(name, **fields), pattern=PREFIXED)


def planned(
    source_acls: Collection[AclBinding],
    *,
    mode: str = "follow",
    policy: str = DEFAULT,
    topics: Collection[str] = TOPICS,
    target_acls: Collection[AclBinding] = (),
    written: Collection[AclBinding] = (),
    fenced: Collection[TopicName] = (),
    **fields: Any,
) -> AclPlan:
    acls = TopicAclsSync.model_validate({"mode": mode})
    flow = flow_with(policy, acls=acls, **fields)
    selection = select_topics(flow, [TopicName(name) for name in topics])
    return plan_acls(flow, selection, source_acls, target_acls, written, fenced)


BOTH = pytest.mark.parametrize("mode", ["follow", "mirrormaker2"])
POLICIES = pytest.mark.parametrize("policy", [DEFAULT, IDENTITY])


@BOTH
@pytest.mark.parametrize(
    "permission,operation",
    [(p, o) for p in AclPermission for o in AclOperation if (p, o) not in [(ALLOW, WRITE)]],
)
def test_an_acl_goes_with_its_topic_under_the_topics_new_name(
    mode: str, permission: AclPermission, operation: AclOperation
) -> None:
    """MirrorSourceConnectorTest.testAclTransformation: DENY ALL is kept, ALLOW ALL is READ."""
    found = planned([acl("orders", operation, permission)], mode=mode)

    kept = READ if (permission, operation) == (ALLOW, ALL) else operation
    assert found.to_create == (acl("source.orders", kept, permission),)


@BOTH
def test_the_right_to_write_stays_on_the_source(mode: str) -> None:
    """MirrorSourceConnectorTest.testAclFiltering."""
    everywhere = [acl("orders", WRITE), acl("*", WRITE), prefixed("orders", operation=WRITE)]

    assert planned(everywhere, mode=mode).to_create == ()


@BOTH
def test_acls_of_topics_that_are_not_mirrored_stay_behind(mode: str) -> None:
    names = ["secret", "__consumer_offsets", "target.orders", "mm2-offset-syncs.x.internal"]

    found = planned([acl(name) for name in names], mode=mode, topics_exclude=("secret",))

    assert found.to_create == ()


@BOTH
def test_an_acl_that_is_there_before_its_topic_is_copied_as_mirrormaker_2_does(mode: str) -> None:
    found = planned([acl("not-yet")], mode=mode)

    assert found.to_create == (acl("source.not-yet"),)


@BOTH
def test_a_name_that_no_topic_can_have_is_not_copied(mode: str) -> None:
    odd = [acl("orders*"), acl("or ders"), acl("x" * 250), prefixed("*"), prefixed("orders|")]

    assert planned(odd, mode=mode).to_create == ()


@POLICIES
@BOTH
def test_a_wildcard_is_never_copied_as_it_is(mode: str, policy: str) -> None:
    found = planned([acl("*"), acl("*", ALL, DENY)], mode=mode, policy=policy)

    assert not any("*" in created.name for created in found.to_create)
    (note,) = found.notes
    assert note.topic == "*"
    assert "would hold for the target's own topics too" in note.text


def test_in_mirrormaker2_mode_a_wildcard_and_a_prefix_stay_behind_and_that_is_said() -> None:
    found = planned([acl("*"), prefixed("orders"), prefixed("pay")], mode="mirrormaker2")

    assert found.to_create == ()
    assert [note.topic for note in found.notes] == ["*", "orders, pay"]


def test_under_a_policy_that_prefixes_names_a_wildcard_becomes_the_prefix() -> None:
    found = planned([acl("*"), acl("*", ALL, DENY)])

    assert set(found.to_create) == {
        prefixed("source."),
        prefixed("source.", operation=ALL, permission=DENY),
    }


def test_under_a_policy_that_prefixes_names_a_prefix_stays_one() -> None:
    found = planned([prefixed("ord"), prefixed("ord", operation=ALL)], separator="_")

    assert found.to_create == (prefixed("source_ord"),)


def test_under_a_policy_that_keeps_names_a_prefix_becomes_the_topics_it_means() -> None:
    found = planned([prefixed("orders", permission=DENY)], policy=IDENTITY)

    assert found.to_create == (acl("orders", permission=DENY), acl("orders-eu", permission=DENY))


def test_under_a_policy_that_keeps_names_a_wildcard_becomes_the_mirrored_topics() -> None:
    found = planned([acl("*")], policy=IDENTITY, topics_exclude=("payments",))

    assert found.to_create == (acl("orders"), acl("orders-eu"))


def test_a_policy_derived_from_the_default_one_gets_no_prefix_on_faith() -> None:
    path = "tests.unit.compat.test_acl_plan:ShoutingPolicy"

    found = planned([prefixed("orders"), acl("payments")], policy=path)

    assert found.to_create == (acl("ORDERS"), acl("ORDERS-EU"), acl("PAYMENTS"))


def test_a_prefix_that_no_mirrored_topic_has_is_not_copied() -> None:
    found = planned([prefixed("inventory"), prefixed("pay")], topics_exclude=("payments",))

    assert found.to_create == ()


def test_acls_that_came_from_the_other_side_do_not_come_back_one_prefix_longer() -> None:
    """Active-active: B has `prefix A.` from A->B, and `A.orders` is no topic of B->A."""
    came_from_target = [prefixed("target."), prefixed("target.orders"), acl("target.orders")]

    found = planned(came_from_target, topics=[*TOPICS, "target.orders"])

    assert found.to_create == ()


def test_a_wildcard_of_a_source_with_nothing_to_mirror_grants_nothing() -> None:
    assert planned([acl("*")], topics=()).to_create == ()


@BOTH
def test_what_the_target_has_is_not_created_again(mode: str) -> None:
    found = planned([acl("orders")], mode=mode, target_acls=[acl("source.orders")])

    assert found.to_create == ()


def test_what_the_source_revoked_is_removed_if_this_flow_wrote_it() -> None:
    ours, others = acl("source.orders"), acl("source.orders", principal="User:bob")

    found = planned([], target_acls=[ours, others], written=[ours])

    assert found.to_remove == (ours,)
    assert found.to_forget == ()


def test_acls_that_nobody_here_wrote_are_never_touched() -> None:
    others = [acl("source.orders"), acl("local"), acl("*"), prefixed("source.")]

    found = planned([], target_acls=others)

    assert (found.to_remove, found.to_forget) == ((), ())


def test_what_was_written_and_is_still_wanted_stays() -> None:
    ours = acl("source.orders")

    found = planned([acl("orders")], target_acls=[ours], written=[ours])

    assert (found.to_create, found.to_remove, found.to_forget) == ((), (), ())


def test_what_somebody_else_removed_is_created_again_while_the_source_has_it() -> None:
    found = planned([acl("orders")], written=[acl("source.orders")])

    assert found.to_create == (acl("source.orders"),)


def test_what_is_revoked_and_gone_by_itself_is_only_forgotten() -> None:
    found = planned([], written=[acl("source.orders")])

    assert (found.to_remove, found.to_forget) == ((), (acl("source.orders"),))


def test_in_mirrormaker2_mode_nothing_is_ever_removed() -> None:
    ours = acl("source.orders")

    found = planned([], mode="mirrormaker2", target_acls=[ours], written=[ours])

    assert (found.to_remove, found.to_forget) == ((), ())


def test_a_right_that_shrank_on_the_source_shrinks_on_the_target() -> None:
    before, after = acl("source.orders", AclOperation.ALTER), acl("source.orders", READ)

    found = planned([acl("orders", READ)], target_acls=[before], written=[before])

    assert (found.to_create, found.to_remove) == ((after,), (before,))


def test_acls_outlive_their_deleted_topic_as_they_do_on_the_source() -> None:
    ours = acl("source.gone")

    found = planned([acl("gone")], target_acls=[ours], written=[ours])

    assert (found.to_create, found.to_remove) == ((), ())


class ShoutingPolicy:
    """A policy of an operator's own: names in capitals."""

    def __init__(self, **_: object) -> None: ...

    def target_topic(self, topic: TopicName) -> TopicName:
        return TopicName(topic.upper())

    def topic_source(self, topic: TopicName) -> None:
        return None

    def upstream_topic(self, topic: TopicName) -> None:
        return None

    def is_internal(self, topic: TopicName) -> bool:
        return False

    def is_mirror_bookkeeping(self, topic: TopicName) -> bool:
        return False

    def offset_syncs_topic(self, other: str) -> TopicName:
        return TopicName(f"syncs-{other}")

    def checkpoints_topic(self, source: str) -> TopicName:
        return TopicName(f"checkpoints-{source}")


@POLICIES
def test_acls_of_a_topic_that_was_failed_over_are_neither_given_nor_taken(policy: str) -> None:
    name, *_ = TOPICS
    there = planned([acl(name)], policy=policy).to_create
    assert there

    given = planned([acl(name)], policy=policy, fenced=[TopicName(name)])
    taken = planned([], policy=policy, target_acls=there, written=there, fenced=[TopicName(name)])

    assert given.to_create == ()
    assert (taken.to_remove, taken.to_forget) == ((), ())
    assert planned([], policy=policy, target_acls=there, written=there).to_remove == there
