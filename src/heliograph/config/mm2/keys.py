"""The keys a file may hold, by scope. Runs anywhere.

Those that act come from the fields of the models, those without effect from `inert`.
"""

from __future__ import annotations

from typing import Final

from heliograph.config.api import ApiConfig
from heliograph.config.keys import by_name, keys_of
from heliograph.config.mm2 import inert
from heliograph.config.pipelines import PipelineConfig
from heliograph.config.registry import REGISTRY_TLS_KEYS, RegistryConfig
from heliograph.config.schema import EngineConfig, FlowConfig
from heliograph.config.sections import ClusterLoadConfig, ClusterProvenance, WorkerConfig
from heliograph.config.security import ClientRole

FLOW_KEYS: Final = (*keys_of(FlowConfig), *inert.FLOW_ROWS)
ENGINE_KEYS: Final = keys_of(EngineConfig)
API_KEYS: Final = keys_of(ApiConfig)
REST_KEYS: Final = inert.REST_ROWS
LOAD_KEYS: Final = keys_of(ClusterLoadConfig)
REGISTRY_KEYS: Final = (*keys_of(RegistryConfig), *REGISTRY_TLS_KEYS)
PROVENANCE_KEYS: Final = keys_of(ClusterProvenance)
CLUSTER_KEYS: Final = (*LOAD_KEYS, *REGISTRY_KEYS, *PROVENANCE_KEYS)
WORKER_KEYS: Final = (*keys_of(WorkerConfig), *inert.WORKER_ROWS)
PIPELINE_KEYS: Final = keys_of(PipelineConfig)

FLOW_BY_NAME: Final = by_name(FLOW_KEYS)
ENGINE_BY_NAME: Final = by_name(ENGINE_KEYS)
API_BY_NAME: Final = by_name(API_KEYS)
REST_BY_NAME: Final = by_name(REST_KEYS)
CLUSTER_BY_NAME: Final = by_name(CLUSTER_KEYS)
WORKER_BY_NAME: Final = by_name(WORKER_KEYS)
PIPELINE_BY_NAME: Final = by_name(PIPELINE_KEYS)

TRANSFORM_PREFIXES: Final = ("transforms.", "predicates.")
"""Settings of what looks into records."""
PLUGIN_PREFIXES: Final = (
    *TRANSFORM_PREFIXES,
    "topic.creation.",
    "key.converter.",
    "value.converter.",
    "header.converter.",
)
"""Settings of Connect's plugins; of them only transforms and predicates run here."""
ROLES: Final[tuple[ClientRole, ...]] = ("admin", "consumer", "producer")
