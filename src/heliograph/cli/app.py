"""`heliograph`: all commands in one place, and how errors reach a person. Runs on the driver."""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import dataclass
from types import ModuleType
from typing import Final

import typer

from heliograph import __version__
from heliograph.cli.options import spread
from heliograph.cli.output import EXIT_FAILED, EXIT_STALLED, EXIT_USAGE, flowed, remarks
from heliograph.errors import ConfigError, MirrorError, RecoveryRefused


@dataclass(frozen=True, slots=True)
class Listed:
    """A command as `--help` lists it, which is all that is known of it before it is asked for."""

    summary: str
    """How its own help begins."""
    panel: str | None = None
    needs: str = ""
    """A package that an installation without the tools lacks."""
    module: str = ""
    """Where it is, if not in the module of its own name."""


_MIRROR: Final = "Mirror"
_MOVE: Final = "Come from MirrorMaker 2, and go back"
_LEAVE: Final = "Leave a cluster, and come back"
_LOOK: Final = "Look closer"
_DECIDE: Final = "Decide, while it runs or not"
COMMANDS: Final = {
    "demo": Listed(
        "Mirror between two real clusters on this machine, and prove it.", needs="trustme"
    ),
    "config": Listed("Show the effective value of every key, and the line it comes from.", _MIRROR),
    "plan": Listed("Show what `heliograph run` would do, without doing it.", _MIRROR),
    "run": Listed("Mirror topics as FILE says, until told to stop.", _MIRROR),
    "connect": Listed("Mirror what connectors say, as a worker of Kafka Connect does.", _MIRROR),
    "mirror-maker": Listed(
        "Mirror as MirrorMaker 1's command line says, from its group's commits.",
        _MIRROR,
        module="mirror_maker",
    ),
    "status": Listed("Show how far every lane has come, and how far behind it is.", _MIRROR),
    "pipeline": Listed("Try a pipeline of FILE on a few records, and write nothing.", _MIRROR),
    "archive": Listed(
        "Archive a topic as Parquet, each record once; the next run goes on.", _LEAVE
    ),
    "restore": Listed(
        "Restore a topic from an archive, each record once, with its offsets.",
        _LEAVE,
        module="archive",
    ),
    "verdict": Listed("Say in one word how each flow is, and whether it may be cut over.", _MIRROR),
    "alarms": Listed("Show what is wrong with the flows, and since when.", _MIRROR),
    "silence": Listed("Tell no one of an alarm until a time.", _DECIDE, module="alarms"),
    "decisions": Listed("Show what was decided about the lanes, and take it back.", _DECIDE),
    "pause": Listed("Pause lanes until they are resumed.", _DECIDE, module="decide"),
    "resume": Listed("Let paused lanes go on.", _DECIDE, module="decide"),
    "throttle": Listed("Bound how many bytes a second lanes copy.", _DECIDE, module="decide"),
    "pin": Listed("Give lanes slots of their own.", _DECIDE, module="decide"),
    "move": Listed("Carry lanes in another slot.", _DECIDE, module="decide"),
    "drain": Listed("Take all lanes of a flow off a slot.", _DECIDE, module="decide"),
    "rewind": Listed(
        "Resume lanes at another source offset, while the mirror runs.", _DECIDE, module="decide"
    ),
    "exclude": Listed("Stop mirroring topics, whatever the file says.", _DECIDE, module="decide"),
    "include": Listed("Mirror topics, whatever the file says.", _DECIDE, module="decide"),
    "stop": Listed("Stop a flow until it is started.", _DECIDE, module="decide"),
    "start": Listed("Start a flow that was stopped.", _DECIDE, module="decide"),
    "groups": Listed("Show the offsets of consumer groups on the source and on the target.", _LOOK),
    "offsets": Listed(
        "Show where consumer groups would resume on the target, and move them there.", _LEAVE
    ),
    "doctor": Listed(
        "Examine clusters, network and machines, and say how to fix what is wrong.", _LOOK
    ),
    "tune": Listed("Find how many slots are of use, and how much is left at the peak.", _LOOK),
    "why": Listed("Say why a topic is mirrored or not, and which line of FILE decides.", _LOOK),
    "transform": Listed(
        "Show what the transforms of a flow make of a topic's newest records.", _LOOK
    ),
    "letters": Listed("List, show and replay the records that could not be mirrored.", _LOOK),
    "schemas": Listed(
        "Copy schemas from the registry of a flow's source to that of its target.", _MIRROR
    ),
    "topology": Listed(
        "Draw which cluster mirrors to which, from the heartbeats that arrive.", _LOOK
    ),
    "ledger": Listed("Show the ledger: what the target remembers of each flow.", _LOOK),
    "reset": Listed(
        "Resume lanes at another source offset, as Kafka Connect alters offsets.", _LOOK
    ),
    "adopt": Listed("Take over from MirrorMaker 2, at exactly the next record.", _MOVE),
    "release": Listed("Hand flows back to MirrorMaker 2, at exactly the next record.", _MOVE),
    "failover": Listed("Leave the source of a flow and go on at its target, exactly.", _LEAVE),
    "failback": Listed("Come back to the source of a flow that was failed over.", _LEAVE),
    "drill": Listed(
        "Rehearse a failover on live clusters, and touch nothing that is real.", _LEAVE
    ),
    "audit": Listed("Compare source and target record by record, and list the differences.", _LOOK),
    "conflicts": Listed(
        "Find keys written on both sides of a flow within a window of time.", _LOOK
    ),
    "local": Listed("Real Kafka clusters on this machine, to try things with.", needs="trustme"),
    "bench": Listed("Measure Heliograph, MirrorMaker 2 and the floor, on the same brokers."),
    "completion": Listed("Print a script that completes commands and options in a shell."),
}
"""In the order of `--help`. Each is a module beside this one, imported when the command is asked
for, with a function or an application of that name; a function has its help beside it."""
TOOLS: Final = frozenset({"demo", "local", "bench"})
"""Those that are no part of a mirror, in `heliograph_tools.cli`."""
_CONTEXT: Final = {"help_option_names": ["-h", "--help"]}
_ANY_ARGUMENTS: Final = {
    **_CONTEXT,
    "allow_extra_args": True,
    "ignore_unknown_options": True,
}
_INSTALL_TOOLS: Final = "pip install 'heliograph[tools]'"


