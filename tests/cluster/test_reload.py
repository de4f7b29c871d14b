"""A file that changes while its mirror copies: what it concerns follows, and nothing else moves."""

from __future__ import annotations

import asyncio
import shutil
import time
from pathlib import Path
from typing import Final

from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)

from heliograph.config.load import load_config
from heliograph.ledger.access import read_ledger
from heliograph.ledger.trail import DONE, changes_of
from heliograph.model import ClusterAlias, FlowId, Stalled
from heliograph_tools.localkafka.certificates import write_certificates
from heliograph_tools.localkafka.cluster import ClusterSpec, LocalCluster
from heliograph_tools.localkafka.spec import login_line
from tests.kit.clusters import ClusterFactory, TopicNames
from tests.kit.mirror import RECORDS_ONLY, lasting_topic, route, write_config
from tests.kit.records import numbered, produce
from tests.kit.reloading import Reloading, is_led, load_on, reloading
from tests.kit.topics import admin_of, wait_until

PARTITIONS: Final = 2
RUNNING_ONCE: Final = (1, ["Running"])
"""A lane that was handed out once and has run ever since."""
_SESSION_S: Final = 2
_AWAY_S_MAX: Final = 5.0
"""As long a lane may be away while its cluster's credentials change."""
_SCRAM: Final = "SCRAM-SHA-512"


def test_a_changed_file_moves_only_the_flows_it_concerns(
    pair: dict[str, LocalCluster], topic: TopicNames, tmp_path: Path
) -> None:
    source, target = pair["A"], pair["B"]
    names = [topic(name) for name in ("one", "two", "steady")]
    one, two, steady = (lasting_topic(source, name, partitions=PARTITIONS) for name in names)
    # A ledger is named by its source: flows into one cluster need sources of different names.
    file = write_config(
        tmp_path / "mm2.properties",
        {"a": source, "c": source, "e": source, "b": target},
        {"a->b": {"topics": one}, "c->b": {"topics": steady}},
    )
    with reloading(file) as mirror:
        with load_on(source, names, PARTITIONS):
            mirror.await_copying("a->b", one)
            mirror.await_copying("c->b", steady)

            other_topics(mirror, one, two)
            bad_file_then_one_that_needs_a_restart(mirror)
            other_limits(mirror)
            flow_begins_and_ends(mirror, two)

            mirror.await_copying("c->b", steady)
            untouched = mirror.watch.of("c->b")
        compared = [
            route(file, (alias, source), ("b", target)).assert_arrives(name)
            for alias, name in (("a", one), ("a", two), ("c", steady))
        ]

    assert len(untouched) == PARTITIONS
    assert list(untouched.values()) == [RUNNING_ONCE] * PARTITIONS
    assert min(compared) > 0
    assert stalls(mirror, "c->b") == set()
    reloads = {flow: reloads_of(file, flow) for flow in ("a", "c")}
    assert f"a->b: topics: {one} -> {one}, {two}" in reloads["a"]
    assert [what for what in reloads["c"] if "a->b" in what] == []


def reloads_of(file: Path, source: str) -> list[str]:
    """What the ledger's history has of changed files."""
    flow = FlowId(source=ClusterAlias(source), target=ClusterAlias("b"))

    async def read() -> list[str]:
        async with read_ledger(load_config(file), flow) as ledger:
            changes = changes_of(ledger.store.view)
        assert {each.outcome for each in changes} <= {DONE}
        return [each.what for each in changes if each.verb == "reload"]

    return asyncio.run(read())


def other_topics(mirror: Reloading, one: str, two: str) -> None:
    mirror.rewrite(lambda text: text.replace(f"topics = {one}", f"topics = {one},{two}"))
    mirror.await_changes(f"a->b: topics: {one} -> {one}, {two}")
    mirror.await_copying("a->b", two)
    kept = [seen for lane, seen in mirror.watch.of("a->b").items() if lane.source.topic == one]
    assert kept == [RUNNING_ONCE] * PARTITIONS, "lanes that stay are not touched"


