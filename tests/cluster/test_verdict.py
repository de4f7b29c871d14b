"""`heliograph verdict` on real brokers: each of its words, ready and not yet, its exit codes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from heliograph.model import Paused
from heliograph_tools.localkafka.cluster import LocalCluster
from tests.cluster.test_cli import heliograph
from tests.kit.clusters import TopicNames
from tests.kit.groups import commit
from tests.kit.inside import running_inside
from tests.kit.mirror import lasting_topic, route, write_config
from tests.kit.records import numbered, produce
from tests.kit.topics import delete_records_before, wait_until

_SECONDS = 60.0


def judged(file: Path, flow: str, *more: str) -> tuple[int, dict[str, Any]]:
    said = heliograph("verdict", str(file), "--flow", flow, "--json", *more)
    (found,) = said.document["flows"]
    assert isinstance(found, dict)
    return said.code, found


def texts(found: dict[str, Any]) -> str:
    return "; ".join(reason["text"] for reason in found["reasons"])


def test_each_word_is_said_when_it_is_true_and_ready_only_when_nothing_stands_in_the_way(
    pair: dict[str, LocalCluster], topic: TopicNames, tmp_path: Path
) -> None:
    name = lasting_topic(pair["A"], topic("verdict"))
    number = name.rpartition("-")[2]
    a, b = f"vdA{number}", f"vdB{number}"
    group = f"vd-readers-{number}"
    produce(pair["A"], name, numbered(50))
    commit(pair["A"], group, name, {0: 30})
    file = write_config(
        tmp_path / "mm2.properties",
        {a: pair["A"], b: pair["B"]},
        {
            f"{a}->{b}": {
                "topics": name,
                "groups": group,
                "cutover.quiet.seconds": "1",
                "cutover.audit.seconds": "0",
                "cutover.drill.seconds": "0",
            }
        },
    )
    way = route(file, (a, pair["A"]), (b, pair["B"]))
    flow = str(way.flow)

    before_code, before = judged(file, flow)
    with running_inside(file, leased=True) as inside:
        way.await_records(name, 50)

        def is_well() -> bool:
            return judged(file, flow)[0] == 0

        wait_until(is_well, "a flow that is healthy", timeout_s=_SECONDS, poll_s=0.5)
        well_code, well = judged(file, flow, "--cutover")
        strict = tmp_path / "strict.properties"
        strict.write_text(file.read_text().replace("audit.seconds = 0", "audit.seconds = 60"))
        strict_code, strict_found = judged(strict, flow, "--cutover")
        paused = heliograph("pause", str(file), "--flow", flow, "--topic", name, "--json")

        def is_paused() -> bool:
            return {type(at.state) for at in inside.slots.progress().values()} == {Paused}

        wait_until(is_paused, "a lane that is paused", timeout_s=_SECONDS)
        produce(pair["A"], name, numbered(20))
        behind_code, behind = judged(file, flow)
        not_ready_code, not_ready = judged(file, flow, "--cutover")
        delete_records_before(pair["A"], name, {0: 60})
        losing_code, losing = judged(file, flow)
        plain = heliograph("verdict", str(file), "--flow", flow)
    dead = tmp_path / "dead.properties"
    dead.write_text(file.read_text().replace(pair["A"].bootstrap, "127.0.0.1:1"))
    unknown_code, unknown = judged(dead, flow)

    assert (before_code, before["verdict"]) == (3, "stalled")
    assert "no driver mirrors it" in texts(before)
    assert (well_code, well["verdict"], well["reasons"]) == (0, "healthy", [])
    assert well["cutover"]["ready"], well
    assert strict_code == 3
    assert strict_found["cutover"]["reasons"] == ["no audit was made: `heliograph audit`"]
    assert paused.code == 0, paused.err
    assert (behind_code, behind["verdict"]) == (3, "behind")
    assert f"paused, and records wait: {name}-0" in texts(behind)
    assert (not_ready_code, not_ready["cutover"]["ready"]) == (3, False)
    assert f"20 records not copied yet: {name}-0" in not_ready["cutover"]["reasons"]
    assert (losing_code, losing["verdict"]) == (3, "losing")
    assert texts(losing).startswith(f"the source has deleted records that wait: {name}-0")
    assert plain.code == 3
    assert plain.out.splitlines()[0] == f"{flow}: losing"
    assert (unknown_code, unknown["verdict"]) == (1, "stalled")
    assert "not known" in texts(unknown)
    assert not unknown["cutover"]["ready"]
