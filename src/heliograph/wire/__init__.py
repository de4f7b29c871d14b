"""Bytes only: record batches, records, Fetch and Produce frames, MirrorMaker 2's record formats.

Begin at `batch`. No I/O, no time. May import `errors`.
"""
