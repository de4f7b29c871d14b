"""Functions that take too much memory: their record fails, and nobody else's."""

from __future__ import annotations

import resource
import threading
import time
from collections.abc import Iterator

import pytest

from heliograph.config.transforms import TransformConfig
from heliograph.errors import NotYetKnown
from heliograph.memory import used
from heliograph.transform import at_work, hands
from heliograph.transform.lane import LaneTransform, Transformed
from heliograph.transform.record import Where
from heliograph.wire.opened import Content

BOUND = 64 << 20
FUNCTIONS = "tests.unit.transform.hungry"


@pytest.fixture(autouse=True)
def own_hands(monkeypatch: pytest.MonkeyPatch) -> Iterator[hands.Hands]:
    made = hands.Hands()
    monkeypatch.setattr(at_work.Beside.__init__, "__defaults__", (made,))
    yield made
    # What is not restored would bound every test behind this one.
    due_s = time.monotonic() + 10
    soft = resource.getrlimit(resource.RLIMIT_DATA)[1]
    while resource.getrlimit(resource.RLIMIT_DATA)[0] != soft:
        assert time.monotonic() < due_s, "the bound of the process was not taken away"
        time.sleep(0.01)


def content(value: bytes) -> Content:
    return 1_000, b"k", value, ()


def lane(name: str, partition: int = 3) -> LaneTransform:
    config = TransformConfig(
        name="t", kind="record", function=f"{FUNCTIONS}:{name}", memory_bytes_max=BOUND
    )
    transform = LaneTransform.of([config], Where("orders", "A.orders", partition))
    assert transform is not None
    return transform


def settled(transform: LaneTransform, given: list[Content]) -> tuple[Transformed, list[str]]:
    due_s, said = time.monotonic() + 60, list[str]()
    while True:
        try:
            return transform.apply(range(10, 10 + len(given)), given), said
        except NotYetKnown as exc:
            said.append(str(exc))
            assert time.monotonic() < due_s, said[-1]
            time.sleep(0.005)


GIVEN = [content(each) for each in (b"one", b"two", b"bad", b"three")]


@pytest.mark.parametrize(
    "name", ["eats_in_python", "eats_and_catches", "eats_in_one_go", "eats_in_arrow"]
)
def test_a_record_that_takes_too_much_memory_fails_and_no_other(name: str) -> None:
    before = used()

    done, said = settled(lane(name), GIVEN)

    assert done.contents == [GIVEN[0], GIVEN[1], None, GIVEN[3]]
    assert str(done.failed[2]) == (
        "transform t: TransformTookMemory: took more than 67.1 MB of memory for record"
    )
    assert any("and is asked by itself" in each for each in said)
    after = used()
    assert before is not None and after is not None
    assert after.resident_bytes - before.resident_bytes < 4 * BOUND


def test_a_record_that_took_too_much_is_not_asked_for_again() -> None:
    transform = lane("eats_in_one_go")
    settled(transform, GIVEN[2:])

    began_s = time.monotonic()
    done, said = settled(transform, GIVEN[2:])

    assert list(done.failed) == [0]
    assert not any("asked by itself" in each for each in said)
    assert time.monotonic() - began_s < 5


def test_one_that_was_at_work_beside_it_is_asked_again_and_has_its_answer() -> None:
    """What the process grew by says nothing of whose it was."""
    found: dict[str, Transformed] = {}
    threads = [
        threading.Thread(
            target=lambda: found.update(bad=settled(lane("eats_in_python"), GIVEN)[0])
        ),
        threading.Thread(target=lambda: found.update(good=settled(lane("slow", 4), GIVEN)[0])),
    ]
    for each in reversed(threads):
        each.start()
        time.sleep(0.05)
    for each in threads:
        each.join(60)

    assert found["good"] == Transformed([*GIVEN])
    assert list(found["bad"].failed) == [2]


def test_memory_within_the_bound_is_nobodys_business() -> None:
    done, said = settled(lane("takes_a_little"), GIVEN)

    assert done == Transformed([*GIVEN])
    assert not any("memory" in each for each in said)
