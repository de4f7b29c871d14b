"""ACLs followed between clusters with authorizers, and what is said where there are none."""

from __future__ import annotations

import contextlib
import io
import json
import logging
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import pytest

from heliograph.acl import AclBinding, AclOperation, AclPattern, AclPermission
from heliograph.broker.acls import AclAdmin
from heliograph.broker.admin import Change
from heliograph.broker.clients import Clients
from heliograph.broker.view import TopicView
from heliograph.cli.app import main
from heliograph.compat.acls import AclsJob
from heliograph.compat.topic_configs import TopicConfigsJob
from heliograph.config.load import load_config
from heliograph.config.schema import MirrorConfig
from heliograph.driver.deletions import Absences, find_deleted
from heliograph.errors import AuthorizerOff, BrokerError, NotAuthorised
from heliograph.ledger.entries import ledger_topic
from heliograph.ledger.service import LedgerService
from heliograph.model import TopicName, TopicPartition
from heliograph.topics.deletions import Deletions
from heliograph_tools.localkafka.cluster import ClusterSpec, LocalCluster, local_clusters
from tests.kit.acls import Grant, grant
from tests.kit.clusters import TopicNames
from tests.kit.ledgers import begin_lanes, open_ledger
from tests.kit.mirror import write_config
from tests.kit.topics import create_topic, wait_until

Pair = dict[str, LocalCluster]
USERS: Final = {"alice": "of-wonderland", "mirror": "seen-by-nobody"}
READ, WRITE, ALL = AclOperation.READ, AclOperation.WRITE, AclOperation.ALL
LITERAL, PREFIXED = AclPattern.LITERAL, AclPattern.PREFIXED


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """A and B, where nobody but the admin user may do anything by default."""
    specs = [
        ClusterSpec(
            alias=alias,
            heap_mb=256,
            sasl="PLAIN",
            authorizer=True,
            users=USERS,
            jvm_options=("-XX:TieredStopAtLevel=1",),
        )
        for alias in ("A", "B")
    ]
    with local_clusters(specs, root=tmp_path_factory.mktemp("guarded") / "run") as clusters:
        yield clusters


def acl(
    name: str,
    operation: AclOperation = READ,
    permission: AclPermission = AclPermission.ALLOW,
    pattern: AclPattern = LITERAL,
    principal: str = "User:alice",
) -> AclBinding:
    return AclBinding(
        name=name,
        pattern=pattern,
        principal=principal,
        host="*",
        operation=operation,
        permission=permission,
    )


class Scene:
    """One flow from A to B under aliases of its own, so that each test has its own ledger."""

    def __init__(
        self, pair: Pair, folder: Path, alias: str, user: str = "", **settings: str
    ) -> None:
        self.alias = alias
        aliases = {alias: pair["A"], f"{alias}-to": pair["B"]}
        named = {name.replace("_", "."): value for name, value in settings.items()}
        top = {"sync.topic.configs.enabled": "true", "sync.topic.acls.enabled": "true"}
        as_user = {
            f"{name}.{key}": value
            for name, cluster in aliases.items()
            if user
            for key, value in cluster.client_config_of(user).items()
        }
        self.file = write_config(
            folder / f"{alias}{user}.properties",
            {n: c.bootstrap for n, c in aliases.items()} if user else aliases,
            {f"{alias}->{alias}-to": named},
            top={"emit.heartbeats.enabled": "false", **top, **as_user},
        )
        self.config: MirrorConfig = load_config(self.file)
        (self.flow,) = self.config.flows
        self.clients = Clients(self.config)
        self.ledgers = LedgerService(self.config.clusters)
        self.source_acls = self.clients.acls(self.clients.source(self.flow.id))
        self.target_acls = self.clients.acls(self.clients.target(self.flow.id))
        self.source = self.clients.admin(self.clients.source(self.flow.id))
        self.target = self.clients.admin(self.clients.target(self.flow.id))

    def begin(self) -> None:
        """Make the ledger, as planning the flow does."""
        cluster_id = self.source.describe().cluster_id
        open_ledger(self.ledgers, self.flow.id, self.target, cluster_id)

    def of_target(self) -> frozenset[AclBinding]:
        """ACLs of the target under this scene's prefix."""
        found = self.target_acls.topic_acls()
        return frozenset(each for each in found if each.name.startswith(f"{self.alias}."))

    def step(self) -> None:
        AclsJob(self.flow, self.clients, self.ledgers).step()

    def close(self) -> None:
        self.ledgers.close()
        self.clients.close()


def granted(admin: AclAdmin, *bindings: AclBinding) -> None:
    assert set(admin.create(bindings).values()) == {Change.DONE}
    wait_until(lambda: set(bindings) <= admin.topic_acls(), "the ACLs to be there")


