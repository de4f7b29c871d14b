"""`heliograph`: all commands in one place, and how errors reach a person. Runs on the driver."""

from __future__ import annotations

import sys
from typing import Final

import typer
from rich.console import Console

from heliograph import __version__
from heliograph.cli.adopt import ADOPT_HELP, adopt
from heliograph.cli.bench import bench
from heliograph.cli.config import CONFIG_HELP, config
from heliograph.cli.demo import DEMO_HELP, demo
from heliograph.cli.groups import GROUPS_HELP, groups
from heliograph.cli.ledger import LEDGER_HELP, ledger
from heliograph.cli.local import local_app
from heliograph.cli.output import EXIT_FAILED, EXIT_USAGE, flowed, remarks
from heliograph.cli.plan import PLAN_HELP, plan
from heliograph.cli.release import RELEASE_HELP, release
from heliograph.cli.reset import RESET_HELP, reset
from heliograph.cli.run import RUN_HELP, run
from heliograph.cli.status import STATUS_HELP, status
from heliograph.cli.topology import TOPOLOGY_HELP, topology
from heliograph.errors import ConfigError, MirrorError

_BENCH_HELP: Final = """Measure Heliograph, MirrorMaker 2 and the floor, on the same brokers.

Every row is run with each system in turn, several times; the medians are told. Ends with 1 when a
system did not do its work.

Examples:

  heliograph bench

  heliograph bench --quick --json
"""

app = typer.Typer(
    name="heliograph",
    help="Mirror Apache Kafka clusters on Spark: every record once, in order, with exact offsets.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
app.command(help=flowed(DEMO_HELP))(demo)
app.command(help=flowed(CONFIG_HELP))(config)
app.command(help=flowed(PLAN_HELP))(plan)
app.command(help=flowed(RUN_HELP))(run)
app.command(help=flowed(STATUS_HELP))(status)
app.command(help=flowed(GROUPS_HELP))(groups)
app.command(help=flowed(TOPOLOGY_HELP))(topology)
app.command(help=flowed(LEDGER_HELP))(ledger)
app.command(help=flowed(RESET_HELP))(reset)
app.command(help=flowed(ADOPT_HELP))(adopt)
app.command(help=flowed(RELEASE_HELP))(release)
app.add_typer(local_app, name="local")
app.command(help=flowed(_BENCH_HELP))(bench)


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
        remarks().print(str(exc), soft_wrap=True)
        sys.exit(EXIT_USAGE)
    except MirrorError as exc:
        remarks().print(f"heliograph: {exc}", soft_wrap=True)
        sys.exit(EXIT_FAILED)
