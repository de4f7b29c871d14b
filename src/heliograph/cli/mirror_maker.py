"""`heliograph mirror-maker`: MirrorMaker 1's command line, on Spark. Runs on the driver."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Final

import typer

from heliograph.cli.output import start_logging
from heliograph.cli.run import Running, as_told, keep_running
from heliograph.config.findings import Findings
from heliograph.config.load import ExplainedConfig, real_environment
from heliograph.config.mm1 import (
    CommandLine,
    command_lines,
    load_command_line,
    written_as_file,
)
from heliograph.config.secrets import Environment
from heliograph.driver.live import Progress
from heliograph.model import Stalled, StallReason

log = logging.getLogger("heliograph")

_SEND_FAILURES: Final = (
    StallReason.REFUSED_BY_TARGET,
    StallReason.NOT_AUTHORISED,
    StallReason.TRANSFORM_FAILED,
)

MIRROR_MAKER_HELP: Final = """Mirror as MirrorMaker 1's command line says, from its group's commits.

The options are those of kafka-mirror-maker.sh, and both kinds of file are read as it read them.
Topics keep their names. Each partition begins where the consumer group of `group.id` committed last
on the source, and what is mirrored is committed as that group, so MirrorMaker 1 may go on after it.
While the group has members nothing is begun: stop MirrorMaker 1 first.

Other than there, records keep their partition and are there once, and topics are created like those
of the source. --num.streams bounds the slots of a flow. Options and keys without a meaning here are
noted. docs/guides/from-mirrormaker-1.md compares the two and tells how to go back.

With --abort.on.send.failure true, the default, the run ends with 3 once the target refuses a record
or a handler fails on one. With false a record that is refused is skipped and counted as a loss, and
a lane whose handler fails stalls while the others go on.

--to-file writes the same as a file for `heliograph status`, `pause`, `failover` and all others, and
ends; `heliograph run` of that file is the same mirror.

Examples:

  heliograph mirror-maker --consumer.config consumer.properties --producer.config
  producer.properties --whitelist 'orders.*'

  heliograph mirror-maker --consumer.config c.properties --producer.config p.properties
  --include 'orders.*' --to-file mirror.properties
