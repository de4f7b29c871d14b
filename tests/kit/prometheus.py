"""A real Prometheus, from Debian's package: fetched once into the cache folder, not installed."""

from __future__ import annotations

import fcntl
import json
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.error import URLError
from urllib.parse import urlencode
from urllib.request import urlopen

from heliograph.cache import cache_folder
from heliograph_tools.localkafka.ports import PortHold
from tests.kit.topics import wait_until

_FETCH_S_MAX: Final = 180
_START_S_MAX: Final = 60


def program(name: str) -> Path:
    """`prometheus` or `promtool`; fetching them must work, so a test never does without."""
    folder = cache_folder() / "prometheus"
    folder.mkdir(parents=True, exist_ok=True)
    found = folder / "usr/bin" / name
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not found.exists():
            _fetch(folder)
    return found


def _fetch(folder: Path) -> None:
    with tempfile.TemporaryDirectory() as downloads:
        command = ["apt-get", "download", "-q", "prometheus"]
        subprocess.run(command, cwd=downloads, check=True, timeout=_FETCH_S_MAX)
        (package,) = Path(downloads).glob("prometheus_*.deb")
        unpacked = Path(downloads) / "unpacked"
        subprocess.run(["dpkg", "-x", str(package), str(unpacked)], check=True)
        shutil.copytree(unpacked / "usr/bin", folder / "usr/bin", dirs_exist_ok=True)


class Prometheus:
    def __init__(self, port: int) -> None:
        self._port = port

    def query(self, expression: str) -> list[dict[str, Any]]:
        """Its series now; raises where Prometheus does not understand the expression."""
        return list(self._get("query", query=expression)["result"])

    def targets(self) -> dict[str, str]:
        """By job, why its last scrape failed; empty where it did not."""
        found = self._get("targets")["activeTargets"]
        return {
            each["labels"]["job"]: each["lastError"] if each["health"] == "up" else "not scraped"
            for each in found
        }

    def _get(self, what: str, **parameters: str) -> Any:
        url = f"http://127.0.0.1:{self._port}/api/v1/{what}?{urlencode(parameters)}"
        with urlopen(url, timeout=30) as answer:
            return json.load(answer)["data"]


@contextmanager
def prometheus(folder: Path, config: str) -> Iterator[Prometheus]:
    """Running until the end of the block; `config` is its YAML."""
    file, log = folder / "prometheus.yml", folder / "prometheus.log"
    file.write_text(config)
    hold = PortHold()
    port = hold.port
    command = [
        str(program("prometheus")),
        f"--config.file={file}",
        f"--storage.tsdb.path={folder / 'tsdb'}",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    hold.let_broker_bind()
    with log.open("wb") as out, subprocess.Popen(command, stdout=out, stderr=out) as child:
        try:
            server = Prometheus(port)

            def is_up() -> bool:
                assert child.poll() is None, log.read_text()
                try:
                    server.query("vector(1)")
                except (URLError, OSError):
                    return False
                return True

            wait_until(is_up, "a Prometheus that answers", timeout_s=_START_S_MAX)
            yield server
        finally:
            child.terminate()
            hold.close()
