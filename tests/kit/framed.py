"""Values with a schema, and functions on columns that are asked until they answer."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable
from typing import Any, Final

from heliograph.errors import NotYetKnown
from heliograph.transform.columns import batch_of
from heliograph.transform.record import Where

WHERE: Final = Where("orders", "A.orders", 0)


def framed(schema_id: int, payload: bytes) -> bytes:
    return struct.pack(">bi", 0, schema_id) + payload


def batch(*values: bytes | None, headers: Any = ()) -> Any:
    contents = [(1, b"k", value, headers) for value in values]
    return batch_of(WHERE, range(len(values)), contents)


def settled(function: Callable[[Any], Any], given: Any) -> Any:
    due_s = time.monotonic() + 60
    while True:
        try:
            return function(given)
        except NotYetKnown:
            assert time.monotonic() < due_s
            time.sleep(0.005)


def changed(function: Callable[[Any], Any], *values: bytes | None, headers: Any = ()) -> Any:
    made = settled(function, batch(*values, headers=headers))
    return made.column("value").to_pylist()
