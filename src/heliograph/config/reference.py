"""The rows of `docs/reference/config.md`, made from the keys and the model. Runs anywhere.

A test compares them with the page; the page's text around the tables is written by hand.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum

from pydantic.fields import FieldInfo

from heliograph.config.mm2.keys import (
    ENGINE_KEYS,
    FLOW_KEYS,
    NOT_YET,
    OWN_FLOW_KEYS,
    REST_KEYS,
    WORKER_KEYS,
    Key,
)
from heliograph.config.schema import EngineConfig, FlowConfig
from heliograph.config.sections import RestConfig, Section, WorkerConfig


def reference_rows() -> dict[str, tuple[str, ...]]:
    """Rows of each table, by its heading."""
    return {
        "Flows": _rows((key for key in FLOW_KEYS if key.name not in OWN_FLOW_KEYS), FlowConfig),
        "Flows, Heliograph's own": _rows(
            (key for key in FLOW_KEYS if key.name in OWN_FLOW_KEYS), FlowConfig
        ),
        "Engine": _rows(ENGINE_KEYS, EngineConfig),
        "Connect workers": _rows(WORKER_KEYS, WorkerConfig),
        "Connect's REST server": _rows(REST_KEYS, RestConfig),
    }


def _rows(keys: Iterable[Key], model: type[Section]) -> tuple[str, ...]:
    return tuple(_row(key, _field(model, key.field)) for key in keys)


def _row(key: Key, field: FieldInfo) -> str:
    acts = "yes" if key.inert is None else ("not yet" if key.inert is NOT_YET else "Connect only")
    default = _shown(field.default).replace("|", "\\|")
    return f"| `{key.name}` | {default} | {acts} | {field.description} |"


def _field(model: type[Section], path: str) -> FieldInfo:
    section, _, rest = path.partition(".")
    field = model.model_fields[section]
    if not rest:
        return field
    inner = type(field.default)
    assert issubclass(inner, Section)
    return _field(inner, rest)


def _shown(value: object) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "`true`" if value else "`false`"
    if isinstance(value, Enum):
        return f"`{value.value}`"
    if isinstance(value, tuple):
        return ", ".join(f"`{item}`" for item in value) or "–"
    return f"`{value}`" if value != "" else "–"
