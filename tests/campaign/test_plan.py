"""A plan is what its seed says, here and on every machine, and a prefix of it is the same plan."""

from __future__ import annotations

from pathlib import Path

from tests.campaign.__main__ import plan_in
from tests.campaign.journal import Journal
from tests.campaign.operations import EVERY, possible
from tests.campaign.plan import WORKLOADS, Plan, plan_of
from tests.campaign.play import shape_of
from tests.campaign.world import Size

_KINDS = [kind.name for kind in possible(Size(brokers=3, drivers=2, spark=True))]
_EVEN = [1.0] * len(_KINDS)


def test_a_shorter_plan_is_a_prefix_of_a_longer_one() -> None:
    short, long = plan_of(7, 20, _KINDS, _EVEN), plan_of(7, 500, _KINDS, _EVEN)

    assert long.prefix(20) == short
    assert long.part(20, 5).operations == long.operations[20:25]


def test_seeds_draw_other_operations_and_other_workloads() -> None:
    plans = [plan_of(seed, 300, _KINDS, _EVEN) for seed in range(40)]

    assert len({plan.kinds for plan in plans}) > 30
    assert len({plan.workloads for plan in plans}) > 10
    assert set(WORKLOADS) == {name for plan in plans for name in plan.workloads}
    assert set(_KINDS) == {each.kind for plan in plans for each in plan.operations}
    assert all({each.kind for each in plan.operations} <= set(plan.kinds) for plan in plans)


def test_a_plan_names_nothing_that_the_world_cannot_do() -> None:
    small = {kind.name for kind in possible(Size(brokers=1, drivers=2))}

    assert not any(EVERY[name].spark or EVERY[name].brokers_min > 1 for name in small)


def test_a_journal_that_was_cut_in_the_middle_of_a_line_has_its_plan(tmp_path: Path) -> None:
    plan = plan_of(3, 4, _KINDS, _EVEN)
    path = tmp_path / "journal.jsonl"
    journal = Journal(path)
    journal.note("plan", **shape_of(plan))
    journal.note("begin", index=0)
    journal.close()
    path.write_text(path.read_text()[:-7])

    found: Plan = plan_in(path)

    assert found == plan
