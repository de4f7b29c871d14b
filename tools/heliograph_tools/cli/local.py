"""`heliograph local`: real Kafka clusters in the background. Runs on the driver."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from heliograph.cli.output import flowed
from heliograph.errors import LocalClusterError
from heliograph_tools.localkafka import background
from heliograph_tools.localkafka.background import (
    Background,
    BackgroundCluster,
    Wanted,
    option,
)

local = typer.Typer(
    no_args_is_help=True,
    help="Real Kafka clusters on this machine, to try things with. Needs Java 17 or newer; "
    "Kafka itself is fetched once into the cache folder.",
)

_UP_HELP = """Start clusters that stay up until `heliograph local down`.

Without --cluster two are started, A and B, of one broker each. All listen on loopback only. Their
data is removed when they go down. Beside them an mm2.properties is written that mirrors the first
to the second as it stands.

Examples:

  heliograph local up

  heliograph local up --cluster primary:3 --cluster backup

  heliograph local up --tls --sasl SCRAM-SHA-512 --authorizer --user alice --json
"""

_Name = Annotated[
    str, typer.Option("--name", help="Tells several sets of clusters apart.", metavar="NAME")
]
_AsJson = Annotated[bool, typer.Option("--json", help="Print where the clusters are as JSON.")]
_Alias = Annotated[str, typer.Argument(metavar="ALIAS", help="The cluster.")]


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
    mutual_tls: Annotated[
        bool, typer.Option("--mutual-tls", help="Clients need a certificate too; with --tls.")
    ] = False,
    sasl: Annotated[
        str | None,
        typer.Option(
            "--sasl",
            metavar="MECH",
            help="Clients must log in: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER.",
        ),
    ] = None,
    authorizer: Annotated[
        bool,
        typer.Option(
            "--authorizer", help="Only the admin user may do anything without ACLs; with --sasl."
        ),
    ] = False,
    user: Annotated[
        list[str] | None,
        typer.Option(
            "--user", metavar="NAME", help="A further SASL user, with a password. May be repeated."
        ),
    ] = None,
    name: _Name = "default",
    as_json: _AsJson = False,
) -> None:
    with _told() as told:
        secured = Wanted(
            alias="",
            brokers=0,
            tls=tls,
            mutual_tls=mutual_tls,
            sasl=sasl,
            authorizer=authorizer,
            users={each: secrets.token_urlsafe(12) for each in user or ()},
        )
        wanted = [_wanted(text, secured) for text in cluster or ["A", "B"]]
        with told.status("starting") as progress:
            found = background.up(wanted, name=name, on_progress=progress.update)
        _show(found, told, name, as_json=as_json)


_STATUS_HELP = """Say where the clusters of `heliograph local up` are, and which of them run.

Example:

  heliograph local status --json
"""


@local.command(help=flowed(_STATUS_HELP))
def status(name: _Name = "default", as_json: _AsJson = False) -> None:
    with _told() as told:
        _show(background.status(name=name), told, name, as_json=as_json)


_STOP_HELP = """Kill the brokers of one cluster, as an outage would. Its ports and data stay.

Example:

  heliograph local stop A
"""


@local.command(help=flowed(_STOP_HELP))
def stop(alias: _Alias, name: _Name = "default") -> None:
    with _told() as told:
        background.stop(alias, name=name)
        again = f"heliograph local start {alias}{option(name)}"
        told.print(f"stopped {alias}; `{again}` starts it again", highlight=False)


_START_HELP = """Start a stopped cluster again, on its old ports and with its old data.

Example:

  heliograph local start A
"""


@local.command(help=flowed(_START_HELP))
def start(alias: _Alias, name: _Name = "default") -> None:
    with _told() as told:
        with told.status(f"starting {alias}"):
            background.start(alias, name=name)
        told.print(f"started {alias}", highlight=False)


_DOWN_HELP = """Stop what `heliograph local up` started and remove its data.

Example:

  heliograph local down --name experiment
"""


@local.command(help=flowed(_DOWN_HELP))
def down(name: _Name = "default") -> None:
    with _told() as told:
        aliases = background.down(name=name)
        if not aliases:
            told.print(f"no clusters named {name!r} were up", highlight=False)
            return
        told.print(f"stopped {', '.join(aliases)}", highlight=False)


@contextmanager
def _told() -> Iterator[Console]:
    """Where remarks go; a problem is one of them, and ends the command with 1."""
    told = Console(stderr=True, emoji=False)
    try:
        yield told
    except LocalClusterError as exc:
        told.print(str(exc), style="red", markup=False, highlight=False)
        raise typer.Exit(1) from exc


def _wanted(text: str, secured: Wanted) -> Wanted:
    alias, colon, count = text.partition(":")
    if colon and not count.isdecimal():
        raise LocalClusterError(f"--cluster {text}: the part after the colon is not a number")
    return replace(secured, alias=alias, brokers=int(count) if colon else 1)


def _show(found: Background, told: Console, name: str, *, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(asdict(found), indent=2))
        return
    Console().print(_table(found.clusters))
    # Paths are for copying, so nothing breaks them.
    for each in found.clusters:
        told.print(f"client properties of {each.alias}: {each.client_properties}", soft_wrap=True)
    if found.config is not None:
        one, other, *_ = found.clusters
        told.print(
            f"mirror {one.alias} to {other.alias}: heliograph run {found.config}", soft_wrap=True
        )
    told.print(f"stop them: heliograph local down{option(name)}", soft_wrap=True)


def _table(clusters: list[BackgroundCluster]) -> Table:
    table = Table("cluster", "bootstrap servers", "security", "state")
    for each in clusters:
        table.add_row(
            each.alias,
            each.bootstrap_servers.replace(",", ",\n"),
            each.security_protocol,
            "running" if each.running else "stopped",
        )
    return table
