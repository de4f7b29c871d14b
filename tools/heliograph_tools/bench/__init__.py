"""Heliograph against MirrorMaker 2 on the same brokers in the same run.

Begin at `suite`.
"""
