"""The commands that decide about lanes: one implementation, a few options each. Driver only."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, Any, Final, TypeVar

import typer

from heliograph.cli.cluster_side import Side, flows_of_cluster
from heliograph.cli.decision_tables import DecidedDocument, change_table
from heliograph.cli.ledger import chosen_flows
from heliograph.cli.options import AsJson, DryRun, File, time_ms
from heliograph.cli.output import print_json, remarks, results
from heliograph.cli.pipelines import as_topics
from heliograph.clock import now_ms
from heliograph.config.load import load_config
from heliograph.config.schema import MirrorConfig
from heliograph.decisions.decide import Draft, Outcome, decide
from heliograph.decisions.decision import Scope, Verb, scope_of
from heliograph.ledger.access import LedgerAccess
from heliograph.model import FlowId
from heliograph.processes import operator
from heliograph.words import bytes_of, seconds_of

T = TypeVar("T")

NONE: Final = "none"

Flows = Annotated[
    list[str] | None,
    typer.Option("--flow", metavar="A->B", help="The flow; repeatable, needed with several."),
]
Topics = Annotated[
    list[str] | None,
    typer.Option("--topic", help="A source topic, or a regex of whole names; repeatable."),
]
SomeTopics = Annotated[
    list[str], typer.Option("--topic", help="A source topic, or a regex; repeatable.")
]
Partitions = Annotated[
    list[int] | None,
    typer.Option("--partition", min=0, help="Only this partition of the topic; repeatable."),
]
OnlyPipelines = Annotated[
    list[str] | None,
    typer.Option("--pipeline", help="A pipeline of the flow, instead of lanes; repeatable."),
]
Why = Annotated[str, typer.Option("--why", help="The reason, for those who look later.")]
Until = Annotated[
    str | None, typer.Option("--until", metavar="TIME", help="When it ends by itself, ISO 8601.")
]
For = Annotated[
    str | None, typer.Option("--for", metavar="TIME", help="How long it holds, as 30m or 2h.")
]
SlotNumbers = Annotated[
    str, typer.Option("--slots", help="Slots by number, as 0,1; `none` lifts what was decided.")
]

_COMMON: Final = """

What is decided is kept in the ledger of the flow, on the target: it holds for every driver, also
one that takes over, until it is decided otherwise, ends by --until or --for, or is withdrawn with
`heliograph decisions`. A driver that runs follows within two seconds. The narrower decision wins: a
partition before a topic by name, that before a regex, that before the flow; then the later one.
"""

PAUSE_HELP: Final = f"""Pause lanes until they are resumed.

Nothing more is fetched or appended for them; where they stand is kept. With --pipeline it is a
pipeline of the flow instead; a pause of the whole flow holds for its pipelines too.{_COMMON}
Examples:

  heliograph pause mm2.properties --flow 'A->B' --why 'B is upgraded' --for 2h

  heliograph pause mm2.properties --topic orders --partition 3

  heliograph pause mm2.properties --pipeline masked
"""


def pause(
    file: File,
    flow: Flows = None,
    topic: Topics = None,
    partition: Partitions = None,
    pipeline: OnlyPipelines = None,
    why: Why = "",
    until: Until = None,
    for_: For = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    asked = _Asked(file, flow, why, until, for_, dry_run, as_json)
    asked.decide(Verb.PAUSE, _scope(asked.topics(topic, pipeline), partition))


RESUME_HELP: Final = f"""Let paused lanes go on.

Each goes on exactly where it stood.{_COMMON}
Examples:

  heliograph resume mm2.properties --flow 'A->B'

  heliograph resume mm2.properties --topic 'orders.*' --dry-run
"""


def resume(
    file: File,
    flow: Flows = None,
    topic: Topics = None,
    partition: Partitions = None,
    pipeline: OnlyPipelines = None,
    why: Why = "",
    until: Until = None,
    for_: For = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    asked = _Asked(file, flow, why, until, for_, dry_run, as_json)
    asked.decide(Verb.RESUME, _scope(asked.topics(topic, pipeline), partition))


THROTTLE_HELP: Final = f"""Bound how many bytes a second lanes copy.

