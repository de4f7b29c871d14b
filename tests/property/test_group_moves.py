"""A group on the target, moved by this mirror and by its own consumers, in any order."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis.strategies import integers, lists, one_of, sampled_from, tuples

from heliograph.broker.group_view import GroupOffset
from heliograph.groups.checkpoint_plan import GroupOffsetPair
from heliograph.groups.sync_plan import OnRewind, Placed, plan_group
from heliograph.model import TopicName, TopicPartition

SOURCE = TopicPartition(topic=TopicName("orders"), partition=0)
TARGET = TopicPartition(topic=TopicName("A.orders"), partition=0)
SHIFT = 7
"""Target offsets are the source's and this many, from the lane's start on."""

offsets = integers(0, 60)
events = one_of(
    tuples(sampled_from(["source commits", "target commits"]), offsets),
    tuples(sampled_from(["mirrored"]), integers(0, 10)),
    tuples(sampled_from(["look", "target resets"]), integers(0, 0)),
)


@dataclass(slots=True)
class World:
    on_rewind: OnRewind
    mirrored: int = 1
    source: int | None = None
    target: int | None = None
    placed: dict[TopicPartition, Placed] = field(default_factory=dict)

    def look(self) -> int | None:
        """What the mirror writes, if anything."""
        if self.source is None:
            return None
        place = GroupOffsetPair(
            group="g",
            source=SOURCE,
            target=TARGET,
            source_offset=self.source,
            target_offset=min(self.source, self.mirrored) + SHIFT,
        )
        current = {} if self.target is None else {TARGET: GroupOffset(offset=self.target)}
        end = {TARGET: self.mirrored + SHIFT}
        moves = plan_group([place], current, self.placed, end, on_rewind=self.on_rewind)
        self.placed |= moves.placed
        write = moves.writes.get(TARGET)
        return None if write is None else write.offset


@given(lists(events, max_size=40), sampled_from(["follow", "keep"]))
def test_a_group_is_never_put_past_the_mirror_nor_back_without_a_reason(
    history: list[tuple[str, int]], on_rewind: OnRewind
) -> None:
    world = World(on_rewind=on_rewind)
    ours: tuple[int, int] | None = None  # source and target offset when both were last in step
    for event, number in history:
        if event == "source commits":
            world.source = number
        elif event == "mirrored":
            world.mirrored += number
        elif event == "target commits":
            world.target = min(number, world.mirrored) + SHIFT
        elif event == "target resets":
            world.target = -1
        else:
            wrote = world.look()
            if wrote is not None:
                assert wrote <= world.mirrored + SHIFT
                assert world.source is not None
                assert wrote <= world.source + SHIFT
                if world.target is not None and wrote < world.target:
                    assert on_rewind == "follow"
                    assert ours is not None
                    assert world.target == ours[1]
                    assert world.source < ours[0]
                world.target = wrote
            if world.source is not None and world.target is not None:
                exact = min(world.source, world.mirrored) + SHIFT
                if world.target == exact:
                    ours = (world.source, world.target)
                # A target that was not ahead by itself is in step after every look.
                assert world.target >= exact
