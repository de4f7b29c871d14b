"""Classes and functions of the operator's own, given as `module:Class`. Imports them; runs on the
driver, and functions of transforms on executors too.

The model keeps the path, never the class: executors need neither policies nor filters.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, Final

from heliograph.config.mm2.values import BadValue, Reader

POLICY_METHODS: Final = (
    "target_topic",
    "topic_source",
    "upstream_topic",
    "is_internal",
    "is_mirror_bookkeeping",
    "offset_syncs_topic",
    "checkpoints_topic",
)
TOPIC_FILTER_METHODS: Final = ("should_mirror",)
GROUP_FILTER_METHODS: Final = ("should_follow",)
CONFIG_FILTER_METHODS: Final = ("should_copy",)

_NAME: Final = r"[^\W\d]\w*"
_PYTHON_PATH: Final = re.compile(rf"({_NAME}(?:\.{_NAME})*):({_NAME}(?:\.{_NAME})*)")


class UnusableClass(ValueError):
    """Completes "is `path`, …"; quotes what Python said, never a value of the file."""


def is_python_path(path: str) -> bool:
    """Whether a class is meant to be Python's; no Java class has a colon in its name."""
    return ":" in path


def class_or_python(*known: str, methods: Sequence[str]) -> Reader:
    """One of the Java classes that have an equal here, or a Python class with `methods`."""

    def read(value: str) -> str:
        if value in known:
            return value
        if is_python_path(value):
            try:
                load_class(value, methods)
            except UnusableClass as exc:
                raise BadValue(str(exc)) from exc
            return value
        names = " or ".join(f"`{name}`" for name in known)
        raise BadValue(
            f"a Java class that cannot run here; {names} can, "
            "or a Python class written `module:Class`"
        )

    return read


def load_class(path: str, methods: Sequence[str]) -> type:
    """The class itself, which has all of `methods`; raises `UnusableClass`."""
    found = _loaded(path, "module:Class")
    if not isinstance(found, type):
        raise UnusableClass("not a class")
    lacking = [name for name in methods if not callable(getattr(found, name, None))]
    if lacking:
        raise UnusableClass("a class without " + ", ".join(f"`{name}`" for name in lacking))
    return found


def load_function(path: str) -> Callable[..., Any]:
    """The function itself; raises `UnusableClass`."""
    found = _loaded(path, "module:function")
    if not callable(found):
        raise UnusableClass("not a function")
    return found


def _loaded(path: str, form: str) -> object:
    matched = _PYTHON_PATH.fullmatch(path)
    if matched is None:
        raise UnusableClass(f"not `{form}`")
    module_name, attributes = matched.groups()
    try:
        found: object = import_module(module_name)
    except Exception as exc:  # the operator's own module may raise anything
        said = f"{type(exc).__name__}: {exc}"
        raise UnusableClass(f"whose module cannot be imported: {said}") from exc
    for name in attributes.split("."):
        try:
            found = getattr(found, name)
        except AttributeError as exc:
            raise UnusableClass(f"but `{module_name}` has no `{attributes}`") from exc
    return found
