"""How wide a run is: asked for, or found; bounded by `tasks.max` and by what Spark can run."""

from __future__ import annotations

import pytest

from heliograph.driver.run import slot_count
from tests.unit.config.texts import config_of

FLOW = (
    "clusters = A, B\nA.bootstrap.servers = a:1\nB.bootstrap.servers = b:1\nA->B.enabled = true\n"
)
BOTH = FLOW + "B->A.enabled = true\n"


@pytest.mark.parametrize(
    ("text", "room", "count"),
    [
        (FLOW, 8, 1),  # two cores at a quarter of a core a slot
        (FLOW, 64, 8),
        (FLOW + "slots = 5\n", 64, 5),
        (FLOW + "slots = 99\n", 8, 8),
        (FLOW + "tasks.max = 3\n", 64, 3),
        (FLOW + "slots = 5\ntasks.max = 2\n", 64, 2),
        (BOTH + "A->B.tasks.max = 2\n", 64, 8),
        (BOTH + "A->B.tasks.max = 2\nB->A.tasks.max = 1\n", 64, 3),
    ],
)
def test_slots_are_bounded_by_tasks_max_and_by_room(text: str, room: int, count: int) -> None:
    assert slot_count(config_of(text), room) == count
