"""Throttles, held: bytes a second on the target while lanes of two flows in two slots catch up.

    python -m bench.throttle

One run each with a limit of a flow, of what is read from a cluster, and of what is written to one.
Every ten seconds that fit into the run count. Writes bench/results/operate/throttle.json. Needs
brokers and Spark; runs on the driver. Four minutes.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from heliograph.clock import monotonic_s
from heliograph_tools.bench.filling import build_batches, fill_topic
from heliograph_tools.bench.machine import this_machine
from heliograph_tools.bench.mirror import MirrorProcess, running
from heliograph_tools.bench.raw import RawConnection
from heliograph_tools.bench.rows import CopyRow, System
from heliograph_tools.bench.stage import Stage, open_stage
from heliograph_tools.bench.systems import prepare
from heliograph_tools.bench.watch import wait_until

RESULTS: Final = Path(__file__).parent / "results" / "operate" / "throttle.json"
LIMIT_BYTES_PER_S: Final = 8_000_000
WINDOW_S: Final = 10.0
_SECONDS: Final = 40.0
_SETTLE_S: Final = 10.0
"""The first records come in a burst of what a bucket saves up, and the driver divides anew."""
_LOOK_S: Final = 0.1
_PARTITIONS: Final = 4
_ROW: Final = CopyRow(
    name="throttle",
    records=6_000_000,
    record_bytes=100,
    batch_bytes=16_384,
    partitions=_PARTITIONS,
    systems=(),
    goals=(),
)
_TOPIC: Final = "throttled"


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    limit: str
    bytes_per_s: int
    windows: int
    slots: int
    least_share: float
    """Of the limit, in the slowest ten seconds."""
    most_share: float
    flows_bytes_per_s: Mapping[str, float]
    """What each flow got, over all of it."""


LIMITS: Final[Mapping[str, Mapping[str, str]]] = {
    "of a flow": {
        "clusters": "one, target",
        "one->target.throttle.bytes.per.second": str(LIMIT_BYTES_PER_S),
    },
    "read from a cluster": {
        # The second flow writes to the source's own cluster, under another name.
        "clusters": "one, target, other",
        "one->other.enabled": "true",
        "one.throttle.read.bytes.per.second": str(LIMIT_BYTES_PER_S),
    },
    "written to a cluster": {
        "clusters": "one, two, target",
        "two->target.enabled": "true",
        "target.throttle.write.bytes.per.second": str(LIMIT_BYTES_PER_S),
    },
}


def measure(stage: Stage, limit: str, keys: Mapping[str, str]) -> Held:
    route = stage.route("one", _TOPIC)
    common = {"slots": "2", "topics": _TOPIC}
    places = {"one->target": (stage.target_address, f"one.{_TOPIC}")}
    if "one->other.enabled" in keys:
        common["other.bootstrap.servers"] = stage.source.bootstrap
        places["one->other"] = (stage.source_address, f"one.{_TOPIC}")
    if "two->target.enabled" in keys:
        common["two.bootstrap.servers"] = stage.source.bootstrap
        places["two->target"] = (stage.target_address, f"two.{_TOPIC}")
    folder = stage.folder / limit.replace(" ", "-")
    launch = prepare(System.HELIOGRAPH, route, folder, {**common, **keys})
    try:
        with running(launch, folder / "mirror.log") as mirror, ExitStack() as open_ones:
            topics = {
                flow: (open_ones.enter_context(RawConnection(address)), topic)
                for flow, (address, topic) in places.items()
            }
            return _watch(topics, mirror, limit)
    finally:
        for word in ("one.", "two."):
            stage.drop_topics(word)


def _watch(
    topics: Mapping[str, tuple[RawConnection, str]], mirror: MirrorProcess, limit: str
) -> Held:
    batch = build_batches(_ROW, 1, _ROW.batch_bytes)[0]
    record_bytes = len(batch.payload) / batch.records

    def copied() -> dict[str, float]:
        return {
            flow: sum(connection.end_offsets(topic, _PARTITIONS)) * record_bytes
            for flow, (connection, topic) in topics.items()
        }

    def has_begun() -> bool:
        served = all(each.serves(topic, _PARTITIONS) for each, topic in topics.values())
        return served and all(copied().values())

    wait_until(has_begun, mirror.ensure_alive, "first records of every flow")
    time.sleep(_SETTLE_S)
    looks: list[tuple[float, float]] = []
    before, began_s = copied(), monotonic_s()
    while monotonic_s() - began_s < _SECONDS:
        looks.append((monotonic_s(), sum(copied().values())))
        mirror.ensure_alive()
        time.sleep(_LOOK_S)
    after, elapsed_s = copied(), monotonic_s() - began_s
    rates = []
    for at, (from_s, from_bytes) in enumerate(looks):
        later = next((each for each in looks[at:] if each[0] - from_s >= WINDOW_S), None)
        if later is not None:
            rates.append((later[1] - from_bytes) / (later[0] - from_s))
    flows = {flow: round((after[flow] - before[flow]) / elapsed_s) for flow in topics}
    return Held(
        limit=limit,
        bytes_per_s=LIMIT_BYTES_PER_S,
        windows=len(rates),
        slots=2,
        least_share=round(min(rates) / LIMIT_BYTES_PER_S, 4),
        most_share=round(max(rates) / LIMIT_BYTES_PER_S, 4),
        flows_bytes_per_s=flows,
    )


def main() -> None:
    load_before = os.getloadavg()[0]
    with (
        tempfile.TemporaryDirectory(prefix="heliograph-throttle-") as scratch,
        open_stage(Path(scratch)) as stage,
    ):
        stage.create_source_topic(_TOPIC, _PARTITIONS)
        fill_topic(stage.source_address, _TOPIC, _ROW)
        held = [measure(stage, limit, keys) for limit, keys in LIMITS.items()]
    found = {
        "goal": "within 5 % of the limit in every ten seconds",
        "held": [asdict(each) for each in held],
        "load_before": load_before,
        "machine": asdict(this_machine()),
    }
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    RESULTS.write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
