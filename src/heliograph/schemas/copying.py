"""Copy subjects from one registry to another, each whole or not at all. Blocks; runs on the driver.

Looked at as a whole first: a version that the target will not take keeps its subject, and those
that refer to it, from being begun. Registering is idempotent, so a crash at any line only leaves
less to do.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from heliograph.clock import now_ms
from heliograph.config.registry import SchemasConfig
from heliograph.errors import RegistryDown, RegistryError
from heliograph.registry.client import Registry
from heliograph.registry.pairing import Pairing, SubjectName
from heliograph.registry.schema import Registered
from heliograph.schemas.plan import (
    SchemasPlan,
    SubjectPlan,
    chosen_versions,
    in_order,
    is_wanted,
)

log = logging.getLogger(__name__)

IMPORT: Final = "IMPORT"
_NOTE_AGAIN_MS: Final = 5_000
"""How often a run that imports for long says that it still does."""
_NO_CHECK: Final = "NONE"
_READONLY: Final = "READONLY"
_INCOMPATIBLE: Final = 409


@dataclass(frozen=True, slots=True, kw_only=True)
class Importing:
    """A subject of the target that is in import mode only as long as it is imported into."""

    subject: str
    mode: str | None
    """What it had before; None where it had none of its own."""
    at_ms: int


Remember = Callable[[tuple[Importing, ...]], None]
"""Keeps what is to be put back, durably, before it is changed; and that it was."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemasCopied:
    registered: tuple[Registered, ...] = ()
    """Of the source."""
    levels: int = 0
    problems: tuple[str, ...] = ()


