"""The style guide, executable: sizes, first lines, words that are not used."""

from __future__ import annotations

import ast
import inspect
import pickle
import re
from collections.abc import Iterator
from pathlib import Path

import heliograph
import heliograph_tools
from heliograph import errors

PACKAGES = tuple(Path(package.__path__[0]) for package in (heliograph, heliograph_tools))
MODULE_LINES_MAX = 500
FUNCTION_LINES_MAX = 60
MODULE_DEBT: dict[str, int] = {}  # may shrink, may not grow, may not gain rows
FUNCTION_DEBT: dict[str, int] = {}
PLACES = ("driver", "executor", "anywhere", "command line", "runs")
BANNED_WORDS = ("manager", "helper", "utils")


def modules() -> Iterator[tuple[str, str]]:
    for package in PACKAGES:
        for path in sorted(package.rglob("*.py")):
            yield str(path.relative_to(package.parent)), path.read_text()


def function_lengths() -> Iterator[tuple[str, int]]:
    """Lines of each function's body, its docstring apart."""
    for name, text in modules():
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                body = node.body[1:] if ast.get_docstring(node) else node.body
                if body:
                    last = body[-1].end_lineno or body[-1].lineno
                    yield f"{name}:{node.name}", last - body[0].lineno + 1


def test_no_module_is_longer_than_five_hundred_lines() -> None:
    too_long = {
        name: lines for name, text in modules() if (lines := text.count("\n")) > MODULE_LINES_MAX
    }

    assert too_long == MODULE_DEBT


def test_no_file_of_the_tests_is_longer_than_five_hundred_lines() -> None:
    tests = Path(__file__).parents[1]
    lengths = {
        str(path.relative_to(tests)): path.read_text().count("\n") for path in tests.rglob("*.py")
    }

    too_long = {name: lines for name, lines in lengths.items() if lines > MODULE_LINES_MAX}

    assert len(lengths) > 300
    assert too_long == {}


def test_no_function_is_longer_than_sixty_lines() -> None:
    too_long = {name: lines for name, lines in function_lengths() if lines > FUNCTION_LINES_MAX}

    assert too_long == FUNCTION_DEBT


def test_every_module_says_what_it_is_for_and_where_it_runs() -> None:
    silent = [
        name
        for name, text in modules()
        if not name.endswith(("__init__.py", "__main__.py"))
        and not any(place in (ast.get_docstring(ast.parse(text)) or "").lower() for place in PLACES)
    ]

    assert silent == []


def test_every_package_says_what_it_is_where_to_begin_and_what_it_may_import() -> None:
    silent = [
        name
        for name, text in modules()
        if re.match(r"heliograph/.+/__init__\.py", name)
        and not re.search(
            r"(Begin at|way in).*May import", flat(ast.get_docstring(ast.parse(text)))
        )
    ]

    assert silent == []


def flat(text: str | None) -> str:
    return " ".join((text or "").split())


def test_no_module_is_named_for_nothing() -> None:
    named = [name for name, _ in modules() if any(word in name for word in BANNED_WORDS)]

    assert named == []


def test_every_error_crosses_to_spark_and_back() -> None:
    arguments = {
        "ConfigError": ("file", ("line 1  x: no",)),
        "CorruptBatch": (7, "bad"),
        "OffsetGone": ("orders-1", 5, 9),
        "RegistryError": ("schema registry of A", "answers 404", 404, 40401),
        "RegistryDown": ("schema registry of A", "does not serve"),
        "TransformUnusable": ("mask", "no function"),
    }
    tree = [
        cls
        for _, cls in inspect.getmembers(errors, inspect.isclass)
        if issubclass(cls, errors.MirrorError)
    ]

    for cls in tree:
        made = cls(*arguments.get(cls.__name__, ("what happened",)))
        back = pickle.loads(pickle.dumps(made))
        assert (type(back), str(back)) == (cls, str(made))


def test_the_tree_drawn_in_errors_names_every_class() -> None:
    drawn = errors.__doc__ or ""

    missing = [
        name
        for name, cls in inspect.getmembers(errors, inspect.isclass)
        if issubclass(cls, errors.MirrorError) and name not in drawn
    ]

    assert missing == []
