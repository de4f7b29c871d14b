"""The benchmark runs a real MirrorMaker 2 and measures it, sizes aside."""

from __future__ import annotations

from pathlib import Path

import pytest

from heliograph_tools.bench.copying import run_copy
from heliograph_tools.bench.filling import fill_topic
from heliograph_tools.bench.rows import CopyRow, System, choose_rows
from heliograph_tools.bench.stage import open_stage
from tests.kit.clusters import FAST_JAVA


def test_mirror_maker_2_copies_all_records_and_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(*FAST_JAVA)
    (row,) = choose_rows(("plain_16k",), 0.002)
    assert isinstance(row, CopyRow)
    with open_stage(tmp_path) as stage:
        stage.create_source_topic("full-small", row.partitions)
        fill_topic(stage.source_address, "full-small", row)

        run = run_copy(stage, row, "full-small", System.MM2_TUNED, 0, {})

    assert run.records == row.records
    assert run.repeated == 0
    assert run.startup_s is not None
    assert run.startup_s > 0
    assert run.cpu_startup_s is not None
    assert run.cpu_startup_s > 0
