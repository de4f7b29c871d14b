"""What a stream is refused before anything is read."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql.types import BinaryType, StructField, StructType

from heliograph.errors import ConfigError
from heliograph.pipeline import source

SCHEMA = StructType([StructField("value", BinaryType(), True)])


def test_a_limit_of_a_trigger_is_refused_where_pyspark_knows_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "mm2.properties"
    config.write_text(
        "clusters = A, B\nA.bootstrap.servers = a:1\nB.bootstrap.servers = b:1\n", "utf-8"
    )
    given = {"config": str(config), "cluster": "A", "subscribe": "orders"}

    def stream(**options: str) -> None:
        source.HeliographSource({**given, **options}).streamReader(SCHEMA).stop()

    monkeypatch.setattr(source, "TRIGGERS_HAVE_LIMITS", True)
    stream(maxBytesPerTrigger="1000")
    monkeypatch.setattr(source, "TRIGGERS_HAVE_LIMITS", False)
    stream()
    for name in ("maxBytesPerTrigger", "maxRecordsPerTrigger"):
        with pytest.raises(ConfigError, match=r"need PySpark 4\.2 or newer"):
            stream(**{name: "1000"})
