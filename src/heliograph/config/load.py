"""Read a configuration file, or say everything that is wrong with it. Runs on the driver.

The only module that reads the environment and the files a configuration names.
"""

from __future__ import annotations

import os
from pathlib import Path

from heliograph.config.findings import Findings, render
from heliograph.config.mm2 import translate
from heliograph.config.properties import (
    MalformedProperty,
    Property,
    decode_properties,
    parse_properties,
)
from heliograph.config.providers import resolved_settings
from heliograph.config.schema import MirrorConfig
from heliograph.config.secrets import Surroundings
from heliograph.errors import ConfigError


def load_config(path: Path) -> MirrorConfig:
    """The configuration in `path`; raises `ConfigError` with all its problems."""
    around = Surroundings(environment=os.environ, read_bytes=Path.read_bytes)
    try:
        content = path.read_bytes()
    except OSError as exc:
        why = exc.strerror or type(exc).__name__
        raise ConfigError(str(path), (f"cannot be read: {why}",)) from exc
    return parse_config(decode_properties(content), source=str(path), around=around)


def parse_config(text: str, *, source: str, around: Surroundings) -> MirrorConfig:
    """The same for text that is already here; `source` stands where the path would in messages."""
    findings = Findings()
    properties: list[Property] = []
    for entry in parse_properties(text):
        if isinstance(entry, MalformedProperty):
            findings.lacking("malformed", entry.why, line=entry.line)
        else:
            properties.append(entry)
    settings = resolved_settings(properties, around, findings)
    config = translate(settings, around.read_bytes, findings)
    if config is None:
        raise ConfigError(source, render(findings.problems))
    return config.model_copy(update={"notes": render(findings.notes)})
