"""Fields of JSON values: masked, hashed, dropped, renamed, set."""

from __future__ import annotations

import json
from typing import Any

import pytest

from heliograph.transform.columns import batch_of
from heliograph.transform.fields import NoJsonObject, json_field, json_fields
from heliograph.transform.record import Where

WHERE = Where("orders", "A.orders", 0)


def changed(value: bytes | None, **changes: Any) -> Any:
    batch = batch_of(WHERE, [7], [(1, b"k", value, ())])
    (found,) = json_fields(**changes)(batch).column("value").to_pylist()
    return None if found is None else json.loads(found)


def test_fields_are_found_by_paths_and_others_stay_in_their_order() -> None:
    given = {"id": 1, "card": {"number": "4711", "name": "n"}, "email": "a@b", "debug": True}

    made = changed(
        json.dumps(given).encode(),
        mask=["card.number", "no.such.field"],
        hash=["email"],
        drop=["debug"],
        rename={"id": "number", "card.name": "holder"},
        set={"region": "eu", "meta.by": "mirror"},
        salt="s",
    )

    assert list(made) == ["number", "card", "email", "region", "meta"]
    assert made["card"] == {"number": "****", "holder": "n"}
    assert len(made["email"]) == 64
    assert made["meta"] == {"by": "mirror"}


def test_equal_fields_have_equal_hashes_and_another_salt_gives_others() -> None:
    one, two, other = (
        changed(b'{"e":"a@b"}', hash=["e"], salt=salt)["e"] for salt in ("s", "s", "t")
    )

    assert one == two != other


def test_a_tombstone_stays_one() -> None:
    assert changed(None, drop=["x"], set={"y": 1}) is None


@pytest.mark.parametrize("value", [b"{", b"[1]", b"17", b"\xff"])
def test_what_has_no_fields_is_told(value: bytes) -> None:
    with pytest.raises(NoJsonObject):
        changed(value, drop=["x"])


def test_a_path_goes_into_each_entry_of_a_list() -> None:
    given = b'{"cards":[{"number":"1"},{"number":"2"},{"other":3},4]}'

    made = changed(given, mask=["cards.number"])

    assert made == {"cards": [{"number": "****"}, {"number": "****"}, {"other": 3}, 4]}


def test_a_field_is_read_into_a_column_and_is_null_where_a_record_lacks_it() -> None:
    values = [b'{"card":{"limit":5}}', b"{}", None]
    batch = batch_of(WHERE, [7, 8, 9], [(1, None, value, ()) for value in values])

    assert json_field("card.limit")(batch).to_pylist() == [5, None, None]
