"""A mirror whose ledger has forgotten runs: coarse offsets skip nothing, and it goes on exactly."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from heliograph.cli.app import app
from heliograph.config.load import load_config
from heliograph.ledger import segments
from heliograph_tools.localkafka.cluster import LocalCluster
from tests.kit.groups import commit, committed
from tests.kit.inside import InsideMirror
from tests.kit.mirror import write_config
from tests.kit.records import Rec, Transaction, numbered, produce_transactions, read_all
from tests.kit.topics import create_topic, wait_until

TOPIC, GROUP = "forgetful", "forgetful-billing"
RUNS_KEPT = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    source: LocalCluster
    target: LocalCluster
    file: Path

    def records(self, cluster: LocalCluster, topic: str) -> list[Rec]:
        return read_all(cluster, topic)[0]

    def asked(self, *words: str) -> dict[str, Any]:
        result = CliRunner().invoke(app(), [words[0], str(self.file), *words[1:], "--json"])
        assert result.exit_code == 0, result.output or repr(result.exception)
        found: dict[str, Any] = json.loads(result.stdout)
        return found

    def exact_from(self) -> int:
        (flow,) = self.asked("ledger")["flows"]
        return int(flow["lanes"][0]["exact_from_position"])

    def mirror(self) -> InsideMirror:
        config = load_config(self.file)
        pairs = tuple(
            pair.model_copy(update={"ledger_runs_max": RUNS_KEPT}) for pair in config.pairs
        )
        return InsideMirror(config.model_copy(update={"pairs": pairs}))

    def write(self, turn: int) -> None:
        """Two records and a marker, so a run, for each transaction."""
        made = [Transaction(records=numbered(2, start=turn * 100 + 2 * n)) for n in range(20)]
        produce_transactions(self.source, TOPIC, made, transactional_id=f"{TOPIC}-{turn}")


@pytest.fixture(scope="module")
def scene(
    pair: dict[str, LocalCluster], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Scene]:
    """Mirrored until the ledger has forgotten, with segments and turns as small as can be."""
    file = write_config(
        tmp_path_factory.mktemp("forgetting") / "mm2.properties",
        {"forgetA": pair["A"], "forgetB": pair["B"]},
        {"forgetA->forgetB": {"topics": TOPIC, "groups": GROUP}},
    )
    scene = Scene(source=pair["A"], target=pair["B"], file=file)
    create_topic(scene.source, TOPIC)
    scene.write(0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(segments, "SEGMENT_RUNS", 2)
        patch.setattr(segments, "MERGE_ENTRIES_MIN", 1)
        patch.setattr(segments, "FORGET_SEGMENTS_MIN", 1)
        with closing(scene.mirror()) as inside:
            inside.catch_up(1)
            wait_until(lambda: scene.exact_from() > 0, "runs that are forgotten", timeout_s=60)
        yield scene


def test_every_offset_translates_to_one_that_skips_nothing(scene: Scene) -> None:
    originals = scene.records(scene.source, TOPIC)
    copies = scene.records(scene.target, f"forgetA.{TOPIC}")
    said = set()

    for place in (0, 1, originals[9].offset, originals[-3].offset):
        commit(scene.source, GROUP, TOPIC, {0: place})
        found = scene.asked("offsets", "--group", GROUP, "--to", "map", "--commit")
        said.add(found["moves"][0]["clamped"])
        at = committed(scene.target, GROUP, f"forgetA.{TOPIC}")[0]
        wanted = [rec.content for rec in originals if rec.offset >= place]
        read = [rec.content for rec in copies if rec.offset >= at]
        assert read[len(read) - len(wanted) :] == wanted
        if found["moves"][0]["clamped"] is None:
            assert read == wanted

    assert said == {None, "coarse"}


def test_a_coarse_answer_is_told_as_such(scene: Scene) -> None:
    words = ("ledger", "--topic", TOPIC, "--partition", "0", "--translate")

    first, later = scene.asked(*words, "0"), scene.asked(*words, "1")

    assert (first["exact"], first["clamped"]) == (True, None)
    assert (later["exact"], later["clamped"]) == (False, "coarse")
    assert later["to"]["offset"] == first["to"]["offset"]


def test_the_lane_goes_on_exactly_and_forgets_more(scene: Scene) -> None:
    before = scene.exact_from()
    scene.write(1)

    with closing(scene.mirror()) as inside:
        inside.catch_up(1)
        wait_until(lambda: scene.exact_from() > before, "more runs forgotten", timeout_s=60)

    originals = scene.records(scene.source, TOPIC)
    copies = scene.records(scene.target, f"forgetA.{TOPIC}")
    assert [rec.content for rec in copies] == [rec.content for rec in originals]