def revoked(admin: AclAdmin, *bindings: AclBinding) -> None:
    assert set(admin.delete(bindings).values()) == {Change.DONE}
    wait_until(lambda: not set(bindings) & admin.topic_acls(), "the ACLs to be gone")


def test_acls_are_created_described_and_deleted_one_by_one(
    guarded: Pair, topic: TopicNames, tmp_path: Path
) -> None:
    name = topic("one")
    bindings = [
        acl(name),
        acl(name, ALL, AclPermission.DENY),
        acl(name, pattern=PREFIXED),
        acl(name, principal="User:CN=Jo Müller,O=x|y"),
    ]
    with closing(Scene(guarded, tmp_path, "oneA")) as scene:
        granted(scene.source_acls, *bindings)

        revoked(scene.source_acls, *bindings[1:])

        left = {each for each in scene.source_acls.topic_acls() if each.name == name}
        assert left == {bindings[0]}
        assert scene.source_acls.delete(bindings[1:]) == dict.fromkeys(bindings[1:], Change.DONE)


def test_acls_follow_their_topics_and_a_second_look_changes_nothing(
    guarded: Pair, topic: TopicNames, tmp_path: Path
) -> None:
    """CustomForwardingAdmin's ACL test, and who may look at the copy before and after."""
    name, hidden = create_topic(guarded["A"], topic("orders")), topic("hidden")
    renamed = TopicName(create_topic(guarded["B"], f"folA.{name}"))
    bob, carol, eve = "User:bob", "User:carol", "User:eve"
    with (
        closing(Scene(guarded, tmp_path, "folA", topics=name)) as scene,
        closing(Scene(guarded, tmp_path, "folA", "alice", topics=name)) as as_alice,
    ):
        scene.begin()
        present = acl(renamed, AclOperation.DESCRIBE, principal=carol)
        granted(scene.target_acls, present)
        granted(
            scene.source_acls,
            acl(name),
            acl(name, AclOperation.DESCRIBE, principal=carol),
            acl(name, WRITE),
            acl(name, ALL, principal=bob),
            acl(name, ALL, AclPermission.DENY, principal=eve),
            acl(name, pattern=PREFIXED, principal=bob),
            acl(hidden),
        )
        before = as_alice.target.describe_each([renamed])[renamed]

        scene.step()

        wanted = {
            present,
            acl(renamed),
            acl(renamed, principal=bob),
            acl(renamed, ALL, AclPermission.DENY, principal=eve),
            acl(renamed, pattern=PREFIXED, principal=bob),
        }
        wait_until(lambda: scene.of_target() == wanted, "the ACLs to follow")
        assert isinstance(before, NotAuthorised)
        assert isinstance(as_alice.target.describe_each([renamed])[renamed], TopicView)
        assert scene.ledgers.acls(scene.flow.id) == wanted - {present}
        end = ledger_end(scene)
        scene.step()
        assert ledger_end(scene) == end
        assert scene.of_target() == wanted


def ledger_end(scene: Scene) -> int:
    partition = TopicPartition(topic=ledger_topic(scene.flow.id.source), partition=0)
    return scene.target.list_offsets([partition], "latest")[partition]


def test_a_revocation_reaches_the_target_and_others_acls_are_left_alone(
    guarded: Pair, topic: TopicNames, tmp_path: Path
) -> None:
    name = create_topic(guarded["A"], topic("orders"))
    with closing(Scene(guarded, tmp_path, "revA", topics=name)) as scene:
        scene.begin()
        ours, by_hand = acl(f"revA.{name}"), acl(f"revA.{name}", AclOperation.DESCRIBE)
        granted(scene.target_acls, by_hand)
        granted(scene.source_acls, acl(name), acl(name, AclOperation.DESCRIBE))
        scene.step()
        wait_until(lambda: scene.of_target() == {ours, by_hand}, "the ACL to follow")

        revoked(scene.source_acls, acl(name), acl(name, AclOperation.DESCRIBE))
        scene.step()

        wait_until(lambda: scene.of_target() == {by_hand}, "the revocation")
        assert scene.ledgers.acls(scene.flow.id) == frozenset()


def test_in_mirrormaker2_mode_a_revocation_stays_on_the_source(
    guarded: Pair, topic: TopicNames, tmp_path: Path
) -> None:
    name = create_topic(guarded["A"], topic("orders"))
    mode = {"sync_topic_acls_mode": "mirrormaker2"}
    with closing(Scene(guarded, tmp_path, "mm2A", topics=name, **mode)) as scene:
        scene.begin()
        granted(scene.source_acls, acl(name), acl(name, pattern=PREFIXED))
        scene.step()
        wait_until(lambda: scene.of_target() == {acl(f"mm2A.{name}")}, "the ACL to follow")

        revoked(scene.source_acls, acl(name), acl(name, pattern=PREFIXED))
        scene.step()

        assert scene.of_target() == {acl(f"mm2A.{name}")}


