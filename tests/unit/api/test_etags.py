from __future__ import annotations

import pytest

from heliograph.api.etags import Shown, etag
from heliograph.api.problems import ApiProblem
from heliograph.procedure.runner import PlanChanged

_NOW, _BEFORE = etag({"decisions": ["b"]}), etag({"decisions": []})
_PLAN = {"topics": ["orders"]}
_TAG = Shown(None, _NOW, "flow A->B").tag(_PLAN)


@pytest.mark.parametrize("if_match", [None, "*", _NOW, f'"old", {_NOW}', f"{_TAG}, {_NOW}"])
def test_who_has_seen_the_version_agrees_to_any_plan(if_match: str | None) -> None:
    shown = Shown(if_match, _NOW, "flow A->B")

    assert not shown.is_plan
    shown.require({"topics": ["others"]})


def test_who_has_seen_a_plan_agrees_to_that_one_alone() -> None:
    shown = Shown(_TAG, _NOW, "flow A->B")

    assert shown.is_plan
    shown.require(dict(_PLAN))
    with pytest.raises(PlanChanged, match="flow A->B: what would be done now is not what"):
        shown.require({"topics": ["orders", "payments"]})


@pytest.mark.parametrize("if_match", [_BEFORE, Shown(None, _BEFORE, "").tag(_PLAN), '"made.up"'])
def test_a_plan_of_another_version_is_refused_before_anything_is_looked_at(if_match: str) -> None:
    with pytest.raises(ApiProblem) as refused:
        Shown(if_match, _NOW, "flow A->B")

    assert (refused.value.status, refused.value.details) == (412, {"etag": _NOW})
