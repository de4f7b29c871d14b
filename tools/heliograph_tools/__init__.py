"""Beside the mirror: clusters on this machine, the demo, the benchmarks. Never on executors.

Shipped in the same wheel, with its dependencies in the extra `tools`; `heliograph local`, `demo`
and `bench` are its commands (`cli/`). May import all of `heliograph`; only `heliograph.cli.app`
knows it.
"""
