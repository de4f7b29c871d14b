"""What the transformed flow does to its records; slots import it, and the checks ask it too."""

from __future__ import annotations

import zlib

from heliograph.transform.record import Record
from tests.campaign.truth import ID_HEADER, Content

_DROPPED_ONE_IN = 5


def changed(record: Record) -> Record | None:
    """Each record alone says what becomes of it, so that being asked again changes nothing."""
    after = changed_content((record.key, record.value, record.headers, record.timestamp_ms))
    return None if after is None else record._replace(value=after[1])


def changed_content(content: Content) -> Content | None:
    """None: dropped."""
    key, value, headers, timestamp_ms = content
    name = next((text for header, text in headers if header == ID_HEADER), None) or b""
    if zlib.crc32(name) % _DROPPED_ONE_IN == 0:
        return None
    return key, None if value is None else b"changed " + value, headers, timestamp_ms
