"""The metadata quorum of a cluster, and the clock of its active controller. Runs anywhere.

The controller tells the time with the state of the quorum (KIP-836): nothing need be written to
learn it. The clocks of other brokers are not told by any request.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any, Final

from kio.schema.describe_quorum.v1 import request as quorum_request
from kio.schema.describe_quorum.v1 import response as quorum_response

from heliograph.broker.cluster import Cluster
from heliograph.broker.codes import NONE, broker_error
from heliograph.clock import now_ms

_METADATA_LOG: Final = "__cluster_metadata"


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerClock:
    """The clock of the active controller against that of this machine."""

    node: int
    ahead_ms: float
    """Above 0 where the controller is ahead."""
    error_ms: float
    """By so much the figure may be wrong, either way."""


async def controller_clock(cluster: Cluster, tries: int) -> ControllerClock | None:
    """By the quickest of several answers; None where the controller does not tell the time. Raises
    `BrokerError`."""
    await quorum_state(cluster)  # opens the connection, which is no part of the figure
    best: ControllerClock | None = None
    for _ in range(tries):
        before_ms = now_ms()
        partition, took_s = await quorum_state(cluster)
        found = _clock(partition, before_ms, took_s)
        if found is not None and (best is None or found.error_ms < best.error_ms):
            best = found
    return best


def _clock(partition: Any, before_ms: int, took_s: float) -> ControllerClock | None:
    leader = int(partition.leader_id)
    for voter in partition.current_voters:
        told_ms = int(voter.last_caught_up_timestamp)
        if int(voter.replica_id) == leader and told_ms >= 0:
            half_ms = 1000 * took_s / 2
            return ControllerClock(
                node=leader, ahead_ms=told_ms - (before_ms + half_ms), error_ms=half_ms + 1
            )
    return None


async def quorum_state(cluster: Cluster) -> tuple[Any, float]:
    """The answer about the metadata log, and how long it took; raises `BrokerError`."""
    asked = quorum_request.PartitionData(partition_index=0)  # type: ignore[arg-type]
    message = quorum_request.DescribeQuorumRequest(
        topics=(
            quorum_request.TopicData(topic_name=_METADATA_LOG, partitions=(asked,)),  # type: ignore[arg-type]
        )
    )
    began_s = asyncio.get_running_loop().time()
    answer = await cluster.ask_any(message, quorum_response.DescribeQuorumResponse)
    took_s = asyncio.get_running_loop().time() - began_s
    where, permission = f"cluster {cluster.alias}: quorum", "DESCRIBE on the cluster"
    if answer.error_code != NONE:
        raise broker_error(where, int(answer.error_code), permission=permission)
    partition = answer.topics[0].partitions[0]
    if partition.error_code != NONE:
        raise broker_error(where, int(partition.error_code), permission=permission)
    return partition, took_s
