"""A flow of its own on the shared clusters, mirrored without Spark, to be failed over."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from confluent_kafka import Consumer

from heliograph.broker.group_view import GroupOffset
from heliograph.broker.groups import CommitOutcome, GroupAdmin
from heliograph.config.load import load_config
from heliograph.config.schema import MirrorConfig
from heliograph.failover.command import FailoverOrder, FailoverReport, fail_over
from heliograph.failover.outputs import Mode
from heliograph.ledger.entries import ledger_topic
from heliograph.model import ClusterAlias, FlowId, TopicName, TopicPartition
from heliograph.procedure.runner import Say, StepEvent
from heliograph_tools.localkafka.cluster import LocalCluster
from tests.kit.inside import InsideMirror
from tests.kit.mirror import RECORDS_ONLY, write_config
from tests.kit.records import end_offsets
from tests.kit.topics import wait_until

NOBODY: Final = "127.0.0.1:1"
"""Where no broker listens, so that a source there is down at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """One topic, and groups whose ids begin with its name."""

    folder: Path
    source: LocalCluster
    target: LocalCluster
    topic: str
    settings: Mapping[str, str] = field(default_factory=dict)
    number: str = ""
    """Tells flows of one topic apart; the topic's own number unless told."""

    @property
    def flow(self) -> FlowId:
        number = self.number or self.topic.rpartition("-")[2]
        return FlowId(source=ClusterAlias(f"P{number}"), target=ClusterAlias(f"S{number}"))

    @property
    def mirrored(self) -> str:
        """The topic's name on the target."""
        identity = "Identity" in self.settings.get("replication.policy.class", "")
        return self.topic if identity else f"{self.flow.source}.{self.topic}"

    @property
    def checkpoints(self) -> TopicName:
        return TopicName(f"{self.flow.source}.checkpoints.internal")

    def file(self, *, source: str = "", target: str = "") -> Path:
        """The configuration; clusters may be moved to where nobody is."""
        name = f"{self.flow.source}-{'down' if source else 'up'}.properties"
        path = self.folder / name
        return write_config(
            path,
            {self.flow.source: source or self.source, self.flow.target: target or self.target},
            {
                str(self.flow): {
                    "topics": self.topic,
                    "groups": f"{self.topic}-.*",
                    "emit.checkpoints.interval.seconds": "1",
                    "refresh.groups.interval.seconds": "1",
                    "checkpoints.topic.replication.factor": "1",
                    **self.settings,
                }
            },
            top={**RECORDS_ONLY, "emit.checkpoints.enabled": "true", "slots": "1"},
        )

    @property
    def config(self) -> MirrorConfig:
        return load_config(self.file())

    @property
    def config_down(self) -> MirrorConfig:
        """As `config`, with a source that does not answer."""
        return load_config(self.file(source=NOBODY))

    @property
    def groups(self) -> dict[str, dict[int, int]]:
        """Where each group stands on the target, as far as it does."""
        admin = GroupAdmin(self.config.target_of(self.flow))
        ours = sorted(g for g in admin.list_groups() if g.startswith(f"{self.topic}-"))
        return {
            group: {
                at.partition: to.offset for at, to in locations.items() if at.topic == self.mirrored
            }
            for group, locations in admin.offsets(ours).items()
        }

    def plan_group_offsets(self, locations: Mapping[str, Mapping[int, int]]) -> None:
        """Commit many groups on the source."""
        topic = TopicName(self.topic)
        wanted = {
            group: {
                TopicPartition(topic=topic, partition=number): GroupOffset(offset=offset)
                for number, offset in offsets.items()
            }
            for group, offsets in locations.items()
        }
        admin = GroupAdmin(self.config.source_of(self.flow))

        def placed() -> bool:
            """A coordinator that is just being made refuses partition by partition."""
            outcomes = admin.commit_each(wanted)
            return all(isinstance(o, CommitOutcome) and not o.problems for o in outcomes.values())

        wait_until(placed, f"offsets of {len(locations)} groups")

    @property
    def ledger_end(self) -> int:
        return end_offsets(self.target, ledger_topic(self.flow.source))[0]

    @contextmanager
    def mirroring(self) -> Iterator[InsideMirror]:
        """A driver without a lease, all in this process; lanes are settled at the end."""
        with closing(InsideMirror(self.config)) as inside:
            inside.catch_up()
            yield inside
            inside.settle()

    def mirror(self) -> None:
        """Everything there is, and where groups stand."""
        with self.mirroring() as mirroring:
            mirroring.step("checkpoints")

    def fail_over(
        self,
        mode: Mode = "unplanned",
        *,
        say: Say | None = None,
        skip_active: bool = False,
        topics: Sequence[str] | None = None,
    ) -> FailoverReport:
        """Unplanned, the source is down."""
        config = self.config if mode == "planned" else self.config_down
        alone = None if topics is None else tuple(map(TopicName, topics))
        order = FailoverOrder(flow=self.flow, mode=mode, skip_active=skip_active, topics=alone)
        return asyncio.run(fail_over(config, order, say or _silent))

    def read_on(self, group: str) -> dict[int, list[bytes]]:
        """What an ordinary consumer of the target reads from where the group stands."""
        ends = end_offsets(self.target, self.mirrored)
        return read_on(self.target, group, self.mirrored, ends)


def read_on(
    cluster: LocalCluster, group: str, topic: str, ends: Mapping[int, int]
) -> dict[int, list[bytes]]:
    """Values a member of the group gets, up to these ends; it commits nothing."""
    consumer = Consumer(
        {
            **cluster.librdkafka_config,
            "group.id": group,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "log_level": 0,
        }
    )
    found: dict[int, list[bytes]] = {number: [] for number in ends}
    consumer.subscribe([topic])
    try:

        def is_done() -> bool:
            for message in consumer.consume(10_000, timeout=0.05):
                assert message.error() is None, message.error()
                found[message.partition()].append(message.value())
            mine = consumer.assignment()
            # A member that has nothing to read has no position, only the group's place.
            at = {each.partition: each.offset for each in consumer.committed(mine, timeout=30)}
            at |= {p.partition: p.offset for p in consumer.position(mine) if p.offset >= 0}
            return at.keys() == ends.keys() and all(at[n] >= end for n, end in ends.items())

        wait_until(is_done, f"{group} to read {topic} to its end", timeout_s=60, poll_s=0)
    finally:
        consumer.close()
    return found


def _silent(_: StepEvent) -> None:
    """Nobody listens."""
