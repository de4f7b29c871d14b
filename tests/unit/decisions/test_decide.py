from __future__ import annotations

import pytest

from heliograph.decisions.decide import Draft
from heliograph.decisions.decision import BadDecision, Verb, scope_of


def test_a_rewind_names_its_topics_alone() -> None:
    named = Draft(verb=Verb.REWIND, scope=scope_of(("orders",)), who="ann", offset=3)
    mixed = Draft(verb=Verb.REWIND, scope=scope_of(("orders", "orders-.*")), who="ann", offset=3)

    assert named.decision().scope.topics == ("orders",)
    with pytest.raises(BadDecision, match="not for a regex"):
        mixed.decision()
