"""Configurations as text for the tests of `heliograph.config`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from heliograph.config.load import parse_explained
from heliograph.config.schema import MirrorConfig
from heliograph.config.secrets import Environment
from heliograph.errors import ConfigError

TWO_CLUSTERS = """\
clusters = A, B
A.bootstrap.servers = a1:9092, a2:9092
B.bootstrap.servers = b1:9092
A->B.enabled = true
"""


def around(
    files: Mapping[str, bytes] | None = None, environment: Mapping[str, str] | None = None
) -> Environment:
    held = files or {}

    def read_bytes(path: Path) -> bytes:
        if str(path) not in held:
            raise FileNotFoundError(2, "No such file or directory")
        return held[str(path)]

    def names_in(folder: Path) -> list[str]:
        found = [path.name for path in map(Path, held) if path.parent == folder]
        if not found:
            raise FileNotFoundError(2, "No such file or directory")
        return found

    return Environment(environment=environment or {}, read_bytes=read_bytes, names_in=names_in)


def parse_config(text: str, *, source: str, around: Environment) -> MirrorConfig:
    return parse_explained(text, source=source, around=around).config


def config_of(
    text: str,
    files: Mapping[str, bytes] | None = None,
    environment: Mapping[str, str] | None = None,
) -> MirrorConfig:
    return parse_config(text, source="mm2.properties", around=around(files, environment))


def with_lines(lines: str, files: Mapping[str, bytes] | None = None) -> MirrorConfig:
    """Two clusters, one flow, and `lines`."""
    return config_of(TWO_CLUSTERS + lines, files)


def problems_of(
    text: str,
    files: Mapping[str, bytes] | None = None,
    environment: Mapping[str, str] | None = None,
) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        config_of(text, files, environment)
    return list(caught.value.problems)


def problems_with(lines: str, files: Mapping[str, bytes] | None = None) -> list[str]:
    """The problems of two clusters, one flow (lines 1 to 4), and `lines` (from 5 on)."""
    return problems_of(TWO_CLUSTERS + lines, files)
