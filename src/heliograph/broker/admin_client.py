"""librdkafka's admin client of one cluster, quiet but for what it says went wrong. Driver only."""

from __future__ import annotations

from typing import Any, Final

from confluent_kafka.admin import AdminClient

from heliograph.broker.admin_errors import ErrorLog
from heliograph.config.clients import confluent_settings
from heliograph.config.schema import ClusterConfig

_LOG_LEVEL_CRITICAL: Final = 2


def admin_client(cluster: ClusterConfig, errors: ErrorLog) -> Any:
    """Raises `BrokerError` for settings that no client can have, and without a token."""
    settings = {
        **confluent_settings(cluster, "admin"),
        # librdkafka would write to stderr what `error_cb` hands over anyway.
        "log_level": _LOG_LEVEL_CRITICAL,
        "error_cb": errors.note,
    }
    return errors.opened(AdminClient, settings)
