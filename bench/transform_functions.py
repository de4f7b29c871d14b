"""What `bench.transforms` puts records through. Runs on executors."""

from __future__ import annotations

from typing import Any


def same(batch: Any) -> Any:
    """Every record opened, put into columns and sealed again, and none changed."""
    return batch
