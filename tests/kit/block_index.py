"""Which test plays a block of README, tutorial and guides; of the rest, why it is only checked.

A block is *played* where a test types its commands, or runs its code, and compares what comes of
it with the page. It is *checked* where that would cost too much here: its commands, options,
routes, keys and imports must exist (`tests.kit.blocks`), and the reason stands beside its name. A
new block is in neither, and `tests/house/test_blocks.py` says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tests.kit.blocks import BlockName

_TUTORIALS: Final = "tests/cluster/test_tutorial.py"
PLAYED_WHOLE: Final[Mapping[str, str]] = {
    f"{_TUTORIALS}::test_the_commands_of_the_tutorial_print_what_the_page_shows": "tutorial.md",
    f"{_TUTORIALS}::test_what_the_guide_from_mirrormaker_1_types_prints_what_it_shows": (
        "from-mirrormaker-1.md"
    ),
    "tests/soak/test_rolling_cutover.py"
    "::test_the_commands_of_the_runbook_print_what_the_page_shows": "rolling-cutover.md",
}
"""A test, and the page it plays from top to bottom (`tests.kit.tutorial`): its console blocks, and
the files that they need. What else the page has is below."""


def _of(page: str, *firsts: str) -> tuple[BlockName, ...]:
    return tuple(BlockName(f"{page}: {first}") for first in firsts)


PLAYED: Final[Mapping[str, tuple[BlockName, ...]]] = {
    "tests/cluster/test_guides.py::test_a_migration_and_the_way_home": (
        *_of(
            "failover.md",
            "clusters = A, B",
            "$ heliograph status mm2.properties (2)",
            "$ heliograph status mm2.properties (3)",
            "$ heliograph status mm2.properties (5)",
            "$ heliograph failover mm2.properties --flow 'A->B' --planned --dry-run",
            "$ heliograph failover mm2.properties --flow 'A->B' --planned --dry-run (2)",
            "$ heliograph failover mm2.properties --flow 'A->B' --planned --yes",
            "# B is primary since 2026-11-18T11:02:52Z (after failover, flow A->B)",
            "$ heliograph failback mm2.properties --flow 'A->B' --dry-run (2)",
            "$ heliograph failover mm2.properties --flow 'B->A' --planned --yes",
            "$ heliograph failback mm2.properties --flow 'B->A' --yes",
        ),
        *_of(
            "migration.md",
            "$ heliograph plan mm2.properties",
            "$ heliograph run mm2.properties",
            "$ heliograph status mm2.properties",
            "$ heliograph offsets mm2.properties --flow 'A->B' --group '.*' --to copy",
            "$ heliograph failover mm2.properties --flow 'A->B' --planned --yes",
            "$ heliograph failback mm2.properties --flow 'A->B'",
            "$ heliograph status mm2.properties (2)",
        ),
        *_of(
            "README.md",
            "$ heliograph plan mm2.properties          # what would be mirrored, created, renamed,"
            " granted; changes nothing",
        ),
        *_of(
            "operate.md",
            "$ heliograph pause mm2.properties --flow 'A->B' --topic orders"
            " --why 'the target is upgraded' --for 2h",
        ),
        *_of(
            "rest.md",
            "$ heliograph run mm2.properties --api 127.0.0.1:8080",
            "$ head -c 24 /dev/urandom | base64",
        ),
        *_of("page.md", "$ heliograph run mm2.properties --api 127.0.0.1:8080"),
        *_of("drill.md", "$ heliograph drill mm2.properties --flow 'A->B' --report drill.html"),
    ),
    "tests/cluster/test_guides.py::test_the_loss_of_the_primary": (
        *_of(
            "failover.md",
            "$ heliograph status mm2.properties",
            "$ heliograph status mm2.properties (4)",
            "$ heliograph failover mm2.properties --flow 'A->B' --dry-run",
            "$ heliograph failover mm2.properties --flow 'A->B' --dry-run (2)",
            "$ heliograph failover mm2.properties --flow 'A->B' --dry-run (3)",
            "$ heliograph failover mm2.properties --flow 'A->B' --yes",
            "2026-11-18T11:22:05.892+00:00 WARNING flow A->B is fenced, not mirroring: failed over"
            " to B at 2026-11-18T11:22:05Z (unplanned); `heliograph failback` brings it back",
            "$ heliograph failback mm2.properties --flow 'A->B' --dry-run",
            "$ heliograph failback mm2.properties --flow 'A->B' --dry-run (3)",
            "$ heliograph failback mm2.properties --flow 'A->B' --resync --dry-run",
            "$ heliograph failback mm2.properties --flow 'A->B' --resync"
            " --export-dir /tmp/lab/export --yes",
            "export/7269d9f9ae5a/orders/0-10000-10334.parquet",
        ),
        *_of(
            "drill.md",
            "$ heliograph drill mm2.properties --flow 'A->B' --every 7d --rpo-max-seconds 30",
        ),
    ),
    "tests/cluster/test_guides.py::test_a_mirror_from_python": (
        *_of("library.md", "import heliograph", "import signal"),
    ),
    "tests/cluster/test_guides.py::test_transforms_are_tried_before_they_run": (
        *_of(
            "transforms.md",
            "# my_transforms.py",
            "A->B.transforms = tests, shout",
            "# my_transforms.py (2)",
            "# my_transforms.py (4)",
            "A->B.transforms = tag",
            "A->B.transforms = tests",
            "$ heliograph transform mm2.properties --topic orders --sample 2",
        ),
    ),
    "tests/cluster/test_cli.py"
    "::test_the_demo_loses_and_repeats_nothing_and_stays_up_where_asked_to": (
        *_of("README.md", "$ make demo"),
    ),
    "tests/unit/config/test_mm1.py"
    "::test_the_pipeline_of_the_guide_copies_by_key_from_where_the_group_committed": (
        *_of("from-mirrormaker-1.md", "source->target.topics ="),
    ),
}

_SPARK: Final = "would start Spark"
_MM2: Final = "needs what a real MirrorMaker 2 left behind: tests/cluster/test_adoption.py has it"
_INSTALLS: Final = "would install into a new .venv; tests/house/test_wheel.py does"
_MACHINE: Final = "changes the machine"
_PART: Final = "a part of a file"
_CHECKPOINT: Final = "needs a killed Spark query: tests/spark/test_spark_checkpoint.py has one"

CHECKED: Final[Mapping[str, Mapping[str, str]]] = {
    "README.md": {
        "make demo   # two real clusters, mirrored live, a consumer group moved across, every"
        " record compared": "the demo is played where its output is; `make test` plays the rest",
        "python3 -m venv .venv": _INSTALLS,
        "clusters = A, B": _PART,
    },
    "tutorial.md": {"python3 -m venv .venv": _INSTALLS},
    "active-active.md": {
        "clusters = A, B": "tests/cluster/test_same_names.py has such a file",
        "A.provenance.id = 9Xh2kqWZTgK1nq3vQd0c4A": _PART,
    },
    "archives.md": {
        "heliograph archive mm2.properties --cluster A --topic orders --to /archive/orders": (
            f"{_SPARK}: tests/soak/test_archive_killed.py does"
        ),
        "heliograph archive mm2.properties --cluster B --topic A.orders --to /archive/orders": (
            f"{_SPARK}: tests/soak/test_archive_killed.py does"
        ),
    },
    "connect.md": {
        "$ heliograph connect connect-distributed.properties": (
            "tests/cluster/test_connect.py puts such files over HTTP"
        ),
        '{"source.cluster.sasl.jaas.config":'
        ' "${file:/etc/heliograph/secrets.properties:jaas}"}': _PART,
    },
    "deploy.md": {
        "$ python3 -m venv /opt/heliograph": _INSTALLS,
        "# useradd --system --home-dir /var/lib/heliograph --shell /usr/sbin/nologin heliograph": (
            _MACHINE
        ),
        "$ docker build -f deploy/container/Containerfile -t heliograph:0.1.0 .": (
            "needs a container engine; tests/house/test_deploy.py reads the Containerfile"
        ),
    },
    "doctor.md": {
        "$ heliograph doctor mm2.properties": (
            "needs a target of three racks: tests/cluster/test_doctor.py has it"
        ),
        "$ heliograph why mm2.properties order": "tests/cluster/test_why.py asks in many ways",
    },
    "drill.md": {
        "$ heliograph drill mm2.properties --flow 'A->B' --group billing": (
            "needs records that expired on the target alone: tests/cluster/test_drill.py has them"
        ),
        "A->B: 6 lanes, 93,100 mirrored, lag 25, lost 0; mirrored by vm (pid 14897), seen 2 s ago;"
        " last drill passed 14 s ago": "a line of status, which failover.md shows and plays",
    },
    "failover.md": {
        "$ heliograph status mm2.properties                                       # 1. what B has,"
        " and that A is silent": "its six commands are played one by one below it",
        "billing: read 6000 records of orders; first: partition 0 offset 4000 order-12000": (
            "printed by a reader's own consumer"
        ),
        "$ heliograph offsets mm2.properties --flow 'A->B' --group billing --to earliest"
        " --commit": "tests/cluster/test_offsets_command.py commits so",
        "$ heliograph drill mm2.properties --flow 'A->B' --report drill.html": (
            "drill.md has the same two commands, which are played"
        ),
        "$ heliograph audit mm2.properties --flow 'A->B'": (
            f"{_SPARK}: tests/cluster/test_audit.py does"
        ),
        "$ heliograph audit mm2.properties --flow 'A->B' (2)": (
            f"{_SPARK}: tests/cluster/test_audit.py does"
        ),
    },
    "from-mirrormaker-1.md": {
        "kafka-mirror-maker.sh --consumer.config consumer.properties --producer.config"
        " producer.properties --whitelist 'orders.*' --num.streams 4": (
            "one of them is Kafka's: tests/soak/test_mirrormaker_1.py runs both"
        ),
        "source->target: group mirror-group on source has members, so MirrorMaker 1 or another"
        " reader of that group is running; stop it, and the mirror goes on where the group"
        " committed last": "tests/cluster/test_mirrormaker_1.py brings it about",
        "class Masking:": "tests/cluster/test_mirrormaker_1.py has such a handler",
    },
    "from-mirrormaker-2.md": {
        "$ heliograph plan mm2.properties": "migration.md has it, with its output",
        "$ heliograph adopt mm2.properties --dry-run": _MM2,
        "$ heliograph adopt mm2.properties --dry-run (2)": _MM2,
        "$ heliograph adopt mm2.properties --from earliest --yes": _MM2,
        "$ heliograph run mm2.properties": "migration.md has it",
        "$ heliograph release mm2.properties --yes": _MM2,
    },
    "metrics.md": {
        "$ (umask 077; openssl rand -hex 24 > /etc/prometheus/heliograph.token)": _MACHINE,
        "scrape_configs:": "tests/cluster/test_metrics.py has a real Prometheus",
        "metrics.compat = strimzi": _PART,
        "static_configs:": _PART,
        "metrics.otlp.endpoint = http://collector:4318/v1/metrics": _PART,
        "A->B.lag.group = heliograph.{source}.{target}": _PART,
    },
    "migration.md": {
        "$ heliograph audit mm2.properties --flow 'A->B'": (
            f"{_SPARK}: tests/cluster/test_audit.py does"
        ),
        "billing: read 6000 records of orders; first: partition 0 offset 4846 order-14538,"
        " partition 1 offset 9154 order-27463": "printed by a reader's own consumer",
    },
    "mirror-client.md": {
        "from pathlib import Path": "tests/cluster/test_mirror_client.py asks the same",
        "frozenset({'primary'}) 1": "tests/cluster/test_mirror_client.py asks the same",
        "from heliograph.config.schema import ClusterConfig, NamingPolicyConfig": (
            "tests/cluster/test_mirror_client.py makes such a client"
        ),
        "from heliograph.broker.groups import GroupAdmin": (
            "tests/cluster/test_mirror_client.py asks the same"
        ),
        "primary": "tests/cluster/test_topology.py has the whole answer",
    },
    "operate.md": {
        "slots = auto": "needs executors that come and go: tests/soak/test_dynamic_allocation.py",
        "configuration changed: A->B: topics: orders.* -> orders.*, payments;"
        " B: security.sasl.password: changed": "a line of the log: tests/cluster/test_reload.py",
    },
    "permissions.md": {
        "A->B/orders-0: stalled: not authorised: cluster A: orders-0: missing permission READ on"
        " topic orders": "lines of the log: tests/cluster/test_permissions.py",
    },
    "pipelines.md": {
        "import heliograph": f"{_SPARK}: tests/spark/test_pipeline.py has such queries",
        "(": f"{_SPARK}: tests/spark/test_pipeline.py has such queries",
        'tables = heliograph.tables(spark, "mm2.properties")': (
            f"{_SPARK}: tests/cluster/test_tables.py shows each table"
        ),
        "A->B.enabled = true": f"{_SPARK}: tests/soak/test_pipeline_runs.py has such a file",
    },
    "rest.md": {
        "# /etc/heliograph/tokens, chmod 600": "a part of a file: tests/unit/api has tokens",
        "api.listen = 0.0.0.0:8443": _PART,
    },
    "schemas.md": {
        "A.schema.registry.url = https://registry.a.example:8081": _PART,
        "A->B.schemas.enabled = true": _PART,
        "A->B.transforms = ids": _PART,
    },
    "security.md": {
        "B.security.protocol = SASL_SSL": _PART,
        "B.bootstrap.servers = b-1.orders.c1.kafka.eu-west-1.amazonaws.com:9098": _PART,
    },
    "spark-checkpoints.md": {
        "$ heliograph offsets mm2.properties --spark-checkpoint /data/billing"
        " --out /data/billing-on-B": _CHECKPOINT,
        "orders = (": _CHECKPOINT,
        "$ heliograph offsets mm2.properties --spark-checkpoint /data/killed"
        " --out /data/killed-on-B": _CHECKPOINT,
        "$ heliograph offsets mm2.properties --spark-checkpoint /data/killed"
        " --out /data/killed-on-B (2)": _CHECKPOINT,
    },
    "transforms.md": {
        "# my_transforms.py (3)": "needs a schema registry: tests/cluster/test_schemas.py has one",
        "$ heliograph letters mm2.properties list --topic orders": (
            "needs records that failed: tests/cluster/test_transforms.py lists and replays some"
        ),
    },
    "watch.md": {
        "$ heliograph verdict mm2.properties": (
            "needs a lag of minutes: tests/unit/cli/test_verdict.py has its words"
        ),
        '{"v": 1, "event": "alarms", "flow": "A->B", "at_ms": 1800000000000, "primary": "A",'
        ' "bootstrap_servers": ["a:9092"],': "what a hook is sent: tests/unit/health has it",
        "$ heliograph silence mm2.properties lag:orders --until 2h"
        " --why 'orders are loaded again'": (
            "needs an alarm: tests/unit/api/test_watching.py silences one"
        ),
        '{"v": 1, "flow": "A->B", "source": "A", "sequence": 4711, "sent_ms": 1800000000000,'
        ' "interval_s": 60, "driver": "host (pid 4711)"}': "tests/cluster/test_canary.py reads it",
    },
}
"""Page, first line of the block, and why no test plays it."""
