"""Which topics of a flow were failed over alone, as a choice that nothing outweighs. No I/O; runs
anywhere.

A topic that was failed over belongs to its clients on the target: nothing of it is copied, created,
grown, configured or deleted any more, whatever the file and decisions say of it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from heliograph.ledger.fence import Fence
from heliograph.model import TopicName
from heliograph.topics.selection import Choice

FencedTopics = Callable[[], Mapping[TopicName, Fence]]
"""Read anew each time it is asked."""


def unless_fenced(fences: Mapping[TopicName, Fence], choice: Choice = lambda _: None) -> Choice:
    """The choice of `topics.selection`, but topics that were failed over are left out."""
    if not fences:
        return choice

    def chosen(topic: TopicName) -> tuple[bool, str] | None:
        fence = fences.get(topic)
        return choice(topic) if fence is None else (False, fence.why)

    return chosen


def begun_elsewhere(
    there: Mapping[TopicName, Fence], begun: Collection[TopicName]
) -> dict[TopicName, Fence]:
    """Topics that this flow must not begin to carry back: its opposite, which gives topics the same
    names, was failed over for them.

    Both clusters have records of the topic then, and a lane that began now would copy all of them
    behind what is there. One that had begun before goes on: it knows where it is.
    """
    return {
        topic: Fence(at_ms=fence.at_ms, why=f"the way there was failed over: {fence.why}")
        for topic, fence in there.items()
        if topic not in begun
    }
