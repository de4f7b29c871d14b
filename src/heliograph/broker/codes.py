"""What a broker's error code means for us; the one place that knows. Runs anywhere."""

from __future__ import annotations

from typing import Final

from kio.schema.errors import ErrorCode

from heliograph.errors import BrokerError, BrokerUnreachable, LeaderMoved, NotAuthorised

NONE: Final = 0

# Ask for metadata again, then try the leader it names.
_LEADER: Final = frozenset(
    {
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.leader_not_available,
        ErrorCode.not_leader_or_follower,
        ErrorCode.replica_not_available,
        ErrorCode.kafka_storage_error,
        ErrorCode.fenced_leader_epoch,
        ErrorCode.unknown_leader_epoch,
        ErrorCode.unknown_topic_id,
        ErrorCode.inconsistent_topic_id,
        ErrorCode.offset_not_available,
    }
)
_PERMISSION_MISSING: Final = frozenset(
    {
        ErrorCode.topic_authorization_failed,
        ErrorCode.group_authorization_failed,
        ErrorCode.cluster_authorization_failed,
        ErrorCode.transactional_id_authorization_failed,
    }
)
_AUTHORISATION: Final = _PERMISSION_MISSING | {ErrorCode.sasl_authentication_failed}
# The sequence is not the one this partition expects next: somebody else wrote, or a reply was lost.
OUT_OF_PLACE: Final = frozenset(
    {
        ErrorCode.out_of_order_sequence_number,
        ErrorCode.duplicate_sequence_number,
        ErrorCode.unknown_producer_id,
        ErrorCode.invalid_producer_epoch,
    }
)


UNWRITABLE: Final = frozenset(
    {
        ErrorCode.message_too_large,
        ErrorCode.record_list_too_large,
        ErrorCode.invalid_timestamp,
        ErrorCode.invalid_record,
    }
)
"""What a topic refuses a record for, whoever sends it and however often."""


TOO_LARGE: Final = ErrorCode.message_too_large.name.upper()


def code_name(code: int) -> str:
    try:
        return ErrorCode(code).name.upper()
    except ValueError:
        return f"error {code}"


def broker_error(
    where: str, code: int, message: str | None = None, *, permission: str = ""
) -> BrokerError:
    """The exception for a refused request; `where` names cluster and partition.

    `permission` is what the broker asks for before it does what was tried.
    """
    text = f"{where}: {code_name(code)}" + (f" ({message})" if message else "")
    if permission and code in _PERMISSION_MISSING:
        return NotAuthorised(f"{where}: missing permission {permission}")
    if code in _LEADER:
        return LeaderMoved(text)
    if code in _AUTHORISATION:
        return NotAuthorised(text)
    try:
        retriable = ErrorCode(code).retriable
    except ValueError:
        retriable = False
    return BrokerUnreachable(text) if retriable else BrokerError(text)
