"""What must hold of one lane once all is quiet, and what it is called where it does not. Pure.

The names are those of Jepsen's analysis where it has one. `docs/GUARANTEES.md` says what is not an
error: a record that the source deleted before it was fetched, if the ledger counts it, and what
was left of a topic that was deleted.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from heliograph.ledger.translate import Exact, OffsetMap, Unsafe
from heliograph.model import OffsetRange
from tests.campaign.tail import Seen
from tests.campaign.truth import Content, Fate, Sent, id_of
from tests.kit.records import Rec

_SHOWN: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that must not be."""

    check: str
    lane: str
    what: str

    def __str__(self) -> str:
        return f"{self.check}: {self.lane}: {self.what}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A group on this partition: where it stood, and where it would have gone on."""

    operation: int
    group: str
    source_offset: int
    target_offset: int
    is_clamped_after: bool
    """It had read further than was mirrored at that moment, and reads that part again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneFacts:
    """All that is known of one lane; `sent` are those of its source partition."""

    lane: str
    source_name: tuple[str, str]
    """Cluster and topic."""
    target_name: tuple[str, str]
    partition: int
    incarnation: int
    """Of the source's topic now."""
    compacted: bool
    both_ways: bool
    """Under one name on both sides, each of which takes writes."""
    sent: Sequence[Sent]
    target: Sequence[Rec]
    find: Callable[[bytes], Sent | None]
    expected: Callable[[Content], Content | None]
    begins_at: int
    """The source offset where the lane began on the topic as it is now."""
    losses: Sequence[OffsetRange]
    """Of the topic as it is now."""
    earlier_losses: Sequence[OffsetRange]
    cuts: frozenset[int]
    """Where the source's log was made to begin."""
    offset_map: OffsetMap | None
    """None where the ledger does not know the lane."""
    seen: Sequence[Seen]
    places: Sequence[Place]

    def is_ours(self, sent: Sent) -> bool:
        return (sent.cluster, sent.topic) == self.source_name


def check_lane(facts: LaneFacts) -> list[Finding]:
    """Everything that can be said of it."""
    checks: Mapping[str, Callable[[LaneFacts], Iterator[str]]] = {
        "phantom": _phantoms,
        "duplicate": _duplicates,
        "G1a": _aborted,
        "precommitted-read": _too_early,
        "bytes": _bytes,
        "order": _order,
        "lost-write": _lost,
        "honesty": _dishonest,
        "inconsistent-offsets": _changed_under_a_reader,
        "map": _map,
        "groups": _groups,
    }
    found: list[Finding] = []
    for name, check in checks.items():
        every = list(check(facts))
        found += [Finding(check=name, lane=facts.lane, what=what) for what in every[:_SHOWN]]
        if len(every) > _SHOWN:
            more = f"and {len(every) - _SHOWN} more"
            found.append(Finding(check=name, lane=facts.lane, what=more))
    return found


def _copies(facts: LaneFacts) -> Iterator[tuple[Rec, Sent]]:
    """Records of the target that this lane brought."""
    for rec in facts.target:
        sent = facts.find(id_of(rec) or b"")
        if sent is not None and facts.is_ours(sent):
            yield rec, sent


def _at(rec: Rec, sent: Sent) -> str:
    return f"{sent.id.decode()} (source offset {sent.offset}, target offset {rec.offset})"


def _phantoms(facts: LaneFacts) -> Iterator[str]:
    for rec in facts.target:
        sent = facts.find(id_of(rec) or b"")
        if sent is None:
            yield f"target offset {rec.offset}: {id_of(rec)!r} was never sent"
        elif not facts.is_ours(sent) and (sent.cluster, sent.topic) != facts.target_name:
            yield f"{_at(rec, sent)} was sent to {sent.cluster}/{sent.topic}"
        elif sent.partition != facts.partition:
            yield f"{_at(rec, sent)} was sent to partition {sent.partition}"


def _duplicates(facts: LaneFacts) -> Iterator[str]:
    there: dict[bytes, int] = {}
    for rec, sent in _copies(facts):
        if sent.id in there:
            yield f"{_at(rec, sent)} is also at target offset {there[sent.id]}"
        there.setdefault(sent.id, rec.offset)


def _aborted(facts: LaneFacts) -> Iterator[str]:
    for rec, sent in _copies(facts):
        if sent.fate is Fate.ABORTED:
            yield f"{_at(rec, sent)} was aborted"
        # The source has all that it ever had, and has not this one.
        is_whole = not facts.cuts and not facts.compacted and sent.incarnation == facts.incarnation
        if sent.fate is Fate.UNKNOWN and is_whole:
            yield f"{_at(rec, sent)} was not committed, its writer was told an error"


def _too_early(facts: LaneFacts) -> Iterator[str]:
    for seen in facts.seen:
        sent = facts.find(seen.id)
        if sent is not None and facts.is_ours(sent) and seen.at_s < sent.visible_s:
            early_s = sent.visible_s - seen.at_s
            yield (
                f"{seen.id.decode()} (target offset {seen.offset}) was there {early_s:.3f} s "
                f"before its commit"
            )


def _bytes(facts: LaneFacts) -> Iterator[str]:
    for rec, sent in _copies(facts):
        wanted = facts.expected(sent.content)
        if wanted is None:
            yield f"{_at(rec, sent)} is there, and the transform drops it"
        elif rec.content != wanted:
            yield f"{_at(rec, sent)} differs: {_difference(rec.content, wanted)}"


