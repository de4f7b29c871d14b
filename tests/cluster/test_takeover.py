"""A real MirrorMaker 2 is killed, in a soak twice, adopted, handed back, and goes on.

What a second life repeats is found in `test_adoption` too, where the test decides every step.
"""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from heliograph.cli.adopt import adopt
from heliograph.cli.release import release
from heliograph.config.load import load_config
from heliograph.model import ClusterAlias, FlowId
from heliograph.takeover.mm2_state import read_mm2_state
from heliograph_tools.localkafka.cluster import LocalCluster
from tests.kit.clusters import TopicNames
from tests.kit.inside import carry
from tests.kit.mirror import lasting_topic
from tests.kit.mm2 import MirrorMaker, await_no_workers, mm2_properties
from tests.kit.records import Rec, end_offsets, numbered, produce, read_all
from tests.kit.soaking import in_soak
from tests.kit.topics import wait_until

# A real MirrorMaker 2 starts three times in a soak: 200 s beside two other workers.
pytestmark = pytest.mark.timeout(600)

PARTITIONS = 2
LIVES = in_soak(2, ci=1)
_START_S_MAX = 120.0


class Load:
    """A producer that goes on writing while everything else happens."""

    def __init__(self, cluster: LocalCluster, topic: str) -> None:
        self._cluster, self._topic, self._written = cluster, topic, 0
        self._stop = threading.Event()

    def write(self, count: int) -> None:
        records = numbered(count, partitions=PARTITIONS, start=self._written)
        produce(self._cluster, self._topic, records)
        self._written += count

    @contextmanager
    def going_on(self) -> Iterator[None]:
        thread = threading.Thread(target=self._run, name="load")
        thread.start()
        try:
            yield
        finally:
            self._stop.set()
            thread.join()
            self._stop.clear()

    def _run(self) -> None:
        while not self._stop.is_set():
            self.write(200)
            time.sleep(0.05)


def test_a_mirrormaker_2_that_was_killed_is_taken_over_and_gets_everything_back(
    pair: dict[str, LocalCluster], topic: TopicNames, tmp_path: Path
) -> None:
    name = lasting_topic(pair["A"], topic("takeover"), partitions=PARTITIONS)
    flow = FlowId(source=ClusterAlias("before"), target=ClusterAlias("after"))
    renamed = f"before.{name}"
    config = mm2_properties(
        tmp_path / "mm2.properties",
        ("before", pair["A"]),
        ("after", pair["B"]),
        name,
        {"after.offset.flush.interval.ms": "3000", "offset.lag.max": "50"},
    )
    load = Load(pair["A"], name)
    load.write(2_000)

    with load.going_on():
        for _ in range(LIVES):
            _killed_after_storing(config, flow, pair["B"], renamed)
    refused = _run(config, "adopt", "--yes", code=1)["flows"][0]["problem"]
    await_no_workers(load_config(config), flow)
    left_behind = read_all(pair["B"], renamed)
    dry = _run(config, "adopt", "--dry-run")
    report = _run(config, "adopt", "--from", "earliest", "--yes")
    load.write(500)
    carry(config)
    mirrored = read_all(pair["B"], renamed)
    released = _run(config, "release", "--yes")
    load.write(300)
    _mirrored_by_mm2(config, flow, pair, name, renamed)

    # A worker that was killed stays in its group until its session is over.
    assert "MirrorMaker 2 is running" in refused
    originals, final = read_all(pair["A"], name), read_all(pair["B"], renamed)
    assert released["written_lanes"] == PARTITIONS
    lanes = report["flows"][0]["lanes"]
    assert (sum(lane["repeated_records"] for lane in lanes) > 0) == (LIVES > 1)
    assert sum(lane["copied_beyond_stored"] for lane in lanes) > 0
    for number in range(PARTITIONS):
        lane, before = lanes[number], left_behind[number]
        next_offset = lane["source_next_offset"]
        short = dry["flows"][0]["lanes"][number]
        assert short["source_next_offset"] == next_offset
        # A life that no offset sync gives away may lie before where the shorter comparison begins.
        begun = short["compared_from"]["target"]
        assert short["repeats"] == [r for r in lane["repeats"] if r["target"][0] >= begun]
        assert (lane["foreign_records"], lane["missing_records"], lane["doubts"]) == (0, 0, [])
        assert lane["repeated_records"] == _repeats(before)
        # After adoption: exactly the rest, once, in order.
        rest = [r for r in originals[number] if r.offset >= next_offset]
        assert _contents(final[number][: len(before)]) == _contents(before)
        assert _contents(final[number][len(before) :]) == _contents(rest)
        assert len(mirrored[number]) == len(final[number]) - 150


def _killed_after_storing(config: Path, flow: FlowId, target: LocalCluster, renamed: str) -> None:
    """Run until a position is stored and more is copied than that, then kill -9."""
    loaded = load_config(config)

    def stored() -> int:
        positions = read_mm2_state(loaded, flow).positions
        return sum(positions.values()) if len(positions) == PARTITIONS else 0

    def copied() -> int:
        return sum(end_offsets(target, renamed).values())

    def is_copied_past(count: int) -> bool:
        return copied() > count

    with MirrorMaker(config) as mirror:

        def is_stored_past(before: int) -> bool:
            mirror.require_alive()
            return stored() > before

        seen = stored()
        while True:
            past = partial(is_stored_past, seen)
            wait_until(past, "a stored position", timeout_s=_START_S_MAX, poll_s=0.5)
            seen, enough = stored(), copied() + 400
            wait_until(partial(is_copied_past, enough), "records after the stored position")
            # Stored again meanwhile, and the successor would have nothing to repeat.
            if stored() == seen:
                break
        mirror.kill()


def _mirrored_by_mm2(
    config: Path, flow: FlowId, pair: dict[str, LocalCluster], name: str, renamed: str
) -> None:
    expected = sum(end_offsets(pair["B"], renamed).values()) + 300
    with MirrorMaker(config) as mirror:

        def arrived() -> bool:
            mirror.require_alive()
            return sum(end_offsets(pair["B"], renamed).values()) >= expected

        wait_until(arrived, f"what is new in {name}", timeout_s=_START_S_MAX, poll_s=0.3)
        mirror.stop()


def _run(config: Path, *arguments: str, code: int | None = 0) -> dict[str, Any]:
    app = typer.Typer()
    app.command("adopt")(adopt)
    app.command("release")(release)
    result = CliRunner().invoke(app, [arguments[0], str(config), "--json", *arguments[1:]])
    assert code is None or result.exit_code == code, result.output
    document: dict[str, Any] = json.loads(result.stdout)
    return document


def _contents(records: list[Rec]) -> list[object]:
    return [record.content for record in records]


def _repeats(records: list[Rec]) -> int:
    return sum(count - 1 for count in Counter(_contents(records)).values())
