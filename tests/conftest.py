"""Fixtures every test may use; they live in tests.kit."""

from __future__ import annotations

from tests.kit.clusters import clusters, pair, topic
from tests.kit.java import java
from tests.kit.spark_start import spark_starts_fast

__all__ = ["clusters", "java", "pair", "spark_starts_fast", "topic"]
