"""All transforms of one lane, one after the other. Runs on executors.

What a function does wrong is found out record by record: the others of the same batch go on.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from heliograph.clock import monotonic_s
from heliograph.config.transforms import TransformConfig
from heliograph.errors import NotYetKnown
from heliograph.topics.naming import CANARY_PREFIX, HEARTBEATS
from heliograph.transform.at_work import AtWork, Beside
from heliograph.transform.record import Failure, Where
from heliograph.transform.steps import (
    NO_REGISTRIES,
    ChangesHeads,
    Condition,
    Registries,
    Step,
    condition_of,
    step_of,
)
from heliograph.wire.opened import Content
from heliograph.wire.sifting import Sieve

AGAIN_MAX: Final = 64
"""How often a function is asked again for a record that it let through before."""
PATIENCE_S: Final = 60.0
FAILED_PATIENCE_S: Final = 3.0
"""Once a registry has said that it does not serve, or not have what is asked for."""
_AGAIN_S: Final = 0.02
_WHY_CHARS_MAX: Final = 500


def transforms_for(
    transforms: Sequence[TransformConfig], where: Where
) -> list[tuple[TransformConfig, Condition | None]]:
    """Those that are for a lane, and for which records of it; None means all."""
    if where.topic.endswith(HEARTBEATS) or where.topic.startswith(CANARY_PREFIX):
        # The mirror's own records, which no function of an operator's knows.
        return []
    found: list[tuple[TransformConfig, Condition | None]] = []
    for config in transforms:
        if config.names_topics:
            continue
        if config.topics and not any(re.fullmatch(each, where.topic) for each in config.topics):
            continue
        condition = True if config.predicate is None else condition_of(config.predicate, where)
        if condition is not False:
            found.append((config, None if condition is True else condition))
    return found


@dataclass(slots=True)
class Transformed:
    """What became of each record given, by its place among them."""

    contents: list[Content | None]
    """None where it was dropped, or failed."""
    failed: dict[int, Failure] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _LaneStep:
    name: str
    step: Step
    condition: Condition | None


class LaneTransform:
    """Made where it is used: functions do not travel, their names do."""

    def __init__(self, steps: Sequence[_LaneStep], where: Where) -> None:
        self._steps, self._where = tuple(steps), where
        self._beside = [each.step for each in steps if isinstance(each.step, Beside)]
        only = steps[0] if len(steps) == 1 and steps[0].condition is None else None
        self.heads: Final = only.step if only and isinstance(only.step, ChangesHeads) else None
        """Set where all that is done is to exchange first bytes, which may be done in place."""
        self.sieve: Sieve | None = None
        """Set where all that is done is to drop records for a header they have, or have not."""

    @classmethod
    def of(
        cls,
        transforms: Sequence[TransformConfig],
        where: Where,
        registries: Registries = NO_REGISTRIES,
    ) -> LaneTransform | None:
        """None where no transform is for this lane: its batches travel unopened. Raises
        `TransformUnusable`."""
        chosen = transforms_for(transforms, where)
        steps = [
            _LaneStep(config.name, _beside(config, step_of(config, registries)), condition)
            for config, condition in chosen
        ]
        if not steps:
            return None
        made = cls(steps, where)
        made.sieve = _sieve(chosen[0][0]) if len(chosen) == 1 else None
        return made

    @classmethod
    def nothing(cls, where: Where) -> LaneTransform:
        """Leaves every record as it is."""
        return cls((), where)

    def apply(self, offsets: Sequence[int], contents: Sequence[Content]) -> Transformed:
        """Each record through all transforms, until one drops it or fails. Raises `NotYetKnown`
        where a transform must be asked again."""
        for each in self._beside:
            each.begin()
        done = self._once(offsets, contents)
        for each in self._beside:
            each.settled()
        return done

    def _once(self, offsets: Sequence[int], contents: Sequence[Content]) -> Transformed:
        done = Transformed(list(contents))
        for step in self._steps:
            meant = self._meant(step, done)
            if len(meant) == len(contents):
                made, failed = self._run(step, offsets, done.contents)  # type: ignore[arg-type]
                done.contents = made
                done.failed.update(failed)
            elif meant:
                some = [done.contents[row] for row in meant]
                made, failed = self._run(step, [offsets[row] for row in meant], some)  # type: ignore[arg-type]
                for row, content in zip(meant, made, strict=True):
                    done.contents[row] = content
                done.failed.update((meant[row], failure) for row, failure in failed.items())
        return done

    def apply_patiently(
        self, offsets: Sequence[int], contents: Sequence[Content], wait_s_max: float = PATIENCE_S
    ) -> Transformed:
        """As `apply`, for who has nothing else to do meanwhile: it blocks. What answers that it
        cannot say is not asked for long."""
        now_s = monotonic_s()
        due_s, failed_due_s = now_s + wait_s_max, now_s + min(wait_s_max, FAILED_PATIENCE_S)
        while True:
            try:
                return self.apply(offsets, contents)
            except AtWork:
                # Functions have a bound of their own.
                time.sleep(_AGAIN_S)
            except NotYetKnown as exc:
                if monotonic_s() >= (failed_due_s if exc.has_failed else due_s):
                    raise
                time.sleep(_AGAIN_S)

    def apply_as_decided(
        self, offsets: Sequence[int], contents: Sequence[Content], kept: Sequence[bool | None]
    ) -> Transformed:
        """As `apply`, where it was written down before which records stay: `kept` has True for
        those, False for those that do not, None where nothing was decided.

        A function that is asked again may answer otherwise. One that drops what it let through is
        asked a few times more, and then has its way.
        """
        for each in self._beside:
            each.begin()
        done = self._once(offsets, contents)
        for row, keep in enumerate(kept):
            if keep is False:
                done.contents[row] = None
                done.failed.pop(row, None)
        missing = [row for row, keep in enumerate(kept) if keep and _is_dropped(done, row)]
        for _ in range(AGAIN_MAX):
            if not missing:
                break
            for each in self._beside:
                each.ask_anew()
            again = self._once(
                [offsets[row] for row in missing], [contents[row] for row in missing]
            )
            for index, row in enumerate(missing):
                done.contents[row] = again.contents[index]
                if index in again.failed:
                    done.failed[row] = again.failed[index]
            missing = [row for row in missing if _is_dropped(done, row)]
        for each in self._beside:
            each.settled()
        return done

    def _meant(self, step: _LaneStep, done: Transformed) -> Sequence[int]:
        condition = step.condition
        if condition is None:
            if None not in done.contents:
                return range(len(done.contents))
            return [row for row, content in enumerate(done.contents) if content is not None]
        return condition(done.contents)

    def _run(
        self, step: _LaneStep, offsets: Sequence[int], contents: Sequence[Content]
    ) -> tuple[list[Content | None], dict[int, Failure]]:
        """By halves where it fails, so that one bad record takes no other along."""
        try:
            return step.step(self._where, offsets, contents), {}
        except NotYetKnown:
            raise
        except Exception as exc:  # noqa: BLE001 - the operator's function may raise anything
            if len(contents) == 1:
                why = str(exc)[:_WHY_CHARS_MAX]
                return [None], {0: Failure(step.name, type(exc).__name__, why)}
        half = len(contents) // 2
        made, failed = self._run(step, offsets[:half], contents[:half])
        more, failed_more = self._run(step, offsets[half:], contents[half:])
        failed.update((half + row, failure) for row, failure in failed_more.items())
        return made + more, failed


def _is_dropped(done: Transformed, row: int) -> bool:
    return done.contents[row] is None and row not in done.failed


def _sieve(config: TransformConfig) -> Sieve | None:
    predicate = config.predicate
    if config.kind != "Filter" or predicate is None or predicate.kind != "HasHeaderKey":
        return None
    return Sieve(predicate.text, keeps_named=predicate.negate)


def _beside(config: TransformConfig, step: Step) -> Step:
    """Whose function is the operator's, and may take its time."""
    if not config.function:
        return step
    return Beside(config.name, step, config.timeout_ms, config.memory_bytes_max)
