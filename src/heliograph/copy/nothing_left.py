"""Where a lane stands of which neither log nor leader tells. Runs on executors.

All since its last head was deleted on the target, and the producer is forgotten. What was deleted
may be ours or others'. To count it as ours would skip as many records of the source as others
wrote; to count it as theirs would copy again what was ours. So it takes a proof: the slot that
carries the lane has sent nothing that is unanswered, or the source has nothing to send.
"""

from __future__ import annotations

from heliograph.broker.cluster import LATEST
from heliograph.copy.flow import Flow
from heliograph.copy.found import Resumable, SourceTrouble
from heliograph.errors import BrokerError, MirrorError
from heliograph.ledger.locate import At, NothingLeft, is_other_topic, source_next_offset
from heliograph.ledger.view import LaneRecord


async def as_known_otherwise(
    flow: Flow, lane: Resumable, record: LaneRecord, found: NothingLeft
) -> At | NothingLeft | SourceTrouble:
    own = lane.sure_position
    if own is not None and found.position <= own <= found.position + found.deleted:
        return At(position=own)
    source = lane.spec.id.source
    if is_other_topic(record.starts[-1].source_topic_id, lane.spec.source_topic_id):
        # Nobody reads on in the topic that is gone.
        return At(position=found.position)
    try:
        end = (await flow.source.list_offsets([source], LATEST))[source]
    except MirrorError as exc:
        return SourceTrouble(error=exc)
    if isinstance(end, BrokerError):
        return SourceTrouble(error=end)
    is_all_before = end <= source_next_offset(record, found.position)
    return At(position=found.position) if is_all_before else found


def why_unknown(lane: Resumable, record: LaneRecord, found: NothingLeft) -> str:
    source = source_next_offset(record, found.position)
    return (
        f"{lane.spec.target}: all {found.deleted} offsets since the lane's last head were deleted, "
        "and the broker has forgotten the producer: they may be copies of what the source has "
        f"from offset {source} on, or others' records; `heliograph reset` says where the lane "
        "goes on"
    )
