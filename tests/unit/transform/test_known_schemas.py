"""Where schemas are asked for, and what is told of it."""

from __future__ import annotations

import traceback

import pytest

from heliograph.config.mm2.values import BadValue
from heliograph.transform.fields import NoFields
from heliograph.transform.known_schemas import KnownSchemas, WholeSchema, registry
from tests.kit.framed import settled
from tests.kit.small_registry import small_registry


@pytest.mark.parametrize(
    ("urls", "given", "why"),
    [
        ((), {}, "no URL"),
        (("https://user:secret@reg:8081",), {}, "with a user or password; use `user_info`"),
        (("https://reg:8081", "http://secret@reg"), {}, "with a user or password"),
        (("https://reg:8081?key=secret",), {}, "more than host and path"),
        (("ftp://secret",), {}, "not an `http://` or `https://` URL"),
        (("https://reg",), {"token": "secret\n"}, "not a token"),
        (("https://reg",), {"user_info": "secret"}, "not `user:password`"),
    ],
)
def test_what_would_show_a_password_is_refused_without_quoting_it(
    urls: tuple[str, ...], given: dict[str, str], why: str
) -> None:
    with pytest.raises(BadValue, match=why) as caught:
        registry(*urls, **given)  # type: ignore[arg-type]

    assert "secret" not in "".join(traceback.format_exception(caught.value))


def test_a_registry_is_named_by_host_and_port() -> None:
    config = registry("https://reg.example:8081/under/this/", user_info="user:secret")
    schemas = KnownSchemas(config, lambda whole: whole)

    assert config.urls == ("https://reg.example:8081/under/this",)
    assert schemas._registry.where == "schema registry of reg.example:8081"
    past = config.model_copy(update={"urls": ("https://user:secret@reg.example:8081",)})
    assert KnownSchemas(past, lambda whole: whole)._registry.where == schemas._registry.where


def test_a_schema_without_fields_is_told_anew_each_time_and_keeps_no_frames_of_who_asked() -> None:
    def parse(whole: WholeSchema) -> None:
        raise NoFields("its schema is none")

    with small_registry(first_id=57) as held:
        held.put("orders-value", '"string"')
        schemas = KnownSchemas(held.config, parse)
        found: list[NoFields] = []
        for _ in range(2):
            with pytest.raises(NoFields, match="its schema is none") as caught:
                settled(schemas.get, 57)
            found.append(caught.value)

    assert found[0] is not found[1]
