"""Which of a source's columns a query looks at. Runs on the driver.

Spark does not tell a Python data source what it needs, and takes the rest from it all the same: of
small records, lists of headers cost more than all that a filter does.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from py4j.protocol import Py4JError

_TRANSPARENT: Final = frozenset({"Project", "Filter"})
"""Nodes that say themselves which columns they use. Others may take all that they are given."""
_ALWAYS: Final = "partition"
"""Where nothing is looked at, rows are counted."""


def columns_used(made: Any, known: Sequence[str]) -> list[str] | None:
    """Those of `known` that a DataFrame needs of its only source; None where that is uncertain."""
    try:
        plan = made._jdf.queryExecution().optimizedPlan()
        *above, leaf = _nodes(plan)
        if leaf.children().size() or any(node.nodeName() not in _TRANSPARENT for node in above):
            return None
        given = [leaf.output().apply(index) for index in range(leaf.output().size())]
        if [attribute.name() for attribute in given] != list(known):
            return None
        used = [
            attribute.name()
            for attribute in given
            if plan.outputSet().contains(attribute)
            or any(node.references().contains(attribute) for node in above)
        ]
    except Py4JError:
        return None
    return used or [_ALWAYS]


def _nodes(plan: Any) -> Iterator[Any]:
    """From the top down, as long as each has one child."""
    yield plan
    while plan.children().size() == 1:
        plan = plan.children().apply(0)
        yield plan
