"""Grant and revoke permissions on a cluster with an authorizer; effective on return."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, Literal

from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from heliograph_tools.localkafka.cluster import LocalCluster
from tests.kit.topics import admin_of, wait_until

_TIMEOUT_S: Final = 30.0
_CLUSTER_NAME: Final = "kafka-cluster"

Kind = Literal["topic", "group", "cluster"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """One ACL that allows, from any host."""

    user: str
    operation: str
    kind: Kind
    name: str = _CLUSTER_NAME
    prefixed: bool = False

    def __str__(self) -> str:
        what = "cluster" if self.kind == "cluster" else f"{self.kind} {self.name}"
        return f"{self.user}: {self.operation} on {what}{'*' if self.prefixed else ''}"


def on(user: str, kind: Kind, name: str, *operations: str, prefixed: bool = False) -> list[Grant]:
    return [
        Grant(user=user, operation=operation, kind=kind, name=name, prefixed=prefixed)
        for operation in operations
    ]


def grant(cluster: LocalCluster, grants: Iterable[Grant]) -> None:
    admin, wanted = admin_of(cluster), [_order(AclBinding, each) for each in grants]
    for answer in admin.create_acls(wanted).values():
        answer.result(_TIMEOUT_S)
    wait_until(lambda: set(map(_key, wanted)) <= _present(admin), f"ACLs of {cluster.alias}")


def revoke(cluster: LocalCluster, grants: Iterable[Grant]) -> None:
    admin, unwanted = admin_of(cluster), [_order(AclBindingFilter, each) for each in grants]
    for answer in admin.delete_acls(unwanted).values():
        assert len(answer.result(_TIMEOUT_S)) == 1, "an ACL to revoke is not there"
    wait_until(lambda: not set(map(_key, unwanted)) & _present(admin), f"ACLs of {cluster.alias}")


def is_granted(cluster: LocalCluster, each: Grant) -> bool:
    return _key(_order(AclBinding, each)) in _present(admin_of(cluster))


@contextmanager
def without(cluster: LocalCluster, *grants: Grant) -> Iterator[None]:
    """Revoked for the block only."""
    revoke(cluster, grants)
    try:
        yield
    finally:
        grant(cluster, grants)


def _order(make: Any, each: Grant) -> Any:
    return make(
        {"topic": ResourceType.TOPIC, "group": ResourceType.GROUP}.get(
            each.kind, ResourceType.BROKER
        ),
        each.name,
        ResourcePatternType.PREFIXED if each.prefixed else ResourcePatternType.LITERAL,
        f"User:{each.user}",
        "*",
        AclOperation[each.operation],
        AclPermissionType.ALLOW,
    )


def _present(admin: AdminClient) -> set[tuple[object, ...]]:
    everything = AclBindingFilter(
        ResourceType.ANY,
        None,
        ResourcePatternType.ANY,
        None,
        None,
        AclOperation.ANY,
        AclPermissionType.ANY,
    )
    return {_key(found) for found in admin.describe_acls(everything).result(_TIMEOUT_S)}


def _key(acl: Any) -> tuple[object, ...]:
    return (acl.restype, acl.name, acl.resource_pattern_type, acl.principal, acl.operation)