def app(*names: str) -> typer.Typer:
    """All commands, or only those named.

    Everything that any command needs takes two seconds to import: too long for a failover that has
    five.
    """
    made = _empty()
    for name in names or COMMANDS:
        module = _module(name)
        if isinstance(module, _MissingTool):
            made.command(name, help=_how_to_install(), context_settings=_ANY_ARGUMENTS)(
                module.explain
            )
            continue
        command = getattr(module, name.replace("-", "_"))
        if isinstance(command, typer.Typer):
            made.add_typer(command, name=name)
        else:
            text = flowed(getattr(module, f"{name.upper().replace('-', '_')}_HELP"))
            made.command(name, help=text, rich_help_panel=COMMANDS[name].panel)(command)
    return made


def catalogue() -> typer.Typer:
    """What `--help` lists, with no command behind it: `--version` and a wrong word need no more."""
    made = _empty()
    for name, listed in COMMANDS.items():
        is_missing = listed.needs and importlib.util.find_spec(listed.needs) is None
        text = _how_to_install() if is_missing else listed.summary
        made.command(name, help=text, rich_help_panel=listed.panel)(_root)
    return made


def _empty() -> typer.Typer:
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
        return importlib.import_module(f"heliograph.cli.{COMMANDS[name].module or name}")
    try:
        return importlib.import_module(f"heliograph_tools.cli.{name}")
    except ModuleNotFoundError as exc:
        if exc.name is None or exc.name.split(".")[0] in ("heliograph", "pyspark"):
            raise
        return _MissingTool(name, exc.name)


def _how_to_install() -> str:
    return "Not installed: " + _INSTALL_TOOLS.replace("[", "\\[")  # not rich's markup


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"heliograph {__version__}")
        raise typer.Exit


def _root(
    version: bool = typer.Option(
        False, "--version", help="Print the version.", callback=_version, is_eager=True
    ),
) -> None:
    """Nothing runs without a command."""


def main() -> None:
    """Run the command line; what went wrong is one sentence on stderr, never a traceback."""
    word = next((word for word in sys.argv[1:] if not word.startswith("-")), "")
    try:
        made = app(word) if word in COMMANDS else catalogue()
        made(spread(sys.argv[1:], "--clusters"))
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
