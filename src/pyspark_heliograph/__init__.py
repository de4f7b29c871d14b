"""Spark looks into top-level modules whose names begin with `pyspark_` for a `DefaultSource`: with
this, `format("heliograph")` is known to every session without being registered."""

from __future__ import annotations

from heliograph.pipeline.source import HeliographSource as DefaultSource

__all__ = ["DefaultSource"]
