"""`heliograph failover`: leave the source, go on at the target. Runs on the driver."""

from __future__ import annotations

import asyncio
from typing import Annotated, Final

import typer

from heliograph.cli.failover_view import print_preview, print_report
from heliograph.cli.ledger import chosen_flows
from heliograph.cli.options import DryRun, File, OneFlow, StepsAsJson, Yes, time_ms
from heliograph.cli.output import EXIT_STALLED, print_json, remarks, start_logging
from heliograph.config.load import load_config
from heliograph.config.schema import MirrorConfig
from heliograph.failover.command import FailoverOrder, Preview, abandon, fail_over, preview
from heliograph.failover.document import preview_document, report_document
from heliograph.model import FlowId, TopicName
from heliograph.procedure.runner import StepEvent

FAILOVER_HELP: Final = """Leave the source of a flow and go on at its target, exactly.

Without --planned nothing of the source is needed: the flow is fenced, so that no driver mirrors it
any more, every group is committed on the target at the exact place where it stood, hooks tell the
world, and what never arrived is listed per partition from the last known ends of the source.

With --planned nothing is lost: first producers must stop (by the hook `failover.before.command`, or
by you), lanes are drained to lag 0 while `heliograph run` goes on, and the tail of every lane is
compared by content.

With --topics only these topics are left: they alone are fenced, groups are moved on them alone, and
the running driver goes on with the other topics.

With --cut TIME all topics are cut at one moment: no group goes on behind the first record of that
time on the target, so that the topics of an application fit each other. Later records stay there.

Each step is recorded in the flow's ledger. After a crash the same command resumes where it
stopped; --abandon abandons an unfinished failover. While a group has active members on the target,
no group is moved, unless --skip-active skips such groups. `heliograph failback` is the way back.

Ends with 3 when something stands in the way and nothing is broken: groups in use, producers that
still write, a tail that differs, a hook that failed, another failover that is running or that was
asked for differently.

Examples:

  heliograph failover mm2.properties --flow 'A->B' --dry-run

  heliograph failover mm2.properties --flow 'A->B' --yes

  heliograph failover mm2.properties --flow 'A->B' --planned

  heliograph failover mm2.properties --flow 'A->B' --topics orders,payments --yes

  heliograph failover mm2.properties --flow 'A->B' --cut 2026-01-31T04:03:00Z --dry-run
"""


def failover(
    file: File,
    flow: OneFlow = None,
    planned: Annotated[
        bool, typer.Option("--planned", help="Drain and compare first; needs the source.")
    ] = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    topics: Annotated[
        str | None,
        typer.Option(
            "--topics",
            metavar="NAMES",
            help="Only these source topics, by comma; the others go on being mirrored.",
        ),
    ] = None,
    cut: Annotated[
        str | None,
        typer.Option(
            "--cut",
            metavar="TIME",
            help="Let no group go on behind this moment, on any topic; ISO 8601.",
        ),
    ] = None,
    skip_active: Annotated[
        bool,
        typer.Option("--skip-active", help="Skip groups that have active members on the target."),
    ] = False,
    give_up: Annotated[
        bool, typer.Option("--abandon", help="Abandon an unfinished failover; lifts its fence.")
    ] = False,
    as_json: StepsAsJson = False,
) -> None:
    start_logging()
    config = load_config(file)
    flows = chosen_flows(config, flow)
    if len(flows) != 1:
        raise typer.BadParameter(f"failover needs --flow: {', '.join(map(str, flows))}")
    if give_up:
        if planned or dry_run or skip_active or topics is not None or cut is not None:
            raise typer.BadParameter("--abandon goes with no other choice")
        _give_up(config, flows[0], as_json=as_json)
        return
    order = FailoverOrder(
        flow=flows[0],
        mode="planned" if planned else "unplanned",
        skip_active=skip_active,
        topics=names_of(topics),
        cut_ms=None if cut is None else time_ms(cut, "--cut"),
    )
    if dry_run or not yes:
        found = asyncio.run(preview(config, order))
        if dry_run:
            _show(found, as_json=as_json)
            raise typer.Exit(EXIT_STALLED if found.refusal else 0)
        if found.finished is None:
            _show(found, as_json=False)
            what = f"{', '.join(order.topics)} of " if order.topics else ""
            if not typer.confirm(f"fail over {what}{order.flow} ({order.mode})?", err=True):
                remarks().print("nothing was changed")
                raise typer.Exit(EXIT_STALLED)
    report = asyncio.run(fail_over(config, order, say))
    if as_json:
        print_json(report_document(report))
    else:
        print_report(report)


def names_of(topics: str | None) -> tuple[TopicName, ...] | None:
    """Of `--topics a,b`."""
    if topics is None:
        return None
    names = [name.strip() for name in topics.split(",") if name.strip()]
    if not names:
        raise typer.BadParameter("--topics names no topic")
    return tuple(map(TopicName, names))


def say(event: StepEvent) -> None:
    """One line for each thing that happens, on stderr."""
    took = f"{event.seconds:6.1f} s" if event.what == "done" else " " * 8
    text = {"begins": "begins", "done before": f"done before: {event.text}"}.get(
        event.what, event.text
    )
    remarks().print(f"{event.step:<15} {took}  {text}", soft_wrap=True)


def _show(found: Preview, *, as_json: bool) -> None:
    if as_json:
        print_json(preview_document(found))
    else:
        print_preview(found)


def _give_up(config: MirrorConfig, flow: FlowId, *, as_json: bool) -> None:
    given_up = asyncio.run(abandon(config, flow))
    if as_json:
        print_json(
            {
                "flow": str(flow),
                "state": "abandoned",
                "fence_lifted": given_up.fence_lifted,
                "moved_groups": list(given_up.moved),
            }
        )
        return
    lifted = "its fence is lifted" if given_up.fence_lifted else "it had no fence yet"
    remarks().print(f"the failover of {flow} was abandoned; {lifted}", soft_wrap=True)
    if given_up.moved:
        remarks().print(
            f"groups that were moved stay where they are on {flow.target}: "
            f"{', '.join(given_up.moved)}",
            soft_wrap=True,
        )
