"""Which flows would send on what MirrorMaker 2 brought, and what is said of them."""

from __future__ import annotations

import pytest

from heliograph.inspect.brought import words_on_brought
from heliograph.model import TopicName
from tests.unit.config.test_loops import config, flow

ORDERS, BILLS = TopicName("orders"), TopicName("bills")


def told(
    prevention: str, asked: str, fresh: list[TopicName], **brought: list[TopicName]
) -> list[str]:
    made = config("AB BA AC CA BC CB", prevention)
    known = {flow(name): topics for name, topics in brought.items()}
    return [
        f"{', '.join(sorted(topics))}: {text}"
        for topics, text in words_on_brought(made, flow(asked), fresh, known)
    ]


def test_a_flow_back_would_send_home_what_was_brought_before_it_began() -> None:
    (text,) = told("returning", "BA", [ORDERS, BILLS], AB=[ORDERS])

    assert text.startswith("orders: ")
    assert "back to A" in text
    assert "B->A.start.at = latest" in text


def test_in_a_mesh_a_third_cluster_would_get_it_twice() -> None:
    (text,) = told("mirrored", "BC", [ORDERS], AB=[ORDERS])

    assert "to C as records of its own" in text


@pytest.mark.parametrize(
    ("prevention", "asked", "fresh"),
    [
        pytest.param("returning", "BC", [ORDERS], id="a chain, along which it is to go on"),
        pytest.param("mirrored", "CA", [ORDERS], id="a flow of another cluster"),
        pytest.param("returning", "BA", [BILLS], id="another topic"),
        pytest.param("returning", "BA", [], id="a flow that has begun"),
    ],
)
def test_nothing_is_said_of_others(prevention: str, asked: str, fresh: list[TopicName]) -> None:
    assert told(prevention, asked, fresh, AB=[ORDERS]) == []
