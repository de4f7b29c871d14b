"""`heliograph completion`: a script by which a shell completes commands and options. Driver only.

The script holds every command and flag, so that a press of TAB starts no Python: the modules of one
command alone take a second to import.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any, Final

import typer
import typer.main

from heliograph.cli.app import app

COMPLETION_HELP: Final = """Print a script that completes commands and options in a shell.

The script belongs to this version: write it again after an upgrade. It starts no Python.

Examples:

  heliograph completion bash > ~/.local/share/bash-completion/completions/heliograph

  heliograph completion zsh > ~/.zfunc/_heliograph

  heliograph completion fish > ~/.config/fish/completions/heliograph.fish
"""


class Shell(StrEnum):
    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


@dataclass(frozen=True, slots=True, kw_only=True)
class Word:
    """Something that may be typed, and what it is for."""

    text: str
    meaning: str
    takes_value: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """What may follow a command, or the program's own name."""

    path: tuple[str, ...]
    commands: tuple[Word, ...]
    flags: tuple[Word, ...]


def completion(
    shell: Annotated[Shell, typer.Argument(metavar="SHELL", help="bash, zsh or fish.")],
) -> None:
    scripts = {Shell.BASH: bash_script, Shell.ZSH: zsh_script, Shell.FISH: fish_script}
    sys.stdout.write(scripts[shell](list(places(typer.main.get_command(app())))))


def places(command: Any, path: tuple[str, ...] = ()) -> Iterator[Place]:
    """The program and every command below it."""
    inner: dict[str, Any] = getattr(command, "commands", {})
    yield Place(
        path=path,
        commands=tuple(Word(text=name, meaning=_first_line(of)) for name, of in inner.items()),
        flags=(*_flags(command), Word(text="--help", meaning="Show help.")),
    )
    for name, each in inner.items():
        yield from places(each, (*path, name))


def _flags(command: Any) -> Iterator[Word]:
    for parameter in command.params:
        for flag in (*parameter.opts, *parameter.secondary_opts):
            if flag.startswith("--") and flag != "--help":
                takes_value = not getattr(parameter, "is_flag", False)
                meaning = " ".join((parameter.help or "").split())
                yield Word(text=flag, meaning=meaning, takes_value=takes_value)


def _first_line(command: Any) -> str:
    return str(command.help or "").strip().partition("\n")[0]


def bash_script(found: Sequence[Place]) -> str:
    known = " ".join("/".join(place.path) for place in found if place.path)
    cases = "\n".join(
        f"        {_bash_pattern(place)}) commands={_quoted(_texts(place.commands))} "
        f"flags={_quoted(_texts(place.flags))} ;;"
        for place in found
    )
    return f"""\
# Completion of heliograph in bash.
_heliograph() {{
    local cur="${{COMP_WORDS[COMP_CWORD]}}" at="" word commands flags
    local known={_quoted(f" {known} ")}
    for word in "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"; do
        [[ $word == -* ]] && continue
        [[ $known == *" ${{at:+$at/}}$word "* ]] || break
        at="${{at:+$at/}}$word"
    done
    case "$at" in
{cases}
    esac
    COMPREPLY=()
    if [[ $cur == -* ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$flags" -- "$cur")
    elif [[ -n $commands ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$commands" -- "$cur")
    fi
}}
complete -o default -F _heliograph heliograph
"""


def zsh_script(found: Sequence[Place]) -> str:
    known = " ".join("/".join(place.path) for place in found if place.path)
    cases = "\n".join(
        f"    {_bash_pattern(place)})\n"
        f"      commands=({_zsh_words(place.commands)})\n"
        f"      flags=({_zsh_words(place.flags)}) ;;"
        for place in found
    )
    return f"""\
#compdef heliograph
# Completion of heliograph in zsh.
_heliograph() {{
  local at="" word known={_quoted(f" {known} ")}
  local -a commands flags
  for word in "${{(@)words[2,CURRENT-1]}}"; do
    [[ $word == -* ]] && continue
    [[ $known == *" ${{at:+$at/}}$word "* ]] || break
    at="${{at:+$at/}}$word"
  done
  case "$at" in
{cases}
  esac
  if [[ $PREFIX == -* ]]; then
    _describe -o option flags
  elif (( $#commands )); then
    _describe command commands
  else
    _files
  fi
}}
if [[ $zsh_eval_context[-1] == loadautofunc ]]; then
  _heliograph "$@"
else
  compdef _heliograph heliograph
fi
"""


def fish_script(found: Sequence[Place]) -> str:
    groups = [place.path[0] for place in found if place.path and place.commands]
    lines = ["# Completion of heliograph in fish."]
    for place in found:
        here = _fish_condition(place, groups)
        lines += [
            f"complete -c heliograph -n {here} -f -a {word.text} -d {_quoted(word.meaning)}"
            for word in place.commands
        ]
        for word in place.flags:
            name = word.text.removeprefix("--") + (" -r" if word.takes_value else "")
            lines.append(f"complete -c heliograph -n {here} -l {name} -d {_quoted(word.meaning)}")
    return "\n".join(lines) + "\n"


def _fish_condition(place: Place, groups: Sequence[str]) -> str:
    """A subcommand may be called as a command is, such as `status`: the group tells them apart."""
    if not place.path:
        return "__fish_use_subcommand"
    seen = [f"__fish_seen_subcommand_from {name}" for name in place.path]
    if place.commands:
        inner = " ".join(word.text for word in place.commands)
        seen.append(f"not __fish_seen_subcommand_from {inner}")
    elif len(place.path) == 1 and groups:
        seen.append(f"not __fish_seen_subcommand_from {' '.join(groups)}")
    return _quoted("; and ".join(seen))


def _texts(words: Sequence[Word]) -> str:
    return " ".join(word.text for word in words)


def _zsh_words(words: Sequence[Word]) -> str:
    return " ".join(_quoted(f"{word.text}:{word.meaning.replace(':', ' ')}") for word in words)


def _bash_pattern(place: Place) -> str:
    return "/".join(place.path) or '""'


def _quoted(text: str) -> str:
    """In single quotes, for all three shells: fish takes a backslash before a quote as bash ends
    and begins anew, so none is left in."""
    return "'" + text.replace("'", "’").replace("\\", "") + "'"
