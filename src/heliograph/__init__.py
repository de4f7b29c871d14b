"""Heliograph: cross-cluster mirroring for Apache Kafka on Spark."""

from typing import Final

__version__: Final = "0.1.0"
