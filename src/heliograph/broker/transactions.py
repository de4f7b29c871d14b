"""Transactional ids by producer id (KIP-664). Does I/O; runs on the driver."""

from __future__ import annotations

from collections.abc import Collection

from kio.schema.list_transactions.v0 import request as transactions_request
from kio.schema.list_transactions.v0 import response as transactions_response

from heliograph.broker.cluster import Cluster
from heliograph.broker.codes import NONE, broker_error
from heliograph.errors import MirrorError


async def transactional_ids(cluster: Cluster, producers: Collection[int]) -> dict[int, str]:
    """Of those that have one, as far as we are told: a broker leaves out ids that we may not
    DESCRIBE, and forgets them (`transactional.id.expiration.ms`).

    Each broker coordinates some of them, so all are asked; raises `MirrorError` if none answers.
    The metadata must have been read.
    """
    message = transactions_request.ListTransactionsRequest(
        producer_id_filters=tuple(producers)  # type: ignore[arg-type]
    )
    found: dict[int, str] = {}
    failed: list[MirrorError] = []
    for broker in cluster.brokers:
        try:
            connection = await cluster.connection(broker, "control")
            answer = await connection.call(message, transactions_response.ListTransactionsResponse)
            if answer.error_code != NONE:
                raise broker_error(f"cluster {cluster.alias}: transactions", int(answer.error_code))
        except MirrorError as exc:
            failed.append(exc)
            continue
        found |= {int(row.producer_id): row.transactional_id for row in answer.transaction_states}
    if failed and len(failed) == len(cluster.brokers):
        raise failed[0]
    return found
