from __future__ import annotations

import random

from aiokafka.partitioner import murmur2 as reference

from heliograph.pipeline.partitioner import murmur2, partitions_of


def test_the_hash_is_that_of_javas_client_for_keys_of_every_length() -> None:
    drawn = random.Random(7)
    keys = [drawn.randbytes(length) for length in range(40) for _ in range(25)]

    assert [int(each) for each in murmur2(keys)] == [reference(key) & 0xFFFFFFFF for key in keys]


def test_known_keys_go_where_javas_tests_say() -> None:
    """The values are those of Kafka's own UtilsTest.testMurmur2."""
    known = {
        b"21": -973932308,
        b"foobar": -790332482,
        b"a-little-bit-long-string": -985981536,
        b"a-little-bit-longer-string": -1486304829,
        b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
        b"abc": 479470107,
    }

    hashes = [int(each) for each in murmur2(list(known))]

    assert hashes == [value & 0xFFFFFFFF for value in known.values()]
    assert partitions_of(list(known), 7) == [(v & 0x7FFFFFFF) % 7 for v in hashes]
