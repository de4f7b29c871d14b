from __future__ import annotations

from pathlib import Path

import pytest

from heliograph.errors import ConfigError
from heliograph.pipeline.sink_options import sink_options
from heliograph.wire.compression import Codec


@pytest.fixture
def given(tmp_path: Path) -> dict[str, str]:
    file = tmp_path / "mm2.properties"
    file.write_text(
        "clusters = A, B\nA.bootstrap.servers = a:1\nB.bootstrap.servers = b:1\n"
        "A.ssl.key.password = hush\n",
        "utf-8",
    )
    return {"config": str(file), "cluster": "A", "name": "p", "staging": "/staged"}


def test_what_spark_adds_is_no_option_of_ours(given: dict[str, str]) -> None:
    options = sink_options(
        {**given, "checkpointlocation": "/c", "path": "x", "replicationfactor": "3"}, is_stream=True
    )

    assert (options.checkpoint, options.replication_factor) == ("/c", 3)
    assert (options.codec, options.topic, options.batch) == (Codec.NONE, None, None)
    assert "hush" not in repr(options)


def test_options_are_known_by_the_names_of_arguments_and_of_the_file(
    given: dict[str, str],
) -> None:
    spelt = {"replication_factor": "3", "on.error": "dead-letter", "dead_letter_topic": "bad"}

    options = sink_options({**given, **spelt, "target.topic": "out"}, is_stream=True)

    assert (options.replication_factor, options.topic) == (3, "out")
    assert (options.on_error, options.dead_letter_topic) == ("dead-letter", "bad")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"name": None}, "option name (the pipeline's) is needed"),
        ({"staging": None}, "option staging (a folder that driver and executors reach) is needed"),
        ({"compression": "brotli"}, "compression is brotli, none of none, gzip, snappy, lz4, zstd"),
        ({"batch": "3"}, "a stream numbers them itself"),
        ({"replicationFactor": "0"}, "replicationFactor is 0, not a number above 0"),
        ({"kafka.acks": "all"}, "option kafka.acks is unknown"),
        ({"cluster": "C"}, "cluster C is not in"),
        ({"deterministic": "yes"}, "deterministic is yes, neither true nor false"),
        ({"deterministic": "true"}, "deterministic = true needs a topic"),
        ({"topic": "a", "target.topic": "b"}, "option topic is given twice, as a and b"),
    ],
)
def test_what_is_wrong_is_said(
    given: dict[str, str], change: dict[str, str | None], words: str
) -> None:
    changed = {name: value for name, value in {**given, **change}.items() if value is not None}

    with pytest.raises(ConfigError) as caught:
        sink_options(changed, is_stream=True)

    assert words in str(caught.value)
