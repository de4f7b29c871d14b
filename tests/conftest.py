"""Fixtures every test may use; they live in tests.kit."""

from __future__ import annotations

from tests.kit.clusters import clusters, pair, topic
from tests.kit.java import java

__all__ = ["clusters", "java", "pair", "topic"]