The rate is for all lanes that are meant together, as read from the source, over all slots of the
driver. Throttles are nested: a topic's holds beside its flow's, and `none` lifts the wider ones for
the lanes that are meant.

With --cluster it is for all flows of the file that read from the cluster together, and again for
all that write to it; --side read or --side write leaves the other as it is. It holds beside those
of flows and topics, which do not lift it.{_COMMON}
Examples:

  heliograph throttle mm2.properties 10MB/s --flow 'A->B' --for 8h

  heliograph throttle mm2.properties 50MB/s --cluster B --side write

  heliograph throttle mm2.properties none --topic payments
"""


def throttle(
    file: File,
    rate: Annotated[
        str, typer.Argument(metavar="RATE", help="Bytes a second, as 500kB or 10MiB; or `none`.")
    ],
    flow: Flows = None,
    topic: Topics = None,
    partition: Partitions = None,
    cluster: Annotated[
        str | None,
        typer.Option("--cluster", help="All flows of this cluster together, instead of lanes."),
    ] = None,
    side: Annotated[
        Side | None, typer.Option("--side", help="With --cluster: what is read, or written.")
    ] = None,
    why: Why = "",
    until: Until = None,
    for_: For = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    bytes_per_s = None if rate == NONE else bytes_of(rate)
    if rate != NONE and not bytes_per_s:
        raise typer.BadParameter(f"{rate!r} is not a rate such as 500kB, 10MB/s or 1.5MiB/s")
    if cluster is None:
        if side is not None:
            raise typer.BadParameter("--side is of a cluster; name it with --cluster")
        asked = _Asked(file, flow, why, until, for_, dry_run, as_json)
        asked.decide(Verb.THROTTLE, _scope(topic, partition), bytes_per_s=bytes_per_s)
        return
    if flow or topic or partition:
        raise typer.BadParameter(
            "--cluster is about all of its flows; leave --flow, --topic and --partition out"
        )
    found: list[Outcome] = []
    for verb, flows in flows_of_cluster(load_config(file), cluster, side).items():
        asked = _Asked(file, flows, why, until, for_, dry_run, as_json)
        found += asked.outcomes(verb, Scope(), bytes_per_s=bytes_per_s)
    show(found, as_json=as_json)


PIN_HELP: Final = f"""Give lanes slots of their own.

Only they are carried in these slots: topics that matter do not wait for a bulk topic that catches
up. A pinned lane whose slots are all gone is carried with the others.{_COMMON}
Examples:

  heliograph pin mm2.properties --topic payments --slots 0

  heliograph pin mm2.properties --topic payments --slots none
"""


def pin(
    file: File,
    slots: SlotNumbers,
    flow: Flows = None,
    topic: Topics = None,
    partition: Partitions = None,
    why: Why = "",
    until: Until = None,
    for_: For = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    asked = _Asked(file, flow, why, until, for_, dry_run, as_json)
    asked.decide(Verb.PIN, _scope(topic, partition), slots=_slots(slots))


MOVE_HELP: Final = f"""Carry lanes in another slot.

Other lanes may be carried there too, unlike with `heliograph pin`; `pin --slots none` lifts
it.{_COMMON}
Examples:

  heliograph move mm2.properties --topic orders --partition 3 --slot 1
"""


def move(
    file: File,
    topic: SomeTopics,
    slot: Annotated[int, typer.Option("--slot", min=0, help="The slot, by number.")],
    flow: Flows = None,
    partition: Partitions = None,
    why: Why = "",
    until: Until = None,
    for_: For = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    asked = _Asked(file, flow, why, until, for_, dry_run, as_json)
    asked.decide(Verb.MOVE, _scope(topic, partition), slots=(slot,))


DRAIN_HELP: Final = f"""Take all lanes of a flow off a slot.

