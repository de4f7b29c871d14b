"""Values for every `--json` document: each with something in every field, and one with nothing."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import cast

from heliograph.acl import AclBinding, AclOperation, AclPattern, AclPermission
from heliograph.audit.findings import Finding, FindingKind
from heliograph.audit.repair import Refused, RepairReport
from heliograph.audit.run import AuditReport, TopicTally
from heliograph.audit.run import LaneFinding as AuditFinding
from heliograph.broker.group_view import GroupState
from heliograph.broker.topic_changes import (
    ConfigChange,
    PartitionsToGrow,
    TopicConfigChanges,
    TopicToCreate,
)
from heliograph.cli.offset_tables import Answer
from heliograph.compat.acl_plan import AclPlan
from heliograph.compat.mirror_client import NewestHeartbeat
from heliograph.compat.own_topics import OwnTopic
from heliograph.decisions.decision import Decision, Scope, Verb
from heliograph.decisions.orders import orders_of
from heliograph.errors import BrokerUnreachable
from heliograph.groups.commit import CommitReport
from heliograph.groups.placement import GroupMove, GroupPlan, NoOffset, Strategy
from heliograph.groups.snapshot import FlowSnapshot
from heliograph.inspect.dry_run import FlowPlan, OwnTopicOutlook, TopicOutlook
from heliograph.inspect.groups import FlowGroups, GroupRow, GroupsStatus
from heliograph.inspect.groups import Verdict as GroupVerdict
from heliograph.inspect.reset import LaneReset
from heliograph.inspect.status import FlowStatus, LaneStatus, MirrorStatus
from heliograph.inspect.topology import ClusterSeen, FlowSeen, HeartbeatsSeen, Topology
from heliograph.inspect.waiting import WaitingLane
from heliograph.ledger.drill_note import LastDrill
from heliograph.ledger.entries import LeaseEntry
from heliograph.ledger.fence import Fence
from heliograph.ledger.translate import Clamped
from heliograph.model import ClusterAlias, FlowId, LaneId, OffsetRange, TopicName, TopicPartition
from heliograph.spark_checkpoint.move import CheckpointTranslation
from heliograph.spark_checkpoint.translate import PartitionMove
from heliograph.takeover.adopt import FlowFinding
from heliograph.takeover.alignment import Repeat
from heliograph.takeover.release import FlowRelease, LaneRelease, ReleaseAction
from heliograph.takeover.verdict import ComparedFrom, LaneFinding, Verdict
from heliograph.topics.provisioning import PlanNote, Provisioning, Severity
from heliograph.topics.selection import Selection, TopicDecision
from heliograph.topics.selection import Verdict as TopicVerdict
from heliograph.wire.mirror_records import OffsetSync

A, B, C = ClusterAlias("A"), ClusterAlias("B"), ClusterAlias("C")
AB, BA = FlowId(source=A, target=B), FlowId(source=B, target=A)
ORDERS, COPY = TopicName("orders"), TopicName("A.orders")
SOURCE = TopicPartition(topic=ORDERS, partition=3)
TARGET = TopicPartition(topic=COPY, partition=3)
LANE = LaneId(flow=AB, source=SOURCE)


def span(start: int, end: int) -> OffsetRange:
    return OffsetRange(start=start, end=end)


DECIDED = orders_of(
    [
        Decision(
            id="0123456789",
            verb=Verb.THROTTLE,
            scope=Scope(
                topics=(ORDERS,), patterns=("logs-.*",), partitions=(LANE.source.partition,)
            ),
            who="ann@h1",
            at_ms=1_700_000_000_005,
            why="the line is narrow",
            until_ms=1_700_000_900_000,
            bytes_per_s=1_000_000,
        )
    ],
    1_700_000_000_006,
)
STATUS = MirrorStatus(
    at_ms=1_700_000_000_000,
    unreachable={C: "cluster C did not answer"},
    flows=(
        FlowStatus(
            flow=AB,
            producer=None,
            holder=LeaseEntry(
                author="a", host="h1", pid=7, at_ms=1_700_000_000_001, lease_ms=15_000, slot_count=4
            ),
            lanes=(
                LaneStatus(
                    lane=LANE,
                    target=TARGET,
                    state="stalled: too large",
                    detail="MESSAGE_TOO_LARGE",
                    position=90,
                    position_is_exact=True,
                    source_start_offset=5,
                    source_next_offset=95,
                    source_end_offset=100,
                    target_next_offset=91,
                    lag_records=5,
                    lag_s=1.5,
                    mapped_because="gap: 5",
                    lost_records=2,
                    foreign_records=1,
                    noted_ms=1_700_000_000_002,
                    records_per_s=12.25,
                    decided=DECIDED.lane(LANE.source),
                ),
                LaneStatus(
                    lane=LaneId(flow=AB, source=TopicPartition(topic=ORDERS, partition=4)),
                    target=TopicPartition(topic=COPY, partition=4),
                    state="idle",
                    detail="",
                    position=0,
                    position_is_exact=False,
                    source_start_offset=None,
                    source_next_offset=0,
                    source_end_offset=None,
                    target_next_offset=0,
                    lag_records=None,
                    lag_s=None,
                    mapped_because="",
                    lost_records=0,
                    foreign_records=0,
                    noted_ms=None,
                ),
            ),
            problem="the ledger could not be read",
            fence=Fence(at_ms=1_700_000_000_003, why="failed over"),
            orders=DECIDED,
            last_drill=LastDrill(
                at_ms=1_700_000_000_004,
                verdict="fail",
                reasons=("slow",),
                rpo_records=1,
                rpo_s=0.5,
                rto_s=4.25,
                groups=2,
                compared_records=10,
            ),
            waiting=(
                WaitingLane(
                    lane=LaneId(flow=AB, source=TopicPartition(topic=ORDERS, partition=5)),
                    target=TopicPartition(topic=COPY, partition=5),
                    state="waiting: not created",
                    detail="A.orders-5 is not on the target yet",
                    lag_records=12,
                ),
            ),
        ),
        FlowStatus(flow=BA, producer=None, holder=None, lanes=()),
    ),
)

GROUPS = GroupsStatus(
    at_ms=1_700_000_000_000,
    flows=(
        FlowGroups(
            flow=AB,
            writes_offsets=True,
            problems=("target not read",),
            rows=(
                GroupRow(
                    group="billing",
                    type="classic",
                    source=SOURCE,
                    target=TARGET,
                    source_offset=50,
                    translated=Clamped(offset=48, side="after"),
                    committed_offset=40,
                    target_end_offset=60,
                    source_state=GroupState.STABLE,
                    target_state=GroupState.DEAD,
                    verdict=GroupVerdict.BEHIND,
                ),
                GroupRow(
                    group="idle",
                    type="share",
                    source=SOURCE,
                    target=TARGET,
                    source_offset=50,
                    translated=None,
                    committed_offset=None,
                    target_end_offset=None,
                    source_state=None,
                    target_state=None,
                    verdict=GroupVerdict.NOT_TRANSLATABLE,
                ),
            ),
        ),
        FlowGroups(flow=BA, writes_offsets=False),
    ),
)

_MOVE = GroupMove(
    group="billing",
    source=SOURCE,
    target=TARGET,
    source_offset=50,
    target_offset=48,
    exact_offset=47,
    clamped="before",
    lag_records=12,
    repeated_records=1,
    skipped_records=0,
    foreign_offsets=2,
    as_of_ms=1_700_000_000_000,
    origin="checkpoint",
    committed_offset=40,
    metadata="m",
    note="nearest",
)
OFFSETS = Answer(
    flow=AB,
    at_ms=1_700_000_000_000,
    time_ms=1_600_000_000_000,
    known=cast(
        FlowSnapshot,
        SimpleNamespace(source_problem="no answer", problems=("half",), garbage_checkpoints=3),
    ),
    placing=GroupPlan(
        strategy=Strategy.TIME,
        moves=(_MOVE,),
        unplaced=(
            NoOffset(
                group="audit",
                source=SOURCE,
                target=None,
                source_offset=None,
                as_of_ms=None,
                origin=None,
                why="not mirrored",
            ),
        ),
    ),
    report=CommitReport(
        committed=("billing",),
        unchanged=("x",),
        active=("y",),
        problems={"z": "not coordinator"},
        is_refused=False,
    ),
)
OFFSETS_DRY = Answer(
    flow=AB,
    at_ms=1_700_000_000_000,
    time_ms=None,
    known=cast(
        FlowSnapshot, SimpleNamespace(source_problem="", problems=(), garbage_checkpoints=0)
    ),
    placing=GroupPlan(strategy=Strategy.MAP, moves=()),
    report=None,
)

TOPOLOGY = Topology(
    at_ms=1_700_000_000_000,
    clusters=(
        ClusterSeen(
            alias=B,
            topics=(
                HeartbeatsSeen(
                    cluster=B,
                    topic=TopicName("A.heartbeats"),
                    path=(A,),
                    beats={
                        BA: NewestHeartbeat(
                            flow=BA, emitted_ms=1_699_999_999_000, received_ms=1_699_999_999_250
                        )
                    },
                    skipped_records=2,
                ),
                HeartbeatsSeen(
                    cluster=B, topic=TopicName("heartbeats"), path=(), problem="not authorised"
                ),
                HeartbeatsSeen(
                    cluster=B,
                    topic=TopicName("A.C.heartbeats"),
                    path=(A, C),
                    beats={AB: NewestHeartbeat(flow=AB, emitted_ms=1, received_ms=None)},
                ),
            ),
        ),
        ClusterSeen(alias=A, problem="cluster A did not answer"),
    ),
    flows=(
        FlowSeen(
            flow=AB,
            in_file=True,
            seen_on=B,
            newest_ms=1_699_999_999_000,
            age_s=1.0,
            latency_s=0.25,
            written_age_s=2.5,
        ),
        FlowSeen(flow=BA, in_file=False, problem="no heartbeats"),
    ),
    unknown=(C,),
)

ADOPT = (
    FlowFinding(
        flow=AB,
        connector="MirrorSourceConnector",
        offsets_topic="mm2-offsets.A.internal",
        notes=("a note",),
        lanes=(
            LaneFinding(
                lane=LANE,
                target=TARGET,
                verdict=Verdict.ADOPT,
                stored_next=90,
                next_source_offset=95,
                target_next_offset=96,
                compared_from=ComparedFrom(source=80, target=81),
                compared_records=15,
                repeats=(Repeat(source=span(80, 82), target=span(90, 92), records=2),),
                foreign=(span(92, 93),),
                foreign_records=1,
                missing=(span(1, 2), span(4, 6)),
                missing_records=3,
                unsure=span(94, 95),
                doubts=("a doubt",),
                notes=("lane note",),
            ),
            LaneFinding(lane=LANE, target=TARGET, verdict=Verdict.REFUSED, problem="no"),
        ),
    ),
    FlowFinding(flow=BA, problem="MirrorMaker 2 is running"),
)

RELEASE = (
    FlowRelease(
        flow=AB,
        offsets_topic="mm2-offsets.A.internal",
        connector="MirrorSourceConnector",
        notes=("a note",),
        written=True,
        lanes=(
            LaneRelease(
                lane=LANE,
                target=TARGET,
                action=ReleaseAction.RELEASE,
                next_source_offset=95,
                stored_next=90,
                sync=OffsetSync(
                    topic=ORDERS, partition=3, upstream_offset=94, downstream_offset=93
                ),
            ),
            LaneRelease(
                lane=LANE,
                target=TARGET,
                action=ReleaseAction.REFUSED,
                next_source_offset=0,
                stored_next=None,
                problem="no",
            ),
        ),
    ),
    FlowRelease(flow=BA, problem="MirrorMaker 2 is running"),
)

RESET = (
    LaneReset(lane=LANE, position=90, before_offset=95, first_offset=0, offset=80),
    LaneReset(
        lane=LANE,
        position=90,
        before_offset=None,
        first_offset=95,
        offset=99,
        remark="source topic recreated",
    ),
)


def _acl(operation: AclOperation) -> AclBinding:
    return AclBinding(
        name=COPY,
        pattern=AclPattern.LITERAL,
        principal="User:ann",
        host="*",
        operation=operation,
        permission=AclPermission.ALLOW,
    )


PLAN = (
    FlowPlan(
        flow=AB,
        topics=(
            TopicOutlook(
                source=ORDERS, target=COPY, partitions=3, action="create", begun=False, why="topics"
            ),
            TopicOutlook(
                source=TopicName("x"),
                target=TopicName("A.x"),
                partitions=1,
                action="",
                begun=True,
                why="topics",
            ),
        ),
        selection=Selection(
            flow=AB,
            decisions=(
                TopicDecision(
                    topic=ORDERS, verdict=TopicVerdict.MIRRORED, why="topics", target=COPY
                ),
                TopicDecision(topic=TopicName("z"), verdict=TopicVerdict.NOT_MATCHED, why="none"),
            ),
            absent=(),
        ),
        provisioning=Provisioning(
            flow=AB,
            to_create=(
                TopicToCreate(
                    source=ORDERS,
                    name=COPY,
                    partitions=3,
                    replication_factor=2,
                    configs={"cleanup.policy": "compact"},
                ),
            ),
            to_grow=(PartitionsToGrow(name=TopicName("A.x"), partitions_before=1, partitions=2),),
            notes=(),
        ),
        configs=(
            TopicConfigChanges(
                topic=TopicName("A.x"),
                changes=(
                    ConfigChange(name="retention.ms", value=None, before="7"),
                    ConfigChange(name="segment.ms", value="9", before=None),
                ),
            ),
        ),
        acls=AclPlan(
            flow=AB,
            to_create=(_acl(AclOperation.READ),),
            to_remove=(_acl(AclOperation.DESCRIBE),),
            to_forget=(),
            notes=(),
        ),
        notes=(PlanNote(topic=COPY, weight=Severity.PROBLEM, text="already holds records"),),
        own_topics=(
            OwnTopicOutlook(
                topic=OwnTopic(
                    what="ledger",
                    cluster=B,
                    name=TopicName("heliograph-ledger.A.internal"),
                    replication_factor=2,
                    factor_key="replication.factor",
                    partitions=3,
                ),
                is_there=False,
            ),
        ),
    ),
    FlowPlan(flow=BA, problem="down", acls_unseen=BrokerUnreachable("cluster B did not answer")),
)

_COUNTS = Counter({FindingKind.MISSING: 2})
AUDIT: tuple[list[AuditReport], list[RepairReport], float] = (
    [
        AuditReport(
            flow=AB,
            topics=(
                TopicTally(
                    topic=ORDERS,
                    target_topic=COPY,
                    lanes=3,
                    records=100,
                    bytes=5_000,
                    unopened_records=90,
                    expired_records=4,
                    repaired_records=1,
                    timestamps_compared=False,
                    counts=_COUNTS,
                ),
            ),
            findings=(
                AuditFinding(
                    lane=LANE,
                    target=TARGET,
                    finding=Finding(
                        kind=FindingKind.MISSING,
                        source=span(5, 7),
                        target=span(9, 9),
                        records=2,
                        note="n",
                    ),
                ),
                AuditFinding(
                    lane=LANE,
                    target=TARGET,
                    finding=Finding(
                        kind=FindingKind.FOREIGN, source=None, target=span(9, 10), records=1
                    ),
                ),
            ),
            problems=("B did not answer",),
            compared_units=4,
            unit_count=5,
            seconds=1.23456,
            notes=("a note",),
        )
    ],
    [
        RepairReport(
            appended={LANE: (span(5, 6), span(6, 7))},
            refused=(
                Refused(
                    lane=LANE,
                    kind=FindingKind.FOREIGN,
                    source=None,
                    target=span(9, 10),
                    records=1,
                    why="a record cannot be taken out of a log",
                ),
            ),
        )
    ],
    2.34567,
)

CHECKPOINT = CheckpointTranslation(
    flow=AB,
    directory=Path("/data/query"),
    out=Path("/data/copy"),
    layout=2,
    batch=7,
    is_committed=False,
    left_out_batches=1,
    moves=(
        PartitionMove(
            query_source="0",
            source=SOURCE,
            target=TARGET,
            source_offset=40,
            target_offset=45,
            planned_source_offset=50,
            planned_target_offset=55,
            clamped="after",
            planned_clamped="before",
            lag_records=5,
            notes=("a note",),
        ),
        PartitionMove(
            query_source="0", source=SOURCE, target=TARGET, source_offset=None, target_offset=None
        ),
    ),
    untouched_sources=("1",),
    renamed={ORDERS: COPY},
    bootstrap_servers=("b1:9092", "b2:9092"),
)