def other_limits(mirror: Reloading) -> None:
    limits = "a->b.consumer.fetch.max.bytes = 3000000\nslots.bytes.max = 99999999\n"
    mirror.rewrite(lambda text: text + limits)
    mirror.await_changes(
        "a->b: consumer: fetch.max.bytes: changed", "slots.bytes.max: 268435456 -> 99999999"
    )
    wait_until(lambda: has_limits(mirror, 3_000_000, 99_999_999), "limits in the slots")


def flow_begins_and_ends(mirror: Reloading, two: str) -> None:
    flow = FlowId(source=ClusterAlias("e"), target=ClusterAlias("b"))
    mirror.rewrite(lambda text: text + f"e->b.enabled = true\ne->b.topics = {two}\n")
    mirror.await_changes("e->b: mirroring begins")
    mirror.await_copying("e->b", two)
    assert is_led(load_config(mirror.file), flow)
    mirror.rewrite(lambda text: text.replace("e->b.enabled = true", "e->b.enabled = false"))
    mirror.await_changes("e->b: mirroring ends")
    wait_until(lambda: "e->b" not in mirror.flows(), "its lanes are gone")
    assert not is_led(load_config(mirror.file), flow), "another driver may take it"


def stalls(mirror: Reloading, flow: str) -> set[str]:
    """Of all the flow's lanes, all the time."""
    told = [at for status in mirror.statuses for at in status.progress.values()]
    seen = [at.state for at in told if str(at.lane.flow) == flow]
    return {state.detail for state in seen if isinstance(state, Stalled)}


def bad_file_then_one_that_needs_a_restart(mirror: Reloading) -> None:
    good = mirror.file.read_text()
    mirror.rewrite(lambda text: text + "a->b.topcs = x\n")
    mirror.await_problem("unknown key")
    mirror.rewrite(lambda _: good + "master = local[7]\nc->b.topics.exclude = .*\n")
    mirror.await_problem("master: unset -> local[7]: needs a restart")
    wait_until(
        lambda: mirror.status is not None and "needs a restart" in mirror.status.config.problem,
        "the status shows it",
    )
    mirror.rewrite(lambda _: good)
    wait_until(lambda: not mirror.problem, "the file is followed again")


def has_limits(mirror: Reloading, fetch_bytes: int, bytes_max: int) -> bool:
    shuttles = [each for each in mirror.watch.shuttles if each._flows]
    return all(
        shuttle._slot.room.bytes_max == bytes_max
        and all(
            flow.limits.bytes_max == fetch_bytes
            for flow_id, flow in shuttle._flows.items()
            if str(flow_id) == "a->b"
        )
        for shuttle in shuttles
    )


def test_credentials_rotate_while_their_flow_copies(
    clusters: ClusterFactory, pair: dict[str, LocalCluster], topic: TopicNames, tmp_path: Path
) -> None:
    """A file that the configuration names changes first, and the cluster does not know the user
    yet; then it does, and the old one is deleted. Sessions last two seconds: a connection of the
    old one would end. Last comes the wrong order: the cluster has another password first."""
    source = clusters(
        ClusterSpec(
            alias="locked",
            sasl="SCRAM-SHA-512",
            users={"mirror": "old-word"},
            broker_config={"connections.max.reauth.ms": str(_SESSION_S * 1000)},
        )
    )["locked"]
    target, admin = pair["B"], admin_of(source)
    name = lasting_topic(source, topic("orders"), partitions=PARTITIONS)
    secrets = tmp_path / "secrets.properties"
    secrets.write_text(login("mirror", "old-word"))
    file = write_config(
        tmp_path / "mm2.properties",
        {"locked": source.bootstrap, "b": target},
        {"locked->b": {"topics": name}},
        top={
            **RECORDS_ONLY,
            "config.providers": "file",
            "config.providers.file.class": (
                "org.apache.kafka.common.config.provider.FileConfigProvider"
            ),
            "locked.security.protocol": "SASL_PLAINTEXT",
            "locked.sasl.mechanism": _SCRAM,
            "locked.sasl.jaas.config": f"${{file:{secrets}:login}}",
        },
    )
    way = route(file, ("locked", source), ("b", target))

    with reloading(file) as mirror:
        with load_on(source, (name,), PARTITIONS):
            mirror.await_copying("locked->b", name)
            secrets.write_text(login("other", "new-word"))
            mirror.await_problem("credentials refused")
            mirror.await_copying("locked->b", name)
            alter(admin, set_password("other", "new-word"))
            mirror.await_changes(
                "locked: security.sasl.username: changed", "locked: security.sasl.password: changed"
            )
            alter(admin, UserScramCredentialDeletion("mirror", ScramMechanism.SCRAM_SHA_512))
            time.sleep(2 * _SESSION_S)
            mirror.await_copying("locked->b", name)
            seen, stalled = mirror.watch.of("locked->b"), stalls(mirror, "locked->b")
            still_s = max(mirror.still_s.values())

            alter(admin, set_password("other", "last-word"))
            wait_until(lambda: bool(stalls(mirror, "locked->b")), "the old one is refused")
            secrets.write_text(login("other", "last-word"))
            mirror.await_changes("locked: security.sasl.password: changed")
            mirror.await_copying("locked->b", name)
        compared = way.assert_arrives(name)

    assert compared > 0
    assert list(seen.values()) == [RUNNING_ONCE] * PARTITIONS
    assert stalled == set()
    assert 0 < still_s < _AWAY_S_MAX


