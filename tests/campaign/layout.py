"""What is mirrored where: the flows of a campaign, their topics, and the file that says so."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from heliograph.config.sections import IDENTITY_POLICY
from heliograph.model import ClusterAlias, FlowId
from heliograph_tools.localkafka.cluster import LocalCluster
from heliograph_tools.localkafka.spec import login_line
from tests.campaign import plan
from tests.campaign.changes import changed_content
from tests.campaign.truth import Content
from tests.kit.mirror import RECORDS_ONLY, write_config

MECHANISM: Final = "SCRAM-SHA-512"
MIRROR_USER: Final = "mirror"
GROUPS: Final = "moves-.*"
FOLLOWED: Final = "file.delete.delay.ms"
"""The one setting of topics that a campaign changes on the source and looks for on the target."""
PIPED: Final = "from-pipeline"
"""Topic of the target that the pipeline writes."""
PIPED_BYTES: Final = 50
"""The pipeline takes larger values only."""
_ALIASES: Final = {"A": "A", "B": "B", "C": "A", "P": "A", "Q": "B"}
"""By alias, the cluster: flows of other rules between the same two clusters need other names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Channel:
    """One topic that one flow carries."""

    flow: FlowId
    topic: str
    target_topic: str
    compacted: bool = False
    both_ways: bool = False
    expected: Callable[[Content], Content | None] = lambda content: content
    """What a record is on the target; None where it does not come."""

    @property
    def source(self) -> str:
        """The cluster, by its own name."""
        return _ALIASES[self.flow.source]

    @property
    def target(self) -> str:
        return _ALIASES[self.flow.target]

    def __str__(self) -> str:
        return f"{self.flow}/{self.topic}"


def flow_of(name: str) -> FlowId:
    source, _, target = name.partition("->")
    return FlowId(source=ClusterAlias(source), target=ClusterAlias(target))


def channels_of(workload: str, topic: str) -> tuple[Channel, ...]:
    """A topic of a workload by its name."""
    match workload:
        case "changed":
            flow = flow_of("C->B")
            there = Channel(
                flow=flow, topic=topic, target_topic=f"C.{topic}", expected=changed_content
            )
            return (there,)
        case plan.PIPELINE:
            return ()
        case "both":
            return tuple(
                Channel(flow=flow_of(name), topic=topic, target_topic=topic, both_ways=True)
                for name in ("P->Q", "Q->P")
            )
        case _:
            is_compacted = workload == "compacted"
            one = Channel(
                flow=flow_of("A->B"), topic=topic, target_topic=f"A.{topic}", compacted=is_compacted
            )
            return (one,)


def flows_of(workloads: Sequence[str], folder: Path) -> dict[str, dict[str, str]]:
    """The flows that these workloads need, with their rules."""
    plain = [name for name in workloads if name not in ("changed", "both", plan.PIPELINE)]
    bold = {
        "on.topic.recreated": "restart",
        "on.retention.overrun": "skip",
        "groups": GROUPS,
        "sync.topic.configs.enabled": "true",
        "sync.topic.configs.interval.seconds": "2",
        # The copy stays as it came: what is compacted or expires there could not be compared.
        "config.properties.exclude": (
            "cleanup\\\\.policy, segment\\\\..*, retention\\\\..*, min\\\\..*, max\\\\..*, "
            "message\\\\..*"
        ),
        "emit.checkpoints.enabled": "true",
        "emit.checkpoints.interval.seconds": "2",
        "sync.group.offsets.enabled": "true",
        "sync.group.offsets.interval.seconds": "2",
        "refresh.groups.interval.seconds": "2",
    }
    flows = {}
    if plain or plan.PIPELINE in workloads:
        topics = ", ".join(f"{name}-.*" for name in plain or ["none"])
        flows["A->B"] = {"topics": topics, **bold}
    if plan.PIPELINE in workloads:
        flows["A->B"] |= {
            "pipeline.piped.topics": f"{plan.PIPELINE}-.*",
            "pipeline.piped.sql": (
                "SELECT key, value, headers, timestamp FROM records "
                f"WHERE length(value) > {PIPED_BYTES}"
            ),
            "pipeline.piped.target.topic": PIPED,
            "pipeline.piped.folder": str(folder / "piped"),
        }
    if "changed" in workloads:
        flows["C->B"] = {
            "topics": "changed-.*",
            **bold,
            "transforms": "change",
            "transforms.change.type": "tests.campaign.changes:changed",
            "transforms.change.on": "record",
        }
    if "both" in workloads:
        for name in ("P->Q", "Q->P"):
            flows[name] = {"topics": "both-.*", "replication.policy.class": IDENTITY_POLICY}
    return flows


def write_file(
    folder: Path,
    clusters: Mapping[str, LocalCluster],
    workloads: Sequence[str],
    *,
    tokens: Path,
    more: Mapping[str, str],
) -> Path:
    """The mirror's file; its password on each cluster is in a file of its own."""
    flows = flows_of(workloads, folder)
    aliases = dict.fromkeys(alias for flow in flows for alias in flow.split("->"))
    replicas = str(len(next(iter(clusters.values())).brokers))
    top = {
        **{
            name: text for name, text in RECORDS_ONLY.items() if not name.startswith("sync.topic.c")
        },
        "replication.factor": replicas,
        "checkpoints.topic.replication.factor": replicas,
        "refresh.topics.interval.seconds": "2",
        "slots": "2",
        "slots.lease.ms.max": "8000",
        "driver.lease.ms": "4000",
        "api.tokens.file": str(tokens),
        "config.providers": "file",
        "config.providers.file.class": (
            "org.apache.kafka.common.config.provider.FileConfigProvider"
        ),
        **more,
    }
    for alias in aliases:
        login = f"${{file:{password_file(folder, _ALIASES[alias])}:login}}"
        top |= {
            f"{alias}.security.protocol": "SASL_PLAINTEXT",
            f"{alias}.sasl.mechanism": MECHANISM,
            f"{alias}.sasl.jaas.config": login,
        }
    servers = {alias: clusters[_ALIASES[alias]].proxied_bootstrap for alias in aliases}
    return write_config(folder / "mm2.properties", servers, flows, top=top)


def password_file(folder: Path, cluster: str) -> Path:
    return folder / f"password-of-{cluster}.properties"


def write_password(folder: Path, cluster: str, word: str) -> None:
    path = password_file(folder, cluster)
    beside = path.with_suffix(".new")
    beside.write_text(f"login = {login_line(MECHANISM, user=MIRROR_USER, password=word)}\n")
    beside.chmod(0o600)
    beside.replace(path)
