"""Whatever can be written as a Java property comes back as it was."""

from __future__ import annotations

from hypothesis import given
from hypothesis.strategies import characters, lists, sampled_from, text, tuples

from heliograph.config.mm2.properties import Property, parse_properties

ANY_TEXT = text(characters(exclude_categories=["Cs"]))
AWKWARD = text(sampled_from("\\ =:#!\t\n\r\fu0aé😀x"))


def escaped(raw: str) -> str:
    """As `Properties.store` may write it: UTF-16 units, all but letters and digits escaped."""
    units = raw.encode("utf-16-be")
    codes = [int.from_bytes(units[at : at + 2]) for at in range(0, len(units), 2)]
    plain = {code for code in range(128) if chr(code).isalnum()}
    return "".join(chr(code) if code in plain else f"\\u{code:04x}" for code in codes)


def backslashed(raw: str) -> str:
    """The short way: a backslash before what would otherwise mean something."""
    short = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\f": "\\f", "\\": "\\\\"}
    return "".join(short.get(char) or (f"\\{char}" if char in " =:#!" else char) for char in raw)


@given(entries=lists(tuples(ANY_TEXT | AWKWARD, ANY_TEXT | AWKWARD)))
def test_unicode_escapes_come_back_as_the_characters_they_stand_for(
    entries: list[tuple[str, str]],
) -> None:
    stored = "\n".join(f"k{escaped(key)}={escaped(value)}" for key, value in entries)

    found = parse_properties(stored)

    assert [(e.key, e.value) for e in found if isinstance(e, Property)] == [
        (f"k{key}", value) for key, value in entries
    ]
    assert [e.line for e in found] == list(range(1, len(entries) + 1))


@given(key=AWKWARD, value=AWKWARD)
def test_backslash_escapes_come_back_as_the_characters_they_stand_for(key: str, value: str) -> None:
    found = parse_properties(f"k{backslashed(key)} = {backslashed(value)}\n")

    assert found == [Property(key=f"k{key}", value=value, line=1)]


@given(content=text(sampled_from("\\ =:#!\t\n\r\fuab0")))
def test_no_text_at_all_breaks_the_parser(content: str) -> None:
    found = parse_properties(content)

    assert all(entry.line >= 1 for entry in found)
