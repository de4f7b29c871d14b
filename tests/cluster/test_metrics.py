"""A real mirror, scraped by a real Prometheus: every panel's query, and what is pushed."""

from __future__ import annotations

import json
import re
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import yaml
from google.protobuf.json_format import Parse
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)

from heliograph_tools.localkafka.cluster import LocalCluster
from heliograph_tools.localkafka.ports import PortHold
from tests.kit.clusters import TopicNames
from tests.kit.dashboards import AWS, STRIMZI, STRIMZI_VARIABLES
from tests.kit.groups import commit, committed
from tests.kit.mirror import RECORDS_ONLY, lasting_topic, write_config
from tests.kit.prometheus import Prometheus, program, prometheus
from tests.kit.records import NewRec, end_offsets, produce
from tests.kit.runs import MirrorRun, mirror_runs
from tests.kit.topics import wait_until

ROOT = Path(__file__).parents[2]
RULES = ROOT / "deploy/prometheus/heliograph-rules.yml"
DASHBOARD = ROOT / "deploy/grafana/heliograph.json"
TOKEN = "m" * 20
_QUERIES_S_MAX = 150


def live_records(count: int) -> list[NewRec]:
    now_ms = int(time.time() * 1000)
    return [
        NewRec(key=b"k%d" % each, value=b"v" * 50, timestamp_ms=now_ms, partition=each % 2)
        for each in range(count)
    ]


class Collector:
    """Takes posts of OTLP, refuses those without the token."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        posts = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                is_known = self.headers["Authorization"] == f"Bearer {TOKEN}"
                if is_known and self.headers["Content-Type"] == "application/json":
                    posts.bodies.append(body)
                self.send_response(200 if is_known else 401)
                self.end_headers()
                self.wfile.write(b"{}")

            def log_message(self, format: str, *args: object) -> None: ...

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/v1/metrics"

    @contextmanager
    def listening(self) -> Iterator[None]:
        thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        thread.start()
        try:
            yield
        finally:
            self.server.shutdown()
            thread.join()
            self.server.server_close()


def pushed_names(body: bytes) -> set[str]:
    """By the protocol's own schema, which refuses what it does not know."""
    request = Parse(body, ExportMetricsServiceRequest())
    return {
        metric.name
        for resource in request.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
    }


def scrapes(port: int, token_file: Path) -> str:
    """As the guide has it, with the labels that Strimzi's PodMonitor puts on."""

    def job(name: str, params: dict[str, list[str]], labels: dict[str, str]) -> dict[str, Any]:
        return {
            "job_name": name,
            "authorization": {"credentials_file": str(token_file)},
            "params": params,
            "static_configs": [{"targets": [f"127.0.0.1:{port}"], "labels": labels}],
        }

    pod = {
        "strimzi_io_kind": "KafkaMirrorMaker2",
        "strimzi_io_cluster": "mm2",
        "namespace": "kafka",
        "kubernetes_pod_name": "mm2-0",
    }
    jobs = [
        job("heliograph", {}, {}),
        job("strimzi", {"compat": ["strimzi"]}, pod),
        job("aws", {"compat": ["jmx-exporter"]}, {}),
    ]
    timing = {"scrape_interval": "2s", "scrape_timeout": "2s"}
    return json.dumps({"global": timing, "scrape_configs": jobs})


def own_queries() -> list[str]:
    board = json.loads(DASHBOARD.read_text())
    return [
        re.sub(r"\$(source|target)\b", ".*", target["expr"]).replace("$__rate_interval", "1m")
        for panel in board["panels"]
        for target in panel.get("targets", ())
    ]


def without_data(server: Prometheus, queries: list[str]) -> list[str]:
    def asked(query: str) -> str:
        return query.replace("$cluster", "mm2").replace("$namespace", "kafka")

    return [query for query in queries if not server.query(asked(query))]


