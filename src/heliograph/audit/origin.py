"""The header that says where a repaired record came from. No I/O; runs anywhere.

A record that was missing is appended at the end of its partition, with a header that names its
source: `heliograph.origin` = `A/orders/3/1234`, which is cluster, topic, partition and offset.
"""

from __future__ import annotations

from typing import Final

from heliograph.letters.replay import REPLAYED_HEADER
from heliograph.model import LaneId
from heliograph.wire.opened import Content

ORIGIN_HEADER: Final = "heliograph.origin"


def origin_of(lane: LaneId, offset: int) -> bytes:
    return f"{lane.flow.source}/{lane.source.topic}/{lane.source.partition}/{offset}".encode()


def repaired_offset(lane: LaneId, content: Content) -> int | None:
    """The source offset a record of the lane's target says it stands for; None if it does not."""
    prefix = origin_of(lane, 0)[:-1]
    for name, value in content[3]:
        if (
            name in (ORIGIN_HEADER, REPLAYED_HEADER)
            and value is not None
            and value.startswith(prefix)
        ):
            number = value[len(prefix) :]
            if number.isdigit() and len(number) <= 19:
                return int(number)
    return None


def is_replayed(content: Content) -> bool:
    """Whether `heliograph letters replay` put the record there, repaired perhaps."""
    return any(name == REPLAYED_HEADER for name, _ in content[3])


def without_origin(content: Content) -> Content:
    """The record as it was on the source."""
    timestamp_ms, key, value, headers = content
    return timestamp_ms, key, value, tuple(row for row in headers if row[0] != ORIGIN_HEADER)
