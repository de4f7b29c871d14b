"""Settings of mirrored topics followed, and mirrored topics deleted, on real clusters."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from heliograph.broker.admin import Change
from heliograph.broker.clients import Clients
from heliograph.broker.topic_changes import ConfigChange, TopicConfigChanges
from heliograph.broker.view import TopicSetting
from heliograph.compat.topic_configs import TopicConfigsJob
from heliograph.config.load import load_config
from heliograph.config.schema import FlowConfig, MirrorConfig
from heliograph.driver.deletions import Absences, delete_mirrored, find_deleted
from heliograph.errors import BrokerError, NotAuthorised
from heliograph.ledger.locations import begun_topics
from heliograph.ledger.service import LedgerService
from heliograph.model import FlowId, LaneId, TopicName, TopicPartition
from heliograph.topics.deletions import Deletions
from heliograph.topics.naming import naming_policy
from heliograph_tools.localkafka.cluster import LocalCluster
from tests.kit.clusters import TopicNames
from tests.kit.ledgers import begin_lanes, open_ledger
from tests.kit.mirror import write_config
from tests.kit.topics import create_topic, delete_topic, set_topic_config, wait_until

Pair = dict[str, LocalCluster]
Settings = Mapping[str, str]


class Flow:
    """One flow between the shared clusters, and its clients."""

    def __init__(self, config: MirrorConfig, flow: FlowConfig, clients: Clients) -> None:
        self.config, self.flow, self.clients = config, flow, clients
        self.source = clients.admin(clients.source(flow.id))
        self.target = clients.admin(clients.target(flow.id))

    @property
    def id(self) -> FlowId:
        return self.flow.id

    def renamed(self, topic: str) -> TopicName:
        return naming_policy(self.flow).target_topic(TopicName(topic))

    def settings(self, topic: str) -> Mapping[str, TopicSetting]:
        found = self.target.topic_configs([self.renamed(topic)])[self.renamed(topic)]
        assert not isinstance(found, NotAuthorised)
        return found


FlowFactory = Callable[..., Flow]


@pytest.fixture
def flow_of(pair: Pair, tmp_path: Path) -> Iterator[FlowFactory]:
    """The one flow between two aliases of the shared clusters, `topics.exclude` as an argument
    spelled `topics_exclude`."""
    with ExitStack() as stack:

        def make(alias: str, **settings: str) -> Flow:
            named = {name.replace("_", "."): value for name, value in settings.items()}
            file = write_config(
                tmp_path / f"{alias}.properties",
                {alias: pair["A"], f"{alias}-to": pair["B"]},
                {f"{alias}->{alias}-to": named},
            )
            config = load_config(file)
            (flow,) = config.flows
            return Flow(config, flow, stack.enter_context(closing(Clients(config))))

        yield make


def test_an_edit_of_a_followed_setting_is_reverted_and_one_of_an_excluded_setting_is_kept(
    pair: Pair, topic: TopicNames, flow_of: FlowFactory
) -> None:
    """MirrorConnectorsIntegrationBaseTest.testSyncTopicConfigs."""
    name = create_topic(pair["A"], topic("sync"), config={"delete.retention.ms": "1000"})
    flow = flow_of("cfgA", topics=name, config_properties_exclude="retention\\\\.bytes")
    edited = {"delete.retention.ms": "2000", "retention.bytes": "3000"}
    create_topic(pair["B"], flow.renamed(name), config=edited)

    TopicConfigsJob(flow.flow, flow.clients).step()

    def is_reverted() -> bool:
        return flow.settings(name)["delete.retention.ms"].value == "1000"

    wait_until(is_reverted, "the edit to be reverted")
    assert flow.settings(name)["retention.bytes"].value == "3000"


@pytest.mark.parametrize("side", ["source", "target"])
def test_an_override_of_the_target_returns_to_the_default_of_the_side_that_rules(
    pair: Pair, topic: TopicNames, flow_of: FlowFactory, side: str
) -> None:
    """MirrorConnectorsIntegrationBaseTest, testReplicateSourceDefault and
    testReplicateTargetDefault: a pinned copy of the source's default, or the target's own."""
    name = create_topic(pair["A"], topic("defaults"))
    flow = flow_of(f"dflt-{side}", topics=name, use_defaults_from=side)
    create_topic(pair["B"], flow.renamed(name), config={"delete.retention.ms": "2000"})

    TopicConfigsJob(flow.flow, flow.clients).step()

    def is_default() -> bool:
        return flow.settings(name)["delete.retention.ms"].value == "86400000"

    wait_until(is_default, "the default to be back")
    origin = flow.settings(name)["delete.retention.ms"].origin
    assert origin.value == ("topic" if side == "source" else "default")


def test_a_setting_taken_back_on_the_source_is_taken_back_and_nothing_is_written_twice(
    pair: Pair, topic: TopicNames, flow_of: FlowFactory, caplog: pytest.LogCaptureFixture
) -> None:
    name = create_topic(pair["A"], topic("back"), config={"retention.bytes": "1000"})
    flow = flow_of("backA", topics=name)
    create_topic(pair["B"], flow.renamed(name))
    loop = TopicConfigsJob(flow.flow, flow.clients)
    with caplog.at_level(logging.INFO, "heliograph.compat.topic_configs"):
        loop.step()
        wait_until(lambda: flow.settings(name)["retention.bytes"].value == "1000", "set")
        loop.step()
        set_topic_config(pair["A"], name, {"retention.bytes": None})

        def is_taken_back() -> bool:
            loop.step()
            return flow.settings(name)["retention.bytes"].origin.value == "default"

        wait_until(is_taken_back, "taken back")

    written = [record.getMessage() for record in caplog.records]
    assert written[0] == f"{flow.id}: {flow.renamed(name)}: retention.bytes set to 1000"
    assert set(written[1:]) == {f"{flow.id}: {flow.renamed(name)}: retention.bytes taken back"}


def test_a_topic_that_is_refused_keeps_no_other_from_its_change(
    pair: Pair, topic: TopicNames, flow_of: FlowFactory
) -> None:
    flow = flow_of("refuseA", topics="none")
    good, bad = create_topic(pair["B"], topic("good")), create_topic(pair["B"], topic("bad"))
    gone = topic("gone")

    def order(name: str, value: str) -> TopicConfigChanges:
        change = ConfigChange(name="min.cleanable.dirty.ratio", value=value, before=None)
        return TopicConfigChanges(topic=TopicName(name), changes=(change,))

    outcomes = flow.target.alter_topic_configs(
        [order(bad, "7"), order(gone, "0.5"), order(good, "0.25")]
    )

    assert outcomes[TopicName(good)] is Change.DONE
    assert isinstance(outcomes[TopicName(bad)], BrokerError)
    assert isinstance(outcomes[TopicName(gone)], BrokerError)
    found = flow.target.topic_configs([TopicName(good)])[TopicName(good)]
    assert not isinstance(found, NotAuthorised)
    assert found["min.cleanable.dirty.ratio"].value == "0.25"


def test_a_topic_is_deleted_once_and_one_that_is_not_there_is_as_good_as_deleted(
    pair: Pair, topic: TopicNames, flow_of: FlowFactory
) -> None:
    flow = flow_of("delA", topics="none")
    there, not_there = TopicName(create_topic(pair["B"], topic("there"))), TopicName(topic("not"))

    outcomes = flow.target.delete_topics([there, not_there])

    assert outcomes == {there: Change.DONE, not_there: Change.ALREADY}
    wait_until(lambda: not flow.target.describe_topics([there]), "deletion")


class Begun:
    """A flow whose ledger says that some topics were mirrored, as a run leaves it behind."""

    def __init__(self, flow: Flow, ledgers: LedgerService, names: list[str]) -> None:
        self.flow, self.ledgers, self.absences = flow, ledgers, Absences()
        open_ledger(ledgers, flow.id, flow.target, flow.source.describe().cluster_id)
        for name in names:
            renamed = flow.renamed(name)
            begin_lanes(ledgers, flow.id, name, flow.target.describe_topics([renamed])[renamed])

    def look(self) -> Deletions:
        return find_deleted(
            self.flow.flow,
            self.flow.config.flows,
            source_admin=self.flow.source,
            source=self.flow.source.describe(),
            target=self.flow.target.describe(),
            ledgers=self.ledgers,
            absences=self.absences,
        )

    @property
    def topics(self) -> frozenset[TopicName]:
        return self.ledgers.ask(self.flow.id, begun_topics)


def test_a_deleted_source_topic_takes_its_copy_and_its_lanes_with_it_once_no_slot_has_them(
    pair: Pair, topic: TopicNames, flow_of: FlowFactory
) -> None:
    gone, stays = topic("gone"), topic("stays")
    flow = flow_of("gonA", topics=f"{gone},{stays}", on_topic_deleted="delete")
    for name in (gone, stays):
        create_topic(pair["A"], name, partitions=2)
        create_topic(pair["B"], flow.renamed(name), partitions=2)
    with closing(LedgerService(flow.config.clusters)) as ledgers:
        begun = Begun(flow, ledgers, [gone, stays])
        assert begun.look() == Deletions()
        delete_topic(pair["A"], gone)
        first = begun.look()
        # The refresh interval of the tests' configuration is one second.
        wait_until(lambda: bool(begun.look().to_delete), "the second look", poll_s=0.25)
        found = begun.look().to_delete
        lane = LaneId(flow=flow.id, source=TopicPartition(topic=TopicName(gone), partition=1))

        busy = delete_mirrored(
            flow.flow, found, target_admin=flow.target, ledgers=ledgers, carried=[lane]
        )
        still_there = set(flow.target.describe_topics([flow.renamed(gone)]))
        free = delete_mirrored(
            flow.flow, found, target_admin=flow.target, ledgers=ledgers, carried=[]
        )
        again = delete_mirrored(
            flow.flow, found, target_admin=flow.target, ledgers=ledgers, carried=[]
        )

        assert first == Deletions()
        assert [(t.source, t.target, t.partitions) for t in found] == [
            (gone, flow.renamed(gone), (0, 1))
        ]
        assert (busy.topics, still_there) == ((), {flow.renamed(gone)})
        assert (free.topics, free.problems, again.problems) == (found, {}, {})
        wait_until(lambda: not flow.target.describe_topics([flow.renamed(gone)]), "deletion")
        assert flow.target.describe_topics([flow.renamed(stays)])
        assert begun.topics == {stays}
        assert {p.topic for p in ledgers.ask(flow.id, lambda view: view.lanes)} == {stays}
        assert begun.look() == Deletions()


def test_a_topic_that_another_flow_writes_too_is_not_deleted_with_its_source(
    pair: Pair, topic: TopicNames, tmp_path: Path
) -> None:
    gone, stays = topic("both"), topic("rest")
    create_topic(pair["A"], stays)
    for name in (gone, stays):
        create_topic(pair["B"], name)
    keep_names = {
        "topics": f"{gone},{stays}",
        "on.topic.deleted": "delete",
        "replication.policy.class": "org.apache.kafka.connect.mirror.IdentityReplicationPolicy",
    }
    file = write_config(
        tmp_path / "mm2.properties",
        {"oneA": pair["A"], "twoA": pair["A"], "bothB": pair["B"]},
        {"oneA->bothB": keep_names, "twoA->bothB": keep_names},
    )
    config = load_config(file)
    with closing(LedgerService(config.clusters)) as ledgers, closing(Clients(config)) as clients:
        flows = [Flow(config, flow, clients) for flow in config.flows]
        first, *_ = [Begun(flow, ledgers, [gone, stays]) for flow in flows]

        wait_until(lambda: bool(first.look().refused), "the second look", poll_s=0.25)
        found = first.look()

    assert found.to_delete == ()
    assert found.refused == (f"{gone} is not deleted with its source: another flow writes it",)
