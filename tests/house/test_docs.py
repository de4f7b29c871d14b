"""The documents name real things: files, modules, functions, states."""

from __future__ import annotations

import importlib
import re
import tomllib
from pathlib import Path

import pytest

from heliograph.model import StallReason

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    str(path.relative_to(ROOT))
    for path in (
        *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "bench/README.md")),
        *(ROOT / "docs").rglob("*.md"),
    )
)


@pytest.mark.parametrize("page", PAGES)
def test_every_path_a_page_names_exists(page: str) -> None:
    text = (ROOT / page).read_text()
    named = set(re.findall(r"`((?:tests|docs|src|tools|bench|deploy|examples)/[\w./-]+)`", text))
    named |= {str((ROOT / page).parent.relative_to(ROOT) / link) for link in links(text)}

    missing = [path for path in sorted(named) if not (ROOT / path).exists()]

    assert missing == []


def links(text: str) -> list[str]:
    return [link for link in re.findall(r"\]\(([^)#]+)\)", text) if "://" not in link]


def test_every_function_the_architecture_names_exists() -> None:
    text = (ROOT / "docs/ARCHITECTURE.md").read_text()
    named = re.findall(r"`([a-z_.]+):([A-Za-z_.]+)`", text)

    assert len(named) > 10
    for module, path in named:
        found: object = importlib.import_module(f"heliograph.{module}")
        for name in path.split("."):
            found = getattr(found, name)


def test_the_architecture_lists_the_layers_as_they_are_checked() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    (layers,) = (
        contract["layers"]
        for contract in project["tool"]["importlinter"]["contracts"]
        if contract["type"] == "layers"
    )

    assert "\n".join(["```", *layers, "```"]) in (ROOT / "docs/ARCHITECTURE.md").read_text()


def test_every_reason_a_lane_may_stall_for_is_documented() -> None:
    text = (ROOT / "docs/GUARANTEES.md").read_text()

    missing = [reason.value for reason in StallReason if reason.value not in text]

    assert missing == []


def test_the_index_of_the_documents_has_every_one() -> None:
    text = (ROOT / "docs/README.md").read_text()
    documents = [path.relative_to(ROOT / "docs") for path in (ROOT / "docs").rglob("*.md")]

    missing = [str(path) for path in documents if path.name not in text]

    assert sorted(missing) == ["README.md"] or missing == []


def test_every_module_a_document_names_exists() -> None:
    """`package.module:name`, wherever a page has it, not in the architecture alone."""
    named = [
        (page.name, module, path)
        for page in (ROOT / "docs").rglob("*.md")
        for module, path in re.findall(r"`heliograph\.([a-z_.]+):([A-Za-z_.]+)`", page.read_text())
    ]
    missing = []
    for page, module, path in named:
        found: object = importlib.import_module(f"heliograph.{module}")
        for name in path.split("."):
            if not hasattr(found, name):
                missing.append(f"{page}: {module}:{path}")
                break
            found = getattr(found, name)

    assert missing == []
