"""Three connectors as public migration guides have them, traps and all."""

from __future__ import annotations

import json
from typing import Any

from heliograph.connect.configs import flat, read_json
from heliograph.connect.model import Connector

_CONVERTER = "org.apache.kafka.connect.converters.ByteArrayConverter"


def guide_files(
    source: str = "127.0.0.1:1", target: str = "127.0.0.1:2", **aliases: str
) -> dict[str, dict[str, Any]]:
    """By connector. A blank before a class, `clusters` that no connector knows, settings of clients
    where they do nothing, a Java policy that keeps names, an anchored regex, numbers unquoted, and
    a checkpoint connector that is told neither topics nor policy."""
    shared = {
        "clusters": "msksource,mskdest",
        "source.cluster.alias": aliases.get("source_alias", "msksource"),
        "target.cluster.alias": aliases.get("target_alias", "mskdest"),
        "source.cluster.bootstrap.servers": source,
        "target.cluster.bootstrap.servers": target,
        "key.converter": f" {_CONVERTER}",
        "value.converter": _CONVERTER,
        "replication.factor": 1,
    }
    mirror = "org.apache.kafka.connect.mirror."
    return {
        "mm2-msc": {
            "name": "mm2-msc",
            "connector.class": f"{mirror}MirrorSourceConnector",
            "replication.policy.class": "com.amazonaws.kafka.samples.CustomMM2ReplicationPolicy",
            **shared,
            "topics": "^ExampleTopic[\\w]*",
            "tasks.max": 4,
            "offset-syncs.topic.replication.factor": 1,
            "sync.topic.acls.interval.seconds": 600,
            "refresh.topics.interval.seconds": "300",
            "refresh.groups.interval.seconds": "20",
            "producer.enable.idempotence": True,
            "consumer.group.id": "mm2-msc",
            "source.cluster.max.poll.records": 50_000,
            "target.cluster.compression.type": "gzip",
            "producer.override.max.poll.records": "20000",
            "producer.override.compression.type": "gzip",
        },
        "mm2-cpc": {
            "name": "mm2-cpc",
            "connector.class": f"{mirror}MirrorCheckpointConnector",
            **shared,
            "tasks.max": 1,
            "checkpoints.topic.replication.factor": 1,
            "emit.checkpoints.interval.seconds": 20,
        },
        "mm2-hbc": {
            "name": "mm2-hbc",
            "connector.class": f"{mirror}MirrorHeartbeatConnector",
            **shared,
            "tasks.max": 1,
            "heartbeats.topic.replication.factor": 1,
            "emit.heartbeats.interval.seconds": 20,
        },
    }


def connector(name: str, document: dict[str, Any]) -> Connector:
    given = flat(read_json(json.dumps({**document, "name": name}).encode()))
    return Connector(name=name, config={k: v for k, v in given.items() if v is not None})


def guide_connectors() -> list[Connector]:
    return [connector(name, document) for name, document in guide_files().items()]