"""


def mirror_maker(
    consumer_config: Annotated[
        list[Path],
        typer.Option(
            "--consumer.config",
            metavar="FILE",
            help="Of a source; given more than once, several sources into one target.",
        ),
    ],
    producer_config: Annotated[
        Path, typer.Option("--producer.config", metavar="FILE", help="Of the target.")
    ],
    include: Annotated[
        str | None, typer.Option("--include", metavar="REGEX", help="Topics to mirror.")
    ] = None,
    whitelist: Annotated[
        str | None, typer.Option("--whitelist", metavar="REGEX", help="The same; --include wins.")
    ] = None,
    blacklist: Annotated[
        str | None,
        typer.Option("--blacklist", metavar="REGEX", help="Mirror all topics but these."),
    ] = None,
    num_streams: Annotated[
        int | None,
        typer.Option("--num.streams", min=1, help="Most slots of each flow. Unset: as needed."),
    ] = None,
    message_handler: Annotated[
        str | None,
        typer.Option(
            "--message.handler",
            metavar="MODULE:NAME",
            help="Python class with `handle`, or function, that drops or changes records.",
        ),
    ] = None,
    message_handler_args: Annotated[
        str | None, typer.Option("--message.handler.args", help="What the handler is made with.")
    ] = None,
    abort_on_send_failure: Annotated[
        str, typer.Option("--abort.on.send.failure", metavar="true|false", help="See above.")
    ] = "true",
    offset_commit_interval_ms: Annotated[
        int | None,
        typer.Option(
            "--offset.commit.interval.ms", min=0, help="Between commits as the group; 5000."
        ),
    ] = None,
    new_consumer: Annotated[
        bool, typer.Option("--new.consumer", help="Noted; does nothing.")
    ] = False,
    rebalance_listener: Annotated[
        str | None,
        typer.Option(
            "--consumer.rebalance.listener", "--rebalance.listener", help="Noted; does nothing."
        ),
    ] = None,
    rebalance_listener_args: Annotated[
        str | None, typer.Option("--rebalance.listener.args", help="Noted; does nothing.")
    ] = None,
    new_producer: Annotated[
        bool, typer.Option("--new.producer", help="Of Kafka 0.8; noted.")
    ] = False,
    num_producers: Annotated[
        int | None, typer.Option("--num.producers", help="Of Kafka 0.8; noted.")
    ] = None,
    queue_size: Annotated[
        int | None, typer.Option("--queue.size", help="Of Kafka 0.8; noted.")
    ] = None,
    source_alias: Annotated[
        list[str] | None,
        typer.Option(
            "--source.alias",
            metavar="NAME",
            help="Of each --consumer.config in turn. Default: source, source2.",
        ),
    ] = None,
    target_alias: Annotated[
        str, typer.Option("--target.alias", metavar="NAME", help="Of the target.")
    ] = "target",
    to_file: Annotated[
        Path | None,
        typer.Option("--to-file", metavar="FILE", help="Write the same as a file, and end."),
    ] = None,
    once: Annotated[
        bool, typer.Option("--once", help="Catch up with the sources, settle and end.")
    ] = False,
    master: Annotated[
        str | None, typer.Option("--master", help="Spark master. Default: local[*].")
    ] = None,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="No live table; only what changes is said.")
    ] = False,
    api: Annotated[
        str | None, typer.Option("--api", metavar="HOST:PORT", help="Serve the REST API there.")
    ] = None,
    daemon: Annotated[
        bool,
        typer.Option("-daemon", "--daemon", help="Run in the background; returns once it runs."),
    ] = False,
    pid_file: Annotated[
        Path | None, typer.Option("--pid-file", help="Of -daemon; beside the consumer config.")
    ] = None,
    log_file: Annotated[
        Path | None, typer.Option("--log-file", help="Of -daemon; beside the consumer config.")
    ] = None,
) -> None:
    aborts = _switch(abort_on_send_failure)
    if not daemon and (pid_file or log_file):
        raise typer.BadParameter("--pid-file and --log-file need -daemon")
    unused = (
        ("--new.consumer", new_consumer),
        ("--consumer.rebalance.listener", rebalance_listener),
        ("--rebalance.listener.args", rebalance_listener_args),
        ("--new.producer", new_producer),
        ("--num.producers", num_producers),
        ("--queue.size", queue_size),
    )
    line = CommandLine(
        consumer_configs=tuple(consumer_config),
        producer_config=producer_config,
        include=include,
        whitelist=whitelist,
        blacklist=blacklist,
        streams=num_streams,
        handler=message_handler,
        handler_args=message_handler_args,
        commit_interval_ms=offset_commit_interval_ms,
        abort_on_send_failure=aborts,
        without_effect=tuple(option for option, given in unused if given),
        source_aliases=tuple(source_alias or ()),
        target_alias=target_alias,
    )
    if to_file is not None:
        _write(line, to_file)
        return
    start_logging()

    def loaded(around: Environment) -> ExplainedConfig:
        explained = load_command_line(line, around)
        config = as_told(explained.config, master=master, slots=None, api=api)
        return replace(explained, config=config)

    base = consumer_config[0]
    behind = (pid_file or Path(f"{base}.pid"), log_file or Path(f"{base}.log"))
    how = Running(
        once=once,
        quiet=quiet,
        background=behind if daemon else None,
        until=_send_failed if aborts else lambda _: False,
    )
    raise typer.Exit(keep_running(loaded, how))


def _write(line: CommandLine, path: Path) -> None:
    """Checked before it is written."""
    around = real_environment()
    explained = load_command_line(line, around)
    path.write_text(written_as_file(command_lines(line, around, Findings())))
    for note in explained.config.notes:
        typer.echo(note, err=True)
    typer.echo(f"{path} is the same mirror: heliograph run {path}", err=True)


def _send_failed(progress: Progress) -> bool:
    """As MirrorMaker 1, which ended on a record that could not be sent."""
    return any(
        isinstance(at.state, Stalled) and at.state.reason in _SEND_FAILURES
        for at in progress.values()
    )


def _switch(text: str) -> bool:
    match text.lower():
        case "true":
            return True
        case "false":
            return False
    raise typer.BadParameter(f"--abort.on.send.failure: {text!r} is not true or false")
