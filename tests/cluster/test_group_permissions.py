"""Groups on a cluster that allows nothing by itself: what is missing is named, the rest goes on."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from heliograph.broker.group_view import SHARE_METADATA, GroupOffset
from heliograph.broker.groups import GroupAdmin
from heliograph.config.schema import ClusterConfig, Secret, SecurityConfig
from heliograph.config.security import SaslConfig
from heliograph.errors import BrokerError, NotAuthorised
from heliograph.groups.sync import GroupOffsetsJob
from heliograph.model import ClusterAlias, FlowId, TopicName, TopicPartition
from heliograph_tools.localkafka.cluster import ClusterSpec, LocalCluster, local_clusters
from tests.kit.acls import grant, on
from tests.kit.clusters import TopicNames
from tests.kit.following import SHIFT, scene_of
from tests.kit.groups import commit, committed
from tests.kit.records import numbered, produce
from tests.kit.topics import create_topic, wait_until

Pair = dict[str, LocalCluster]
MIRROR, PASSWORD = "mirror", "seen-by-nobody"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Asks who you are and allows nothing by itself."""
    spec = ClusterSpec(
        alias="G",
        heap_mb=256,
        sasl="PLAIN",
        authorizer=True,
        users={MIRROR: PASSWORD},
        jvm_options=("-XX:TieredStopAtLevel=1",),
    )
    with local_clusters([spec], root=tmp_path_factory.mktemp("guarded") / "run") as clusters:
        yield clusters["G"]


def as_mirror(cluster: LocalCluster, alias: ClusterAlias) -> ClusterConfig:
    """The cluster to a user that may do only what ACLs say."""
    sasl = SaslConfig(mechanism="PLAIN", username=MIRROR, password=Secret(PASSWORD))
    return ClusterConfig(
        alias=alias,
        bootstrap_servers=(cluster.bootstrap,),
        security=SecurityConfig(protocol="SASL_PLAINTEXT", sasl=sasl),
    )


def test_a_missing_permission_is_named_with_its_group(
    guarded: LocalCluster, topic: TopicNames
) -> None:
    """One after the other, as an operator would grant them."""
    name, orders = topic("group"), create_topic(guarded, topic("orders"))
    commit(guarded, name, orders, {0: 4})
    admin = GroupAdmin(as_mirror(guarded, ClusterAlias("G")), timeout_s=20)
    at = TopicPartition(topic=TopicName(orders), partition=0)
    to = {at: GroupOffset(offset=9)}

    assert admin.list_groups() == {}
    for refused in (admin.describe, admin.offsets):
        with pytest.raises(NotAuthorised, match=f"cluster G: .* DESCRIBE on group {name}"):
            refused([name])
    with pytest.raises(NotAuthorised, match=f"cluster G: missing permission READ on group {name}"):
        admin.commit(name, to)
    grant(guarded, on(MIRROR, "group", name, "READ"))
    wait_until(lambda: name in admin.list_groups(), "the group is shown")
    assert admin.offsets([name]) == {name: {}}, "the topic is not shown yet"
    problem = admin.commit(name, to).problems[at]
    assert isinstance(problem, NotAuthorised)
    assert f"READ on topic {orders}" in str(problem)
    grant(guarded, on(MIRROR, "topic", orders, "READ"))
    wait_until(lambda: at in admin.offsets([name])[name], "the topic is shown")
    assert admin.commit(name, to).written == {at}


def test_a_share_group_needs_what_a_consumer_group_needs(
    guarded: LocalCluster, topic: TopicNames
) -> None:
    name, orders = topic("share"), create_topic(guarded, topic("orders"))
    admin = GroupAdmin(as_mirror(guarded, ClusterAlias("G")), timeout_s=20)
    at = TopicPartition(topic=TopicName(orders), partition=0)
    to = {at: GroupOffset(offset=9, metadata=SHARE_METADATA)}

    with pytest.raises(NotAuthorised, match=f"cluster G: .* READ on group {name}"):
        admin.commit(name, to)
    grant(guarded, on(MIRROR, "group", name, "READ"))
    wait_until(lambda: not isinstance(admin.offsets_each([name])[name], BrokerError), "the group")
    problem = admin.commit(name, to).problems[at]
    assert isinstance(problem, NotAuthorised)
    assert f"READ on topic {orders}" in str(problem)
    grant(guarded, on(MIRROR, "topic", orders, "READ"))
    wait_until(lambda: admin.commit(name, to).written == {at}, "the topic is granted")
    assert admin.offsets([name]) == {name: to}
    assert admin.list_groups()[name].type == "share"


def test_a_group_that_may_not_be_written_keeps_no_other_from_it(
    pair: Pair, guarded: LocalCluster, topic: TopicNames, caplog: pytest.LogCaptureFixture
) -> None:
    flow = FlowId(source=ClusterAlias(topic("s")), target=ClusterAlias(topic("t")))
    orders = create_topic(pair["A"], topic("orders"))
    copy = create_topic(guarded, f"{flow.source}.{orders}")
    produce(guarded, copy, numbered(10 + SHIFT))
    scene = scene_of(
        flow,
        pair["A"],
        guarded,
        group=topic("billing"),
        orders=orders,
        target_config=as_mirror(guarded, flow.target),
    )
    scene.mirror(10)
    scene.at_source(4)
    refused = f"{scene.group}-refused"
    commit(pair["A"], refused, orders, {0: 4})
    grant(guarded, on(MIRROR, "topic", copy, "READ"))
    grant(guarded, on(MIRROR, "group", scene.group, "READ"))
    loop = GroupOffsetsJob(scene.follower())
    sentence = f"cluster {flow.target}: missing permission DESCRIBE on group {refused}: "

    with caplog.at_level(logging.WARNING), pytest.raises(NotAuthorised, match=sentence):
        loop.step()

    assert "earlier checkpoints are not known" in caplog.text
    assert scene.at_target() == {0: 4 + SHIFT}
    assert committed(guarded, refused, copy) == {}
    scene.clients.close()
