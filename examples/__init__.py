"""Pipelines to read and to change; each runs on two local clusters: `python -m examples.NAME`."""
