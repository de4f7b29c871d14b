"""Kafka's jars in the cache folder."""

from __future__ import annotations

from pathlib import Path

from heliograph_tools.localkafka.kafka import BROKER_ARTIFACTS, kafka_classpath
from heliograph_tools.localkafka.versions import KAFKA_VERSION


def test_a_cache_reached_by_a_link_has_the_same_classpath_as_the_cache_itself(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "real" / "kafka" / f"{KAFKA_VERSION}-{'+'.join(BROKER_ARTIFACTS)}"
    folder.mkdir(parents=True)
    for name in ("b.jar", "a.jar", "notes.txt"):
        (folder / name).touch()
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked" / "kafka").symlink_to(tmp_path / "real" / "kafka")

    found = kafka_classpath(cache=tmp_path / "linked")

    assert found == kafka_classpath(cache=tmp_path / "real") == [folder / "a.jar", folder / "b.jar"]