def test_a_crash_between_ledger_and_acl_is_mended_by_the_next_look(
    guarded: Pair, topic: TopicNames, tmp_path: Path
) -> None:
    name = create_topic(guarded["A"], topic("orders"))
    ours = acl(f"craA.{name}")
    with closing(Scene(guarded, tmp_path, "craA", topics=name)) as scene:
        scene.begin()
        granted(scene.source_acls, acl(name))
        scene.ledgers.note_acls(scene.flow.id, added=[ours])

        scene.step()
        wait_until(lambda: scene.of_target() == {ours}, "the ACL to follow")
        revoked(scene.source_acls, acl(name))
        revoked(scene.target_acls, ours)
        scene.step()

        assert scene.ledgers.acls(scene.flow.id) == frozenset()


def test_a_source_that_is_another_cluster_than_before_revokes_nothing(
    guarded: Pair, topic: TopicNames, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    name = create_topic(guarded["A"], topic("orders"))
    ours = acl(f"othA.{name}")
    with closing(Scene(guarded, tmp_path, "othA", topics=name)) as scene:
        open_ledger(scene.ledgers, scene.flow.id, scene.target, "the one there was before")
        scene.ledgers.note_acls(scene.flow.id, added=[ours])
        granted(scene.target_acls, ours)

        scene.step()

        assert scene.of_target() == {ours}
        assert "not the cluster the flow began with" in caplog.text


def test_clusters_without_an_authorizer_are_named_once_for_all_flows(
    pair: Pair, topic: TopicNames, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """MirrorSourceConnectorTest.testNoBrokerAclAuthorizer."""
    file = write_config(
        tmp_path / "mm2.properties",
        {"offA": pair["A"], "offB": pair["B"]},
        {"offA->offB": {"topics": "none"}, "offB->offA": {"topics": "none"}},
    )
    caplog.set_level(logging.INFO)
    config = load_config(file)
    with closing(Clients(config)) as clients, closing(LedgerService(config.clusters)) as ledgers:
        with pytest.raises(AuthorizerOff):
            clients.acls(config.clusters[config.flows[0].id.source]).topic_acls()
        for _ in range(2):
            for flow in config.flows:
                AclsJob(flow, clients, ledgers).step()

    said = [r.getMessage() for r in caplog.records if r.name == "heliograph.compat.acls"]
    assert sorted(said) == [
        f"cluster {alias}: no authorizer is configured: ACLs are not followed from or to it"
        for alias in ("offA", "offB")
    ]


def test_missing_permissions_are_named_once_and_leave_the_ledger_as_it_was(
    guarded: Pair, topic: TopicNames, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    name = create_topic(guarded["A"], topic("orders"))
    with closing(Scene(guarded, tmp_path, "lackA", topics=name)) as boss:
        boss.begin()
        granted(boss.source_acls, acl(name), acl(name, AclOperation.ALTER))
        wanted = {acl(f"lackA.{name}"), acl(f"lackA.{name}", AclOperation.ALTER)}
        with closing(Scene(guarded, tmp_path, "lackA", "mirror", topics=name)) as scene:
            loop = AclsJob(scene.flow, scene.clients, boss.ledgers)
            loop.step()
            grant(guarded["A"], [Grant(user="mirror", kind="cluster", operation="DESCRIBE")])
            grant(guarded["B"], [Grant(user="mirror", kind="cluster", operation="DESCRIBE")])
            wait_until(lambda: can_look(scene.source_acls), "DESCRIBE on the source")
            wait_until(lambda: can_look(scene.target_acls), "DESCRIBE on the target")
            loop.step()
            loop.step()
            remembered, created = boss.ledgers.acls(boss.flow.id), boss.of_target()
            grant(guarded["B"], [Grant(user="mirror", kind="cluster", operation="ALTER")])

            def is_followed() -> bool:
                loop.step()
                return boss.of_target() == wanted

            wait_until(is_followed, "the ACLs to follow once they may")

        said = [r.getMessage() for r in caplog.records if r.name == "heliograph.compat.acls"]
        assert said == [
            "cluster lackA: missing permission DESCRIBE on the cluster: "
            "ACLs are not followed from or to it",
            "cluster lackA-to: missing permission DESCRIBE on the cluster: "
            "ACLs are not followed from or to it",
            "cluster lackA-to: missing permission ALTER on the cluster: ACLs are not changed there",
        ]
        assert (remembered, created) == (frozenset(), frozenset())
        assert boss.ledgers.acls(boss.flow.id) == wanted


def can_look(admin: AclAdmin) -> bool:
    try:
        admin.topic_acls()
    except NotAuthorised:
        return False
    return True


def test_settings_that_may_not_be_changed_are_told_as_the_flows_problem(
    guarded: Pair, topic: TopicNames, tmp_path: Path
) -> None:
    """MirrorSourceConnectorTest.testMissingDescribeConfigsAcl: the message names the permission."""
    name = create_topic(guarded["A"], topic("orders"), config={"retention.bytes": "1000"})
    create_topic(guarded["B"], f"setA.{name}")
    with closing(Scene(guarded, tmp_path, "setA", topics=name)) as boss:
        granted(
            boss.source_acls,
            acl(name, AclOperation.DESCRIBE, principal="User:mirror"),
            acl(name, AclOperation.DESCRIBE_CONFIGS, principal="User:mirror"),
        )
        granted(
            boss.target_acls,
            acl(f"setA.{name}", AclOperation.DESCRIBE, principal="User:mirror"),
            acl(f"setA.{name}", AclOperation.DESCRIBE_CONFIGS, principal="User:mirror"),
        )
    with closing(Scene(guarded, tmp_path, "setA", "mirror", topics=name)) as scene:
        loop = TopicConfigsJob(scene.flow, scene.clients)

        with pytest.raises(BrokerError) as refused:
            loop.step()

    assert str(refused.value) == (
        f"setA.{name}: cluster setA-to: missing permission ALTER_CONFIGS on topic setA.{name}"
    )


def test_a_topic_that_is_hidden_from_us_is_not_taken_for_a_deleted_one(
    guarded: Pair, topic: TopicNames, tmp_path: Path
) -> None:
    shown, hidden, gone = topic("shown"), topic("hidden"), topic("gone")
    asked = {"topics": f"{shown},{hidden},{gone}", "on_topic_deleted": "delete"}
    with (
        closing(Scene(guarded, tmp_path, "hidA", **asked)) as boss,
        closing(Scene(guarded, tmp_path, "hidA", "mirror", **asked)) as scene,
    ):
        boss.begin()
        for name in (shown, hidden, gone):
            renamed = TopicName(create_topic(guarded["B"], f"hidA.{name}"))
            written = boss.target.describe_topics([renamed])[renamed]
            begin_lanes(boss.ledgers, boss.flow.id, name, written)
        for name in (shown, hidden):
            create_topic(guarded["A"], name)
        describe = AclOperation.DESCRIBE
        seen = [acl(name, describe, principal="User:mirror") for name in (shown, gone)]
        granted(boss.source_acls, *seen)
        absences, target = Absences(), boss.target.describe()

        def look() -> Deletions:
            return find_deleted(
                scene.flow,
                scene.config.flows,
                source_admin=scene.source,
                source=scene.source.describe(),
                target=target,
                ledgers=boss.ledgers,
                absences=absences,
            )

        wait_until(lambda: bool(look().to_delete), "the second look", poll_s=0.25)
        found = look()

    assert [each.source for each in found.to_delete] == [gone]
    assert found.refused == ()


def test_a_plan_shows_settings_and_acls_before_they_change(
    guarded: Pair, topic: TopicNames, tmp_path: Path
) -> None:
    name = create_topic(guarded["A"], topic("orders"), config={"retention.bytes": "1000"})
    create_topic(guarded["B"], f"plaA.{name}")
    old = acl(f"plaA.{name}", AclOperation.ALTER)
    with closing(Scene(guarded, tmp_path, "plaA", topics=name)) as scene:
        scene.begin()
        granted(scene.source_acls, acl(name, pattern=PREFIXED))
        scene.ledgers.note_acls(scene.flow.id, added=[old])
        granted(scene.target_acls, old)

        document = json.loads(heliograph("plan", scene.file, "--json"))
        text = heliograph("plan", scene.file)

        assert scene.of_target() == {old}
    (flow,) = document["flows"]
    assert flow["configs"] == [
        {"topic": f"plaA.{name}", "name": "retention.bytes", "from": "-1", "to": "1000"}
    ]
    (create,), (remove,) = flow["acls"]["create"], flow["acls"]["remove"]
    assert create == {
        "name": f"plaA.{name}",
        "pattern": "PREFIXED",
        "principal": "User:alice",
        "host": "*",
        "operation": "READ",
        "permission": "ALLOW",
    }
    assert (remove["operation"], flow["acls"]["unseen"]) == ("ALTER", None)
    for word in ("retention.bytes", "1000", "prefixed", "create", "remove", "ALLOW ALTER"):
        assert word in text


def heliograph(*arguments: Any) -> str:
    """What the command says on stdout, as its entry point runs it."""
    out = io.StringIO()
    before, sys.argv = sys.argv, ["heliograph", *map(str, arguments)]
    try:
        with contextlib.redirect_stdout(out), contextlib.suppress(SystemExit):
            main()
    finally:
        sys.argv = before
    return out.getvalue()
