"""The file with the tokens: what it says, what is refused, what a change does."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from heliograph.api.access import FailedTries, Role, Tokens, parse_tokens
from heliograph.errors import ConfigError
from tests.unit.api.pretend import AB, BA

SECRET = "correct-horse-battery"


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("ann look", "is not `NAME ROLES TOKEN`"),
        (f"a/b look {SECRET}", "has a name"),
        (f"ann see {SECRET}", "look, operate or recover"),
        (f"ann look:A {SECRET}", "no flow such as"),
        ("ann look short", "16 to 512"),
        ("ann look sha256:12", "64 hexadecimal digits"),
        (f"ann look {SECRET}\u00e9\u00e9", "HTTP header"),
        ("# nothing", "has no token"),
        (f"ann look {SECRET}\nbob look {SECRET}", "line 2  has the token of an earlier line"),
    ],
)
def test_a_mistake_is_told_and_no_token_quoted(line: str, sentence: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_tokens(line, "tokens")

    assert sentence in str(caught.value)
    assert SECRET not in str(caught.value)


def test_a_role_has_those_before_it_and_may_be_for_one_flow() -> None:
    hashed = hashlib.sha256(SECRET.encode()).hexdigest()

    (ann,) = parse_tokens(f"ann look,recover:A->B sha256:{hashed}", "tokens").values()

    assert ann.may(Role.OPERATE, AB)
    assert not ann.may(Role.OPERATE, BA)
    assert ann.may(Role.LOOK, BA)


def test_a_changed_file_is_read_again_and_a_bad_one_changes_nothing(tmp_path: Path) -> None:
    now_s = 0.0
    path = tmp_path / "tokens"
    path.write_text(f"ann look {SECRET}")
    path.chmod(0o600)
    tokens = Tokens(path, lambda: now_s)

    path.write_text(f"bob look {SECRET}")
    early = tokens.caller(SECRET)
    now_s = 2.0
    later = tokens.caller(SECRET)
    path.write_text("nonsense")
    now_s = 4.0
    bad = tokens.caller(SECRET)
    path.unlink()
    now_s = 6.0
    gone = tokens.caller(SECRET)

    names = [caller.name for caller in (early, later, bad, gone) if caller is not None]
    assert names == ["ann", "bob", "bob", "bob"]


def test_an_address_waits_after_ten_wrong_tokens_and_others_do_not() -> None:
    now_s = 0.0
    tries = FailedTries(lambda: now_s)
    for _ in range(10):
        tries.failed("2001:db8::1")

    waits_s = [tries.wait_s(each) for each in ("2001:db8::2", "2001:db8:1::1", "10.0.0.1")]
    now_s = 61.0

    assert waits_s == [60.0, 0.0, 0.0]
    assert tries.wait_s("2001:db8::1") == 0.0
