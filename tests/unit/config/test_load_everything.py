"""The file that uses every kind of key MirrorMaker 2 has (reference 3.1) loads, and says what."""

from __future__ import annotations

from pathlib import Path

from heliograph.config.load import load_config
from heliograph.model import ClusterAlias, FlowId, StartAt

A, B = ClusterAlias("A"), ClusterAlias("B")

# Comments stand on lines of their own: Java has none after a value.
EVERYTHING = r"""
clusters = A, B
A.bootstrap.servers = a1:9092,a2:9092
B.bootstrap.servers = b1:9092,b2:9092
A.security.protocol = SASL_SSL
A.sasl.mechanism = SCRAM-SHA-512
A.sasl.jaas.config = ${file:SECRETS:jaas}
config.providers = file
config.providers.file.class = org.apache.kafka.common.config.provider.FileConfigProvider
B.security.protocol = PLAINTEXT

# flows
A->B.enabled = true
B->A.enabled = false
# gives A->B its heartbeat
B->A.emit.heartbeats.enabled = true
A->B.topics = orders.*, payments
A->B.topics.exclude = .*[\-\.]internal, .*\.replica, __.*
A->B.groups = .*
A->B.groups.exclude = console-consumer-.*, connect-.*, __.*
topic.filter.class = org.apache.kafka.connect.mirror.DefaultTopicFilter
group.filter.class = org.apache.kafka.connect.mirror.DefaultGroupFilter
config.property.filter.class = org.apache.kafka.connect.mirror.DefaultConfigPropertyFilter
replication.policy.class = org.apache.kafka.connect.mirror.DefaultReplicationPolicy
replication.policy.separator = .
replication.policy.internal.topic.separator.enabled = true
forwarding.admin.class = org.apache.kafka.clients.admin.ForwardingAdmin
admin.timeout.ms = 60000
consumer.poll.timeout.ms = 1000
tasks.max = 8

refresh.topics.enabled = true
refresh.topics.interval.seconds = 600
refresh.groups.enabled = true
refresh.groups.interval.seconds = 600
sync.topic.configs.enabled = true
sync.topic.configs.interval.seconds = 600
# must be flow-level
A->B.use.defaults.from = target
config.properties.exclude = min\.insync\.replicas, unclean\.leader\.election\.enable, ...
sync.topic.acls.enabled = true
sync.topic.acls.interval.seconds = 600
replication.factor = 3

offset.lag.max = 100
emit.offset-syncs.enabled = true
A->B.offset-syncs.topic.location = target
offset-syncs.topic.replication.factor = 3
emit.checkpoints.enabled = true
emit.checkpoints.interval.seconds = 60
sync.group.offsets.enabled = true
sync.group.offsets.interval.seconds = 60
checkpoints.topic.replication.factor = 3
emit.heartbeats.enabled = true
emit.heartbeats.interval.seconds = 1
heartbeats.topic.replication.factor = 3
heartbeats.replication.enabled = true

# Connect runtime
offset.storage.replication.factor = 3
status.storage.replication.factor = 3
config.storage.replication.factor = 3
B.offset.flush.interval.ms = 10000
B.exactly.once.source.support = enabled
A.consumer.isolation.level = read_committed
A->B.exactly.once.support = required
A->B.transaction.boundary = interval
A->B.transaction.boundary.interval.ms = 1000
dedicated.mode.enable.internal.rest = true
listeners = http://0.0.0.0:8083

# clients
A.consumer.fetch.max.bytes = 52428800
A.consumer.max.poll.records = 5000
A.consumer.auto.offset.reset = earliest
B.producer.batch.size = 327680
B.producer.linger.ms = 100
B.producer.compression.type = lz4
B.producer.max.in.flight.requests.per.connection = 5
B.producer.enable.idempotence = true
A->B.producer.override.max.request.size = 10485760
"""
JAAS = (
    "org.apache.kafka.common.security.scram.ScramLoginModule required "
    'username="mirror" password="hunter2";'
)


def test_the_everything_file_loads_into_the_model(tmp_path: Path) -> None:
    secrets = tmp_path / "a.properties"
    secrets.write_text(f"jaas = {JAAS}\n")
    path = tmp_path / "mm2.properties"
    path.write_text(EVERYTHING.replace("SECRETS", str(secrets)))

    config = load_config(path)

    flow = config.flow(FlowId(source=A, target=B))
    assert [one.id for one in config.flows] == [flow.id]
    assert flow.topics == ("orders.*", "payments")
    assert flow.topics_exclude == (".*[-.]internal", ".*.replica", "__.*")
    assert flow.config_properties_exclude[-1] == "..."
    assert (flow.tasks_max, flow.replication_factor, flow.start_at) == (8, 3, StartAt.EARLIEST)
    assert flow.read_committed
    assert flow.offset_syncs.location == "target"
    assert flow.groups.sync_offsets_enabled
    assert flow.connector.exactly_once_support == "required"
    assert flow.clients.source_consumer["fetch.max.bytes"] == "52428800"
    assert flow.clients.target_producer["max.request.size"] == "10485760"
    assert config.flow(FlowId(source=B, target=A)).heartbeats.enabled
    assert config.clusters[B].worker.offset_flush_interval_ms == 10_000
    assert config.clusters[B].worker.exactly_once_source_support == "enabled"
    security = config.clusters[A].security
    assert (security.protocol, security.sasl.mechanism) == ("SASL_SSL", "SCRAM-SHA-512")
    assert security.sasl.username == "mirror"
    assert security.sasl.password is not None
    assert security.sasl.password.reveal() == "hunter2"
    assert config.clusters[B].security.protocol == "PLAINTEXT"
    assert "hunter2" not in repr(config)
