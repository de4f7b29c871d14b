"""The parser reads what `java.util.Properties` reads, and keeps the lines."""

from __future__ import annotations

import pytest

from heliograph.config.mm2.properties import (
    MalformedProperty,
    Property,
    decode_properties,
    parse_properties,
)


def pairs(text: str) -> list[tuple[str, str]]:
    entries = parse_properties(text)
    return [(entry.key, entry.value) for entry in entries if isinstance(entry, Property)]


@pytest.mark.parametrize(
    ("text", "key", "value"),
    [
        ("a=b", "a", "b"),
        ("a = b", "a", "b"),
        ("a:b", "a", "b"),
        ("a : b", "a", "b"),
        ("a b", "a", "b"),
        ("a\tb", "a", "b"),
        ("   a=b", "a", "b"),
        ("a==b", "a", "=b"),
        ("a = = b", "a", "= b"),
        ("a", "a", ""),
        ("a=", "a", ""),
        ("a=b  ", "a", "b  "),
        (r"a\ b=c", "a b", "c"),
        (r"a\=b=c", "a=b", "c"),
        (r"a\:b:c", "a:b", "c"),
        (r"a=b\tc\nd", "a", "b\tc\nd"),
        (r"a=\u00e9", "a", "é"),
        (r"a=\ud83d\ude00", "a", "😀"),
        (r"a=C:\\x", "a", r"C:\x"),
        (r"a=\q", "a", "q"),
        ("A->B.topics = .*", "A->B.topics", ".*"),
        ("a = b # no comment", "a", "b # no comment"),
    ],
)
def test_a_property_is_split_and_unescaped_as_java_does(text: str, key: str, value: str) -> None:
    assert pairs(text) == [(key, value)]


def test_comments_and_blank_lines_are_left_out() -> None:
    assert pairs("# one\n! two\n\n  \t\n  # three\\\na=b\n") == [("a", "b")]


def test_a_line_continues_after_an_odd_number_of_backslashes() -> None:
    text = "topics = a, \\\n         b, \\\n    #c\nnext = x\\\\\nlast = y"

    assert pairs(text) == [("topics", "a, b, #c"), ("next", "x\\"), ("last", "y")]


def test_a_continuation_at_the_end_of_the_file_is_still_a_property() -> None:
    assert pairs("a = b\\") == [("a", "b")]


def test_a_backslash_alone_begins_nothing() -> None:
    assert pairs("\\\n# comment\n\\\n") == []


def test_every_line_ending_counts_once() -> None:
    entries = parse_properties("a=1\r\nb=2\rc=3\n\nd=4")

    assert [entry.line for entry in entries] == [1, 2, 3, 5]


def test_a_continued_property_has_the_line_it_began_on() -> None:
    entries = parse_properties("# first\na = b, \\\n  c\nd = e")

    assert [entry.line for entry in entries] == [2, 4]


def test_a_key_given_twice_stays_twice() -> None:
    assert pairs("a=1\na=2") == [("a", "1"), ("a", "2")]


def test_a_broken_unicode_escape_is_reported_with_its_line_and_the_rest_is_read() -> None:
    broken, fine = parse_properties("a = \\u12x4\nb = c")

    assert isinstance(broken, MalformedProperty)
    assert (broken.line, broken.why) == (1, r"\u needs four hexadecimal digits after it")
    assert isinstance(fine, Property)


def test_a_value_is_not_part_of_the_representation() -> None:
    (entry,) = parse_properties("password = hunter2")

    assert "hunter2" not in repr(entry)


@pytest.mark.parametrize(
    "content", ["ü=é".encode(), "ü=é".encode("latin-1"), b"\xef\xbb\xbf\xc3\xbc=\xc3\xa9"]
)
def test_utf_8_and_latin_1_are_both_read(content: bytes) -> None:
    assert pairs(decode_properties(content)) == [("ü", "é")]
