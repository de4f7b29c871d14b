"""A connector's offsets as Connect shows and alters them; exact, by the ledger. Driver only.

Connect keeps the last source offset that was mirrored, so the lane goes on one behind it. Only the
source connector has offsets here: checkpoints and heartbeats need none.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from heliograph.config.schema import MirrorConfig
from heliograph.connect.configs import as_object, whole_number
from heliograph.connect.model import Connector, TargetState
from heliograph.connect.plugins import Plugin
from heliograph.connect.problems import ConnectProblem
from heliograph.errors import BrokerError, InvariantError, MirrorError, NoLedger
from heliograph.inspect.reset import TO_EARLIEST, Destination, LaneReset, plan_resets, reset_each
from heliograph.inspect.status import StatusReader
from heliograph.ledger.locations import Wanted as Topics
from heliograph.ledger.locations import all_topics
from heliograph.model import FlowId, TopicName, TopicPartition

_INT_MAX: Final = 2**31 - 1
_LONG_MAX: Final = 2**63 - 1

Wanted = Mapping[TopicPartition, int | None]
"""The last offset that counts as mirrored, by source partition; None: from the first one on."""


async def read_offsets(connector: Connector, config: MirrorConfig) -> list[dict[str, Any]]:
    if connector.plugin is not Plugin.SOURCE:
        return []
    reader = StatusReader(config)
    try:
        locations = await reader.locations(config.flow(connector.flow))
    except NoLedger:
        return []
    finally:
        await reader.close()
    return [
        {
            "partition": {
                "cluster": connector.flow.source,
                "partition": each.lane.source.partition,
                "topic": each.lane.source.topic,
            },
            "offset": {"offset": each.source_next_offset - 1},
        }
        for each in locations
        if each.source_next_offset > 0
    ]


def parse_offsets(body: Any, flow: FlowId) -> Wanted:
    """Of a PATCH; raises 400 with MirrorMaker 2's own sentences."""
    listed = as_object(body).get("offsets")
    if not isinstance(listed, list) or not listed:
        raise ConnectProblem(
            400, "Partitions / offsets need to be provided for an alter offsets request"
        )
    wanted: dict[TopicPartition, int | None] = {}
    for each in listed:
        pair = as_object(each)
        partition = pair.get("partition")
        if not isinstance(partition, dict):
            raise ConnectProblem(400, "Source partitions may not be null")
        wanted[_partition(partition, flow)] = _offset(pair.get("offset"), partition)
    return wanted


def _partition(given: Mapping[str, Any], flow: FlowId) -> TopicPartition:
    said = f"Source partition {_java(given)}"
    for key in ("cluster", "topic", "partition"):
        if key not in given:
            raise ConnectProblem(400, f"{said} is missing the '{key}' key, which is required")
    for key in ("cluster", "topic"):
        value = given[key]
        if not isinstance(value, str) or whole_number(value) is not None:
            raise _invalid(said, value, key, "must be a string")
    number = whole_number(given["partition"])
    if number is None or number > _INT_MAX:
        raise _invalid(said, given["partition"], "partition", "must be an integer")
    if number < 0:
        raise _invalid(said, number, "partition", "cannot be negative")
    if given["cluster"] != flow.source:
        raise ConnectProblem(400, f"{said} is not of cluster {flow.source}, the connector's source")
    return TopicPartition(topic=TopicName(str(given["topic"])), partition=number)


def _offset(given: Any, partition: Mapping[str, Any]) -> int | None:
    if given is None:
        return None
    offset = as_object(given)
    said = f"Source offset {_java(offset)} for source partition {_java(partition)}"
    if "offset" not in offset:
        raise ConnectProblem(400, f"{said} is missing the 'offset' key, which is required")
    number = whole_number(offset["offset"])
    if number is None or number > _LONG_MAX:
        raise _invalid(said, offset["offset"], "offset", "must be an integer")
    if number < 0:
        raise _invalid(said, number, "offset", "cannot be negative")
    return number


def _invalid(said: str, value: Any, key: str, rule: str) -> ConnectProblem:
    text = str(value)[:100]
    return ConnectProblem(
        400, f"{said} has an invalid value {text} for the '{key}' key, which {rule}"
    )


def _java(given: Mapping[str, Any]) -> str:
    return "{" + ", ".join(f"{key}={str(value)[:100]}" for key, value in given.items()) + "}"


def require_stopped(connector: Connector) -> None:
    if connector.target_state is not TargetState.STOPPED:
        raise ConnectProblem(
            400,
            "Connectors must be in the STOPPED state before their offsets can be modified. This "
            "can be done for the specified connector by issuing a 'PUT' request to the "
            f"'/connectors/{connector.name}/stop' endpoint",
        )


def require_offsets(connector: Connector) -> None:
    if connector.plugin is not Plugin.SOURCE:
        raise ConnectProblem(
            400, f"Connector {connector.name} has no offsets here; only a source connector has"
        )


async def alter_offsets(connector: Connector, config: MirrorConfig, wanted: Wanted) -> None:
    """All of them, or none. Raises `ConnectProblem` or `MirrorError`."""
    require_offsets(connector)
    topics = all_topics([partition.topic for partition in wanted])
    planned = await _reset(connector, config, topics, _destination(wanted), write=False)
    _require_mirrored(connector, wanted, planned)
    await _reset(connector, config, topics, _destination(wanted), write=True)


async def check_offsets(connector: Connector, config: MirrorConfig, wanted: Wanted) -> None:
    """That they could be altered, where a driver leads the flow and has to do it."""
    topics = all_topics([partition.topic for partition in wanted])
    with _refusals():
        planned = await plan_resets(config, connector.flow, topics, _destination(wanted))
        _require_mirrored(connector, wanted, planned.resets)


def _destination(wanted: Wanted) -> Destination:
    def chosen(lane: TopicPartition) -> str | int | None:
        if lane not in wanted:
            return None
        last = wanted[lane]
        return TO_EARLIEST if last is None else last + 1

    return chosen


def _require_mirrored(connector: Connector, wanted: Wanted, planned: Collection[LaneReset]) -> None:
    strange = sorted(set(wanted) - {each.lane.source for each in planned}, key=str)
    if strange:
        raise ConnectProblem(
            400,
            f"Connector {connector.name} has mirrored nothing of {strange[0]}, so it has no "
            "offset to alter; nothing was altered",
        )


async def reset_offsets(connector: Connector, config: MirrorConfig) -> None:
    """Every lane goes on at the first record its source has."""
    if connector.plugin is not Plugin.SOURCE:
        return
    await _reset(connector, config, all_topics(), lambda _: TO_EARLIEST, write=True)


async def _reset(
    connector: Connector, config: MirrorConfig, topics: Topics, to: Destination, *, write: bool
) -> tuple[LaneReset, ...]:
    with _refusals():
        try:
            return await reset_each(config, connector.flow, topics, to, write=write)
        except NoLedger:
            return ()


@contextmanager
def _refusals() -> Iterator[None]:
    """As a client hears them: an offset that the source does not have, a driver that mirrors."""
    try:
        yield
    except (BrokerError, InvariantError, ConnectProblem):
        raise
    except MirrorError as exc:
        raise ConnectProblem(400, str(exc)) from exc