class SchemaCopier:
    """Of one flow. What it learned stays between two looks."""

    def __init__(
        self, config: SchemasConfig, source: Registry, target: Registry, names: SubjectName
    ) -> None:
        self._config, self._source, self._target, self._names = config, source, target, names
        self._pairing = Pairing(source, target, names)
        self._level_of_source: str | None = None
        self._level_of_target: str | None = None

    def look(self) -> SchemasPlan:
        """What the target lacks. Raises `RegistryError` where a registry cannot be asked at all."""
        subjects = [each for each in self._source.subjects() if is_wanted(self._config, each)]
        there = frozenset(self._target.subjects())
        self._pairing.forget_all_but(there)
        self._level_of_source = self._source.compatibility_of_all()
        self._level_of_target = self._target.compatibility_of_all()
        refusal = self._refusal()
        wanted: dict[str, list[Registered]] = {}
        failed: dict[str, str] = {}
        for subject in subjects:
            self._gather(subject, wanted, failed)
        plans: dict[str, SubjectPlan] = {}
        for subject in in_order(wanted):
            plans[subject] = self._look_at(subject, wanted[subject], there, plans, refusal)
        for subject, problem in failed.items():
            plans[subject] = self._plan(subject, problem=problem)
        return SchemasPlan(subjects=tuple(plans.values()), ids=self._pairing.ids)

    def copy(self, plan: SchemasPlan, remember: Remember) -> SchemasCopied:
        """Do what `look` found. What one subject meets does not keep the others."""
        registered: list[Registered] = []
        problems: dict[str, str] = {}
        levels = 0
        for each in plan.subjects:
            problem = each.problem or _needs(each.missing, problems)
            if not problem:
                try:
                    self._copy_subject(each, registered, remember)
                    levels += each.level is not None
                except RegistryDown:
                    raise
                except RegistryError as exc:
                    problem = _sentence(exc)
            if problem:
                problems[each.subject] = problem
        told = tuple(f"{subject}: {problem}" for subject, problem in problems.items())
        return SchemasCopied(registered=tuple(registered), levels=levels, problems=told)

    def put_back(self, importing: Iterable[Importing]) -> None:
        """Modes that a run which was killed left behind."""
        for each in importing:
            self._target.set_mode(each.subject, each.mode)

    @property
    def ids(self) -> Mapping[int, int]:
        return self._pairing.ids

    # -- looking

    def _gather(
        self, subject: str, wanted: dict[str, list[Registered]], failed: dict[str, str]
    ) -> None:
        """The chosen versions of a subject, and of others what these refer to."""
        try:
            versions = chosen_versions(self._config, self._source.versions(subject))
            for version in versions:
                self._gather_version(self._source.version(subject, version), wanted)
        except RegistryDown:
            raise
        except RegistryError as exc:
            wanted.pop(subject, None)
            failed[subject] = str(exc)

    def _gather_version(self, at: Registered, wanted: dict[str, list[Registered]]) -> None:
        held = wanted.setdefault(at.subject, [])
        if at in held:
            return
        held.append(at)
        held.sort(key=lambda each: each.version)
        for each in at.schema.references:
            self._gather_version(self._source.version(each.subject, each.version), wanted)

    def _look_at(
        self,
        subject: str,
        versions: list[Registered],
        there: frozenset[str],
        before: Mapping[str, SubjectPlan],
        refusal: str,
    ) -> SubjectPlan:
        try:
            missing = [each for each in versions if self._is_missing(each)]
            level = self._level(subject)
            is_new = self._names(subject) not in there
            is_ours = is_new or (bool(missing) and self._is_ours(subject, versions))
        except RegistryDown:
            raise
        except RegistryError as exc:
            return self._plan(subject, problem=str(exc))
        plan = self._plan(
            subject,
            missing=tuple(missing),
            level=level,
            is_new=is_new,
            is_ours=is_ours,
        )
        if plan.is_done:
            return plan
        problem = refusal or _needs(
            missing, {name: each.problem for name, each in before.items() if each.problem}
        )
        try:
            problem = problem or self._obstacle(plan)
        except RegistryDown:
            raise
        except RegistryError as exc:
            problem = str(exc)
        return replace(plan, problem=problem)

    def _is_missing(self, at: Registered) -> bool:
        found = self._pairing.target_of(at)
        if found is not None and self._config.ids == "keep" and found.id != at.id:
            raise RegistryError(
                self._target.where,
                f"has version {at.version} as id {found.id}, so its id {at.id} cannot be kept",
            )
        return found is None

    def _is_ours(self, subject: str, versions: list[Registered]) -> bool:
        pairs = (self._pairing.target_of(each) for each in versions)
        ours = {found.version for found in pairs if found is not None}
        return set(self._target.versions(self._names(subject))) <= ours

    def _level(self, subject: str) -> str | None:
        """The level to set, where the target's does not amount to the source's."""
        wanted = self._source.compatibility(subject) or self._level_of_source
        has = self._target.compatibility(self._names(subject)) or self._level_of_target
        return None if wanted is None or wanted == has else wanted

    def _refusal(self) -> str:
        """Why the target takes nothing at all."""
        mode = self._target.mode_of_all()
        if mode is not None and mode.startswith(_READONLY):
            return f"the {self._target.where} is in mode {mode}"
        if mode is None and self._config.ids == "keep":
            return f"the {self._target.where} has no import mode, so ids cannot be kept"
        return ""

    def _obstacle(self, plan: SubjectPlan) -> str:
        """Why the target would not take all of it."""
        mode = None if plan.is_new else self._target.mode(plan.target_subject)
        if mode is not None and mode.startswith(_READONLY):
            return f"{plan.target_subject} is in mode {mode} in the {self._target.where}"
        if self._config.ids == "keep":
            return next(filter(None, map(self._taken, plan.missing)), "")
        if plan.missing and not plan.is_ours and plan.level is None:
            wanted = self._pairing.as_on_target(plan.missing[0].schema)
            if wanted and not self._target.is_compatible(plan.target_subject, wanted):
                return self._incompatible(plan, plan.missing[0])
        return ""

    def _taken(self, at: Registered) -> str:
        """Whether the target has another schema under the id."""
        found = self._target.schema(at.id)
        if found is None or found.text == at.schema.text:
            return ""
        return f"id {at.id} of version {at.version} is another schema's in the {self._target.where}"

    def _incompatible(self, plan: SubjectPlan, at: Registered) -> str:
        return (
            f"version {at.version} is not compatible with what {plan.target_subject} has in the "
            f"{self._target.where}"
        )

    def _plan(
        self,
        subject: str,
        *,
        missing: tuple[Registered, ...] = (),
        level: str | None = None,
        is_new: bool = False,
        is_ours: bool = False,
        problem: str = "",
    ) -> SubjectPlan:
        return SubjectPlan(
            subject=subject,
            target_subject=self._names(subject),
            missing=missing,
            level=level,
            is_new=is_new,
            is_ours=is_ours,
            problem=problem,
        )

    # -- copying

    def _copy_subject(
        self, plan: SubjectPlan, registered: list[Registered], remember: Remember
    ) -> None:
        subject, level = plan.target_subject, plan.level
        if level is not None and not plan.is_new:
            self._target.set_compatibility(subject, level)
        if plan.missing and self._config.ids == "keep":
            self._import(plan, registered, remember)
        elif plan.missing and self._register(plan, registered):
            level = self._source.compatibility(plan.subject) or self._level_of_source
        elif not plan.is_new:
            return
        if level is not None:
            # Of a new subject only now: some registries know no level of what is not there yet.
            self._target.set_compatibility(subject, level)

    def _register(self, plan: SubjectPlan, registered: list[Registered]) -> bool:
        """Whether the level was put aside: a history may have passed under another than today's,
        and what is nothing but a copy takes all of it."""
        is_aside = False
        for each in plan.missing:
            wanted = self._pairing.require(each.schema)
            try:
                self._target.register(plan.target_subject, wanted)
            except RegistryError as exc:
                if exc.status != _INCOMPATIBLE:
                    raise
                if is_aside or not plan.is_ours:
                    said = self._incompatible(plan, each)
                    raise RegistryError("", said, exc.status, exc.code) from exc
                self._target.set_compatibility(plan.target_subject, _NO_CHECK)
                is_aside = True
                self._target.register(plan.target_subject, wanted)
            registered.append(each)
        return is_aside

    def _import(self, plan: SubjectPlan, registered: list[Registered], remember: Remember) -> None:
        subject = plan.target_subject
        mode = self._target.mode(subject)
        noted_ms = now_ms()
        if mode != IMPORT:
            remember((Importing(subject=subject, mode=mode, at_ms=noted_ms),))
            self._target.set_mode(subject, IMPORT)
        try:
            for each in plan.missing:
                if mode != IMPORT and now_ms() - noted_ms > _NOTE_AGAIN_MS:
                    noted_ms = now_ms()
                    remember((Importing(subject=subject, mode=mode, at_ms=noted_ms),))
                wanted = self._pairing.require(each.schema)
                found = self._target.register(subject, wanted, imported=each)
                if found != each.id:
                    raise RegistryError(
                        self._target.where,
                        f"gave version {each.version} id {found} where {each.id} was asked for",
                    )
                registered.append(each)
        finally:
            if mode != IMPORT:
                self._target.set_mode(subject, mode)
                remember(())


def _needs(missing: Iterable[Registered], problems: Mapping[str, str]) -> str:
    """Why it cannot be registered: something it refers to is not there."""
    for at in missing:
        for each in at.schema.references:
            if each.subject in problems:
                return f"version {at.version} refers to {each.subject}, which is not copied"
    return ""


def _sentence(exc: RegistryError) -> str:
    return str(exc) if exc.where else exc.why
