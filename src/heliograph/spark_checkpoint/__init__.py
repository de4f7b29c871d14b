"""Structured Streaming checkpoints moved to the other cluster by the exact map.

Begin at `move`. Reads and writes checkpoint folders; needs no Spark. May import `groups` and below.
"""
