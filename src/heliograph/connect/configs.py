"""A connector's configuration as it travels: JSON in, text kept, secrets hidden. Runs anywhere."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final

from heliograph.config.secrets import Secret, is_secret_key, looks_secret
from heliograph.connect.problems import ConnectProblem

Config = Mapping[str, str]

MASK: Final = Secret.MASK
_KEYS_MAX: Final = 2_000
_ONE_REFERENCE: Final = re.compile(r"\$\{[^${}]*:[^${}]*\}")


def read_json(body: bytes) -> Any:
    """Numbers stay as they were written. Raises 400 for what is no JSON."""
    try:
        found = json.loads(
            body.decode(), parse_int=_Number, parse_float=_Number, parse_constant=_no_constant
        )
        # Half of a surrogate pair can be written as an escape, and never be sent back.
        json.dumps(found, ensure_ascii=False).encode()
        return found
    except (ValueError, RecursionError) as exc:
        why = "it nests too deep" if isinstance(exc, RecursionError) else _why(exc)
        raise ConnectProblem(400, f"the body is not JSON: {why}") from None


class _Number(str):
    """The digits of a number, so that what is text and what is not can still be told apart."""

    __slots__ = ()


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no number of JSON")


def _why(exc: ValueError) -> str:
    if isinstance(exc, json.JSONDecodeError):
        return f"{exc.msg} at line {exc.lineno} column {exc.colno}"
    return "it is not UTF-8" if isinstance(exc, UnicodeError) else str(exc)


def as_object(found: Any) -> Mapping[str, Any]:
    if not isinstance(found, dict):
        raise ConnectProblem(400, "the body is not a JSON object")
    return found


def flat(found: Any) -> dict[str, str | None]:
    """Names and texts, as Connect's `Map<String, String>` takes them: numbers and switches become
    text, null stays; raises 400 for lists and objects."""
    given = as_object(found)
    if len(given) > _KEYS_MAX:
        raise ConnectProblem(400, f"a configuration has at most {_KEYS_MAX:,} keys")
    return {key: _text(key, value) for key, value in given.items()}


def _text(key: str, value: Any) -> str | None:
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return str(value)
    raise ConnectProblem(400, f"the value of {key[:200]!r} is a list or an object, not text")


def whole_number(value: Any) -> int | None:
    """A number of JSON without a fraction; None for anything else, text with digits too."""
    if not isinstance(value, _Number):
        return None
    try:
        return int(value)
    except ValueError:
        return None


def shown(config: Mapping[str, str]) -> dict[str, str]:
    """Without secrets. A reference to a config provider is none and is shown as it was written."""
    return {key: MASK if _is_hidden(key, value) else value for key, value in config.items()}


def _is_hidden(key: str, value: str) -> bool:
    is_secret = is_secret_key(key) or looks_secret(value)
    return is_secret and _ONE_REFERENCE.fullmatch(value.strip()) is None


def unmasked(given: Mapping[str, str], before: Config) -> dict[str, str]:
    """What a client sends back as it was shown keeps what is stored: a form that was filled by GET
    and sent by PUT must not replace a password by its mask."""
    return {
        key: before[key] if value == MASK and key in before else value
        for key, value in given.items()
    }


def java_map(config: Mapping[str, str]) -> str:
    """As Java prints a map, secrets hidden; some of Connect's sentences quote one."""
    return "{" + ", ".join(f"{key}={value}" for key, value in shown(config).items()) + "}"