def test_a_real_prometheus_fills_every_panel(
    pair: dict[str, LocalCluster], topic: TopicNames, tmp_path: Path
) -> None:
    name = lasting_topic(pair["A"], topic("metrics"), partitions=2)
    number = name.rpartition("-")[2]
    source, target, group = f"meA{number}", f"meB{number}", f"readers-{number}"
    tokens, token = tmp_path / "tokens", tmp_path / "token"
    tokens.write_text(f"prometheus look {TOKEN}\n")
    token.write_text(TOKEN)
    tokens.chmod(0o600)
    collector, hold = Collector(), PortHold()
    port = hold.port
    file = write_config(
        tmp_path / "mm2.properties",
        {source: pair["A"], target: pair["B"]},
        {
            f"{source}->{target}": {
                "topics": name,
                "groups": group,
                "emit.checkpoints.enabled": "true",
                "emit.checkpoints.interval.seconds": "1",
                "checkpoints.topic.replication.factor": "1",
                "lag.group": "lag-{source}-{target}",
                "canary.enabled": "true",
                "canary.topic.replication.factor": "1",
                "refresh.topics.interval.seconds": "2",
            }
        },
        top={
            **RECORDS_ONLY,
            "api.tokens.file": str(tokens),
            "metrics.otlp.endpoint": collector.url,
            "metrics.otlp.interval.seconds": "1",
            "metrics.otlp.token": TOKEN,
        },
    )
    produce(pair["A"], name, live_records(200))
    commit(pair["A"], group, name, {0: 10, 1: 10})

    with mirror_runs() as runs, collector.listening():
        hold.close()
        run = MirrorRun(file, tmp_path / "run.log", "--slots", "1", "--api", f"127.0.0.1:{port}")
        runs.append(run)
        # Beside Spark, which takes longer to start.
        with prometheus(tmp_path, scrapes(port, token)) as server:
            run.await_copying()
            panels = [query for queries in STRIMZI.values() for query in queries]
            asked = [*STRIMZI_VARIABLES, *panels, *AWS, *own_queries()]
            empty = asked
            copied = 200

            def are_filled() -> bool:
                nonlocal empty, copied
                produce(pair["A"], name, live_records(20))
                copied += 20
                empty = without_data(server, empty)
                return set(empty) <= {STRIMZI["CPU Usage"][0], AWS[-1]}

            try:
                wait_until(are_filled, "panels", timeout_s=_QUERIES_S_MAX, poll_s=0.5)
            except AssertionError as exc:
                raise AssertionError(f"{server.targets()}, without data: {empty}") from exc
            assert set(empty) == {STRIMZI["CPU Usage"][0], AWS[-1]}
            assert len(STRIMZI) == 21

            mine = f'{{job="heliograph",source="{source}",target="{target}"'
            ours = f',topic="{name}"'

            def value(metric: str, more: str = "") -> float:
                found = server.query(f"{metric}{mine}{more}}}")
                return sum(float(each["value"][1]) for each in found) if found else -1.0

            wait_until(
                lambda: (
                    value("heliograph_records_total", ours) == copied
                    and value("heliograph_lag_records", f'{ours},position="committed"') == 0
                ),
                f"{copied} records and no lag in Prometheus",
                timeout_s=60,
            )
            assert value("heliograph_latency_seconds_count") > 0
            assert value("heliograph_lost_records_total") == 0
            assert value("heliograph_flow_state", ',state="leading"') == 1
            assert value("heliograph_flow_verdict", ',verdict="healthy"') == 1
            assert value("heliograph_alarms", ',alarm="stall",silenced="false"') == 0
            assert value("heliograph_canary_arrived_total") >= 1
            assert value("heliograph_ledger_bytes") > 0
            assert server.query("sum(heliograph_retention_overrun_seconds)") != []
            # The settled positions as a group of the source, which every lag tool knows.
            lag_group = f"lag-{source}-{target}"
            wait_until(
                lambda: committed(pair["A"], lag_group, name) == end_offsets(pair["A"], name),
                "a group that stands at the source's end",
                timeout_s=30,
            )
        refused = status_of(f"http://127.0.0.1:{port}/metrics")
        plain = get(f"http://127.0.0.1:{port}/metrics?lanes=true")
        run.stop()

    assert refused == 401
    assert f'heliograph_lane_lag_records{{partition="1",position="read",source="{source}"' in plain
    assert f"lag-{source}" not in "".join(re.findall(r'group="([^"]*)"', plain))
    assert {"heliograph_records_total", "heliograph_latency_seconds"} <= pushed_names(
        collector.bodies[-1]
    )
    assert TOKEN not in run.said


def status_of(url: str) -> int:
    try:
        with urlopen(url, timeout=30) as answer:
            return int(answer.status)
    except HTTPError as exc:
        return exc.code


def get(url: str) -> str:
    request = Request(url, headers={"Authorization": f"Bearer {TOKEN}"})
    with urlopen(request, timeout=30) as answer:
        found: str = answer.read().decode()
        return found


def test_the_rules_are_rules_and_fire_when_they_should(tmp_path: Path) -> None:
    tests = tmp_path / "rules-test.yml"
    tests.write_text(
        json.dumps({"rule_files": [str(RULES)], "tests": [test for _, test in ALARMS]})
    )

    promtool = str(program("promtool"))
    checked = subprocess.run(
        [promtool, "check", "rules", str(RULES)], capture_output=True, text=True, check=False
    )
    played = subprocess.run(
        [promtool, "test", "rules", str(tests)], capture_output=True, text=True, check=False
    )

    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert played.returncode == 0, played.stdout + played.stderr


def test_every_rule_is_played() -> None:
    rules = yaml.safe_load(RULES.read_text())["groups"][0]["rules"]

    assert {name for name, _ in ALARMS} == {rule["alert"] for rule in rules}


