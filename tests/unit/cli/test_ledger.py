"""What `heliograph ledger --translate` says of each kind of answer."""

from __future__ import annotations

import pytest

from heliograph.cli.ledger import meaning
from heliograph.ledger.translate import Clamped, Exact, Translation, Unsafe


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        (Exact(offset=1_234), "is A.orders-0 offset 1,234: exact"),
        (
            Clamped(offset=7, side="before"),
            "is A.orders-0 offset 7: before the first mirrored record, clamped to it",
        ),
        (
            Clamped(offset=9, side="after"),
            "is A.orders-0 offset 9: past the last mirrored record, clamped to the end of what is "
            "mirrored; a consumer reads the rest again",
        ),
        (
            Clamped(offset=5, side="coarse"),
            "is A.orders-0 offset 5: the last one known before it, since the ledger has forgotten "
            "the exact offsets there; a consumer reads some records again",
        ),
        (
            Unsafe(reason="the lane was reset"),
            "has no safe offset of A.orders-0: the lane was reset",
        ),
    ],
)
def test_each_answer_is_a_sentence_of_its_own(answer: Translation, sentence: str) -> None:
    assert meaning(answer, "A.orders-0") == sentence
