"""Tell where consumer groups stand, in MirrorMaker 2's checkpoints. Runs on the driver.

One record per group and partition, on the target, for whoever fails over: `MirrorClient` in Java
and Python, and this mirror itself when it starts anew.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from heliograph.broker.records import Record
from heliograph.clock import now_ms
from heliograph.compat.internal_topics import InternalTopic
from heliograph.compat.own_topics import checkpoints_of
from heliograph.errors import BrokerError, WireError
from heliograph.groups.checkpoint_plan import doubtful_targets, plan_checkpoints
from heliograph.groups.follower import GroupFollower, trouble
from heliograph.model import FlowId, TopicPartition
from heliograph.wire.mirror_records import Checkpoint, encode_checkpoint

__all__ = ["CheckpointsJob", "GroupFollower"]


class CheckpointsJob:
    """Writes what is news since the last step; one that was not acknowledged is news again."""

    what: Final = "checkpoints"

    def __init__(self, follower: GroupFollower) -> None:
        self.flow: Final[FlowId] = follower.flow.id
        self.interval_s: Final[float] = follower.flow.checkpoints.interval_s
        self.follower: Final = follower
        topic = checkpoints_of(follower.flow)
        self._topic = InternalTopic(follower.clients, follower.target, topic)
        self.latency_ms: Mapping[tuple[str, TopicPartition], int] = {}
        """From the look at a group to its checkpoint on the target, of the last ones written."""

    def step(self) -> None:
        follower = self.follower
        self._topic.ensure()
        follower.load()
        look = follower.look()
        told = follower.told()
        doubtful = doubtful_targets(look.locations, told)
        ends = follower.clients.admin(follower.target).list_offsets(doubtful, "latest")
        problems = dict(look.problems)
        self._tell(plan_checkpoints(look.locations, told, ends), look.at_ms, problems)
        followed = {place.group for place in look.locations} | problems.keys()
        # Groups of a name each come and go for years.
        self.latency_ms = {at: ms for at, ms in self.latency_ms.items() if at[0] in followed}
        if problems:
            raise trouble(problems, "no checkpoints of them")

    def _tell(
        self, news: tuple[Checkpoint, ...], at_ms: int, problems: dict[str, BrokerError]
    ) -> None:
        records: list[Record] = []
        written: list[Checkpoint] = []
        for checkpoint in news:
            try:
                key, value = encode_checkpoint(checkpoint)
            except WireError as exc:
                # Brokers may be set to take longer metadata than the format has room for.
                problems[checkpoint.group] = BrokerError(f"group {checkpoint.group}: {exc}")
                continue
            records.append(Record(key=key, value=value, timestamp_ms=at_ms))
            written.append(checkpoint)
        if not records:
            return
        self._topic.write(records)
        self.follower.record_written(written)
        took_ms = now_ms() - at_ms
        self.latency_ms = {
            **self.latency_ms,
            **{
                (each.group, TopicPartition(topic=each.topic, partition=each.partition)): took_ms
                for each in written
            },
        }
