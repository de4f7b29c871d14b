"""`heliograph local`: real Kafka clusters in the background. Runs on the driver."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated, NoReturn

import typer
from rich.console import Console
from rich.table import Table

from heliograph.cli.output import flowed
from heliograph.errors import LocalClusterError
from heliograph_tools.localkafka import background
from heliograph_tools.localkafka.background import BackgroundCluster, Wanted

local = typer.Typer(
    no_args_is_help=True,
    help="Real Kafka clusters on this machine, to try things with. Needs Java 17 or newer; "
    "Kafka itself is fetched once into the cache folder.",
)

_UP_HELP = """Start clusters that stay up until `heliograph local down`.

Without --cluster two are started, A and B, of one broker each. All listen on loopback only. Their
data is removed when they go down.

Examples:

  heliograph local up

  heliograph local up --cluster primary:3 --cluster backup

  heliograph local up --tls --sasl SCRAM-SHA-512 --json
"""

_Name = Annotated[
    str, typer.Option("--name", help="Tells several sets of clusters apart.", metavar="NAME")
]


@local.command(help=flowed(_UP_HELP))
def up(
    cluster: Annotated[
        list[str] | None,
        typer.Option(
            "--cluster",
            metavar="ALIAS[:BROKERS]",
            help="A cluster and how many brokers it has, one by default. May be repeated.",
        ),
    ] = None,
    tls: Annotated[
        bool, typer.Option("--tls", help="Clients connect over TLS, with an authority made here.")
    ] = False,
    sasl: Annotated[
        str | None,
        typer.Option(
            "--sasl",
            metavar="MECH",
            help="Clients must log in: PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512.",
        ),
    ] = None,
    name: _Name = "default",
    as_json: Annotated[
        bool, typer.Option("--json", help="Print where the clusters are as JSON.")
    ] = False,
) -> None:
    told = Console(stderr=True, emoji=False)
    try:
        wanted = [_wanted(text, tls=tls, sasl=sasl) for text in cluster or ["A", "B"]]
        with told.status("starting") as status:
            clusters = background.up(wanted, name=name, on_progress=status.update)
    except LocalClusterError as exc:
        _fail(told, exc)
    if as_json:
        typer.echo(json.dumps({"clusters": [asdict(each) for each in clusters]}, indent=2))
    else:
        Console().print(_table(clusters))
        told.print("Stop them with `heliograph local down`.")


_DOWN_HELP = """Stop what `heliograph local up` started and remove its data.

Example:

  heliograph local down --name experiment
"""


@local.command(help=flowed(_DOWN_HELP))
def down(name: _Name = "default") -> None:
    told = Console(stderr=True, emoji=False)
    try:
        aliases = background.down(name=name)
    except LocalClusterError as exc:
        _fail(told, exc)
    told.print(f"stopped {', '.join(aliases)}" if aliases else "nothing was up", highlight=False)


def _wanted(text: str, *, tls: bool, sasl: str | None) -> Wanted:
    alias, colon, count = text.partition(":")
    if colon and not count.isdecimal():
        raise LocalClusterError(f"--cluster {text}: the part after the colon is not a number")
    return Wanted(alias=alias, brokers=int(count) if colon else 1, tls=tls, sasl=sasl)


def _table(clusters: list[BackgroundCluster]) -> Table:
    table = Table("cluster", "bootstrap servers", "security", "client properties")
    for each in clusters:
        # Addresses and paths are for copying, so they fold rather than end in dots.
        table.add_row(
            each.alias,
            each.bootstrap_servers.replace(",", ",\n"),
            each.security_protocol,
            each.client_properties,
        )
    for column in table.columns:
        column.overflow = "fold"
    return table


def _fail(told: Console, exc: LocalClusterError) -> NoReturn:
    told.print(str(exc), style="red", markup=False, highlight=False)
    raise typer.Exit(1)
