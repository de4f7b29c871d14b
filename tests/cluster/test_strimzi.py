"""Strimzi's resource between real brokers: mirrored as the `mm2.properties` it stands for."""

from __future__ import annotations

from pathlib import Path

from heliograph_tools.localkafka.cluster import LocalCluster
from tests.kit.clusters import TopicNames
from tests.kit.inside import carry
from tests.kit.mirror import lasting_topic, route
from tests.kit.records import numbered, produce

RESOURCE = """\
apiVersion: kafka.strimzi.io/v1
kind: KafkaMirrorMaker2
metadata: {{name: mirror}}
spec:
  replicas: 1
  target:
    alias: there
    bootstrapServers: {target}
    groupId: mirror
    configStorageTopic: mirror-config
    offsetStorageTopic: mirror-offset
    statusStorageTopic: mirror-status
  mirrors:
    - source:
        alias: here
        bootstrapServers: {source}
      sourceConnector:
        tasksMax: 1
        config:
          replication.factor: -1
          emit.offset-syncs.enabled: "false"
      topicsPattern: {topic}
"""


def test_a_resource_mirrors_its_topics(
    pair: dict[str, LocalCluster], topic: TopicNames, tmp_path: Path
) -> None:
    source, target = pair["A"], pair["B"]
    name = lasting_topic(source, topic("strimzi"), partitions=2)
    produce(source, name, numbered(100, partitions=2))
    file = tmp_path / "mirror.yaml"
    file.write_text(RESOURCE.format(source=source.bootstrap, target=target.bootstrap, topic=name))

    carry(file, lanes=2)

    assert route(file, ("here", source), ("there", target)).assert_arrives(name) == 100
