"""The pictures of README and page.md, from a real run: `python -m tests.kit.pictures`, a minute.

Two clusters on this machine, three topics under load, one of them throttled by a decision, a
consumer group, and `heliograph run` on a terminal of its own: what the terminal shows at that
moment becomes `run.svg`, and what Chromium shows of the same driver's page `page-light.png` and
`page-dark.png`, in docs/images. Nothing is drawn by hand.
"""

from __future__ import annotations

import fcntl
import io
import os
import pty
import re
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

from confluent_kafka import Consumer, Producer
from rich.console import Console
from rich.text import Text

from heliograph_tools.localkafka.cluster import ClusterSpec, LocalCluster, local_clusters
from tests.kit.chromium import chromium
from tests.kit.topics import create_topic, wait_until

IMAGES: Final = Path(__file__).parents[2] / "docs" / "images"
COLUMNS: Final = 100
_ROWS: Final = 40
_PACES: Final = {"orders": 400, "payments": 90, "clicks": 3_000}
_PARTITIONS: Final = {"orders": 3, "payments": 1, "clicks": 4}
_WATCHED_S: Final = 45.0
"""After the start: long enough for a line of lag, and for the backlog of what is throttled."""
_START_S_MAX: Final = 120.0
_REDRAWN: Final = re.compile(r"\r?\x1b\[2K(?:\x1b\[1A\x1b\[2K)*")
"""How rich goes back to the first line of what it shows."""
_FETCHED: Final = re.compile(r"@font-face\s*\{.*?\}", re.DOTALL)
_FILE: Final = """clusters = A, B
A.bootstrap.servers = {a}
B.bootstrap.servers = {b}
A->B.enabled = true
A->B.topics = orders, payments, clicks
emit.checkpoints.interval.seconds = 5
replication.factor = 1
checkpoints.topic.replication.factor = 1
heartbeats.topic.replication.factor = 1
offset-syncs.topic.replication.factor = 1
B->A.emit.heartbeats.enabled = false
"""


class Terminal:
    """`heliograph run` on a pseudo-terminal; what it wrote so far."""

    def __init__(self, *arguments: str) -> None:
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", _ROWS, COLUMNS, 0, 0))
        self._ours = ours
        self._seen = io.BytesIO()
        self.child = subprocess.Popen(
            [sys.executable, "-m", "heliograph", *arguments],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env=os.environ | {"TERM": "xterm-256color", "COLORTERM": "truecolor"},
            start_new_session=True,
        )
        os.close(theirs)
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        while True:
            try:
                part = os.read(self._ours, 1 << 16)
            except OSError:  # EIO: the other side has ended
                return
            self._seen.write(part)

    @property
    def shown(self) -> str:
        """The table as it stands on the screen: what was drawn last and as a whole."""
        written = self._seen.getvalue().decode(errors="replace").replace("\r\n", "\n")
        frames = _REDRAWN.split(written)
        whole = [frame for frame in frames[:-1] if "mirrored" in frame and "lag s" in frame]
        return whole[-1] if whole else ""

    def end(self) -> None:
        self.child.send_signal(signal.SIGINT)
        self.child.wait(60)


@contextmanager
def writing(cluster: LocalCluster) -> Iterator[None]:
    """Producers of all topics at their pace, until the end of the block."""
    over = threading.Event()

    def write() -> None:
        producer = Producer({**cluster.librdkafka_config, "linger.ms": 20, "log_level": 0})
        number = 0
        while not over.wait(0.1):
            for topic, pace in _PACES.items():
                for _ in range(pace // 10):
                    number += 1
                    producer.produce(topic, key=str(number % 997), value=f"{topic}-{number}" * 8)
            producer.poll(0)
        producer.flush(10)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def commit_some(cluster: LocalCluster) -> None:
    """The group billing has read a part of orders."""
    consumer = Consumer(
        {
            **cluster.librdkafka_config,
            "group.id": "billing",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe(["orders"])
    consumer.consume(2_000, 30)
    consumer.commit(asynchronous=False)
    consumer.close()


def as_svg(shown: str, title: str) -> str:
    """What a terminal shows, with rich's own picture of one; fonts of the reader's machine."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True)
    console.print(Text.from_ansi(shown.rstrip()), "", sep="\n", soft_wrap=True)
    drawn = console.export_svg(title=title, unique_id="heliograph-run")
    return "\n".join(line.rstrip() for line in _FETCHED.sub("", drawn).splitlines()) + "\n"


def paint(folder: Path) -> None:
    specs = [replace(ClusterSpec(alias=alias), heap_mb=512) for alias in ("A", "B")]
    with local_clusters(specs, root=folder) as clusters, writing_after_topics(clusters["A"]):
        file = folder / "mm2.properties"
        file.write_text(_FILE.format(a=clusters["A"].bootstrap, b=clusters["B"].bootstrap))
        with socket.create_server(("127.0.0.1", 0)) as taken:
            address = f"127.0.0.1:{taken.getsockname()[1]}"
        terminal = Terminal("run", str(file), "--slots", "1", "--api", address)
        try:
            wait_until(lambda: bool(terminal.shown), "the table", timeout_s=_START_S_MAX)
            commit_some(clusters["A"])
            throttle = ["throttle", str(file), "150kB", "--flow", "A->B", "--topic", "clicks"]
            why = ["--why", "leaves the link to orders"]
            subprocess.run([sys.executable, "-m", "heliograph", *throttle, *why], check=True)
            time.sleep(_WATCHED_S)
            (IMAGES / "run.svg").write_text(as_svg(terminal.shown, "heliograph run mm2.properties"))
            photograph(f"http://{address}/")
        finally:
            terminal.end()


@contextmanager
def writing_after_topics(cluster: LocalCluster) -> Iterator[None]:
    for topic, count in _PARTITIONS.items():
        create_topic(cluster, topic, partitions=count)
    with writing(cluster):
        yield


def photograph(url: str) -> None:
    with chromium() as browser:
        page = browser.page(url, height=1_150)
        page.until("document.querySelectorAll('#lanes tbody tr').length > 7")
        time.sleep(8)  # two refreshes: rates and lines need a second look
        for scheme in ("light", "dark"):
            page.use_scheme(scheme)
            page.screenshot(IMAGES / f"page-{scheme}.png")
        page.close()


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="pictures-") as folder:
        paint(Path(folder))


if __name__ == "__main__":
    main()
