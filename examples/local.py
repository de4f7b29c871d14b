"""Two clusters on this machine, a Spark session, and a look at what a pipeline wrote."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import SparkSession

from heliograph.config.schema import EngineConfig
from heliograph.engine.session import start_session, stop_session
from heliograph_tools.localkafka.cluster import ClusterSpec, LocalCluster, local_clusters

Record = tuple[str | None, str | None]
"""Key and value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """What runs it needs: topics of each cluster with their settings, and records of A."""

    a: Mapping[str, Mapping[str, str]]
    b: Mapping[str, Mapping[str, str]]
    records: Mapping[str, tuple[Record, ...]]
    pipeline: Callable[[SparkSession, str, str, str], Any]
    """A streaming query; of the session, the configuration, a folder and a prefix of topics."""


def run(example: Example) -> None:
    """Two local clusters, the records, the pipeline, and what it wrote."""
    with (
        tempfile.TemporaryDirectory() as folder,
        local_clusters([ClusterSpec(alias="A"), ClusterSpec(alias="B")]) as clusters,
        session() as spark,
    ):
        config = Path(folder) / "mm2.properties"
        config.write_text(
            "clusters = A, B\n"
            + "".join(f"{a}.bootstrap.servers = {c.bootstrap}\n" for a, c in clusters.items())
        )
        prepare(example, clusters, "")
        example.pipeline(spark, str(config), folder, "").awaitTermination()
        for topic in example.b:
            print(f"\n{topic} on B:")
            rows = spark.read.format("heliograph").option("config", str(config))
            rows.option("cluster", "B").option("subscribe", topic).load().selectExpr(
                "partition", "offset", "timestamp", "cast(key AS string)", "cast(value AS string)"
            ).show(truncate=False)


def prepare(example: Example, clusters: Mapping[str, LocalCluster], prefix: str) -> None:
    """Make the topics and write the records."""
    for alias, topics in (("A", example.a), ("B", example.b)):
        admin = AdminClient(clusters[alias].librdkafka_config)
        new = [NewTopic(f"{prefix}{name}", 2, 1, config=dict(at)) for name, at in topics.items()]
        for made in admin.create_topics(new).values():
            made.result(30)
    producer = Producer(clusters["A"].librdkafka_config)
    for topic, records in example.records.items():
        for key, value in records:
            producer.produce(f"{prefix}{topic}", key=key, value=value)
    producer.flush(30)


@contextmanager
def session() -> Iterator[SparkSession]:
    """As `SparkSession.builder.getOrCreate()` gives one, for any JVM that Heliograph runs on."""
    spark = {"spark.sql.shuffle.partitions": "2"}
    context = start_session(EngineConfig(master="local[2]", spark=spark), has_queries=True)
    try:
        yield SparkSession(context)
    finally:
        stop_session(context)
