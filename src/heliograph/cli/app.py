"""`heliograph`: all commands in one place, and how errors reach a person. Runs on the driver."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType
from typing import Final

import rich.markup
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
_PANELS: Final = {
    name: panel
    for panel, names in {
        "Mirror": ("config", "plan", "run", "status"),
        "Come from MirrorMaker 2, and go back": ("adopt", "release"),
        "Leave a cluster, and come back": ("failover", "failback", "drill", "offsets"),
        "Look closer": ("groups", "topology", "ledger", "reset", "audit"),
    }.items()
    for name in names
}
_CONTEXT: Final = {"help_option_names": ["-h", "--help"]}
_INSTALL_TOOLS: Final = "pip install 'heliograph[tools]'"


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
        context_settings=_CONTEXT,
    )
    made.callback()(_root)
    for name in names or COMMANDS:
        module = _module(name)
        if isinstance(module, _MissingTool):
            made.command(
                name,
                help=f"Not installed: {rich.markup.escape(_INSTALL_TOOLS)}",
                context_settings={
                    **_CONTEXT,
                    "allow_extra_args": True,
                    "ignore_unknown_options": True,
                },
            )(module.explain)
            continue
        command = getattr(module, name)
        if isinstance(command, typer.Typer):
            made.add_typer(command, name=name)
        else:
            text = flowed(getattr(module, f"{name.upper()}_HELP"))
            made.command(name, help=text, rich_help_panel=_PANELS.get(name))(command)
    return made


@dataclass(frozen=True, slots=True)
class _MissingTool:
    """A command without the packages it needs: `--help` lists it, calling it says what to do."""

    name: str
    package: str

    def explain(self) -> None:
        raise MirrorError(
            f"`heliograph {self.name}` needs the package {self.package}, which is not installed: "
            f"{_INSTALL_TOOLS}"
        )


def _module(name: str) -> ModuleType | _MissingTool:
    if name not in TOOLS:
        return import_module(f"heliograph.cli.{name}")
    try:
        return import_module(f"heliograph_tools.cli.{name}")
    except ModuleNotFoundError as exc:
        if exc.name is None or exc.name.split(".")[0] in ("heliograph", "pyspark"):
            raise
        return _MissingTool(name, exc.name)


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
    except (PermissionError, NotADirectoryError, IsADirectoryError) as exc:
        # Of a folder or file the operator chose, or that is under a home this user does not have.
        remarks().print(f"heliograph: {exc.filename}: {exc.strerror}", soft_wrap=True)
        sys.exit(EXIT_FAILED)
