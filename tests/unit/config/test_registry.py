"""Keys of schema registries, and of what they are for."""

from __future__ import annotations

import pytest

from heliograph.config.registry import RegistryConfig
from tests.unit.config.texts import TWO_CLUSTERS, config_of, problems_of

BOTH = ("A.schema.registry.url = http://a:8081", "B.schema.registry.url = http://b:8081/")


def lines_of(*lines: str) -> str:
    return "\n".join((TWO_CLUSTERS, *lines))


def test_a_registry_is_read_with_its_addresses_and_credentials() -> None:
    config = config_of(
        lines_of(
            "A.schema.registry.url = http://a1:8081, http://a2:8081/path/",
            "A.schema.registry.basic.auth.user.info = me:pass:word",
            "A.schema.registry.timeout.ms = 500",
        )
    )

    registry = config.clusters["A"].registry  # type: ignore[index]
    assert registry.urls == ("http://a1:8081", "http://a2:8081/path")
    assert registry.user_info is not None
    assert registry.user_info.reveal() == "me:pass:word"
    assert registry.timeout_ms == 500
    assert "pass:word" not in repr(config)
    assert config.clusters["B"].registry == RegistryConfig()  # type: ignore[index]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("A.schema.registry.url = ftp://a", "not an `http://` or `https://` URL"),
        (
            "A.schema.registry.url = http://me:secret@a",
            "use `schema.registry.basic.auth.user.info`",
        ),
        ("A.schema.registry.url = http://a?x=1", "more than host and path"),
        ("A.schema.registry.basic.auth.user.info = me", "not `user:password`"),
        (
            "A.schema.registry.timeout.ms = 500",
            "without `schema.registry.url` there is no registry",
        ),
        ("A->B.schemas.enabled = true", "needs `A.schema.registry.url`"),
        ("A->B.schemas.subjects.rename = same", "neither `topics` nor a text with `{subject}`"),
    ],
)
def test_what_cannot_be_a_registry_is_refused(line: str, said: str) -> None:
    problems = " ".join(problems_of(lines_of(line)))

    assert said in problems
    assert "secret" not in problems


def test_tls_is_for_https_alone() -> None:
    (problem,) = problems_of(lines_of(*BOTH, "A.schema.registry.ssl.truststore.location = /ca.pem"))

    assert "while `schema.registry.url` is no `https://` address" in problem


def test_a_transform_of_ids_knows_its_registries_and_names() -> None:
    lines = (
        *BOTH,
        "A->B.transforms = ids",
        "A->B.transforms.ids.type = SchemaIds",
        "A->B.transforms.ids.parts = key, value",
        "A->B.transforms.ids.on.unknown = pass",
        "A->B.schemas.subjects.rename = topics",
    )

    (transform,) = config_of(lines_of(*lines)).flows[0].transforms

    ids = transform.schema_ids
    assert ids is not None
    assert (ids.parts, ids.on_unknown, ids.on_unframed) == (("key", "value"), "pass", "fail")
    assert (ids.rename, ids.source, ids.id_bytes) == ("topics", "A", 4)
    assert str(transform) == "ids (SchemaIds)"


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (("A->B.transforms.ids.parts = value",), "SchemaIds needs `A.schema.registry.url`"),
        ((*BOTH, "A->B.transforms.ids.parts = headers"), "not `key`, `value` or both"),
        ((*BOTH, "A->B.transforms.ids.id.bytes = 5"), "4"),
        ((*BOTH, "A->B.transforms.ids.header = x"), "SchemaIds has no such key"),
    ],
)
def test_a_transform_of_ids_that_cannot_be_is_refused(lines: tuple[str, ...], said: str) -> None:
    asked = ("A->B.transforms = ids", "A->B.transforms.ids.type = SchemaIds", *lines)

    (problem,) = problems_of(lines_of(*asked))

    assert said in problem
