"""How large the house is: lines, bytes that travel to executors, modules to read for a feature.

    python -m bench.house_size SRC

SRC is a folder that holds the package `heliograph`, of this commit or of an older one. A feature's
modules are what its entry module imports, directly or not, counted as the review of November 2026
did it: only in packages of features, not in those below them (broker, ledger, wire, config …).
"""

from __future__ import annotations

import ast
import io
import json
import sys
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

_ENTRIES: Final = {
    "failback": ("heliograph.failback.command", "heliograph.recovery.failback"),
    "failover": ("heliograph.failover.command", "heliograph.recovery.failover"),
}
_FEATURES: Final = frozenset(
    # As of commit eeaabf2, then as of today.
    (
        *("recovery", "services", "shuttle", "audit"),
        *("failback", "failover", "procedure", "drill", "takeover", "spark_checkpoint", "inspect"),
        *("compat", "groups", "driver", "engine", "copy", "decisions"),
    )
)


def modules(src: Path) -> dict[str, Path]:
    found = {}
    for path in sorted((src / "heliograph").rglob("*.py")):
        parts = path.relative_to(src).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def reached(entry: str, paths: Mapping[str, Path]) -> set[str]:
    """Modules of the package that the entry imports, directly or not, and the entry itself."""
    seen: set[str] = set()
    ahead = [entry]
    while ahead:
        name = ahead.pop()
        if name not in seen:
            seen.add(name)
            ahead += [each for each in _imported(paths[name]) if each in paths]
    return seen


def _imported(path: Path) -> Iterable[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            yield node.module
            yield from (f"{node.module}.{each.name}" for each in node.names)
        elif isinstance(node, ast.Import):
            yield from (each.name for each in node.names)


def is_of_a_feature(name: str) -> bool:
    parts = name.split(".")
    return len(parts) > 2 and parts[1] in _FEATURES


def travelling_bytes(src: Path) -> int:
    """The size of the archive that `engine.session` sends to executors."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted((src / "heliograph").rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                archive.write(path, path.relative_to(src))
    return len(packed.getvalue())


def measured(src: Path) -> dict[str, Any]:
    paths = modules(src)
    lines = {
        name: len(path.read_text(encoding="utf-8").splitlines()) for name, path in paths.items()
    }
    found: dict[str, Any] = {
        "modules": len(paths),
        "lines": sum(lines.values()),
        "travelling_bytes": travelling_bytes(src),
    }
    for feature, entries in _ENTRIES.items():
        (entry,) = (each for each in entries if each in paths)
        whole = reached(entry, paths)
        own = {name for name in whole if is_of_a_feature(name)}
        folder = {name for name in own if name.startswith(f"heliograph.{feature}.")}
        found[feature] = {
            "modules_of_features": len(own),
            "lines_of_features": sum(lines[name] for name in own),
            "modules_in_its_folder": len(folder),
            "modules_in_all": len(whole),
            "lines_in_all": sum(lines[name] for name in whole),
        }
    return found


if __name__ == "__main__":
    print(json.dumps(measured(Path(sys.argv[1])), indent=1))
