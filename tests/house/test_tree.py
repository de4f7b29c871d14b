"""A unit test is found from its module: its folder mirrors the package, its name begins with it."""

from __future__ import annotations

from pathlib import Path

import pytest

_REPOSITORY = Path(__file__).parents[2]
_UNIT = _REPOSITORY / "tests" / "unit"
_ELSEWHERE = {"tools": _REPOSITORY / "tools" / "heliograph_tools", "kit": _UNIT.parent / "kit"}
_FILES = sorted(_UNIT.rglob("test_*.py"))


@pytest.mark.parametrize("file", _FILES, ids=[str(file.relative_to(_UNIT)) for file in _FILES])
def test_a_unit_test_is_named_after_a_module_of_the_package_its_folder_mirrors(file: Path) -> None:
    folder, *below = file.parent.relative_to(_UNIT).parts or ("",)
    package = _ELSEWHERE.get(folder, _REPOSITORY / "src" / "heliograph" / folder).joinpath(*below)
    modules = {module.stem for module in package.glob("*.py")} - {"__init__"}

    subject = file.stem.removeprefix("test_")

    named = [name for name in modules if subject == name or subject.startswith(f"{name}_")]
    assert named, f"{package.relative_to(_REPOSITORY)} has no module for {file.name}"
