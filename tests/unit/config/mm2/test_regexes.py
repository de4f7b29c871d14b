"""Java's regexes mean the same here, or are refused."""

from __future__ import annotations

import re

import pytest

from heliograph.config.mm2.regexes import RegexRefused, from_java


@pytest.mark.parametrize(
    "pattern", [".*", "orders", r".*[\-\.]internal", r"__.*", "(a|b)+", "a{2,3}"]
)
def test_a_pattern_both_languages_share_is_unchanged(pattern: str) -> None:
    assert from_java(pattern) == pattern


@pytest.mark.parametrize(
    ("java", "matching", "other"),
    [
        (r"\Qa.b*\E-.*", "a.b*-x", "aXb-x"),
        (r"\Qa.b", "a.b", "aXb"),
        (r"(?<dc>us|eu)-\k<dc>", "eu-eu", "eu-us"),
        (r"\p{Alpha}+", "abc", "ab1"),
        (r"\P{Digit}+", "abc", "ab1"),
        (r"[\p{Lower}_]+", "a_b", "A_b"),
        (r"a\z", "a", "ab"),
        (r"\x41\x{42}\0103", "ABC", "ABD"),
        (r"\u0041", "A", "B"),
        (r"(?i)orders", "ORDERS", "order"),
        (r"(?i:o)rders", "Orders", "ORDERS"),
        (r"a++b", "aab", "ab c"),
        (r"(?>a|ab)c", "ac", "abc"),
        (r"[]a]+", "]a", "b"),
        (r"[a|b]+", "a|b", "c"),
        (r"[a--b]+", "a-b", "c"),
        (r"\w+", "abc", "é"),
        (r"[\h]x", "\tx", "\nx"),
    ],
)
def test_what_java_spells_its_own_way_means_the_same(java: str, matching: str, other: str) -> None:
    translated = re.compile(from_java(java))

    assert translated.fullmatch(matching)
    assert not translated.fullmatch(other)


@pytest.mark.parametrize(
    ("java", "why"),
    [
        ("orders[", "unterminated character set"),
        ("(a", "missing ), unterminated subpattern"),
        ("*", "nothing to repeat"),
        ("a{1", "{ without a count; lists are split at every comma, also inside {}"),
        ("a{,3}", "{ without a count; lists are split at every comma, also inside {}"),
        ("[a-z&&[^b]]", r"a class within a class; write \[ or \& for the character"),
        (r"\p{L}+", r"\p{L} has no equal here; the ASCII classes have"),
        ("a(?i)b", "flags in the middle; write them first, or as (?i:…)"),
        ("(?U)a", "flag U has no equal here"),
        (r"\G", r"\G has no equal here"),
        ("(?P<a>b)", "(?P is not Java's"),
        ("a\\", "bad escape (end of pattern)"),
        (r"[\P{Alpha}]", "a negated class within a class has no equal here"),
        (r"(?<a_b>x)", "a group name is letters and digits"),
        (r"\x{110000}", r"\x needs the number of a character after it"),
    ],
)
def test_what_cannot_be_said_in_python_is_refused_with_the_reason(java: str, why: str) -> None:
    with pytest.raises(RegexRefused) as caught:
        from_java(java)

    assert str(caught.value) == why
