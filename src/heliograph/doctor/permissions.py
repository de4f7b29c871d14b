"""What each job of a mirror must be allowed, and what is missing. No I/O; runs anywhere.

The needs are those of docs/guides/permissions.md; a test compares them with the page.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from heliograph.compat.own_topics import checkpoints_of, heartbeats_of, ledger_of, offset_syncs_of
from heliograph.config.schema import ClientRole, FlowConfig, MirrorConfig
from heliograph.copy.flow import mirrors_of
from heliograph.doctor.facts import Untold
from heliograph.doctor.finding import Finding, Severity, listed
from heliograph.ledger.entries import ledger_topic
from heliograph.model import ClusterAlias, FlowId, Offsets, TopicName
from heliograph.topics.naming import HEARTBEATS
from heliograph.words import counted

CHECK: Final = "permissions"
Operation = Literal[
    "READ", "WRITE", "CREATE", "DELETE", "ALTER", "DESCRIBE", "DESCRIBE_CONFIGS", "ALTER_CONFIGS"
]
Kind = Literal["topic", "group", "cluster"]
OPERATION_BITS: Final[Mapping[str, int]] = {
    "READ": 1 << 3,
    "WRITE": 1 << 4,
    "CREATE": 1 << 5,
    "DELETE": 1 << 6,
    "ALTER": 1 << 7,
    "DESCRIBE": 1 << 8,
    "DESCRIBE_CONFIGS": 1 << 10,
    "ALTER_CONFIGS": 1 << 11,
}
"""As Kafka numbers them in the authorized operations of an answer (KIP-430)."""


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Need:
    cluster: ClusterAlias
    role: ClientRole
    operation: Operation
    kind: Kind
    name: str = ""
    """Nothing for the cluster."""
    what_for: str = ""

    def __str__(self) -> str:
        of = "the cluster" if self.kind == "cluster" else f"{self.kind} {self.name}"
        return f"{self.operation} on {of}"


def needs_of(
    config: MirrorConfig,
    flow: FlowConfig,
    mirrored: Mapping[TopicName, TopicName],
    groups: Collection[str],
) -> list[Need]:
    """Of one flow with these topics and groups, each need once."""
    found = [
        *_topic_needs(flow, mirrored),
        *_own_topic_needs(config, flow),
        *_group_needs(flow, groups),
        *_acl_needs(flow),
    ]
    return list(dict.fromkeys(found))


def _topic_needs(flow: FlowConfig, mirrored: Mapping[TopicName, TopicName]) -> Iterator[Need]:
    source, target = flow.id.source, flow.id.target
    for name, renamed in mirrored.items():
        for role, operation, what_for in (
            ("consumer", "READ", "copying records"),
            ("admin", "DESCRIBE", "finding the topic and its partitions"),
            ("admin", "DESCRIBE_CONFIGS", "creating its copy with its settings"),
        ):
            yield _need(source, role, operation, name, what_for)
        for role, operation, what_for in (
            ("producer", "WRITE", "copying records"),
            ("producer", "READ", "finding where a lane goes on"),
            ("admin", "CREATE", "creating mirrored topics"),
            ("admin", "ALTER", "more partitions where the source got more"),
        ):
            yield _need(target, role, operation, renamed, what_for)
        if flow.topic_configs.enabled:
            yield _need(target, "admin", "ALTER_CONFIGS", renamed, "following settings")
        if flow.groups.sync_offsets_enabled:
            yield _need(target, "admin", "READ", renamed, "committing group offsets")
        if flow.offsets is Offsets.PRESERVE:
            yield _need(target, "producer", "DELETE", renamed, "offsets = preserve")
        if flow.on_topic_deleted == "delete":
            yield _need(target, "admin", "DELETE", renamed, "on.topic.deleted = delete")


def _own_topic_needs(config: MirrorConfig, flow: FlowConfig) -> Iterator[Need]:
    target = flow.id.target
    ledger = ledger_of(flow).name
    for role, operation in (
        ("producer", "WRITE"),
        ("producer", "READ"),
        ("admin", "CREATE"),
        ("admin", "DESCRIBE"),
        ("admin", "DESCRIBE_CONFIGS"),
    ):
        yield _need(target, role, operation, ledger, "the ledger, the lease")
    for alias in mirrors_of(config, flow.id):
        # Asked by slots, as the consumer that reads there.
        yield _need(flow.id.source, "consumer", "READ", ledger_topic(alias), "loop.prevention")
    back = FlowId(source=target, target=flow.id.source)
    for pair in (pair for pair in config.pairs if pair.id in (flow.id, back)):
        if pair.heartbeats.enabled:
            at = heartbeats_of(pair).cluster
            for role, operation in (
                ("producer", "WRITE"),
                ("admin", "CREATE"),
                ("admin", "DESCRIBE"),
            ):
                yield _need(at, role, operation, HEARTBEATS, "heartbeats")
    if flow.offset_syncs.enabled:
        syncs = offset_syncs_of(flow)
        for role, operation in (("producer", "WRITE"), ("admin", "CREATE"), ("admin", "DESCRIBE")):
            yield _need(syncs.cluster, role, operation, syncs.name, "offset syncs")
    if flow.writes_letters:
        for role, operation in (
            ("producer", "WRITE"),
            ("producer", "READ"),
            ("admin", "CREATE"),
            ("admin", "DESCRIBE"),
        ):
            yield _need(target, role, operation, flow.letters_topic, "dead letters")
    if flow.checkpoints.enabled:
        name = checkpoints_of(flow).name
        yield _need(target, "producer", "WRITE", name, "checkpoints")
        yield _need(target, "consumer", "READ", name, "checkpoints told before a restart")
        yield _need(target, "admin", "CREATE", name, "checkpoints")


def _group_needs(flow: FlowConfig, groups: Collection[str]) -> Iterator[Need]:
    for group in groups:
        if flow.checkpoints.enabled or flow.groups.sync_offsets_enabled:
            what_for = "checkpoints, group offsets"
            yield _need(flow.id.source, "admin", "DESCRIBE", group, what_for, kind="group")
        if flow.groups.sync_offsets_enabled:
            yield _need(flow.id.target, "admin", "READ", group, "group offsets", kind="group")


def _acl_needs(flow: FlowConfig) -> Iterator[Need]:
    if flow.acls.enabled:
        yield _need(flow.id.source, "admin", "DESCRIBE", "", "following ACLs", kind="cluster")
        yield _need(flow.id.target, "admin", "ALTER", "", "following ACLs", kind="cluster")


def _need(
    cluster: ClusterAlias,
    role: str,
    operation: str,
    name: str,
    what_for: str,
    *,
    kind: Kind = "topic",
) -> Need:
    return Need(
        cluster=cluster,
        role=role,  # type: ignore[arg-type]
        operation=operation,  # type: ignore[arg-type]
        kind=kind,
        name=name,
        what_for=what_for,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowed:
    """What one client may do: for each resource the bits of its operations, or why not known."""

    bits: Mapping[tuple[Kind, str], int | Untold]
    creatable: Mapping[str, bool] = field(default_factory=dict)
    """Topics that are not there, and whether the client may create them."""

    def may(self, need: Need) -> bool | Untold:
        if need.operation == "CREATE" and need.name in self.creatable:
            return self.creatable[need.name]
        found = self.bits.get((need.kind, need.name), Untold(why="not asked"))
        if isinstance(found, Untold):
            return found
        if need.operation == "CREATE":
            return True  # it is there
        return bool(found & OPERATION_BITS[need.operation])


AllowedClients = Mapping[tuple[ClusterAlias, ClientRole], Allowed | Untold]


def permission_findings(needs: Iterable[Need], allowed: AllowedClients | Untold) -> list[Finding]:
    """What is missing, one finding for each operation of each client; the rest in one."""
    checked = 0
    unknown: dict[tuple[ClusterAlias, str], list[Need]] = {}
    missing: dict[tuple[ClusterAlias, ClientRole, str, str], list[Need]] = {}
    if isinstance(allowed, Untold):
        about = "every client"
        return [Finding(check=CHECK, about=about, severity=Severity.UNKNOWN, what=allowed.why)]
    for need in dict.fromkeys(needs):
        client = allowed.get((need.cluster, need.role), Untold(why="not asked"))
        answer = client if isinstance(client, Untold) else client.may(need)
        if isinstance(answer, Untold):
            unknown.setdefault((need.cluster, answer.why), []).append(need)
        elif answer:
            checked += 1
        else:
            key = (need.cluster, need.role, need.operation, need.what_for)
            missing.setdefault(key, []).append(need)
    found = [_missing(key, each) for key, each in missing.items()]
    for (cluster, why), each in unknown.items():
        found.append(
            Finding(
                check=CHECK,
                about=f"cluster {cluster}",
                severity=Severity.UNKNOWN,
                what=f"{counted(len(each), 'permission')} ({listed(each)}): {why}",
                why="lanes stall and jobs fail on what is missing",
                fix="see docs/guides/permissions.md",
            )
        )
    if checked and not missing:
        what = f"{counted(checked, 'permission')} that jobs need are granted"
        found.append(Finding(check=CHECK, about="every client", severity=Severity.OK, what=what))
    return found


def _missing(key: tuple[ClusterAlias, ClientRole, str, str], each: list[Need]) -> Finding:
    cluster, role, operation, what_for = key
    resources = ["the cluster" if n.kind == "cluster" else f"{n.kind} {n.name}" for n in each]
    return Finding(
        check=CHECK,
        about=f"cluster {cluster}",
        severity=Severity.PROBLEM,
        what=f"its {role} lacks {operation} on {listed(resources)}",
        why=f"needed for: {what_for}",
        fix=f"kafka-acls --add --allow-principal USER --operation {operation} "
        f"--{each[0].kind}{f' {each[0].name}' if each[0].name else ''}",
    )
