"""What a key is, and the keys a model declares. Runs anywhere.

A key that acts is declared once, on the field it fills: the name in the annotation, type, bounds,
default and meaning where pydantic has them anyway.

    interval_s: Annotated[Seconds, MM2("sync.topic.acls.interval.seconds")] = 600
    '''Time between two comparisons.'''

How its text is read, which range is allowed, what `heliograph config` shows and the row of the
reference page all follow from that. Keys without effect have no field: `mm2.inert` lists them.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator, Mapping
from dataclasses import KW_ONLY, dataclass
from enum import StrEnum
from functools import cache
from itertools import pairwise
from textwrap import dedent
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Literal, get_args, get_origin

from pydantic import BaseModel, Field
from pydantic.fields import FieldInfo

from heliograph.config.mm2.values import Reader, choice, decimal, switch, text, whole, words
from heliograph.errors import InvariantError

INT_MAX: Final = 2**31 - 1
LONG_MAX: Final = 2**63 - 1

Seconds = Annotated[int, Field(ge=1, le=INT_MAX)]


class Effect(StrEnum):
    """What a changed key does to a mirror that runs (`config.difference`)."""

    AT_ONCE = "acts at once"
    """No lane is disturbed by it."""
    REPLANS = "plans the flow anew"
    """Lanes of that flow that are others by it are handed out anew, those of no other flow."""
    BEGINS_OR_ENDS = "begins or ends the flow"
    RECONNECTS = "replaces connections"
    """Those to that cluster, each once all that it was asked is answered."""
    RESTART = "needs a restart"
    """A file that changes it is not followed at all."""


@dataclass(frozen=True, slots=True)
class KeyName:
    """In a field's annotation: the key that fills the field."""

    name: str
    read: Reader | None = None
    """Reads the text where it is more than the field's type."""
    _: KW_ONLY
    top: bool = True
    """Whether it may stand without a prefix, as the default of every flow or cluster."""
    effect: Effect = Effect.AT_ONCE
    """Of a change while the mirror runs."""


class MM2(KeyName):
    """A key that MirrorMaker 2 has too."""


class Own(KeyName):
    """A key that only Heliograph has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """One key: how its text is read, and what is said about it."""

    name: str
    read: Reader
    default: object
    said: str = ""
    """Its meaning, where no docstring of a field says it."""
    model: type[BaseModel] | None = None
    """Whose field it fills."""
    path: tuple[str, ...] = ()
    """The field it fills, from the model of its scope; empty where it has no effect."""
    top: bool = True
    """Whether it may stand without a prefix, as the default of every flow or cluster."""
    own: bool = False
    """Whether only Heliograph has it."""
    inert: str | None = None
    """Why it has no effect; None where it acts."""
    effect: Effect = Effect.AT_ONCE
    """Of a change while the mirror runs."""

    @property
    def meaning(self) -> str:
        return self.said if self.model is None else _docstrings(self.model)[self.path[-1]]


def keys_of(model: type[BaseModel]) -> tuple[Key, ...]:
    """The keys declared on a model and the models inside it, Heliograph's own last."""
    return tuple(sorted(_declared(model, ()), key=lambda key: key.own))


def by_name(keys: tuple[Key, ...]) -> Mapping[str, Key]:
    return {key.name: key for key in keys}


def _declared(model: type[BaseModel], path: tuple[str, ...]) -> Iterator[Key]:
    for field_name, field in model.model_fields.items():
        here = (*path, field_name)
        if isinstance(field.default, BaseModel):
            yield from _declared(type(field.default), here)
        for named in field.metadata:
            if isinstance(named, KeyName):
                yield Key(
                    name=named.name,
                    read=named.read or _reader(field),
                    default=field.default,
                    model=model,
                    path=here,
                    top=named.top,
                    own=isinstance(named, Own),
                    effect=named.effect,
                )


@cache
def _docstrings(model: type[BaseModel]) -> Mapping[str, str]:
    """What stands below each field, read from the source when somebody asks.

    pydantic would do so for every model as it is imported: a fifth of the CPU by which an
    executor's Python begins.
    """
    (declared,) = ast.parse(dedent(inspect.getsource(model))).body
    body = declared.body if isinstance(declared, ast.ClassDef) else []
    found = {
        field.target.id: inspect.cleandoc(below.value.value)
        for field, below in pairwise(body)
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(below, ast.Expr)
        and isinstance(below.value, ast.Constant)
        and isinstance(below.value.value, str)
    }
    return {name: found.get(name, "") for name in model.model_fields}


def _reader(field: FieldInfo) -> Reader:
    """The reader of a field's type, with the bounds the field has."""
    kind = _without_none(field.annotation)
    if get_origin(kind) is Literal:
        return choice(get_args(kind))
    if get_origin(kind) is tuple:
        return words
    if kind is bool:
        return switch
    if kind is int:
        return whole(_bound(field, "ge"), _bound(field, "le"))
    if kind is float:
        return decimal(above=_bound(field, "gt"), below=_bound(field, "lt"))
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        return choice(kind)
    if kind is str:
        return text
    raise InvariantError(f"no text is read as {kind}; give its key a reader")


def _without_none(annotation: Any) -> Any:
    if isinstance(annotation, UnionType):
        (annotation,) = (one for one in get_args(annotation) if one is not NoneType)
    return annotation


def _bound(field: FieldInfo, kind: str) -> Any:
    """`ge`, `le`, `gt` or `lt` of a field, which pydantic keeps as objects of that attribute."""
    return next((getattr(at, kind) for at in field.metadata if hasattr(at, kind)), None)
