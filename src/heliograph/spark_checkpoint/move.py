"""A copy of a streaming query's checkpoint, to go on from on the target. Runs on the driver.

The source is not needed: where each record went is on the target. What the copy says is exact, or
said not to be, partition by partition; what cannot be said safely is refused, and nothing written.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from heliograph.config.schema import MirrorConfig
from heliograph.errors import CheckpointError
from heliograph.groups.snapshot import FlowSnapshot, read_snapshot
from heliograph.model import FlowId, TopicName
from heliograph.spark_checkpoint.folder import (
    OFFSETS,
    SOURCES,
    CheckpointFolder,
    read_folder,
    require_apart,
    write_copy,
)
from heliograph.spark_checkpoint.offsets_log import Batches, Positions, write_batch, write_initial
from heliograph.spark_checkpoint.translate import (
    FlowPositions,
    Mirrored,
    PartitionMove,
    SourceMove,
    is_of_flow,
    translate_past,
    translate_source,
)
from heliograph.topics.naming import naming_policy

_Read = Mapping[int, Mapping[str, Positions]]
"""Positions by batch and source; only sources of the flow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointTranslation:
    """What was written, and where the query goes on from."""

    flow: FlowId
    directory: Path
    out: Path
    layout: int | None
    """Version of the offsets log; None where the query has not planned a batch."""
    batch: int | None
    """The latest one in the offsets log."""
    is_committed: bool
    """Otherwise the query runs the batch again, over the same records."""
    left_out_batches: int
    moves: tuple[PartitionMove, ...]
    untouched_sources: tuple[str, ...]
    """Sources of the query that read nothing this flow mirrors."""
    renamed: Mapping[TopicName, TopicName]
    """Topics of the query that have another name on the target."""
    bootstrap_servers: tuple[str, ...]

    @property
    def is_exact(self) -> bool:
        return all(move.is_exact for move in self.moves)


