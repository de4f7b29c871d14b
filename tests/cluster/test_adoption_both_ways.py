"""An adoption where a flow back under the same names would read what MirrorMaker 2 brought."""

from __future__ import annotations

from pathlib import Path

from heliograph.config.load import load_config
from heliograph.config.sections import IDENTITY_POLICY
from heliograph.inspect.dry_run import plan_flows
from heliograph.model import ClusterAlias, FlowId
from heliograph.takeover.pending import PendingAdoption
from heliograph_tools.localkafka.cluster import LocalCluster
from tests.cluster.test_adoption import Stage
from tests.kit.clusters import TopicNames
from tests.kit.mm2 import mm2_properties
from tests.kit.records import numbered, produce
from tests.kit.topics import create_topic


def test_a_plan_says_before_and_after_an_adoption_that_a_flow_back_would_send_it_home(
    pair: dict[str, LocalCluster], topic: TopicNames, tmp_path: Path
) -> None:
    name = topic("same")
    number = name.rpartition("-")[2]
    there = FlowId(source=ClusterAlias(f"up{number}"), target=ClusterAlias(f"down{number}"))
    back = FlowId(source=there.target, target=there.source)
    both = {
        "replication.policy.class": IDENTITY_POLICY,
        f"{back}.enabled": "true",
        f"{back}.topics": name,
    }
    file = mm2_properties(
        tmp_path / "mm2.properties", (there.source, pair["A"]), (back.source, pair["B"]), name, both
    )
    stage = Stage(source=pair["A"], target=pair["B"], flow=there, topic=name, config=file)
    for cluster in pair.values():
        create_topic(cluster, name, config={"retention.ms": "-1"})
        produce(cluster, name, numbered(20))
    stage.sync(0, 0)
    stage.store(19)

    before = sent_home(stage, back)
    stage.run("adopt", "--flow", str(there), "--yes")
    after = sent_home(stage, back)
    with file.open("a") as text:
        text.write(f"{back}.start.at = latest\n")

    assert [name in text for text in (*before, *after)] == [True, True]
    assert f"{back}.start.at = latest" in after[0]
    assert sent_home(stage, back) == []


def sent_home(stage: Stage, flow: FlowId) -> list[str]:
    config = load_config(stage.config)
    pending = {each.id: PendingAdoption(each, config.target_of(each.id)) for each in config.flows}
    (planned,) = (each for each in plan_flows(config, pending) if each.flow == flow)
    return [f"{note.topic}: {note.text}" for note in planned.notes if "back to" in note.text]
