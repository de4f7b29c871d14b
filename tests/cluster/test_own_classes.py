"""A policy and a filter of the operator's own, in a YAML file, with fetch sizes of one flow."""

from __future__ import annotations

from pathlib import Path

from heliograph_tools.localkafka.cluster import LocalCluster
from tests.kit.clusters import TopicNames
from tests.kit.inside import carry
from tests.kit.mirror import lasting_topic
from tests.kit.records import assert_same_records, numbered, produce
from tests.kit.topics import admin_of

CONFIG = """\
clusters:
  ownA: {{bootstrap.servers: '{source}', consumer: {{fetch.max.bytes: 50000000}}}}
  ownB: {{bootstrap.servers: '{target}'}}
flows:
  ownA->ownB:
    enabled: true
    topics: ['{ending}']
    topic.filter.class: tests.unit.topics.own_classes:EndsIn
    replication.policy.class: tests.unit.topics.own_classes:Suffixed
    source.consumer:
      fetch.max.bytes: 4000
      max.partition.fetch.bytes: 2000
emit: {{heartbeats.enabled: false, checkpoints.enabled: false, offset-syncs.enabled: false}}
sync: {{topic.configs.enabled: false, topic.acls.enabled: false}}
replication.factor: 1
"""


def test_topics_are_chosen_and_named_by_python_classes_on_the_driver(
    pair: dict[str, LocalCluster], topic: TopicNames, tmp_path: Path
) -> None:
    wanted, other = topic("own") + "-gold", topic("own") + "-lead"
    for name in (wanted, other):
        lasting_topic(pair["A"], name, partitions=2)
        produce(pair["A"], name, numbered(500, partitions=2, value_bytes=100))
    file = tmp_path / "heliograph.yaml"
    file.write_text(
        CONFIG.format(source=pair["A"].bootstrap, target=pair["B"].bootstrap, ending=wanted[-10:])
    )

    carry(file)

    assert assert_same_records(pair["A"], pair["B"], wanted, f"{wanted}-from-ownA") == 500
    held = admin_of(pair["B"]).list_topics(timeout=10).topics
    assert not any(name.startswith(other) for name in held)
