"""Names and patterns that are nearly the one asked for."""

from __future__ import annotations

import pytest

from heliograph.inspect.near import did_you_mean, near_names, near_patterns


@pytest.mark.parametrize(
    ("name", "names", "near"),
    [
        ("orders", ["Orders", "users"], ("Orders",)),
        ("order-items", ["order_items", "order.items"], ("order.items", "order_items")),
        ("ordres", ["orders", "users"], ("orders",)),
        ("orders", ["orders", "payments"], ()),
        ("payments", ["orders"], ()),
    ],
)
def test_names_that_differ_by_little_are_near(
    name: str, names: list[str], near: tuple[str, ...]
) -> None:
    assert near_names(name, names) == near


def test_a_suggestion_is_a_question() -> None:
    assert did_you_mean("ordres", ["orders"]) == " (did you mean `orders`?)"
    assert did_you_mean("x", ["orders"]) == ""


@pytest.mark.parametrize(
    ("name", "pattern", "said"),
    [
        ("Orders", "orders", "`orders` would match but for upper and lower case"),
        (
            "eu.orders",
            "orders",
            "`orders` matches a part of it only, and a pattern must match the whole name: "
            "`.*orders` would",
        ),
        (
            "orders-2026",
            "orders|users",
            "`orders|users` matches a part of it only, and a pattern must match the whole name: "
            "`(?:orders|users).*` would",
        ),
        ("ordres", "orders", "`orders` is nearly its name"),
    ],
)
def test_a_pattern_that_misses_by_little_says_by_what(name: str, pattern: str, said: str) -> None:
    assert near_patterns(name, [pattern]) == (said,)


@pytest.mark.parametrize("pattern", ["orders.*", "payments", "x*", "(", ".*internal"])
def test_a_pattern_that_matches_or_is_far_says_nothing(pattern: str) -> None:
    assert near_patterns("orders-1", [pattern]) == ()