def _difference(found: Content, wanted: Content) -> str:
    names = ("key", "value", "headers", "timestamp")
    return ", ".join(
        f"{name} {str(left)[:60]} instead of {str(right)[:60]}"
        for name, left, right in zip(names, found, wanted, strict=True)
        if left != right
    )


def _order(facts: LaneFacts) -> Iterator[str]:
    last: tuple[int, int] = (0, -1)
    for rec, sent in _copies(facts):
        if sent.offset is None:
            # Its writer never learned where it went, and the source has deleted it since.
            continue
        place = (sent.incarnation, sent.offset)
        if place < last:
            yield f"{_at(rec, sent)} comes behind source offset {last[1]} of topic {last[0]}"
        last = max(last, place)


def _lost(facts: LaneFacts) -> Iterator[str]:
    there = {sent.id for _, sent in _copies(facts)}
    for incarnation in range(facts.incarnation + 1):
        sent = sorted(
            (
                (each.offset, each)
                for each in facts.sent
                if each.fate is Fate.COMMITTED
                and each.incarnation == incarnation
                and each.offset is not None
                and facts.expected(each.content) is not None
            ),
            key=lambda pair: pair[0],
        )
        last_there = max((offset for offset, each in sent if each.id in there), default=-1)
        newest = {each.content[0]: offset for offset, each in sent}
        for offset, each in sent:
            if each.id in there:
                continue
            if facts.compacted and newest[each.content[0]] > offset:
                continue
            if incarnation < facts.incarnation:
                # What was behind went with the topic; in the middle nothing may be missing.
                ranges = [*facts.earlier_losses, *facts.losses]
                if offset > last_there or _covers(ranges, offset):
                    continue
            elif _covers(facts.losses, offset) or _was_cut_before_it_began(facts, offset):
                continue
            yield (
                f"{each.id.decode()} (source offset {offset}, topic {incarnation}) is not there "
                f"and no loss is in the ledger; sent at operation {each.operation}"
            )


def _was_cut_before_it_began(facts: LaneFacts, offset: int) -> bool:
    """A lane begins with what the source still has."""
    return offset < facts.begins_at and any(cut >= facts.begins_at for cut in facts.cuts)


def _covers(ranges: Sequence[OffsetRange], offset: int) -> bool:
    return any(each.start <= offset < each.end for each in ranges)


def _dishonest(facts: LaneFacts) -> Iterator[str]:
    """Each loss in the ledger was one: of offsets that were deleted, none of which is there."""
    for lost in facts.losses:
        if lost.end not in facts.cuts:
            yield f"the ledger says that {lost} was lost; the log began at {sorted(facts.cuts)}"
    for rec, sent in _copies(facts):
        is_present = sent.incarnation == facts.incarnation and sent.offset is not None
        if is_present and _covers(facts.losses, sent.offset or 0):
            yield f"{_at(rec, sent)} is there, and the ledger counts it as lost"


def _changed_under_a_reader(facts: LaneFacts) -> Iterator[str]:
    now = {rec.offset: id_of(rec) for rec in facts.target}
    start = min(now, default=0)
    for seen in facts.seen:
        if seen.offset >= start and now.get(seen.offset, b"nothing") != seen.id:
            yield (
                f"target offset {seen.offset} was {seen.id.decode()} when it came and is "
                f"{(now.get(seen.offset) or b'nothing').decode()} now"
            )


def _settled(facts: LaneFacts) -> list[tuple[int, int]]:
    """Source and target offset of each copy of the topic as it is now, by source offset."""
    return sorted(
        (sent.offset, rec.offset)
        for rec, sent in _copies(facts)
        if sent.incarnation == facts.incarnation and sent.offset is not None
    )


def _map(facts: LaneFacts) -> Iterator[str]:
    pairs = _settled(facts)
    if not pairs:
        return
    if facts.offset_map is None:
        yield f"{len(pairs)} records are there, and the ledger does not know the lane"
        return
    for source, target in pairs:
        there, back = facts.offset_map.to_target(source), facts.offset_map.to_source(target)
        if there != Exact(offset=target):
            yield f"source offset {source} is at {target}, the map says {there}"
        if back != Exact(offset=source):
            yield f"target offset {target} came from {source}, the map says {back}"
    if facts.both_ways:
        # What is between them are records of the other side, which go on elsewhere there.
        return
    # Offsets that hold no record lead to the next one.
    offsets = [source for source, _ in pairs]
    # Copies whose place on the source nobody knows any more: its writer was told an error, and it
    # was compacted away since. The map may know better.
    lost_sight = {rec.offset for rec, sent in _copies(facts) if sent.offset is None}
    for asked in range(offsets[0], offsets[-1]):
        place = bisect_left(offsets, asked)
        answer = facts.offset_map.to_target(asked)
        if isinstance(answer, Unsafe) or answer.offset not in {pairs[place][1], *lost_sight}:
            yield f"source offset {asked} goes on at {pairs[place][1]}, the map says {answer}"


def _groups(facts: LaneFacts) -> Iterator[str]:
    pairs = _settled(facts)
    for place in facts.places:
        where = (
            f"{place.group}, looked at in operation {place.operation}, source offset "
            f"{place.source_offset} to {place.target_offset}"
        )
        skipped = [
            pair
            for pair in pairs
            if pair[0] >= place.source_offset and pair[1] < place.target_offset
        ]
        if skipped:
            yield f"{where}: skips {len(skipped)} records, the first is {skipped[0]}"
        again = [
            pair
            for pair in pairs
            if pair[0] < place.source_offset and pair[1] >= place.target_offset
        ]
        if again and not place.is_clamped_after:
            yield f"{where}: reads {len(again)} records again, the first is {again[0]}"
