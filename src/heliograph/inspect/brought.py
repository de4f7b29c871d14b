"""What MirrorMaker 2 brought under an unchanged name, which no ledger tells from local records.
No I/O; runs on the driver.

Its batches have producers of its own, also after `heliograph adopt`, and no header. So a flow that
reads them for the first time takes them for records of its source.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from heliograph.config.schema import MirrorConfig
from heliograph.model import FlowId, LoopPrevention, StartAt, TopicName


def words_on_brought(
    config: MirrorConfig,
    flow: FlowId,
    fresh: Collection[TopicName],
    brought: Mapping[FlowId, Collection[TopicName]],
) -> Iterator[tuple[frozenset[TopicName], str]]:
    """Topics and a sentence for each flow whose records this one would send on.

    `fresh` are topics that the flow keeps the names of and has not begun, `brought` those of each
    flow that were adopted, or are to be.
    """
    settings = config.flow(flow)
    if settings.start_at is StartAt.LATEST or settings.start_group is not None:
        return
    leaves_all_out = config.loop_prevention_of(flow) is LoopPrevention.MIRRORED
    for other, topics in sorted(brought.items(), key=lambda each: str(each[0])):
        both = frozenset(topics) & frozenset(fresh)
        comes_home = flow.target == other.source
        if not both or other.target != flow.source or not (comes_home or leaves_all_out):
            continue
        where = (
            f"back to {flow.target}" if comes_home else f"to {flow.target} as records of its own"
        )
        yield (
            both,
            f"MirrorMaker 2 brought records by {other}, and neither it nor `heliograph adopt` of "
            f"{other} says which they are: {flow} would send them {where}; begin it with "
            f"{flow}.start.at = latest, before producers write on {flow.source}",
        )
