"""The keys a file may hold, by scope. Runs anywhere.

Those that act come from the fields of the models, those without effect from `inert`.
"""

from __future__ import annotations

from typing import Final

from heliograph.config.api import ApiConfig
from heliograph.config.keys import by_name, keys_of
from heliograph.config.mm2 import inert
from heliograph.config.schema import EngineConfig, FlowConfig
from heliograph.config.sections import WorkerConfig
from heliograph.config.security import ClientRole

FLOW_KEYS: Final = (*keys_of(FlowConfig), *inert.FLOW_ROWS)
ENGINE_KEYS: Final = keys_of(EngineConfig)
API_KEYS: Final = keys_of(ApiConfig)
REST_KEYS: Final = inert.REST_ROWS
WORKER_KEYS: Final = (*keys_of(WorkerConfig), *inert.WORKER_ROWS)

FLOW_BY_NAME: Final = by_name(FLOW_KEYS)
ENGINE_BY_NAME: Final = by_name(ENGINE_KEYS)
API_BY_NAME: Final = by_name(API_KEYS)
REST_BY_NAME: Final = by_name(REST_KEYS)
WORKER_BY_NAME: Final = by_name(WORKER_KEYS)

PLUGIN_PREFIXES: Final = (
    "transforms.",
    "predicates.",
    "topic.creation.",
    "key.converter.",
    "value.converter.",
    "header.converter.",
)
"""Settings of Connect's plugins; none of them runs here."""
ROLES: Final[tuple[ClientRole, ...]] = ("admin", "consumer", "producer")