async def translate_checkpoint(
    config: MirrorConfig, flow: FlowId, directory: Path, out: Path
) -> CheckpointTranslation:
    """Writes `out`, or raises `CheckpointError` or `BrokerError` and writes nothing."""
    require_apart(directory, out)
    folder = read_folder(directory)
    known = await read_snapshot(config, flow, lambda _: False, ask_source=False)
    positions = flow_positions(known)
    found = translate_folder(folder, positions)
    if not found.moves:
        raise CheckpointError(
            f"{directory}: no source of the query reads a topic that {flow} has mirrored"
        )
    write_copy(folder, out, found.changed)
    batches = folder.batches
    return CheckpointTranslation(
        flow=flow,
        directory=directory,
        out=out,
        layout=None if batches is None else folder.offsets[batches.latest].version,
        batch=None if batches is None else batches.latest,
        is_committed=batches is None or batches.is_committed,
        left_out_batches=folder.left_out,
        moves=found.moves,
        untouched_sources=found.untouched,
        renamed={
            move.source.topic: move.target.topic
            for move in found.moves
            if move.source.topic != move.target.topic
        },
        bootstrap_servers=config.target_of(flow).bootstrap_servers,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TranslatedFolder:
    changed: Mapping[str, bytes]
    """New content by path in the folder."""
    moves: tuple[PartitionMove, ...]
    untouched: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Parts:
    """What the files will say: positions by batch and source, and by the source's folder."""

    moved: Mapping[str, SourceMove]
    offsets: Mapping[int, Mapping[str, Positions]]
    initial: Mapping[str, Positions]


def flow_positions(known: FlowSnapshot) -> FlowPositions:
    policy = naming_policy(known.flow)
    maps = {source: place.offset_map for source, place in known.locations.items()}

    return FlowPositions(
        lanes={
            source: Mirrored(
                target=place.target,
                source_next_offset=place.source_next_offset,
                target_start_offset=known.target_starts.get(place.target),
                target_end_offset=known.target_ends.get(place.target),
            )
            for source, place in known.locations.items()
        },
        to_target=lambda source, offset: maps[source].to_target(offset),
        target_topic=policy.target_topic,
    )


def translate_folder(folder: CheckpointFolder, flow: FlowPositions) -> TranslatedFolder:
    """Every file that holds offsets of the flow's topics, and where the query goes on."""
    began = {
        name: initial.positions
        for name, initial in folder.initial.items()
        if is_of_flow(initial.positions, flow.topics, f"{SOURCES}/{name}/0")
    }
    read = {
        batch: {
            line.source: line.positions or {}
            for line in offsets.lines
            if is_of_flow(line.positions, flow.topics, f"{OFFSETS}/{batch}")
        }
        for batch, offsets in folder.offsets.items()
    }
    if folder.batches is None:
        parts = _not_begun(began, flow)
    elif folder.batches.is_committed:
        parts = _committed(folder.batches, read, began, flow)
    else:
        parts = _planned(folder.batches, read, began, flow)
    changed = {
        f"{OFFSETS}/{batch}": write_batch(folder.offsets[batch].with_positions(positions))
        for batch, positions in parts.offsets.items()
    }
    for name, positions in parts.initial.items():
        changed[f"{SOURCES}/{name}/0"] = write_initial(
            replace(folder.initial[name], positions=positions)
        )
    lines = () if folder.batches is None else folder.offsets[folder.batches.latest].lines
    return TranslatedFolder(
        changed=changed,
        moves=tuple(move for one in parts.moved.values() for move in one.moves),
        untouched=tuple(line.source for line in lines if line.source not in parts.moved),
    )


def _not_begun(began: Mapping[str, Positions], flow: FlowPositions) -> _Parts:
    """Nothing was planned: the query goes on from where its sources began."""
    moved = {name: translate_source(name, at, None, flow) for name, at in began.items()}
    return _Parts(moved=moved, offsets={}, initial={name: one.start for name, one in moved.items()})


def _committed(
    batches: Batches, read: _Read, began: Mapping[str, Positions], flow: FlowPositions
) -> _Parts:
    """The latest batch is done: the query goes on from its end."""
    moved = {
        source: translate_source(source, at, None, flow)
        for source, at in read[batches.latest].items()
    }
    past = {} if batches.previous is None else read[batches.previous]
    offsets = {batches.latest: {source: one.start for source, one in moved.items()}}
    if batches.previous is not None:
        offsets[batches.previous] = _past(past, flow)
    return _Parts(moved=moved, offsets=offsets, initial=_past(began, flow))


def _planned(
    batches: Batches, read: _Read, began: Mapping[str, Positions], flow: FlowPositions
) -> _Parts:
    """The latest batch is run again, from the end of the one before or from the very beginning."""
    before = {} if batches.previous is None else read[batches.previous]
    moved: dict[str, SourceMove] = {}
    starts = _past(before, flow)
    initial = _past(began, flow)
    for source, end in read[batches.latest].items():
        if source in before:
            moved[source] = translate_source(source, before[source], end, flow)
            starts[source] = moved[source].start
        else:
            folder = _folder_of(source, end, began)
            moved[source] = translate_source(source, began[folder], end, flow)
            initial[folder] = moved[source].start
    offsets = {
        batches.latest: {source: one.planned or {} for source, one in moved.items()},
    }
    if batches.previous is not None:
        offsets[batches.previous] = starts
    return _Parts(moved=moved, offsets=offsets, initial=initial)


def _past(positions: Mapping[str, Positions], flow: FlowPositions) -> dict[str, Positions]:
    return {source: translate_past(at, flow) for source, at in positions.items()}


def _folder_of(source: str, end: Positions, began: Mapping[str, Positions]) -> str:
    """Where a source noted its beginning: under its own name, or else the only one that fits."""
    topics = {partition.topic for partition in end}
    fitting = [name for name, at in began.items() if topics & {partition.topic for partition in at}]
    if source in fitting:
        return source
    if len(fitting) == 1:
        return fitting[0]
    raise CheckpointError(
        f"source {source} of the query has a planned batch, and nothing says where it began: "
        f"there is no {SOURCES}/{source}/0 of its topics"
    )
