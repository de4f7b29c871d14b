"""What the driver tells about itself, to whom, under which names. Runs anywhere."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from heliograph.config.hook_values import bearer_token, web_address
from heliograph.config.keys import Own
from heliograph.config.secrets import Secret
from heliograph.config.sections import Section

Compat = Literal["none", "strimzi", "jmx-exporter"]


class MetricsConfig(Section):
    """Metrics of the driver."""

    lanes: Annotated[bool, Own("metrics.lanes")] = False
    """Whether every lane has series of its own, not only every topic."""
    topics_max: Annotated[int, Own("metrics.topics.max")] = Field(default=500, ge=1, le=100_000)
    """Topics with series of their own; the rest is summed in one named `(others)`."""
    compat: Annotated[Compat, Own("metrics.compat")] = "none"
    """Adds MirrorMaker 2's names as Strimzi, or the JMX exporter's example, spells them."""
    otlp_endpoint: Annotated[Secret | None, Own("metrics.otlp.endpoint", web_address)] = None
    """URL that metrics are posted to as OTLP, as in `http://collector:4318/v1/metrics`."""
    otlp_interval_s: Annotated[int, Own("metrics.otlp.interval.seconds")] = Field(
        default=15, ge=1, le=3_600
    )
    """Time between two posts."""
    otlp_token: Annotated[Secret | None, Own("metrics.otlp.token", bearer_token)] = None
    """Sent with each post as `Authorization: Bearer`."""
