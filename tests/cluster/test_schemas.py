"""Schemas, their ids in records, and client quotas, along with a flow between real brokers."""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka.admin import (
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from typer.testing import CliRunner

from heliograph.broker.quotas import QuotaAdmin, QuotaKey
from heliograph.cli.app import app
from heliograph.clock import monotonic_s
from heliograph.config.load import load_config
from heliograph.errors import NotYetKnown
from heliograph.inspect import dry_run
from heliograph.model import ClusterAlias, FlowId
from heliograph.registry import asked
from heliograph.schemas.note import schema_ids_of
from heliograph.transform.schema_ids import schema_ids
from heliograph_tools.localkafka.cluster import LocalCluster
from tests.kit.auditing import audited
from tests.kit.clusters import TopicNames
from tests.kit.inside import InsideMirror
from tests.kit.mirror import RECORDS_ONLY, write_config
from tests.kit.records import NewRec, produce, read_all
from tests.kit.small_registry import SmallRegistry, small_registry
from tests.kit.topics import admin_of, create_topic, wait_until

RECORDS = 30


def framed(schema_id: int, payload: bytes) -> bytes:
    return struct.pack(">bi", 0, schema_id) + payload


def file_of(
    folder: Path,
    pair: dict[str, LocalCluster],
    flow: FlowId,
    registries: tuple[SmallRegistry, SmallRegistry],
    topics: str,
    **more: str,
) -> Path:
    top = {
        **RECORDS_ONLY,
        f"{flow.source}.schema.registry.url": registries[0].url,
        f"{flow.target}.schema.registry.url": registries[1].url,
    }
    keys = {"topics": topics, **{name.replace("_", "."): value for name, value in more.items()}}
    clusters = {str(flow.source): pair["A"], str(flow.target): pair["B"]}
    return write_config(folder / "mm2.properties", clusters, {str(flow): keys}, top=top)


def test_schemas_go_along_and_records_say_the_targets_ids(
    pair: dict[str, LocalCluster],
    topic: TopicNames,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The target's registry is down first: that lane waits and says so, the other goes on."""
    monkeypatch.setattr(asked, "AGAIN_S", 0.05)
    name, plain = create_topic(pair["A"], topic("framed")), create_topic(pair["A"], topic("plain"))
    flow = FlowId(source=ClusterAlias(f"A-{name}"), target=ClusterAlias("B"))
    with small_registry() as source, small_registry(first_id=100) as target:
        file = file_of(
            tmp_path,
            pair,
            flow,
            (source, target),
            f"{name}, {plain}",
            schemas_enabled="true",
            schemas_subjects_rename="topics",
            transforms="ids",
            transforms_ids_type="SchemaIds",
            transforms_ids_topics=name,
        )
        known = source.put(f"{name}-value", '"v1"')
        values = [framed(known, b"%d" % number) for number in range(RECORDS)]
        produce(pair["A"], name, [NewRec(value=each, partition=0) for each in (*values, None)])
        produce(pair["A"], plain, [NewRec(value=b"plain", partition=0)])
        target.hold = lambda *_: (503, b"")

        with closing(InsideMirror(file)) as inside:
            inside.reconcile()
            wait_until(lambda: bool(inside.stalls), "a lane that says why it waits")
            (said,) = inside.stalls
            wait_until(
                lambda: bool(read_all(pair["B"], f"{flow.source}.{plain}")), "the other lane"
            )
            target.hold = None
            inside.step("schemas")
            inside.catch_up(2)
            noted = inside.ledgers.ask(flow, schema_ids_of)
        report = audited(file, flow)
        source.put("other-value", '"o1"')
        planned = CliRunner().invoke(app("plan"), ["plan", str(file), "--json"])
    # Another process has yet to ask what this one knows.
    schema_ids.cache_clear()
    began_s = monotonic_s()
    with pytest.raises(NotYetKnown, match=r"schema registry of A-.*: does not serve"):
        audited(file, flow)
    took_s = monotonic_s() - began_s

    assert took_s < 20
    assert "does not serve: answers 503" in said
    assert target.ids_of(f"{flow.source}.{name}-value") == {1: 100}
    mirrored = [rec.value for rec in read_all(pair["B"], f"{flow.source}.{name}")[0]]
    assert mirrored == [*(framed(100, b"%d" % number) for number in range(RECORDS)), None]
    assert noted == {known: 100}
    assert not report.differs
    assert not report.problems
    along = json.loads(planned.stdout)["flows"][0]["along"]
    assert along["schemas"] == [
        {
            "subject": "other-value",
            "target_subject": f"{flow.source}.other-value",
            "missing": [1],
            "level": None,
            "problem": None,
        }
    ]
    assert along["problems"] == []


def test_schemas_are_copied_by_command_once(
    pair: dict[str, LocalCluster], topic: TopicNames, tmp_path: Path
) -> None:
    name = create_topic(pair["A"], topic("schemas"))
    flow = FlowId(source=ClusterAlias(f"A-{name}"), target=ClusterAlias("B"))
    with small_registry() as source, small_registry(first_id=100) as target:
        file = file_of(tmp_path, pair, flow, (source, target), name)
        source.put("a-value", '"a1"')
        runner = CliRunner()

        tried = runner.invoke(app("schemas"), ["schemas", str(file), "--dry-run"])
        left = dict(target.subjects)
        done = runner.invoke(app("schemas"), ["schemas", str(file), "--json"])
        again = runner.invoke(app("schemas"), ["schemas", str(file)])
        target.put("b-value", '"other"')
        source.put("b-value", '"b1 breaking"')
        refused = runner.invoke(app("schemas"), ["schemas", str(file)])

    assert "1 subject, 1 to copy" in tried.stdout
    assert left == {}
    assert json.loads(done.stdout)["flows"][0]["registered"] == 1
    assert "0 schemas registered" in again.stdout
    assert refused.exit_code == 1
    assert "problem: b-value: version 1 is not compatible" in refused.stdout


def test_client_quotas_are_kept_in_step_and_plan_shows_what_differs(
    pair: dict[str, LocalCluster], topic: TopicNames, tmp_path: Path
) -> None:
    """As one of the brokers' own users: those of the pair belong to other tests."""
    name = create_topic(pair["A"], topic("quotas"))
    flow = FlowId(source=ClusterAlias(f"A-{name}"), target=ClusterAlias("B"))
    quotas = {"sync.client.quotas.enabled": "true", "topics": name}
    clusters = {str(flow.source): pair["A"], str(flow.target): pair["B"]}
    file = write_config(tmp_path / "mm2.properties", clusters, {str(flow): quotas})
    config = load_config(file)
    reads, writes = QuotaAdmin(config.source_of(flow)), QuotaAdmin(config.target_of(flow))
    of_client = QuotaKey((("client-id", name),), "producer_byte_rate")
    of_both = QuotaKey((("client-id", name), ("user", None)), "consumer_byte_rate")
    own = QuotaKey((("user", f"own-{name}"),), "request_percentage")
    mine = (of_client, of_both, own)
    try:
        assert reads.change({of_client: 1_000_000.0, of_both: 5_000.0}) == {}
        assert writes.change({of_client: 7.0, own: 50.0}) == {}
        wait_until(lambda: of_both in reads.quotas(), "the quota on the source")
        planned = dry_run.plan_flows(config)[0].along.quotas
        with closing(InsideMirror(file)) as inside:
            inside.reconcile()
            inside.step("client quotas")
            wait_until(lambda: of_both in writes.quotas(), "the quota on the target")
            copied = {key: writes.quotas().get(key) for key in mine}
            reads.change({of_client: None, of_both: None})
            wait_until(lambda: of_both not in reads.quotas(), "no quota on the source")
            inside.step("client quotas")
            wait_until(lambda: of_both not in writes.quotas(), "no quota on the target")
            left = {key: writes.quotas().get(key) for key in mine}
    finally:
        for admin in (reads, writes):
            admin.change(dict.fromkeys(mine))

    assert planned is not None
    assert {key: planned.changes.get(key) for key in mine} == {
        of_client: 1_000_000.0,
        of_both: 5_000.0,
        own: None,
    }
    assert own not in planned.changes
    assert copied == {of_client: 1_000_000.0, of_both: 5_000.0, own: 50.0}
    assert left == {of_client: None, of_both: None, own: 50.0}


def test_plan_names_the_scram_users_that_the_target_lacks(
    pair: dict[str, LocalCluster], topic: TopicNames, tmp_path: Path
) -> None:
    """One is on neither side as on the other, one has a mechanism less, one is on both."""
    name = create_topic(pair["A"], topic("users"))
    flow = FlowId(source=ClusterAlias(f"A-{name}"), target=ClusterAlias("B"))
    clusters = {str(flow.source): pair["A"], str(flow.target): pair["B"]}
    file = write_config(
        tmp_path / "mm2.properties",
        clusters,
        {str(flow): {"sync.client.quotas.enabled": "true", "topics": name}},
    )
    short, long = ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512
    given = {
        "A": [("absent", short), ("half", short), ("half", long), ("both", long)],
        "B": [("half", long), ("both", long), ("own", short)],
    }
    users = {side: [(f"{user}-{name}", how) for user, how in some] for side, some in given.items()}
    try:
        for side, some in users.items():
            _alter(pair[side], [_upserted(*each) for each in some])
        wait_until(
            lambda: f"own-{name}" in QuotaAdmin(load_config(file).target_of(flow)).scram_users(),
            "the users",
        )
        planned = CliRunner().invoke(app("plan"), ["plan", str(file), "--json"])
        shown = CliRunner().invoke(app("plan"), ["plan", str(file)])
    finally:
        for side, some in users.items():
            _alter(pair[side], [UserScramCredentialDeletion(*each) for each in some])

    along = json.loads(planned.stdout)["flows"][0]["along"]
    assert [each for each in along["missing_users"] if name in each] == [
        f"absent-{name} (SCRAM-SHA-256)",
        f"half-{name} (SCRAM-SHA-256)",
    ]
    assert f"absent-{name} (SCRAM-SHA-256)" in shown.stdout


def _upserted(user: str, mechanism: ScramMechanism) -> UserScramCredentialUpsertion:
    return UserScramCredentialUpsertion(user, ScramCredentialInfo(mechanism, 4096), b"secret")


def _alter(
    cluster: LocalCluster,
    changes: Sequence[UserScramCredentialUpsertion | UserScramCredentialDeletion],
) -> None:
    admin = admin_of(cluster)
    # A broker takes one change of a user at a time.
    for change in changes:
        for answer in admin.alter_user_scram_credentials([change]).values():
            answer.result(30)
