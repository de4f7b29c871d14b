"""Kafka's default partitioner, compatible to the hash: murmur2 of the key. No I/O; runs anywhere.

The hash of many keys is computed together, keys of one length at a time: one by one in Python it
would take longer than everything else that is done with a row.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

_SEED: Final = 0x9747B28C
_M: Final = 0x5BD1E995
_R: Final = 24
_POSITIVE: Final = 0x7FFFFFFF


def murmur2(keys: Sequence[bytes]) -> Any:
    """The hash of each key as Kafka's Java client computes it, an array of uint32."""
    hashes = np.zeros(len(keys), dtype=np.uint32)
    by_length: defaultdict[int, list[int]] = defaultdict(list)
    for index, key in enumerate(keys):
        by_length[len(key)].append(index)
    for length, indexes in by_length.items():
        joined = b"".join([keys[index] for index in indexes])
        together = np.frombuffer(joined, dtype=np.uint8).reshape(len(indexes), length)
        hashes[indexes] = _murmur2_of_length(together, length)
    return hashes


def partitions_of(keys: Sequence[bytes], partition_count: int) -> list[int]:
    """Where Java's producer would put records with these keys."""
    chosen: list[int] = ((murmur2(keys) & np.uint32(_POSITIVE)) % partition_count).tolist()
    return chosen


def _murmur2_of_length(keys: Any, length: int) -> Any:
    """`keys` has a row for each key, all of this length."""
    m = np.uint32(_M)
    with np.errstate(over="ignore"):
        found = np.full(len(keys), np.uint32(_SEED ^ length), dtype=np.uint32)
        whole = length // 4
        words = np.ascontiguousarray(keys[:, : whole * 4]).view("<u4") if whole else None
        for index in range(whole):
            word = words[:, index] * m  # type: ignore[index]
            word ^= word >> np.uint32(_R)
            word *= m
            found *= m
            found ^= word
        rest = length % 4
        for byte in range(rest - 1, -1, -1):
            found ^= keys[:, whole * 4 + byte].astype(np.uint32) << np.uint32(8 * byte)
        if rest:
            found *= m
        found ^= found >> np.uint32(13)
        found *= m
        found ^= found >> np.uint32(15)
    return found
