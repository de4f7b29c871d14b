"""`heliograph`: all commands in one place, and how errors reach a person. Runs on the driver."""

from __future__ import annotations

import sys

import typer
from rich.console import Console

from heliograph import __version__
from heliograph.cli.local import local_app
from heliograph.cli.run import run
from heliograph.errors import ConfigError, MirrorError

EXIT_FAILED = 1
EXIT_USAGE = 2

app = typer.Typer(
    name="heliograph",
    help="Mirror Apache Kafka clusters on Spark: every record once, in order, with exact offsets.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
app.add_typer(local_app, name="local")
app.command()(run)


def _version(wanted: bool) -> None:
    if wanted:
        Console().print(f"heliograph {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(
        False, "--version", help="Print the version.", callback=_version, is_eager=True
    ),
) -> None:
    """Nothing runs without a command."""


def main() -> None:
    """Run the command line; what went wrong is one sentence on stderr, never a traceback."""
    try:
        app()
    except ConfigError as exc:
        Console(stderr=True, highlight=False, markup=False).print(str(exc))
        sys.exit(EXIT_USAGE)
    except MirrorError as exc:
        Console(stderr=True, highlight=False, markup=False).print(f"heliograph: {exc}")
        sys.exit(EXIT_FAILED)
