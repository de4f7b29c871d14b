"""Correct a map by what the target's log has. No I/O; runs anywhere."""

from __future__ import annotations

from heliograph.ledger.runs import Run, Runs


class Correction:
    """Shown our batches from `anchor_position` on, it has the runs whose target offsets differ."""

    def __init__(self, runs: Runs, anchor_position: int) -> None:
        self._map = runs
        self._anchor_position = anchor_position
        self._seen: dict[int, int] = {}
        """Target offsets as the log has them, at each run and at the first record of each batch
        that is not where the one before puts it."""
        self._shift = 0
        self._differs_at: int | None = None
        self.position: int | None = None
        """After the last of our records; None before the first was seen."""

    def see(self, first_position: int, record_count: int, base_offset: int) -> None:
        end_position = first_position + record_count
        start_position = max(first_position, self._anchor_position)
        if start_position >= end_position:
            return
        self.position = end_position
        self._compare(start_position, base_offset + start_position - first_position)
        for run in self._map.since(start_position):
            if run.position >= end_position:
                break
            self._compare(run.position, base_offset + run.position - first_position)
            self._seen[run.position] = base_offset + run.position - first_position

    def runs(self, position: int, target_end_offset: int) -> list[Run]:
        """All runs since the first difference, those ahead too; empty if there is none.

        Runs that no batch was seen for keep their distance from the one before them. If that puts
        one where another is, it yields: its records are deleted, or not written yet.
        """
        self._compare(position, target_end_offset)
        starts = [] if self._differs_at is None else [self._differs_at]
        overlap_at = self._map.overlap_at
        if overlap_at is not None and overlap_at <= position:
            starts.append(overlap_at)
        if not starts:
            return []
        start = min(starts)
        positions = {run.position for run in self._map.since(start)} | {start}
        positions.update(each for each in self._seen if each >= start)
        runs: list[Run] = []
        shift = 0
        floor = self._map.target_offset_at(start - 1) + 1 if self._map.explains(start - 1) else 0
        for each in sorted(positions):
            if runs:
                floor = runs[-1].at(each).target_offset
            mapped = self._map.target_offset_at(each)
            if each in self._seen:
                shift = self._seen[each] - mapped
            elif mapped + shift < floor:
                shift = floor - mapped
            runs.append(self._run(each, mapped + shift))
        return self._yielding(runs)

    def _yielding(self, runs: list[Run]) -> list[Run]:
        for index in reversed(range(len(runs) - 1)):
            run, after = runs[index], runs[index + 1]
            most = after.target_offset - (after.position - run.position)
            if run.target_offset > most:
                runs[index] = self._run(run.position, most)
        return runs

    def _run(self, position: int, target_offset: int) -> Run:
        return Run(
            position=position,
            source_offset=self._map.source_offset_at(position),
            target_offset=target_offset,
        )

    def _compare(self, position: int, target_offset: int) -> None:
        difference = target_offset - self._map.target_offset_at(position) - self._shift
        if difference:
            self._shift += difference
            self._seen[position] = target_offset
            if self._differs_at is None:
                self._differs_at = position
