"""The wheel holds the whole package and nothing else, and works where no repository is."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from email.parser import Parser
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SHIPPED = {
    "heliograph": ROOT / "src/heliograph",
    "heliograph_tools": ROOT / "tools/heliograph_tools",
    "pyspark_heliograph": ROOT / "src/pyspark_heliograph",
}
FILE = """\
clusters = A, B
A.bootstrap.servers = a1:9092
B.bootstrap.servers = b1:9092
A->B.enabled = true
"""
LOADED = """
import sys
from heliograph.cli.app import main
import heliograph_tools.cli
sys.argv = ["heliograph", "config", "mm2.properties", "--flow", "A->B"]
try:
    main()
finally:
    for name, module in sorted(sys.modules.items()):
        if name.partition(".")[0] in ("heliograph", "heliograph_tools"):
            sys.stderr.write(f"{module.__file__}\\n")
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy: setuptools leaves files of earlier builds where it builds."""
    folder = tmp_path_factory.mktemp("wheel")
    tree = folder / "tree"
    tree.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tree)
    skipped = shutil.ignore_patterns("__pycache__", "*.egg-info")
    for name in ("src", "tools"):
        shutil.copytree(ROOT / name, tree / name, ignore=skipped)
    _pip("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder), str(tree))
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("site")
    _pip("install", "--no-deps", "--no-index", "--no-compile", "--target", str(target), str(wheel))
    return target


def test_the_wheel_holds_every_file_of_the_package_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as opened:
        held = {name for name in opened.namelist() if ".dist-info/" not in name}

    assert held == set(_shipped_files())


def test_the_wheel_names_its_extras_and_no_package_host(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as opened:
        (name,) = (name for name in opened.namelist() if name.endswith("/METADATA"))
        about = Parser().parsestr(opened.read(name).decode())

    assert set(about.get_all("Provides-Extra") or ()) == {
        "tools",
        "msk",
        "pipelines",
        "formats",
        "dev",
    }
    assert not [line for line in about.get_all("Requires-Dist") or () if "://" in line]


def test_commands_work_where_only_the_wheel_is(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "mm2.properties").write_text(FILE)

    version = _run(installed, tmp_path, str(installed / "bin/heliograph"), "--version")
    shown = _run(installed, tmp_path, "-c", LOADED)

    assert version.stdout.startswith("heliograph 0.")
    assert "topics.exclude" in shown.stdout
    loaded = [Path(line) for line in shown.stderr.split()]
    assert len(loaded) > 30
    assert [path for path in loaded if not path.is_relative_to(installed)] == []


def _shipped_files() -> Iterator[str]:
    for package, folder in SHIPPED.items():
        for path in folder.rglob("*"):
            if path.is_file() and path.suffix != ".pyc":
                yield f"{package}/{path.relative_to(folder)}"


def _run(installed: Path, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """With the dependencies of this Python; the installed wheel stands before everything else."""
    around = {
        name: os.environ[name] for name in ("PATH", "HOME", "JAVA_HOME") if name in os.environ
    }
    return subprocess.run(
        [sys.executable, "-P", *words],
        cwd=folder,
        env={**around, "PYTHONPATH": str(installed)},
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )


def _pip(*words: str) -> None:
    command = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *words]
    subprocess.run(command, check=True, capture_output=True, timeout=240)
