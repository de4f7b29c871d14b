"""Secrets of Kubernetes as files: where they are, and how a value refers to one. Driver only.

A secret NAME with the key KEY is the file NAME/KEY under one folder, as `volumeMounts` of a pod
make it. Strimzi reads secrets over the API of Kubernetes; its references are read as those files.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

from heliograph.config.findings import Findings
from heliograph.config.mm2.properties import Property
from heliograph.config.mm2.values import words
from heliograph.config.secrets import (
    DIRECTORY_PROVIDER,
    ENV_PROVIDER,
    FILE_PROVIDER,
    Environment,
    referred_providers,
)
from heliograph.config.strimzi.parts import Part, Text

SECRETS_VARIABLE: Final = "HELIOGRAPH_SECRETS"
SECRETS_FOLDER: Final = "/mnt/secrets"
"""Where secrets are unless the variable says otherwise."""
_OWN: Final = "strimzisecrets"
_BUILT_IN: Final = {
    _OWN: DIRECTORY_PROVIDER,
    "strimzienv": ENV_PROVIDER,
    "strimzifile": FILE_PROVIDER,
    "strimzidir": DIRECTORY_PROVIDER,
    "file": FILE_PROVIDER,
}
"""Providers that a resource may use without declaring them."""
_SECRETS_CLASS: Final = "io.strimzi.kafka.KubernetesSecretConfigProvider"
_ENV_CLASS: Final = "io.strimzi.kafka.EnvVarConfigProvider"
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_PROVIDERS: Final = "config.providers"


class MountedSecrets:
    """References to files under the folder of secrets."""

    def __init__(self, around: Environment, findings: Findings) -> None:
        self._around, self._findings = around, findings
        self.folder = Path(around.environment.get(SECRETS_VARIABLE) or SECRETS_FOLDER)
        if not self.folder.is_absolute():
            findings.problem_at(SECRETS_VARIABLE, f"is `{self.folder}`, not an absolute path")

    def reference(self, part: Part, key_field: str) -> tuple[str, int] | None:
        """What stands for `{secretName: …, KEY_FIELD: …}`, and its line."""
        secret, key = self._name(part.required("secretName")), self._name(part.required(key_field))
        part.refuse_the_rest()
        return None if secret is None or key is None else (self._to(secret, key), part.line)

    def certificates(self, part: Part) -> tuple[str, int] | None:
        """The same for `certificate`, or for all files that `pattern` matches."""
        if part.has("certificate") or not part.has("pattern"):
            return self.reference(part, "certificate")
        secret, pattern = self._name(part.required("secretName")), part.text("pattern")
        part.refuse_the_rest()
        if secret is None or pattern is None:
            return None
        folder = self.folder / secret
        try:
            names = sorted(self._around.names_in(folder))
        except OSError as exc:
            why = exc.strerror or type(exc).__name__
            self._findings.problem_at(pattern.path, f"{folder}: {why}", line=pattern.line)
            return None
        # Kubernetes keeps what it swaps in under names that begin with two dots.
        found = [name for name in names if name[0] != "." and fnmatchcase(name, pattern.value)]
        if not found:
            sentence = f"no file in {folder} matches `{pattern.value}`"
            self._findings.problem_at(pattern.path, sentence, line=pattern.line)
            return None
        return "\n".join(self._to(secret, name) for name in found), pattern.line

    def resolvable(self, settings: Iterable[Property]) -> Iterator[Property]:
        """The settings with Strimzi's providers as ones that run here, and those declared that a
        resource need not declare."""
        held = {entry.key: entry for entry in settings}
        listed = held.pop(_PROVIDERS, None)
        names = list(words(listed.value)) if listed is not None else []
        of_secrets = {_OWN}
        for name in names:
            entry = held.get(f"{_PROVIDERS}.{name}.class")
            if entry is not None and entry.value == _SECRETS_CLASS:
                of_secrets.add(name)
                held[entry.key] = _with_value(entry, DIRECTORY_PROVIDER)
            elif entry is not None and entry.value == _ENV_CLASS:
                held[entry.key] = _with_value(entry, ENV_PROVIDER)
        for entry in list(held.values()):
            held[entry.key] = _with_value(entry, self._as_files(entry.value, of_secrets))
        used = {name for entry in held.values() for name in referred_providers(entry.value)}
        own = [name for name in _BUILT_IN if name in used and name not in names]
        if names or own:
            line = listed.line if listed is not None else 1
            yield Property(key=_PROVIDERS, value=",".join((*names, *own)), line=line)
            for name in own:
                yield Property(key=f"{_PROVIDERS}.{name}.class", value=_BUILT_IN[name], line=line)
        yield from held.values()

    def _as_files(self, text: str, providers: set[str]) -> str:
        """`${strimzisecrets:NAMESPACE/NAME:KEY}` as the file that is mounted for it."""
        named = "|".join(map(re.escape, sorted(providers)))
        shape = rf"\$\{{({named}):[^}}:/]+/([^}}:/]+):"
        return re.sub(shape, lambda at: f"${{{at[1]}:{self.folder / at[2]}:", text)

    def _to(self, secret: str, key: str) -> str:
        return f"${{{_OWN}:{self.folder / secret}:{key}}}"

    def _name(self, text: Text | None) -> str | None:
        if text is None:
            return None
        if _NAME.fullmatch(text.value) is None:
            sentence = "not a name: letters, digits, `.`, `_` and `-`"
            self._findings.problem_at(text.path, f"is `{text.value}`, {sentence}", line=text.line)
            return None
        return text.value


def _with_value(entry: Property, value: str) -> Property:
    return Property(key=entry.key, value=value, line=entry.line)