They settle there and are carried in the other slots. With `slots = auto` a slot that is drained for
every flow ends, and none is started in its place; otherwise the Spark task stays.{_COMMON}
Examples:

  heliograph drain mm2.properties --slots 2 --why 'its machine is slow'

  heliograph drain mm2.properties --slots none
"""


def drain(
    file: File,
    slots: SlotNumbers,
    flow: Flows = None,
    why: Why = "",
    until: Until = None,
    for_: For = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    asked = _Asked(file, flow, why, until, for_, dry_run, as_json)
    asked.decide(Verb.DRAIN, Scope(), slots=_slots(slots))


EXCLUDE_HELP: Final = f"""Stop mirroring topics, whatever the file says.

Their lanes leave the slots, settled; copies and what the ledger knows stay, so that
`heliograph include` goes on exactly there.{_COMMON}
Examples:

  heliograph exclude mm2.properties --topic 'debug-.*' --why 'too much'
"""


def exclude(
    file: File,
    topic: SomeTopics,
    flow: Flows = None,
    why: Why = "",
    until: Until = None,
    for_: For = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    asked = _Asked(file, flow, why, until, for_, dry_run, as_json)
    asked.decide(Verb.EXCLUDE, _scope(topic, None))


INCLUDE_HELP: Final = f"""Mirror topics, whatever the file says.

Stronger than `topics`, `topics.exclude` and a wider `heliograph exclude`. Topics that brokers or
mirrors keep for themselves are left out all the same.{_COMMON}
Examples:

  heliograph include mm2.properties --topic orders
"""


def include(
    file: File,
    topic: SomeTopics,
    flow: Flows = None,
    why: Why = "",
    until: Until = None,
    for_: For = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    asked = _Asked(file, flow, why, until, for_, dry_run, as_json)
    asked.decide(Verb.INCLUDE, _scope(topic, None))


STOP_HELP: Final = f"""Stop a flow until it is started.

Its lanes leave the slots, settled, and nothing of it is planned or created; other flows of the
driver go on. The driver keeps the lease.{_COMMON}
Examples:

  heliograph stop mm2.properties --flow 'A->B' --why 'until the audit is over'
"""


def stop(
    file: File,
    flow: Flows = None,
    why: Why = "",
    until: Until = None,
    for_: For = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    _Asked(file, flow, why, until, for_, dry_run, as_json).decide(Verb.STOP, Scope())


START_HELP: Final = f"""Start a flow that was stopped.

Every lane goes on exactly where it stood. This starts no driver: that is `heliograph run`.{_COMMON}
Examples:

  heliograph start mm2.properties --flow 'A->B'
"""


def start(
    file: File,
    flow: Flows = None,
    why: Why = "",
    until: Until = None,
    for_: For = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    _Asked(file, flow, why, until, for_, dry_run, as_json).decide(Verb.START, Scope())


REWIND_HELP: Final = f"""Resume lanes at another source offset, while the mirror runs.

As `heliograph reset`, which needs the mirror to be stopped: nothing is removed from the target, an
earlier offset copies records a second time, a later one skips records. The driver takes the lanes
off their slots, writes where they go on, and hands them out again.{_COMMON}
Examples:

  heliograph rewind mm2.properties --topic orders --to earliest

  heliograph rewind mm2.properties --topic orders --partition 3 --to 4711 --dry-run
