"""Arguments and options that several commands have: one declaration each. Runs on the driver."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer

from heliograph.clock import ms_of

File = Annotated[
    Path,
    typer.Argument(
        metavar="FILE",
        help="The configuration: mm2.properties, heliograph.yaml, or Strimzi's resource.",
    ),
]
OnlyFlow = Annotated[str | None, typer.Option("--flow", metavar="A->B", help="Only this flow.")]
OnlyFlows = Annotated[
    list[str] | None,
    typer.Option("--flow", metavar="A->B", help="Only this flow; repeatable."),
]
OneFlow = Annotated[
    str | None,
    typer.Option("--flow", metavar="A->B", help="The flow; needed if the file has several."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document to stdout.")]
StepsAsJson = Annotated[
    bool, typer.Option("--json", help="One JSON document on stdout; steps go to stderr.")
]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show the plan and change nothing.")]


def time_ms(text: str, option: str) -> int:
    """Milliseconds since 1970 of an ISO 8601 time with its zone; raises `typer.BadParameter`."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(
            f"{option}: {text!r} is not a time such as 2026-01-31T04:03:00Z"
        ) from None
    if found.tzinfo is None:
        raise typer.BadParameter(
            f"{option}: {text!r} has no time zone: end it with Z or an offset such as +02:00"
        )
    return ms_of(found)


def spread(words: Sequence[str], option: str) -> list[str]:
    """`--clusters B C` as `--clusters B --clusters C`: like MirrorMaker 2's, the option takes all
    words up to the next one."""
    found: list[str] = []
    is_taking = False
    for word in words:
        if is_taking and not word.startswith("-") and found[-1] != option:
            found.append(option)
        elif word.startswith("-"):
            is_taking = word == option
        found.append(word)
    return found
