"""Spark's own Kafka connector, fetched once into the cache folder; few tests need it."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Final

import pyspark

from heliograph.cache import cache_folder
from heliograph_tools.localkafka.java import java_executable
from heliograph_tools.localkafka.kafka import file_lock

_Artifacts = tuple[tuple[str, str, str], ...]
_WHOLE: Final[_Artifacts] = (
    ("org.apache.spark", "spark-sql-kafka-0-10_2.13", "4.0.0"),
    ("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.0.0"),
    ("org.apache.kafka", "kafka-clients", "3.9.0"),
    ("org.apache.commons", "commons-pool2", "2.12.0"),
)
"""Of PySpark 4.0, the only one that resolves whole."""
_MIXED: Final[_Artifacts] = (
    ("org.apache.spark", "spark-sql-kafka-0-10_2.13", "4.2.0"),
    ("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.1.0-preview1"),
    ("org.apache.kafka", "kafka-clients", "3.9.2"),
    ("org.apache.commons", "commons-pool2", "2.12.0"),
)
"""No release for the engine of this project resolves; this set runs on it."""
_ARTIFACTS: Final = _WHOLE if pyspark.__version__.startswith("4.0.") else _MIXED
_RESOLVE_S_MAX: Final = 300
_LAST_WORDS: Final = 3_000


def connector_jars() -> list[Path]:
    """For `spark.jars`; fails with Ivy's last words where they cannot be fetched."""
    root = cache_folder()
    folder = root / "spark-connector" / "+".join(version for _, _, version in _ARTIFACTS)
    if not folder.is_dir():
        # The lock that fetching Kafka takes too: Ivy does not share its own cache safely.
        with file_lock(root / "ivy.lock"):
            if not folder.is_dir():
                _fetch(folder, ivy_cache=root / "ivy")
    return sorted(folder.glob("*.jar"))


def _fetch(folder: Path, ivy_cache: Path) -> None:
    (ivy,) = (Path(pyspark.__file__).parent / "jars").glob("ivy-*.jar")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".fetching-") as scratch:
        wanted, jars = Path(scratch) / "ivy.xml", Path(scratch) / "jars"
        wanted.write_text(_ivy_module())
        command = [str(java_executable()), "-jar", str(ivy), "-cache", str(ivy_cache)]
        command += ["-ivy", str(wanted), "-confs", "default"]
        command += ["-retrieve", f"{jars}/[artifact]-[revision].[ext]"]
        answer = subprocess.run(
            command, capture_output=True, text=True, timeout=_RESOLVE_S_MAX, check=False
        )
        missing = [
            name
            for _, name, version in _ARTIFACTS
            if not (jars / f"{name}-{version}.jar").is_file()
        ]
        said = (answer.stdout + answer.stderr)[-_LAST_WORDS:]
        assert answer.returncode == 0 and not missing, f"not fetched: {missing}\n{said}"
        shutil.move(jars, folder)


def _ivy_module() -> str:
    # Not what they depend on: some of it does not resolve, and Spark has the rest.
    lines = [
        f'<dependency org="{org}" name="{name}" rev="{rev}" transitive="false" '
        'conf="default->default"/>'
        for org, name, rev in _ARTIFACTS
    ]
    return (
        '<ivy-module version="2.0"><info organisation="org.heliograph" module="connector"/>'
        '<configurations><conf name="default"/></configurations>'
        f"<dependencies>{''.join(lines)}</dependencies></ivy-module>\n"
    )