def test_certificates_rotate_while_their_flow_copies(
    clusters: ClusterFactory, pair: dict[str, LocalCluster], topic: TopicNames, tmp_path: Path
) -> None:
    """The brokers trust a second authority first, then the mirror's files change in place, and at
    last the brokers know the second one alone: what copies then has the new certificate."""
    source = clusters(ClusterSpec(alias="mutual", tls=True, mutual_tls=True))["mutual"]
    old, new = source.folder / "tls", tmp_path / "tls"
    write_certificates(new)
    mine = tmp_path / "mine"
    mine.mkdir()
    trusted = [(folder / "authority.pem").read_text() for folder in (old, new)]
    shutil.copy(old / "client.pem", mine / "client.pem")
    (mine / "authority.pem").write_text(trusted[0])
    name = lasting_topic(source, topic("orders"), partitions=PARTITIONS)
    file = write_config(
        tmp_path / "mm2.properties",
        {"mutual": source.bootstrap, "b": pair["B"]},
        {"mutual->b": {"topics": name}},
        top={
            **RECORDS_ONLY,
            "mutual.security.protocol": "SSL",
            "mutual.ssl.truststore.type": "PEM",
            "mutual.ssl.truststore.location": str(mine / "authority.pem"),
            "mutual.ssl.keystore.type": "PEM",
            "mutual.ssl.keystore.location": str(mine / "client.pem"),
        },
    )
    way = route(file, ("mutual", source), ("b", pair["B"]))
    restarted_with(source, {"authority.pem": "".join(trusted)})

    with reloading(file) as mirror:
        produce(source, name, numbered(100, partitions=PARTITIONS))
        assert way.assert_arrives(name) == 100

        (mine / "authority.pem").write_text("".join(trusted))
        shutil.copy(new / "client.pem", mine / "client.pem")
        wait_until(lambda: "mutual: security.tls.key_pem: changed" in mirror.changes, "a new key")
        leaves = {each: (new / each).read_text() for each in ("broker.pem", "client.pem")}
        restarted_with(source, {"authority.pem": trusted[1], **leaves})
        produce(source, name, numbered(100, partitions=PARTITIONS, start=100))
        assert way.assert_arrives(name) == 200
        seen = mirror.watch.of("mutual->b")

    assert [count for count, _ in seen.values()] == [1] * PARTITIONS, "no lane was given out again"


def restarted_with(cluster: LocalCluster, files: dict[str, str]) -> None:
    cluster.halt()
    for name, text in files.items():
        (cluster.folder / "tls" / name).write_text(text)
    cluster.revive()


def login(user: str, password: str) -> str:
    return f"login = {login_line(_SCRAM, user=user, password=password)}\n"


def set_password(user: str, password: str) -> UserScramCredentialUpsertion:
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
    return UserScramCredentialUpsertion(user, info, password.encode())


def alter(
    admin: AdminClient, change: UserScramCredentialUpsertion | UserScramCredentialDeletion
) -> None:
    for answer in admin.alter_user_scram_credentials([change]).values():
        answer.result(30)
