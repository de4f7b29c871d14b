"""A failback killed -9 at every step, before it is recorded and in its middle, then run again."""

from __future__ import annotations

import signal
from pathlib import Path

from heliograph.failback.divergence import Choice, Resolution
from heliograph.model import TopicName
from heliograph_tools.localkafka.cluster import LocalCluster
from tests.crash.failing_back import fail_back_until
from tests.kit.clusters import TopicNames
from tests.kit.failback import IDENTITY, only, open_stage, with_offsets
from tests.kit.groups import commit, committed
from tests.kit.mirror import lasting_topic
from tests.kit.records import numbered, produce, read_all

POINTS = (
    "begins: check",
    "done, not recorded: check",
    "begins: find",
    "done, not recorded: find",
    "begins: export",
    "some records saved",
    "most records saved, a file unfinished",
    "done, not recorded: export",
    "topics deleted",
    "topics created",
    "done, not recorded: clear",
    "some filler appended",
    "a lane written",
    "a lane forgotten",
    "the producer written",
    "done, not recorded: begin",
    "begins: groups",
    "groups committed",
    "done, not recorded: groups",
    "the fence lifted",
    "done, not recorded: open",
)


def test_a_failback_killed_at_every_point_in_turn_loses_repeats_and_deletes_nothing_unsaved(
    pair: dict[str, LocalCluster], topic: TopicNames, tmp_path: Path
) -> None:
    name = lasting_topic(pair["A"], topic("killed"), partitions=2)
    settings = {**IDENTITY, "offsets": "preserve"}
    stage = open_stage(pair, name, tmp_path, name, settings)
    produce(pair["A"], name, numbered(300, partitions=2))
    stage.mirror(stage.there, lanes=2)
    unmirrored = numbered(450, start=2_000)
    produce(pair["A"], name, unmirrored)
    stage.fence(stage.there)
    produce(pair["B"], name, numbered(60, partitions=2, start=9_000))
    commit(pair["B"], f"g-{name}", name, {0: 150, 1: 40})
    order = stage.order(Choice.RESYNC, may_delete=True)

    for point in POINTS:
        assert fail_back_until(stage.file, order, point) == -signal.SIGKILL, point
    report = stage.fail_back(Choice.RESYNC, may_delete=True)
    again = stage.fail_back(Choice.RESYNC, may_delete=True)
    stage.mirror(stage.back, lanes=2)

    assert report.resolutions == {TopicName(name): Resolution.RECREATE}
    assert again.was_over
    saved = only(pair["B"], f"saved-{stage.there.source}")
    assert [record.key for record in saved] == [record.key for record in unmirrored]
    (file,) = (tmp_path / "saved").rglob("*.parquet")
    assert file.name == "0-150-600.parquet"
    old, present = read_all(pair["A"], name), read_all(pair["B"], name)
    for number, records in present.items():
        assert with_offsets(old[number]) == with_offsets(r for r in records if r.offset >= 150)
        assert len(old[number]) == 30
    assert committed(pair["A"], f"g-{name}", name) == {0: 150, 1: 150}