def alarm(
    name: str,
    series: dict[str, str],
    labels: dict[str, str],
    *,
    at: str = "20m",
    severity: str = "warning",
) -> tuple[str, dict[str, Any]]:
    """Off for a well mirror, and firing with these labels for one with these series."""
    firing = {"alertname": name, "alertstate": "firing", "severity": severity, **labels}
    shown = ", ".join(f'{key}="{value}"' for key, value in sorted(firing.items()))
    asked = f'ALERTS{{alertname="{name}"}}'
    test = {
        "interval": "1m",
        "input_series": [{"series": key, "values": value} for key, value in series.items()],
        "promql_expr_test": [
            {
                "expr": asked,
                "eval_time": at,
                "exp_samples": [{"labels": f"ALERTS{{{shown}}}", "value": 1}],
            },
            {"expr": f'{asked} unless {asked[:-1]},alertstate="pending"}}', "eval_time": "0m"},
        ],
    }
    return name, test


FLOW = {"source": "A", "target": "B"}
AB = 'source="A",target="B"'
UP = {"heliograph_build_info": "1x30"}
ALARMS = [
    alarm("HeliographDriverGone", {"up": "0x30"}, {}, severity="critical"),
    alarm(
        "HeliographFlowNotLed",
        {f'heliograph_flow_state{{{AB},state="leading"}}': "1 0x30"},
        FLOW,
        severity="critical",
    ),
    alarm("HeliographFlowProblem", {f"heliograph_flow_problem{{{AB}}}": "0 1x30"}, FLOW),
    alarm(
        "HeliographLaneStalled",
        {f'heliograph_stalled_lanes{{{AB},reason="bug"}}': "0 2x30"},
        {**FLOW, "reason": "bug"},
        severity="critical",
    ),
    alarm(
        "HeliographNotHealthy",
        {f'heliograph_flow_verdict{{{AB},verdict="losing"}}': "0 1x30"},
        {**FLOW, "verdict": "losing"},
        severity="critical",
    ),
    alarm(
        "HeliographAlarm",
        {
            f'heliograph_alarms{{{AB},alarm="standby",silenced="false"}}': "0 1x30",
            f'heliograph_alarms{{{AB},alarm="ledger",silenced="true"}}': "0 1x30",
        },
        {**FLOW, "alarm": "standby"},
    ),
    alarm(
        "HeliographCanaryLate",
        {
            f"heliograph_canary_late_seconds{{{AB}}}": "0 61x30",
            f"heliograph_canary_interval_seconds{{{AB}}}": "60x30",
        },
        FLOW,
        severity="critical",
    ),
    alarm(
        "HeliographCertificateEnds",
        {
            f'heliograph_certificate_end_timestamp_seconds{{{AB},certificate="the client of B"}}': (
                "9999999999 1209600x30"
            )
        },
        {**FLOW, "certificate": "the client of B"},
    ),
    alarm("HeliographLaneStuck", {f"heliograph_flow_stuck_lanes{{{AB}}}": "0 1x30"}, FLOW),
    alarm(
        "HeliographBehind",
        {f'heliograph_flow_lag_seconds{{{AB},position="acknowledged"}}': "0 301x30"},
        {**FLOW, "position": "acknowledged"},
    ),
    alarm(
        "HeliographLagUnknown",
        {
            f'heliograph_flow_state{{{AB},state="leading"}}': "1x30",
            f'heliograph_flow_lag_records{{{AB},position="acknowledged"}}': "0 stale",
        },
        {**FLOW, "state": "leading"},
    ),
    alarm(
        "HeliographRetentionOverrunNear",
        {f"heliograph_flow_retention_overrun_seconds{{{AB}}}": "+Inf 600x30"},
        FLOW,
        severity="critical",
    ),
    alarm(
        "HeliographRecordsLost",
        {f"heliograph_lost_records_total{{{AB}}}": "0x10 5x30"},
        FLOW,
        severity="critical",
    ),
    alarm(
        "HeliographForeignRecords",
        {f'heliograph_foreign_records_total{{{AB},topic="t"}}': "0x10 1x30"},
        {**FLOW, "topic": "t"},
    ),
    alarm(
        "HeliographSlotsRestart",
        {'heliograph_slot_restarts_total{slot="0"}': "0+1x30"},
        {"slot": "0"},
    ),
    alarm(
        "HeliographThrottledByCluster",
        {'heliograph_link_throttle_seconds_total{cluster="A",way="from"}': "0+30x30"},
        {"cluster": "A", "way": "from"},
    ),
    alarm("HeliographDrillFailed", {f"heliograph_drill_passed{{{AB}}}": "1 0x30"}, FLOW),
    alarm(
        "HeliographAuditFindings",
        {f'heliograph_audit_findings{{{AB},kind="lost"}}': "0 3x30"},
        FLOW,
        severity="critical",
    ),
]
