"""Apicurio's registry, an open-source one, as its own distribution has it, in memory. It speaks the
API of Confluent's under a path of its own. Fetched when first asked for, as Kafka is."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from urllib.error import URLError
from urllib.request import urlopen

from heliograph.cache import cache_folder
from heliograph_tools.localkafka.java import java_executable
from heliograph_tools.localkafka.kafka import file_lock
from tests.kit.connecting import free_port
from tests.kit.topics import wait_until

VERSION: Final = "2.6.13.Final"
_ARTIFACT: Final = "apicurio-registry-app"
_FETCH_S_MAX: Final = 400
_START_S_MAX: Final = 120.0
_IVY: Final = f"""<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">
<info organisation="org.heliograph" module="local"/><dependencies>
<dependency org="io.apicurio" name="{_ARTIFACT}" rev="{VERSION}" transitive="false">
<artifact name="{_ARTIFACT}" type="tar.gz" ext="tar.gz" m:classifier="all"/></dependency>
</dependencies></ivy-module>
"""


@contextmanager
def apicurio(folder: Path) -> Iterator[str]:
    """The address of one, until the end of the block; it logs into `folder`."""
    port = free_port()
    runner = _unpacked() / f"{_ARTIFACT}-{VERSION}-runner.jar"
    command = [str(java_executable()), "-Xmx256m", "-XX:TieredStopAtLevel=1"]
    command += ["-Dquarkus.http.host=127.0.0.1", f"-Dquarkus.http.port={port}"]
    folder.mkdir(parents=True, exist_ok=True)
    url = f"http://127.0.0.1:{port}/apis/ccompat/v7"
    with (folder / "apicurio.log").open("wb") as log:
        process = subprocess.Popen(
            [*command, "-jar", str(runner)], stdout=log, stderr=log, cwd=folder
        )
        try:
            wait_until(lambda: _answers(url), "a registry that answers", timeout_s=_START_S_MAX)
            yield url
        finally:
            process.terminate()
            process.wait(30)


def _answers(url: str) -> bool:
    try:
        with urlopen(f"{url}/subjects", timeout=5) as answer:
            return bool(answer.status == 200)
    except (URLError, OSError):
        return False


def _unpacked() -> Path:
    folder = cache_folder() / "apicurio" / VERSION
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with file_lock(folder.parent / "lock"):
            if not folder.is_dir():
                _fetch(folder)
    return folder


def _fetch(folder: Path) -> None:
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".fetching-") as scratch:
        at = Path(scratch)
        (at / "ivy.xml").write_text(_IVY)
        spec = importlib.util.find_spec("pyspark")
        assert spec is not None and spec.origin is not None
        (ivy,) = (Path(spec.origin).parent / "jars").glob("ivy-*.jar")
        subprocess.run(
            [
                *(str(java_executable()), "-jar", str(ivy), "-cache", str(at / "cache")),
                *("-ivy", str(at / "ivy.xml"), "-confs", "default"),
                *("-retrieve", f"{at}/found/[artifact].[ext]"),
            ],
            check=True,
            capture_output=True,
            timeout=_FETCH_S_MAX,
        )
        with tarfile.open(at / "found" / f"{_ARTIFACT}.tar.gz") as packed:
            packed.extractall(at / "unpacked", filter="data")
        shutil.move(at / "unpacked", folder)
