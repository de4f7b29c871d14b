"""`heliograph verdict`: one word for each flow, and whether it may be cut over. Driver only."""

from __future__ import annotations

import asyncio
from typing import Annotated, Final

import typer
from rich.text import Text as Styled

from heliograph.cli.document import At, Document, Text
from heliograph.cli.options import AsJson, File, OnlyFlows
from heliograph.cli.output import EXIT_FAILED, EXIT_STALLED, results
from heliograph.clock import now_ms
from heliograph.config.choice import choose
from heliograph.config.load import load_config
from heliograph.health.reading import read_verdicts
from heliograph.health.verdict import FlowVerdict, Word
from heliograph.takeover.pending import pending_adoptions

_STYLES: Final = {
    Word.HEALTHY: "green",
    Word.BEHIND: "yellow",
    Word.STALLED: "red",
    Word.LOSING: "bold red",
}

VERDICT_HELP: Final = """Say in one word how each flow is, and whether it may be cut over.

The word is healthy, behind, stalled or losing, with every reason. `cutover: ready` needs a flow
that is healthy, has copied all there is, has producers that rest, groups that can be translated, an
audit and a drill that are not too old; what cannot be known is a reason for `not yet`. All is read
from the clusters, so the command works from any machine, while the mirror runs and after it ended.

Exits with 0 when every flow is healthy, with 3 when one is not, and with 1 when a cluster could not
be read. With --cutover it exits with 0 when every flow is ready, and with 3 when one is not.

Examples:

  heliograph verdict mm2.properties

  heliograph verdict mm2.properties --flow 'A->B' --cutover && heliograph failover mm2.properties
"""


class _Reason(Document):
    word: str
    text: str


class _Cutover(Document):
    ready: bool = At("is_ready")
    reasons: tuple[str, ...]
    remarks: tuple[str, ...]


class _Flow(Document):
    flow: Text
    verdict: str = At("word")
    reasons: tuple[_Reason, ...]
    cutover: _Cutover


class VerdictDocument(Document):
    at_ms: int
    flows: tuple[_Flow, ...]


def verdict(
    file: File,
    flow: OnlyFlows = None,
    cutover: Annotated[
        bool, typer.Option("--cutover", help="Exit by whether flows may be cut over.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    config = choose(load_config(file), flows=flow or ())
    found = asyncio.run(read_verdicts(config, pending_adoptions(config)))
    if as_json:
        VerdictDocument.of({"at_ms": now_ms(), "flows": tuple(found)}).print()
    else:
        for each in found:
            _print(each)
    code = exit_code(found, cutover=cutover)
    if code:
        raise typer.Exit(code)


def exit_code(found: list[FlowVerdict], *, cutover: bool = False) -> int:
    """What could not be read comes first: what was says nothing about it."""
    if cutover:
        return 0 if all(each.cutover.is_ready for each in found) else EXIT_STALLED
    if any(each.is_unknown for each in found):
        return EXIT_FAILED
    return 0 if all(each.word is Word.HEALTHY for each in found) else EXIT_STALLED


def _print(found: FlowVerdict) -> None:
    console = results()
    console.print(Styled.assemble(f"{found.flow}: ", (found.word.value, _STYLES[found.word])))
    for reason in found.reasons:
        console.print(f"  {reason.text}", soft_wrap=True)
    console.print(f"  cutover: {found.cutover.word}")
    said = {reason.text for reason in found.reasons}
    for text in found.cutover.reasons:
        if text not in said:
            console.print(f"    {text}", soft_wrap=True)
    for text in found.cutover.remarks:
        console.print(f"    ({text})", soft_wrap=True)
