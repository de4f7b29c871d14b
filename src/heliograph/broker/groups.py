"""Groups of one cluster, of every type: states, committed offsets, commits. Runs on the driver.

Brokers answer for one group at a time, so many groups are asked about side by side, in bounded
numbers. Every call is bounded in time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from itertools import islice
from typing import Any, Final

from confluent_kafka import (
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    ConsumerGroupType,
    KafkaError,
    KafkaException,
)
from confluent_kafka import TopicPartition as ClientPartition

from heliograph.broker.admin import TIMEOUT_S_DEFAULT
from heliograph.broker.admin_client import admin_client
from heliograph.broker.admin_errors import ErrorLog, is_one_of
from heliograph.broker.group_view import (
    CommitOutcome,
    GroupOffset,
    GroupState,
    GroupType,
    GroupView,
)
from heliograph.broker.typed_groups import TypedGroups
from heliograph.clock import monotonic_s
from heliograph.config.schema import ClusterConfig
from heliograph.errors import BrokerError, BrokerUnreachable, GroupActive, MirrorError
from heliograph.model import TopicName, TopicPartition

__all__ = ["CommitOutcome", "GroupAdmin", "GroupOffset", "GroupState", "GroupView"]

GROUPS_AT_ONCE_MAX: Final = 32
_DESCRIBED_AT_ONCE_MAX: Final = 500
_ANSWER_GRACE_S: Final = 5.0
_PAUSE_S: Final = 0.1

_STATES: Final = {
    ConsumerGroupState.EMPTY: GroupState.EMPTY,
    ConsumerGroupState.DEAD: GroupState.DEAD,
    ConsumerGroupState.STABLE: GroupState.STABLE,
    ConsumerGroupState.PREPARING_REBALANCING: GroupState.REBALANCING,
    ConsumerGroupState.COMPLETING_REBALANCING: GroupState.REBALANCING,
}
_ABSENT: Final = (KafkaError.GROUP_ID_NOT_FOUND,)
_COORDINATOR_MOVES: Final = (
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
)
_HAS_MEMBERS: Final = (
    KafkaError.UNKNOWN_MEMBER_ID,
    KafkaError.ILLEGAL_GENERATION,
    KafkaError.REBALANCE_IN_PROGRESS,
    KafkaError.NON_EMPTY_GROUP,
    KafkaError.FENCED_INSTANCE_ID,
    KafkaError.STALE_MEMBER_EPOCH,
    KafkaError.FENCED_MEMBER_EPOCH,
)


_NOTHING_DONE: Final = CommitOutcome(written=frozenset(), problems={})


class GroupAdmin:
    """Questions about groups, and commits in their name; safe to share between threads."""

    def __init__(self, cluster: ClusterConfig, *, timeout_s: float = TIMEOUT_S_DEFAULT) -> None:
        self.alias: Final = cluster.alias
        self._timeout_s = timeout_s
        self._errors = ErrorLog(alias=cluster.alias)
        self._client = admin_client(cluster, self._errors)
        self._typed = TypedGroups(cluster, timeout_s=timeout_s)

    def list_groups(self) -> Mapping[str, GroupView]:
        """Every group the brokers show; they hide those we may not describe.

        A broker that does not answer keeps only its own groups from the list. Raises `BrokerError`
        where none did; one that has just begun to coordinate groups is given time.
        """
        deadline_s = monotonic_s() + self._timeout_s
        while True:
            asked = self._ask(self._client.list_consumer_groups)
            listed = self._answer(asked, "DESCRIBE on groups")
            if listed.valid or not listed.errors:
                break
            # These are errors as librdkafka has them, where calls raise them as exceptions.
            refused = KafkaException(listed.errors[0])
            if not is_one_of(refused, _COORDINATOR_MOVES) or monotonic_s() >= deadline_s:
                raise self._errors.translated(refused, "DESCRIBE on groups") from refused
            self._client.poll(_PAUSE_S)
        found = {
            group.group_id: GroupView(id=group.group_id, state=_state(group), type=_type(group))
            for group in listed.valid
            if group.group_id
        }
        return found | self._typed.views()

    def describe(self, ids: Iterable[str]) -> Mapping[str, GroupView]:
        """States now; a group that is not there is `DEAD` or left out."""
        return _all_or_raise(self.describe_each(ids))

    def describe_each(self, ids: Iterable[str]) -> Mapping[str, GroupView | BrokerError]:
        """As `describe`, where a group that is not shown to us keeps no other from it."""
        answers = self._ask_each(
            ids,
            _DESCRIBED_AT_ONCE_MAX,
            lambda some: self._ask(self._client.describe_consumer_groups, some),
        )
        described: dict[str, GroupView | BrokerError] = {}
        for group, found in answers.items():
            if isinstance(found, BrokerError):
                described[group] = found
            elif found is not None:
                described[group] = GroupView(id=group, state=_state(found), type=_type(found))
        # To librdkafka a streams or share group is dead, though it may have members.
        if any(_may_be_typed(described.get(group)) for group in answers):
            described |= {id: view for id, view in self._typed.views().items() if id in answers}
        return described

    def offsets(self, ids: Iterable[str]) -> Mapping[str, Mapping[TopicPartition, GroupOffset]]:
        """What each group has committed; nothing for a group that is not there."""
        return _all_or_raise(self.offsets_each(ids))

    def offsets_each(
        self, ids: Iterable[str]
    ) -> Mapping[str, Mapping[TopicPartition, GroupOffset] | BrokerError]:
        """As `offsets`, where a group that is not shown to us keeps no other from it.

        Topics we may not describe are left out by the broker, without a word.
        """
        answers = self._ask_each(
            ids,
            GROUPS_AT_ONCE_MAX,
            lambda some: {
                group: self._ask(
                    self._client.list_consumer_group_offsets, [ConsumerGroupTopicPartitions(group)]
                )[group]
                for group in some
            },
        )
        found = {group: self._committed(group, answer) for group, answer in answers.items()}
        # A share group has committed nothing; its start offsets are asked for elsewhere.
        without = [group for group, offsets in found.items() if offsets == {}]
        return found | self._typed.start_offsets_each(without)

    def commit(self, group: str, offsets: Mapping[TopicPartition, GroupOffset]) -> CommitOutcome:
        """Put the group there; raises `GroupActive` where it has members, who alone may commit."""
        outcome = self.commit_each({group: offsets})[group]
        if isinstance(outcome, BrokerError):
            raise outcome
        return outcome

    def commit_each(
        self, wanted: Mapping[str, Mapping[TopicPartition, GroupOffset]]
    ) -> Mapping[str, CommitOutcome | BrokerError]:
        """As `commit`, where a group that is refused keeps no other from it.

        Nothing is tried twice: what the offsets were compared with may be old by then. Offsets of
        share groups (`GroupOffset.is_share`) become their start offsets.
        """
        share = {
            group: offsets
            for group, offsets in wanted.items()
            if any(offset.is_share for offset in offsets.values())
        }
        outcomes: dict[str, CommitOutcome | BrokerError] = {**self._typed.alter_each(share)}
        committing = [group for group in wanted if group not in share]
        for some in _in_chunks(committing, GROUPS_AT_ONCE_MAX):
            answers = {
                group: self._ask(
                    self._client.alter_consumer_group_offsets,
                    [ConsumerGroupTopicPartitions(group, _to_commit(wanted[group]))],
                )[group]
                for group in some
                if wanted[group]
            }
            for group in some:
                answer = answers.get(group)
                outcomes[group] = _NOTHING_DONE if answer is None else self._outcome(group, answer)
        return outcomes

    def delete_each(self, ids: Iterable[str]) -> Mapping[str, BrokerError]:
        """Forget groups and all they have committed; what was refused, with why."""
        refused: dict[str, BrokerError] = {}
        for some in _in_chunks(dict.fromkeys(ids), GROUPS_AT_ONCE_MAX):
            answers = self._ask(self._client.delete_consumer_groups, some)
            for group, answer in answers.items():
                got = self._each(answer, f"DELETE on group {group}", left_out=_ABSENT)
                if isinstance(got, BrokerError):
                    refused[group] = got
        return refused

    def _outcome(self, group: str, answer: Future[Any]) -> CommitOutcome | BrokerError:
        answered = self._each(answer, f"READ on group {group}", left_out=())
        if isinstance(answered, BrokerError):
            is_active = is_one_of(answered.__cause__, _HAS_MEMBERS)
            return self._active(group) if is_active else answered
        written: set[TopicPartition] = set()
        problems: dict[TopicPartition, BrokerError] = {}
        for partition in answered.topic_partitions:
            at = _topic_partition(partition)
            if partition.error is None:
                written.add(at)
                continue
            refused = KafkaException(partition.error)
            if is_one_of(refused, _HAS_MEMBERS):
                return self._active(group)
            if is_one_of(refused, _ABSENT):
                return BrokerError(
                    f"cluster {self.alias}: group {group} is a share group there, which takes no "
                    "committed offsets; delete it, or leave it out with groups.exclude"
                )
            problems[at] = self._errors.translated(refused, _permission(partition, group))
        return CommitOutcome(written=frozenset(written), problems=problems)

    def _committed(
        self, group: str, listed: Any
    ) -> Mapping[TopicPartition, GroupOffset] | BrokerError:
        """Without partitions where nothing is committed, which are answered with -1001 or -1."""
        if listed is None or isinstance(listed, BrokerError):
            return {} if listed is None else listed
        found: dict[TopicPartition, GroupOffset] = {}
        for partition in listed.topic_partitions:
            if partition.error is not None:
                # Left out it would look like a partition where nothing is committed.
                refused = KafkaException(partition.error)
                return self._errors.translated(refused, f"DESCRIBE on topic {partition.topic}")
            if partition.offset >= 0:
                found[_topic_partition(partition)] = GroupOffset(
                    offset=partition.offset,
                    metadata=partition.metadata or "",
                    leader_epoch=partition.leader_epoch,
                )
        return found

    def _active(self, group: str) -> GroupActive:
        return GroupActive(f"cluster {self.alias}: group {group} has members")

    def _ask(self, call: Callable[..., Any], *what: object) -> Any:
        # Callbacks wait in a queue until somebody polls; a client nobody polls keeps them all.
        self._client.poll(0)
        try:
            return call(*what, request_timeout=self._timeout_s)
        except KafkaException as exc:
            raise self._errors.translated(exc, "for the request") from exc

    def _ask_each(
        self,
        ids: Iterable[str],
        at_once_max: int,
        question: Callable[[list[str]], Mapping[str, Future[Any]]],
    ) -> dict[str, Any]:
        """The answer of each group, its error, or None where there is no such group.

        A coordinator that moves, or was never needed before, is asked again in a moment, which
        librdkafka leaves to its caller.
        """
        deadline_s = monotonic_s() + self._timeout_s
        found: dict[str, Any] = {}
        waiting = list(dict.fromkeys(ids))
        while waiting:
            moving: list[str] = []
            for some in _in_chunks(waiting, at_once_max):
                for group, answer in question(some).items():
                    got = self._each(answer, f"DESCRIBE on group {group}", left_out=_ABSENT)
                    cause = got.__cause__ if isinstance(got, BrokerError) else None
                    if is_one_of(cause, _COORDINATOR_MOVES) and monotonic_s() < deadline_s:
                        moving.append(group)
                    else:
                        found[group] = got
            waiting = moving
            if waiting:
                self._client.poll(_PAUSE_S)
        return found

    def _each(self, answer: Future[Any], permission: str, *, left_out: tuple[int, ...]) -> Any:
        """The result, the error of this one group, or None for an error in `left_out`."""
        try:
            return self._answer(answer, permission)
        except BrokerUnreachable:
            # The other groups would only wait as long, one after the other.
            raise
        except BrokerError as error:
            return None if is_one_of(error.__cause__, left_out) else error

    def _answer(self, answer: Future[Any], permission: str) -> Any:
        try:
            found = answer.result(self._timeout_s + _ANSWER_GRACE_S)
        except KafkaException as exc:
            self._client.poll(0)
            raise self._errors.translated(exc, permission) from exc
        except TimeoutError as exc:
            raise BrokerUnreachable(
                f"cluster {self.alias}: no answer within {self._timeout_s:g} s"
            ) from exc
        self._errors.forget()
        return found


def _all_or_raise(found: Mapping[str, Any]) -> Mapping[str, Any]:
    for answer in found.values():
        if isinstance(answer, MirrorError):
            raise answer
    return found


def _to_commit(offsets: Mapping[TopicPartition, GroupOffset]) -> list[ClientPartition]:
    return [
        ClientPartition(at.topic, at.partition, to.offset, metadata=to.metadata)
        for at, to in offsets.items()
    ]


def _state(group: Any) -> GroupState:
    return _STATES.get(group.state, GroupState.UNKNOWN)


def _may_be_typed(view: GroupView | BrokerError | None) -> bool:
    return view is None or (isinstance(view, GroupView) and view.state is GroupState.DEAD)


def _type(group: Any) -> GroupType:
    """Brokers older than Kafka 3.8 do not say, and know only the classic one."""
    kind = getattr(group, "type", None)
    return "consumer" if kind is ConsumerGroupType.CONSUMER else "classic"


def _permission(partition: ClientPartition, group: str) -> str:
    if partition.error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
        return f"READ on topic {partition.topic}"
    return f"READ on group {group}"


def _topic_partition(partition: ClientPartition) -> TopicPartition:
    return TopicPartition(topic=TopicName(partition.topic), partition=partition.partition)


def _in_chunks(ids: Iterable[str], size: int) -> Iterator[list[str]]:
    iterator = iter(ids)
    while chunk := list(islice(iterator, size)):
        yield chunk
