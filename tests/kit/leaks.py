"""Look for secrets where they must not be: bytes, folders, processes and their environment."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import psutil

Secrets = Mapping[str, str]
"""What each is, and the text nobody may see."""


def leaks(content: bytes, secrets: Secrets) -> list[str]:
    """Which secrets are in there, as they are or in base64."""
    return [what for what, text in secrets.items() if any(form in content for form in _forms(text))]


def leaks_in_folder(folder: Path, secrets: Secrets) -> list[str]:
    """Each with the file it is in; files that go while we look are gone."""
    found: list[str] = []
    for path in sorted(folder.rglob("*")):
        try:
            content = path.read_bytes() if path.is_file() else b""
        except FileNotFoundError:
            continue
        found += [f"{what} in {path.relative_to(folder)}" for what in leaks(content, secrets)]
    return found


def leaks_in_arguments(processes: Iterable[psutil.Process], secrets: Secrets) -> list[str]:
    return _in_proc(processes, "cmdline", secrets)


def leaks_in_environments(processes: Iterable[psutil.Process], secrets: Secrets) -> list[str]:
    return _in_proc(processes, "environ", secrets)


def _in_proc(processes: Iterable[psutil.Process], name: str, secrets: Secrets) -> list[str]:
    found: list[str] = []
    for process in processes:
        try:
            content = Path(f"/proc/{process.pid}/{name}").read_bytes()
        except (FileNotFoundError, ProcessLookupError):
            continue
        found += [f"{what} in {name} of {process.pid}" for what in leaks(content, secrets)]
    return found


def _forms(text: str) -> Iterator[bytes]:
    raw = text.encode()
    yield raw
    for before in range(3):
        # Base64 works in threes, so the same bytes look different at each of three places. The
        # characters at both ends depend on what is around.
        encoded = base64.b64encode(b"\0" * before + raw)
        start = (before * 8 + 5) // 6
        end = (before + len(raw)) * 8 // 6
        yield encoded[start:end]
