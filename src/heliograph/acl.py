"""One rule of who may do what with topics, as both clusters and the ledger know it. Runs
anywhere.

Apart from `model` because nothing here ever crosses the link.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

WILDCARD: Final = "*"
"""As a literal resource name, every topic of the cluster."""


class AclPattern(StrEnum):
    LITERAL = "LITERAL"
    PREFIXED = "PREFIXED"


class AclOperation(StrEnum):
    """Kafka's words; what a newer broker adds does not concern topics."""

    ALL = "ALL"
    READ = "READ"
    WRITE = "WRITE"
    CREATE = "CREATE"
    DELETE = "DELETE"
    ALTER = "ALTER"
    DESCRIBE = "DESCRIBE"
    CLUSTER_ACTION = "CLUSTER_ACTION"
    DESCRIBE_CONFIGS = "DESCRIBE_CONFIGS"
    ALTER_CONFIGS = "ALTER_CONFIGS"
    IDEMPOTENT_WRITE = "IDEMPOTENT_WRITE"


class AclPermission(StrEnum):
    ALLOW = "ALLOW"
    DENY = "DENY"


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class AclBinding:
    """An ACL of a topic resource; equal bindings are one and the same to a broker."""

    name: str
    """A topic, a prefix of topics, or `*`."""
    pattern: AclPattern
    principal: str
    host: str
    operation: AclOperation
    permission: AclPermission

    @property
    def is_wildcard(self) -> bool:
        return self.pattern is AclPattern.LITERAL and self.name == WILDCARD

    @property
    def resource(self) -> str:
        """For people: `orders`, or `prefix orders`."""
        return self.name if self.pattern is AclPattern.LITERAL else f"prefix {self.name}"

    def __str__(self) -> str:
        return (
            f"{self.permission} {self.operation} on {self.resource} "
            f"to {self.principal} from {self.host}"
        )
