"""Everything that can go wrong, in one place. Runs anywhere; every class pickles.

MirrorError
├── ConfigError            the operator must change something
├── PluginFailed           a policy or filter of the operator's own raised, or answered nonsense
├── TransformUnusable      a transform's function cannot be had where it is to run
├── WireError              bytes that break the protocol
│   └── CorruptBatch       fails its CRC or contradicts its lengths              retriable
├── BrokerError            a broker answered with an error, or did not answer
│   ├── BrokerUnreachable  no connection, no answer in time                      retriable
│   ├── LeaderMoved        refresh metadata first                                retriable
│   ├── NotAuthorised      the operator must change something
│   ├── NoLedger           nothing was mirrored yet
│   ├── LedgerUnusable     nothing may be written on what the ledger has become
│   ├── AuthorizerOff      the cluster keeps no ACLs
│   ├── GroupActive        only the group's own members may commit at the moment
│   │   └── GroupTaken     others read as the group at which a flow is to begin
│   └── OffsetGone         the source deleted what was next; data is lost
├── RegistryError          a schema registry answered with an error, or with nonsense
│   └── RegistryDown       no connection, no answer in time                      retriable
├── NotYetKnown            what a record needs is being asked for                retriable
├── CheckpointError        a Spark checkpoint that cannot be read, or not translated
├── RecoveryRefused        a failover or failback would do harm, so it was not done
├── PipelineRefused        rows that cannot be written exactly once, so none was written
├── ArchiveRefused         an archive that cannot be gone on with, or not put back
├── LinkError              driver and slot disagree, or do not know each other
├── LocalClusterError      a cluster on this machine did not start
├── BenchError             a system under measurement did not do its work
├── EngineError            Spark cannot run here, or lost what it was given
├── DrillFailed            a rehearsal found what a failover would lose
├── AuditDiffers           both sides do not hold the same records
├── NotComparable          what was mirrored cannot be told from what is there
└── InvariantError         our own bug; the lane stops
"""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar


class MirrorError(Exception):
    retriable: ClassVar[bool] = False


class ConfigError(MirrorError):
    """Every problem found at once; `problems` are sentences that start with their place."""

    def __init__(self, source: str, problems: tuple[str, ...]) -> None:
        super().__init__(source, problems)
        self.source, self.problems = source, problems

    def __str__(self) -> str:
        count = len(self.problems)
        head = f"{self.source}: {count} problem{'' if count == 1 else 's'}"
        return "\n".join([head, *(f"  {problem}" for problem in self.problems)])


class PluginFailed(MirrorError):
    """A policy or filter of the operator's own raised, or answered nonsense."""


class TransformUnusable(MirrorError):
    """A transform's function cannot be had where it is to run; no record went past it."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(name, why)
        self.name, self.why = name, why

    def __str__(self) -> str:
        return f"transform {self.name}: {self.why}"


class WireError(MirrorError):
    """Bytes that break the protocol."""


class CorruptBatch(WireError):
    """Fetching again may help, guessing will not."""

    retriable = True

    def __init__(self, offset: int, why: str) -> None:
        super().__init__(offset, why)
        self.offset, self.why = offset, why

    def __str__(self) -> str:
        return f"offset {self.offset}: {self.why}"


class BrokerError(MirrorError):
    """A broker answered with an error, or did not answer."""


class BrokerUnreachable(BrokerError):
    retriable = True


class LeaderMoved(BrokerError):
    retriable = True


class NotAuthorised(BrokerError):
    """Credentials refused or a permission missing."""


class NoLedger(BrokerError):
    """The target has no ledger of the flow: nothing was mirrored yet."""


class GroupActive(BrokerError):
    """A group has members, so the broker takes offsets from nobody else."""


class GroupTaken(GroupActive):
    """Others read as the group at whose commits a flow is to begin, and nothing of it has."""


class LedgerUnusable(BrokerError):
    """The ledger is not the one that was read, not whole, or of a newer version: whoever went on
    by it would repeat or lose records."""


class AuthorizerOff(BrokerError):
    """The cluster keeps no ACLs; nothing is wrong, and there is nothing to follow."""


class OffsetGone(BrokerError):
    def __init__(self, partition: str, wanted: int, earliest: int) -> None:
        super().__init__(partition, wanted, earliest)
        self.partition, self.wanted, self.earliest = partition, wanted, earliest

    def __str__(self) -> str:
        lost = self.earliest - self.wanted
        return f"{self.partition}: offset {self.wanted} is gone, {lost} offsets cannot be mirrored"


class RegistryError(MirrorError):
    """`status` is HTTP's, `code` the registry's own; 0 where there is none."""

    def __init__(self, where: str, why: str, status: int = 0, code: int = 0) -> None:
        super().__init__(where, why, status, code)
        self.where, self.why, self.status, self.code = where, why, status, code

    def __str__(self) -> str:
        return f"{self.where}: {self.why}"


class RegistryDown(RegistryError):
    retriable = True


class NotYetKnown(MirrorError):
    """Nothing is wrong with the record: the same question is answered a moment later, or once what
    is down is up."""

    retriable = True

    def __init__(self, why: str, waited_s: float = 0.0, *, has_failed: bool = False) -> None:
        """`has_failed`: who was asked has answered, and could not say."""
        super().__init__(why, waited_s)
        self.why, self.waited_s, self.has_failed = why, waited_s, has_failed

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(type(self), has_failed=self.has_failed), (self.why, self.waited_s)

    def __str__(self) -> str:
        return self.why


class CheckpointError(MirrorError):
    """A Spark checkpoint that cannot be read, or not translated; nothing was written."""


class RecoveryRefused(MirrorError):
    """Everything worked, and what was asked for would do harm or was asked for differently."""


class PipelineRefused(MirrorError):
    """A micro-batch cannot be written exactly once; nothing of it was, or all that was is known."""


class ArchiveRefused(MirrorError):
    """An archive cannot be gone on with, or not put back as asked; what it holds is untouched."""


class LinkError(MirrorError):
    """Driver and slot disagree, or do not know each other."""


class LocalClusterError(MirrorError):
    """A cluster on this machine did not start; the message carries the broker's own last lines."""


class BenchError(MirrorError):
    """A system under measurement did not do its work; the message carries its last lines."""


class EngineError(MirrorError):
    """Spark cannot run here, or lost what it was given."""


class DrillFailed(MirrorError):
    """The last drill found what a failover would lose; shown until one passes."""


class AuditDiffers(MirrorError):
    """The last audit found records that differ; shown until one finds none."""


class NotComparable(MirrorError):
    """Nothing is known to be wrong, and nothing to be right."""


class InvariantError(MirrorError):
    """Our own bug."""
