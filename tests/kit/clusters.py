"""Fixtures with real Kafka clusters: one pair for the whole session, private ones on demand."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka.admin import AdminClient

from heliograph_tools.localkafka.cluster import (
    ClusterSpec,
    LocalCluster,
    local_clusters,
    start_clusters,
)
from heliograph_tools.localkafka.versions import KAFKA_VERSION

ClusterFactory = Callable[..., dict[str, LocalCluster]]
TopicNames = Callable[[str], str]

# Tests start brokers more often than they load them; half of a start is compiling otherwise.
FAST_START: Final = ("-XX:TieredStopAtLevel=1",)
FAST_JAVA: Final = ("JDK_JAVA_OPTIONS", " ".join(FAST_START))
"""The same as a variable, for brokers whose command a test does not make."""
# What brokers do while nobody asks them anything is a tenth of the CPU of a whole test session.
_QUIET: Final = {"log.cleaner.backoff.ms": "1000"}
_SESSION_HEAP_MB = 1_024
"""A session leaves hundreds of topics and groups behind on one broker."""
_SOURCE_KAFKA: Final = os.environ.get("HELIOGRAPH_KAFKA_SOURCE", KAFKA_VERSION)
_TARGET_KAFKA: Final = os.environ.get("HELIOGRAPH_KAFKA_TARGET", KAFKA_VERSION)
"""What cluster A is, and what all others are; `make versions` says other ones."""
_topic_numbers = itertools.count(1)
_shared: Final[list[LocalCluster]] = []
"""The pair, once a test has asked for it."""
_TIDY_S_MAX: Final = 60.0


@pytest.fixture(scope="session")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, LocalCluster]]:
    """Clusters A and B, one broker each, shared: use names from `topic`, do not kill brokers."""
    specs = [
        ClusterSpec(
            alias=alias,
            kafka=_kafka_of(alias),
            heap_mb=_SESSION_HEAP_MB,
            broker_config=_QUIET,
            jvm_options=FAST_START,
        )
        for alias in ("A", "B")
    ]
    with local_clusters(specs, root=tmp_path_factory.mktemp("pair")) as clusters:
        _shared.extend(clusters.values())
        yield clusters
        _shared.clear()


@pytest.fixture(scope="module", autouse=True)
def tidy_pair() -> Iterator[None]:
    """Topics of the pair go with their file: each left behind costs every later look at it CPU."""
    yield
    for cluster in _shared:
        admin = AdminClient(cluster.librdkafka_config)
        names = admin.list_topics(timeout=_TIDY_S_MAX).topics.keys()
        left = [name for name in names if not name.startswith("__")]
        for answer in admin.delete_topics(left).values() if left else ():
            answer.result(_TIDY_S_MAX)


@pytest.fixture
def topic() -> TopicNames:
    """Names that no other test of this session uses: `topic("orders")` is `orders-17`."""
    # No dot: a name with dots would look like one that a mirror has renamed.
    return lambda name: f"{name}-{next(_topic_numbers)}"


@pytest.fixture
def clusters(tmp_path: Path) -> Iterator[ClusterFactory]:
    """Start private clusters with `clusters(ClusterSpec(…), …)`; stopped after the test."""
    started: list[LocalCluster] = []

    def start(*specs: ClusterSpec) -> dict[str, LocalCluster]:
        fast = [
            replace(s, kafka=_kafka_of(s.alias), jvm_options=s.jvm_options or FAST_START)
            for s in specs
        ]
        made = start_clusters(fast, root=tmp_path / f"clusters-{len(started)}")
        started.extend(made.values())
        return made

    yield start
    for cluster in started:
        cluster.stop()


def _kafka_of(alias: str) -> str:
    return _SOURCE_KAFKA if alias == "A" else _TARGET_KAFKA


def is_alive(pid: int) -> bool:
    """Whether a process runs; a zombie does not."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    stat = Path(f"/proc/{pid}/stat")
    try:
        return stat.read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
