"""Fixtures every test may use; they live in tests.kit."""

from __future__ import annotations

from tests.kit.clusters import clusters, pair, topic

__all__ = ["clusters", "pair", "topic"]
