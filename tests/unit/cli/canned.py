"""Values for `--json` documents: each with something in every field, and one with nothing.

Those of commands that change something are in `canned_changes`.
"""

from __future__ import annotations

from pathlib import Path

from heliograph.audit.conflict_run import ConflictQuestion, ConflictReport, SideCounts
from heliograph.audit.conflicts import KeyConflict, Place, TopicConflicts
from heliograph.audit.trial import Fate, Trial, TriedRecord
from heliograph.broker.group_view import GroupState
from heliograph.cli.letters import letters_document, replay_document
from heliograph.compat.mirror_client import NewestHeartbeat
from heliograph.config.schema import FlowConfig
from heliograph.decisions.decision import Decision, Scope, Verb
from heliograph.decisions.orders import orders_of
from heliograph.health.listing import AlarmRow, FlowAlarms
from heliograph.health.note import Silence
from heliograph.health.verdict import Cutover, FlowVerdict, Reason, Word
from heliograph.inspect.flow_status import FlowStatus, LaneStatus, MirrorStatus
from heliograph.inspect.groups import FlowGroups, GroupRow, GroupsStatus
from heliograph.inspect.groups import Verdict as GroupVerdict
from heliograph.inspect.topology import ClusterSeen, FlowSeen, HeartbeatsSeen, Topology
from heliograph.inspect.waiting import WaitingLane
from heliograph.ledger.drill_note import LastDrill
from heliograph.ledger.entries import LeaseEntry
from heliograph.ledger.fence import Fence
from heliograph.ledger.pipeline_note import PipelineFigures, PipelineState
from heliograph.ledger.translate import Clamped
from heliograph.letters.command import ListedLetter
from heliograph.letters.letter import ReadLetter
from heliograph.letters.replay import Outcome, Replay, Replayed
from heliograph.model import ClusterAlias, FlowId, LaneId, OffsetRange, TopicName, TopicPartition
from heliograph.transform.record import Failure
from heliograph.tune.command import TuneReport, TuneWishes
from heliograph.tune.knee import Peak, Side, Step

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
            pipelines=(
                PipelineFigures(
                    name="masked",
                    state=PipelineState.STALLED,
                    reason="column value is missing",
                    at_ms=1_700_000_000_005,
                    batch=7,
                    batch_ms=250,
                    batch_at_ms=1_700_000_000_004,
                    records_read=90,
                    rows_written=80,
                    records_per_s=360.5,
                    lag_records=4,
                    restarts=2,
                ),
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

CONFLICTS = ConflictReport(
    question=ConflictQuestion(
        flow=AB, topics=(TopicName("orders"),), window_ms=300_000, parquet=Path("found")
    ),
    topics=(
        TopicConflicts(
            topic="orders",
            keys=9,
            keys_on_both=3,
            keys_in_conflict=2,
            writes=[12, 4],
            conflicting=[3, 2],
        ),
    ),
    worst=(
        KeyConflict(
            topic="orders",
            key=b"\xff7",
            writes=(5, 1),
            conflicting=(2, 1),
            closest_ms=9,
            closest=(Place(0, 17, 1_000), Place(3, 4, 1_009)),
            first_ms=900,
            last_ms=1_009,
        ),
    ),
    counts=SideCounts(mirrored=(0, 500), keyless=(1, 0), damaged=(0, 0)),
    problems=(),
    notes=("orders is compacted on A: writes that compaction removed are not seen",),
    seconds=1.25,
)
TUNED = TuneReport(
    wishes=TuneWishes(flow=AB, slots=(1, 2, 4)),
    at_ms=1_800_000_000_000,
    load="a scratch topic of 1 GB in records of 1,000 bytes, 8 partitions",
    steps=tuple(
        Step(
            slots=slots,
            seconds=10.0,
            records=1_000 * rate,
            bytes=10_000_000 * rate,
            cpu_s=2.5,
            source=Side(bytes=10_000_000 * rate, requests=40, answer_ms=12.5, throttle_ms=0),
            target=Side(bytes=10_000_000 * rate, requests=0, answer_ms=None, throttle_ms=7),
        )
        for slots, rate in ((1, 98), (2, 180), (4, 198))
    ),
    peak=Peak(
        at_ms=1_799_000_000_000,
        bytes_per_s=18e6,
        records_per_s=18_000,
        mean_bytes_per_s=9e6,
        hours=72,
        topics=(("orders", 17e6), ("logs", 1e6)),
    ),
    notes=("8 slots could not be tried: Spark has room for 4 slots at the moment",),
)
VERDICTS = (
    FlowVerdict(
        flow=AB,
        word=Word.BEHIND,
        reasons=(Reason(word=Word.BEHIND, text="records wait for 301 s: orders-0"),),
        cutover=Cutover(
            reasons=("records wait for 301 s: orders-0", "no drill was made"),
            remarks=("a failover writes offsets of: billing",),
        ),
    ),
)
_SILENCE = Silence(
    id="0123456789", alarm="lag", who="ann", at_ms=1, until_ms=7_200_001, why="a reload"
)
ALARMS = (
    FlowAlarms(
        flow="A->B",
        alarms=(
            AlarmRow(
                id="3f2a9c41d0",
                alarm="lag:orders",
                state="open",
                text="records wait for 301 s",
                raised_ms=1,
                ended_ms=None,
                silenced=_SILENCE,
            ),
            AlarmRow(
                id="41d03f2a9c",
                alarm="canary",
                state="ended",
                text="the canary is late by 31 s",
                raised_ms=1,
                ended_ms=61_000,
                silenced=None,
            ),
        ),
        silences=(_SILENCE,),
    ),
)

SAMPLE = {
    "flow": "A->B",
    "pipeline": "masked",
    "rows": (
        {
            "topic": "out",
            "partition": 1,
            "timestamp_ms": 1_700_000_000_000,
            "key": "k",
            "value": None,
            "headers": ("a=1",),
        },
    ),
}
TRIAL = Trial(
    flow=AB,
    topic=TopicName("orders"),
    target_topic=TopicName("A.orders"),
    transforms=("m (my_transforms:masked)",),
    records=(
        TriedRecord(
            partition=0,
            offset=7,
            fate=Fate.CHANGED,
            why="",
            before=(1, b"k", b"\xff4711", (("h", b"1"), ("n", None))),
            after=(1, b"k", b"****", ()),
        ),
        TriedRecord(
            partition=1,
            offset=8,
            fate=Fate.FAILED,
            why="transform m: ValueError: no",
            before=(2, None, None, ()),
            after=None,
        ),
    ),
)
LETTERS = letters_document(
    [
        (
            FlowConfig(id=AB),
            ListedLetter(
                letter=ReadLetter(
                    at=TopicPartition(
                        topic=TopicName("heliograph-letters.A.internal"), partition=0
                    ),
                    letter_offset=5,
                    at_ms=1_700_000_000_000,
                    source=TopicPartition(topic=TopicName("orders"), partition=3),
                    offset=17,
                    flow="A->B",
                    failure=Failure("m", "ValueError", "no"),
                    content=(1, None, b"\xff4711", (("h", b"1"),)),
                ),
                is_replayed=True,
            ),
        )
    ],
    whole=True,
)
REPLAY = replay_document(
    [
        (
            FlowConfig(id=AB),
            Replayed(
                Replay(
                    source=TopicPartition(topic=TopicName("orders"), partition=3),
                    offset=17,
                    content=(1, None, b"4711", ()),
                ),
                Outcome.FAILED,
                "repair: ValueError: no",
            ),
        )
    ],
    dry_run=True,
)
