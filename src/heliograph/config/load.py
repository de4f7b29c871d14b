"""Read a configuration file, or say everything that is wrong with it. Runs on the driver.

The only module that reads the environment and the files a configuration names.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from heliograph.config.findings import Findings, render
from heliograph.config.loops import loop_findings
from heliograph.config.mm2.precedence import Resolution, resolve_settings
from heliograph.config.mm2.properties import (
    MalformedProperty,
    Property,
    decode_properties,
    parse_properties,
)
from heliograph.config.mm2.scopes import sort_into_scopes
from heliograph.config.mm2.translate import translate
from heliograph.config.providers import resolved_settings
from heliograph.config.schema import MirrorConfig
from heliograph.config.secrets import Environment, is_secret_key, referred_names
from heliograph.config.strimzi.resource import KIND, kind_of, resource_settings
from heliograph.config.yaml_file import yaml_settings
from heliograph.config.yaml_nodes import decode_yaml, documents, is_yaml, line_of
from heliograph.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainedConfig:
    """The model, and beside it the line each value came from."""

    config: MirrorConfig
    resolution: Resolution


def load_config(path: Path, around: Environment | None = None) -> MirrorConfig:
    """The configuration in `path`; raises `ConfigError` with all its problems.

    `around` is the real environment unless told.
    """
    return load_explained(path, around).config


def load_explained(path: Path, around: Environment | None = None) -> ExplainedConfig:
    """The same with where everything came from; only the model is for others to keep."""
    around = around or real_environment()
    try:
        content = around.read_bytes(path)
    except OSError as exc:
        why = exc.strerror or type(exc).__name__
        raise ConfigError(str(path), (f"cannot be read: {why}",)) from exc
    try:
        text = decode_yaml(content) if is_yaml(str(path)) else decode_properties(content)
    except UnicodeDecodeError as exc:
        raise ConfigError(str(path), ("is not UTF-8",)) from exc
    return parse_explained(text, source=str(path), around=around)


def real_environment() -> Environment:
    return Environment(
        environment=os.environ,
        read_bytes=Path.read_bytes,
        names_in=lambda folder: [found.name for found in folder.iterdir()],
    )


def parse_explained(text: str, *, source: str, around: Environment) -> ExplainedConfig:
    """The same for text; `source` stands for the path in messages, its ending says the format."""
    findings = Findings()
    written = _yaml(text, around, findings) if is_yaml(source) else _properties(text, findings)
    if findings.problems and not written:
        # Nothing could be read: what the file lacks is not worth saying.
        raise ConfigError(source, render(findings.problems))
    explained = explain_properties(written, around, findings)
    if explained is None:
        raise ConfigError(source, render(findings.problems))
    return explained


def explain_properties(
    written: Sequence[Property], around: Environment, findings: Findings
) -> ExplainedConfig | None:
    """The same for keys and values from anywhere; None where `findings` has a problem."""
    scoped = sort_into_scopes(resolved_settings(written, around, findings), findings)
    resolution = resolve_settings(scoped)
    config = translate(scoped, resolution, around.read_bytes, findings)
    if config is None:
        return None
    _note_loops(config, findings)
    secret = [referred_names(entry.value) for entry in written if is_secret_key(entry.key)]
    noted = config.model_copy(
        update={
            "notes": render(findings.notes),
            "secret_variables": frozenset[str]().union(*secret) & around.environment.keys(),
        }
    )
    return ExplainedConfig(config=noted, resolution=resolution)


def _note_loops(config: MirrorConfig, findings: Findings) -> None:
    """A note only: flows may mirror other topics each, which only their clusters can say."""
    for found in loop_findings(config):
        findings.note_at(", ".join(map(str, found.flows)), found.text)


def _yaml(text: str, around: Environment, findings: Findings) -> list[Property]:
    """Heliograph's own YAML, or Strimzi's resource, also among others in one file."""
    roots = documents(text, findings) or []
    kinds = [kind_of(root) for root in roots]
    mirrors = [root for root, kind in zip(roots, kinds, strict=True) if kind == KIND]
    if not mirrors and not any(kinds):
        for other in roots[1:]:
            findings.problem_at("malformed", "a second YAML document", line=line_of(other))
        return yaml_settings(roots[0], findings) if roots else []
    for other in mirrors[1:]:
        findings.problem_at("kind", f"is a second {KIND}; a file has one", line=line_of(other))
    for root, kind in zip(roots, kinds, strict=True):
        if kind != KIND and mirrors:
            findings.note_at("kind", f"`{kind}` is not read, only {KIND}", line=line_of(root))
        elif kind != KIND:
            findings.problem_at("kind", f"is `{kind}`, not {KIND}", line=line_of(root))
    return resource_settings(mirrors[0], around, findings) if mirrors else []


def _properties(text: str, findings: Findings) -> list[Property]:
    found: list[Property] = []
    for entry in parse_properties(text):
        if isinstance(entry, MalformedProperty):
            findings.problem_at("malformed", entry.why, line=entry.line)
        else:
            found.append(entry)
    return found