"""


def rewind(
    file: File,
    topic: SomeTopics,
    to: Annotated[
        str, typer.Option("--to", metavar="OFFSET", help="A source offset, or `earliest`.")
    ],
    flow: Flows = None,
    partition: Partitions = None,
    why: Why = "",
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    if to != "earliest" and not (to.isascii() and to.isdecimal() and len(to) < 19):
        raise typer.BadParameter(f"--to: {to!r} is neither an offset nor `earliest`")
    asked = _Asked(file, flow, why, None, None, dry_run, as_json)
    offset = None if to == "earliest" else int(to)
    asked.decide(Verb.REWIND, _scope(topic, partition), offset=offset)


class _Asked:
    """What all of these commands are asked."""

    def __init__(
        self,
        file: Any,
        flow: list[str] | None,
        why: str,
        until: str | None,
        for_: str | None,
        dry_run: bool,
        as_json: bool,
    ) -> None:
        self.config = load_config(file)
        self.flows = flows_of(self.config, flow)
        self.why, self.until_ms = why, _end_ms(until, for_)
        self.dry_run, self.as_json = dry_run, as_json

    def topics(self, topics: list[str] | None, pipelines: list[str] | None) -> list[str]:
        return [*(topics or ()), *as_topics(self.config, self.flows, pipelines or ())]

    def decide(self, verb: Verb, scope: Scope, **more: Any) -> None:
        show(self.outcomes(verb, scope, **more), as_json=self.as_json)

    def outcomes(self, verb: Verb, scope: Scope, **more: Any) -> list[Outcome]:
        draft = Draft(
            verb=verb, scope=scope, who=operator(), why=self.why, until_ms=self.until_ms, **more
        )

        async def each(ledgers: LedgerAccess, flow: FlowId) -> Outcome:
            return await decide(ledgers, self.config, flow, draft, write=not self.dry_run)

        return outcomes(self.config, self.flows, each)


def outcomes(
    config: MirrorConfig,
    flows: Sequence[FlowId],
    work: Callable[[LedgerAccess, FlowId], Awaitable[T]],
) -> list[T]:
    """One flow after the other; what a later one refuses leaves the earlier ones decided."""

    async def all_of_them() -> list[T]:
        ledgers = LedgerAccess(config.clusters)
        try:
            return [await work(ledgers, flow) for flow in flows]
        finally:
            await ledgers.close()

    return asyncio.run(all_of_them())


def show(found: Sequence[Outcome], *, as_json: bool) -> None:
    for each in found:
        for remark in each.remarks:
            remarks().print(f"{each.flow}: {remark}", soft_wrap=True)
    if as_json:
        print_json({"flows": [DecidedDocument.of(each).plain() for each in found]})
        return
    for each in found:
        if each.changes:
            results().print(change_table(each.changes))
        remarks().print(f"{each.flow}: {_end_of(each)}", soft_wrap=True)


def _end_of(outcome: Outcome) -> str:
    if outcome.decision is None:
        return "nothing was written"
    if not outcome.written:
        return "nothing was changed; leave --dry-run out to write it"
    if outcome.holder is None:
        return f"decision {outcome.decision.id} is written; no driver is seen, the next one follows"
    driver = f"{outcome.holder.host} (pid {outcome.holder.pid})"
    return f"decision {outcome.decision.id} is written; {driver} follows within two seconds"


def flows_of(config: MirrorConfig, wanted: list[str] | None) -> list[FlowId]:
    """Those named; all there are where that is one."""
    if wanted:
        return [flow for name in dict.fromkeys(wanted) for flow in chosen_flows(config, name)]
    flows = chosen_flows(config, None)
    if len(flows) != 1:
        raise typer.BadParameter(
            f"the file has several flows; name some with --flow: {', '.join(map(str, flows))}"
        )
    return list(flows)


def _scope(topics: Sequence[str] | None, partitions: Sequence[int] | None) -> Scope:
    return scope_of(tuple(topics or ()), tuple(partitions or ()))


def _slots(text: str) -> tuple[int, ...]:
    if text == NONE:
        return ()
    words = [word.strip() for word in text.split(",")]
    if not all(word.isascii() and word.isdecimal() and len(word) < 7 for word in words):
        raise typer.BadParameter(f"--slots: {text!r} is not a list of numbers such as 0,1")
    return tuple(sorted({int(word) for word in words}))


def _end_ms(until: str | None, for_: str | None) -> int | None:
    if until is not None and for_ is not None:
        raise typer.BadParameter("--until and --for are two ways to say the same; use one")
    if until is not None:
        return time_ms(until, "--until")
    if for_ is None:
        return None
    seconds = seconds_of(for_)
    if seconds is None:
        raise typer.BadParameter(f"--for: {for_!r} is not a time such as 30m, 2h or 7d")
    return now_ms() + 1000 * seconds
