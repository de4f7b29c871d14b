"""What a writer was told: where rows go, where they are staged. Runs on the driver."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from heliograph.config.schema import ClusterConfig
from heliograph.errors import ConfigError
from heliograph.pipeline.options import cluster_of, count_of, named
from heliograph.pipeline.packing import OnError
from heliograph.wire.compression import Codec

_KNOWN: Final = (
    "config",
    "cluster",
    "name",
    "staging",
    "topic",
    "compression",
    "replicationFactor",
    "batch",
    "onError",
    "deadLetterTopic",
    "deterministic",
)
_NEEDED: Final = {"name": "the pipeline's", "staging": "a folder that driver and executors reach"}
_BROKER_DEFAULT: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions:
    cluster: ClusterConfig = field(repr=False)
    name: str
    staging: str
    topic: str | None = None
    codec: Codec
    replication_factor: int
    batch: int | None = None
    """Of a job that may run again for the same rows."""
    checkpoint: str | None = None
    """Of a stream, where Spark was told."""
    on_error: OnError = OnError.STALL
    dead_letter_topic: str | None = None
    is_deterministic: bool = False


def sink_options(given: Mapping[str, str], *, is_stream: bool) -> SinkOptions:
    """Raises `ConfigError` with all that is wrong."""
    problems: list[str] = []
    found = named(given, _KNOWN, problems)
    cluster = cluster_of(found, problems)
    problems += [
        f"option {name} ({what}) is needed" for name, what in _NEEDED.items() if name not in found
    ]
    codec = found.get("compression", "none").upper()
    if codec not in Codec.__members__:
        problems.append(f"compression is {codec.lower()}, none of {_codecs()}")
    batch = count_of(found, "batch", problems, least=0)
    if is_stream and batch is not None:
        problems.append("batch is for batches, a stream numbers them itself")
    replication_factor = count_of(found, "replicationFactor", problems) or _BROKER_DEFAULT
    on_error = found.get("onError", OnError.STALL.value)
    if on_error not in list(OnError):
        problems.append(f"onError is {on_error}, none of {', '.join(OnError)}")
    elif (on_error == OnError.DEAD_LETTER) != ("deadLetterTopic" in found):
        problems.append("onError = dead-letter and deadLetterTopic are given together, or neither")
    deterministic = found.get("deterministic", "false").lower()
    if deterministic not in ("true", "false"):
        problems.append(f"deterministic is {deterministic}, neither true nor false")
    elif deterministic == "true" and "topic" not in found:
        problems.append("deterministic = true needs a topic for all rows")
    if problems or cluster is None:
        raise ConfigError('format("heliograph")', tuple(problems))
    return SinkOptions(
        cluster=cluster,
        name=found["name"],
        staging=found["staging"],
        topic=found.get("topic"),
        codec=Codec[codec],
        replication_factor=replication_factor,
        batch=batch,
        checkpoint={name.lower(): value for name, value in given.items()}.get("checkpointlocation"),
        on_error=OnError(on_error),
        dead_letter_topic=found.get("deadLetterTopic"),
        is_deterministic=deterministic == "true",
    )


def _codecs() -> str:
    return ", ".join(Codec.__members__).lower()
