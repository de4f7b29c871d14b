"""The `config.providers` of a file, read before anything they resolve. Runs on the driver."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from os.path import normpath
from pathlib import Path

from heliograph.config.findings import Findings, Setting
from heliograph.config.mm2.properties import Property
from heliograph.config.mm2.regexes import RegexRefused, from_java
from heliograph.config.mm2.values import BadValue, words
from heliograph.config.secrets import (
    PROVIDER_CLASSES,
    Environment,
    Provider,
    Unresolved,
    has_reference,
    resolve,
)

_PARAMETERS = ("allowed.paths", "allowlist.pattern")


def resolved_settings(
    properties: Iterable[Property], around: Environment, findings: Findings
) -> list[Setting]:
    """Every property with its references replaced; those that lead nowhere are left out."""
    written = list(properties)
    providers = _declared(written, findings)
    settings: list[Setting] = []
    for entry in written:
        raw = _as_setting(entry)
        if not has_reference(entry.value):
            settings.append(raw)
            continue
        try:
            value = resolve(entry.value, providers, around)
        except Unresolved as exc:
            findings.problem(raw, str(exc))
            continue
        settings.append(
            Setting(key=entry.key, value=value.strip(), written=entry.value, line=entry.line)
        )
    return settings


def _as_setting(entry: Property) -> Setting:
    # ConfigDef trims; java.util.Properties keeps blanks at the end.
    value = entry.value.strip()
    return Setting(key=entry.key, value=value, written=value, line=entry.line)


def _declared(written: list[Property], findings: Findings) -> dict[str, Provider]:
    by_key = {entry.key: _as_setting(entry) for entry in written}
    listed = by_key.get("config.providers")
    names = words(listed.value) if listed is not None else ()
    found: dict[str, Provider] = {}
    for name in names:
        prefix = f"config.providers.{name}."
        class_setting = by_key.get(prefix + "class")
        if class_setting is None:
            assert listed is not None
            findings.problem(listed, f"`{name}` has no class; set `{prefix}class`")
        elif class_setting.value not in PROVIDER_CLASSES:
            known = ", ".join(f"`{known}`" for known in PROVIDER_CLASSES)
            findings.bad_value(
                class_setting, BadValue(f"a class that cannot run here; these can: {known}")
            )
        else:
            found[name] = _provider(name, class_setting.value, by_key, findings)
    _check_names(by_key, names, findings)
    return found


def _provider(
    name: str, class_path: str, by_key: Mapping[str, Setting], findings: Findings
) -> Provider:
    prefix = f"config.providers.{name}.param."
    paths = by_key.get(prefix + "allowed.paths")
    allowed = tuple(Path(normpath(path)) for path in words(paths.value) if path) if paths else ()
    if paths is not None and not all(path.is_absolute() for path in allowed):
        findings.bad_value(paths, BadValue("where every path must be absolute"))
    pattern = by_key.get(prefix + "allowlist.pattern")
    allowed_names: str | None = None
    if pattern is not None:
        try:
            allowed_names = from_java(pattern.value)
        except RegexRefused as exc:
            findings.bad_value(pattern, BadValue(f"not a regex: {exc}"))
    return Provider(
        name=name,
        class_path=class_path,
        allowed_paths=allowed,
        allowed_names=allowed_names,
    )


def _check_names(by_key: Mapping[str, Setting], names: tuple[str, ...], findings: Findings) -> None:
    for key, setting in by_key.items():
        matched = re.fullmatch(r"config\.providers\.([^.]+)\.(.+)", key)
        if matched is None:
            continue
        name, rest = matched.groups()
        if name not in names:
            findings.problem(setting, f"`{name}` is not in `config.providers`")
        elif rest != "class" and rest.removeprefix("param.") not in _PARAMETERS:
            findings.problem(setting, f"unknown key; a provider has `class` and {_listed()}")


def _listed() -> str:
    return " and ".join(f"`param.{name}`" for name in _PARAMETERS)
