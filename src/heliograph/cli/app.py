"""`heliograph`: all commands in one place, and how errors reach a person. Runs on the driver."""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import Final

import typer
from rich.console import Console

from heliograph import __version__
from heliograph.cli.output import EXIT_FAILED, EXIT_STALLED, EXIT_USAGE, flowed, remarks
from heliograph.errors import ConfigError, MirrorError, RecoveryRefused

COMMANDS: Final = (
    "demo",
    "config",
    "plan",
    "run",
    "status",
    "groups",
    "offsets",
    "topology",
    "ledger",
    "reset",
    "adopt",
    "release",
    "failover",
    "failback",
    "drill",
    "audit",
    "local",
    "bench",
)
"""In the order of `--help`. Each is a module beside this one, with a function or an application of
that name; a function has its help beside it."""
TOOLS: Final = frozenset({"demo", "local", "bench"})
"""Those that are no part of a mirror, in `heliograph_tools.cli`."""


def app(*names: str) -> typer.Typer:
    """All commands, or only those named.

    Everything that any command needs takes two seconds to import: too long for a failover that has
    five.
    """
    made = typer.Typer(
        name="heliograph",
        help="Mirror Apache Kafka clusters on Spark: every record once, in order, with exact "
        "offsets.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        add_completion=False,
    )
    made.callback()(_root)
    for name in names or COMMANDS:
        module = _module(name)
        command = getattr(module, name)
        if isinstance(command, typer.Typer):
            made.add_typer(command, name=name)
        else:
            made.command(name, help=flowed(getattr(module, f"{name.upper()}_HELP")))(command)
    return made


def _module(name: str) -> ModuleType:
    if name not in TOOLS:
        return import_module(f"heliograph.cli.{name}")
    try:
        return import_module(f"heliograph_tools.cli.{name}")
    except ModuleNotFoundError as exc:
        if exc.name is None or exc.name.split(".")[0] in ("heliograph", "pyspark"):
            raise
        return _missing_tool(name, exc.name)


def _missing_tool(name: str, lacking: str) -> ModuleType:
    """The command without what it needs: it says so when it is called, and `--help` lists it."""

    def explain() -> None:
        raise MirrorError(
            f"`heliograph {name}` needs the package {lacking}, which is not installed: "
            "pip install 'heliograph[tools]'"
        )

    stand_in = ModuleType(name)
    setattr(stand_in, name, explain)
    setattr(stand_in, f"{name.upper()}_HELP", "Not installed: pip install 'heliograph[tools]'.")
    return stand_in


def _version(wanted: bool) -> None:
    if wanted:
        Console().print(f"heliograph {__version__}")
        raise typer.Exit


def _root(
    version: bool = typer.Option(
        False, "--version", help="Print the version.", callback=_version, is_eager=True
    ),
) -> None:
    """Nothing runs without a command."""


def main() -> None:
    """Run the command line; what went wrong is one sentence on stderr, never a traceback."""
    try:
        app(*(word for word in sys.argv[1:2] if word in COMMANDS))()
    except ConfigError as exc:
        remarks().print(str(exc), soft_wrap=True)
        sys.exit(EXIT_USAGE)
    except RecoveryRefused as exc:
        remarks().print(f"heliograph: {exc}", soft_wrap=True)
        sys.exit(EXIT_STALLED)
    except MirrorError as exc:
        remarks().print(f"heliograph: {exc}", soft_wrap=True)
        sys.exit(EXIT_FAILED)
