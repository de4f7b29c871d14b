"""Values for the documents of commands that change something, or say what they would."""

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
from heliograph.broker.topic_changes import (
    ConfigChange,
    PartitionsToGrow,
    TopicConfigChanges,
    TopicToCreate,
)
from heliograph.cli.offset_tables import Answer
from heliograph.compat.acl_plan import AclPlan
from heliograph.compat.own_topics import OwnTopic
from heliograph.errors import BrokerUnreachable
from heliograph.groups.commit import CommitReport
from heliograph.groups.placement import GroupMove, GroupPlan, NoOffset, Strategy
from heliograph.groups.snapshot import FlowSnapshot
from heliograph.inspect.dry_run import FlowPlan, OwnTopicOutlook, TopicOutlook
from heliograph.inspect.reset import LaneReset
from heliograph.model import TopicName
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
from tests.unit.cli.canned import AB, BA, COPY, LANE, ORDERS, SOURCE, TARGET, B, span

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
