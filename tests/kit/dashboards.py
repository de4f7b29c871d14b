"""What dashboards of others ask for, panel by panel: expressions alone, with their variables.

Of Strimzi's `strimzi-kafka-mirror-maker-2.json` for the JMX exporter, and of the dashboard of AWS'
guide to MirrorMaker 2 on MSK.
"""

from __future__ import annotations

from typing import Final

_KIND: Final = 'strimzi_io_kind=~"KafkaMirrorMaker2",strimzi_io_cluster="$cluster"'
_SOURCE: Final = "kafka_connect_mirror_mirrorsourceconnector_"
_LAG: Final = (
    f"sum(kafka_consumer_fetch_manager_records_lag{{{_KIND},"
    'clientid=~".*replication-consumer\\""}}) by (topic, partition)'
).replace("}}", "}")
_COMMIT: Final = (
    "kafka_connect_connector_task_offset_commit_avg_time_ms"
    '{connector=~"\\".*SourceConnector\\"", task=~"[0-9]+"}'
)


def _of_worker(name: str) -> str:
    return f"sum({name}{{{_KIND}}})"


def _of_lane(name: str) -> tuple[str, ...]:
    return tuple(
        f"sum({_SOURCE}{name}{end}{{{_KIND}}}) by (partition, topic)"
        for end in ("", "_avg", "_min", "_max")
    )


def _rate_by_pod(name: str) -> str:
    return f"sum(rate({name}{{{_KIND}}}[5m])) by (kubernetes_pod_name)"


STRIMZI: Final[dict[str, tuple[str, ...]]] = {
    "Total Number of Running Connectors": (_of_worker("kafka_connect_worker_connector_count"),),
    "Total record rate": (_of_worker(f"{_SOURCE}record_rate"),),
    "Record Age": _of_lane("record_age_ms"),
    "Total Number of Running Tasks": (_of_worker("kafka_connect_worker_task_count"),),
    "Total byte rate": (_of_worker(f"{_SOURCE}byte_rate"),),
    "Consumer Lag, over time": (_LAG,),
    "Consumer Lag, table": (f"topk(20, {_LAG})",),
    "Incoming Bytes per Second": (_rate_by_pod("kafka_consumer_incoming_byte_total"),),
    "Outgoing Bytes per Second": (_rate_by_pod("kafka_producer_outgoing_byte_total"),),
    "Replication Latency": _of_lane("replication_latency_ms"),
    "Consumer Group Offset Sync Latency": (
        "sum by (source, target, topic, partition, group) "
        f"(kafka_connect_mirror_mirrorcheckpointconnector_checkpoint_latency_ms{{{_KIND}}})",
    ),
    "Producer Available Buffer": (
        'sum(kafka_producer_buffer_available_bytes{clientid=~"\\".*SourceConnector-[0-9]+\\""})',
    ),
    "Average Offset Commit Time": (f"sum({_COMMIT})/count({_COMMIT})",),
    "Outstanding Messages Queue": (
        "sum(kafka_connect_source_task_source_record_active_count"
        '{connector=~"\\".*SourceConnector\\""})',
    ),
    "Assigned Connectors per Worker": (
        f"sum(kafka_connect_coordinator_assigned_connectors{{{_KIND}}}) by (kubernetes_pod_name)",
    ),
    "Rebalancing": (_of_worker("kafka_connect_worker_rebalance_rebalancing"),),
    "Assigned Tasks per Worker": (
        f"sum(kafka_connect_coordinator_assigned_tasks{{{_KIND}}}) by (kubernetes_pod_name)",
    ),
    "CPU Usage": (
        'sum(rate(container_cpu_usage_seconds_total{namespace="$namespace",'
        'pod=~"$cluster-mirrormaker2-.+",container="$cluster-mirrormaker2"}[5m])) by (pod)',
    ),
    "JVM Memory": (f"sum(jvm_memory_used_bytes{{{_KIND}}}) by (kubernetes_pod_name)",),
    "Time Spent in GC": (_rate_by_pod("jvm_gc_collection_seconds_sum"),),
    "JVM Thread Count": (f"sum(jvm_threads_current{{{_KIND}}}) by (kubernetes_pod_name)",),
}
STRIMZI_VARIABLES: Final = (
    'kafka_connect_worker_connector_count{strimzi_io_kind="KafkaMirrorMaker2"}',
    'kafka_connect_worker_connector_count{namespace="$namespace", '
    'strimzi_io_kind="KafkaMirrorMaker2"}',
)
"""What the board's drop-down lists are filled from: without them it is blank."""

AWS: Final = (
    "kafka_connect_mirror_source_connector_replication_latency_ms_avg",
    'kafka_consumer_fetch_manager_records_lag{topic!="connect-offsets-kafka-connect-fargate", '
    'topic!="connect-status-kafka-connect-fargate"}',
    "kafka_connect_mirror_source_connector_record_age_ms_avg",
    "kafka_consumer_fetch_manager_fetch_latency_avg",
    'kafka_connect_source_task_source_record_active_count{connector!="mm2-hbc"}',
    'kafka_consumer_incoming_byte_total{clientId=~"consumer-mm2-msc-cons-[0-9]+"}/1000000',
)
