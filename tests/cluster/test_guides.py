"""Guides are played: their commands end and print as the pages say, at the moments they are for.

Which block a test plays is in `tests/kit/block_index.py`; `tests/house/test_blocks.py` sees that
every block of README, tutorial and guides is there.
"""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from heliograph.config.load import load_config
from heliograph.groups.checkpoints_topic import read_checkpoints
from heliograph.model import ClusterAlias, FlowId, TopicName
from heliograph_tools.localkafka.cluster import ClusterSpec, LocalCluster, local_clusters
from tests.kit.block_index import PLAYED
from tests.kit.clusters import FAST_START
from tests.kit.groups import commit, member
from tests.kit.guide import FILE, GuidePage, Lab, lab_between
from tests.kit.mirror import lasting_topic
from tests.kit.records import NewRec, end_offsets, numbered, produce
from tests.kit.runs import ROOT
from tests.kit.topics import wait_until

_SMALL: Final = """
replication.factor = 1
checkpoints.topic.replication.factor = 1
heartbeats.topic.replication.factor = 1
offset-syncs.topic.replication.factor = 1
refresh.topics.interval.seconds = 1
"""
_RECORDS: Final = {"orders": 3_000, "payments": 600}
_PARTITIONS: Final = {"orders": 3, "payments": 1}
_WAY_BACK: Final = "B->A.enabled = true\n"
_SAMPLE: Final = "heliograph transform mm2.properties --topic orders --sample 2"
_FUNCTIONS: Final = {
    "sketched": "# my_transforms.py",
    "masking": "# my_transforms.py (2)",
    "tagging": "# my_transforms.py (4)",
}
_AND_MASKED: Final = "A->B.transforms.m.type = masking:masked\n"
_CARD: Final = NewRec(
    key=b"17",
    value=b'{"card":{"number":"1234"}}',
    headers=(("test", b"1"),),
    timestamp_ms=1_767_225_600_000,
)


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Clusters A and B as the guides have them: topics, groups, and nothing mirrored yet."""
    folder = tmp_path_factory.mktemp("lab")
    specs = [ClusterSpec(alias=alias, jvm_options=FAST_START) for alias in ("A", "B")]
    with (
        local_clusters(specs, root=tmp_path_factory.mktemp("clusters")) as clusters,
        lab_between(folder, clusters) as found,
    ):
        source = clusters["A"]
        for topic, count in _PARTITIONS.items():
            lasting_topic(source, topic, partitions=count)
            produce(source, topic, numbered(_RECORDS[topic], partitions=count))
        commit(source, "billing", "orders", {0: 400, 1: 900, 2: 1_000})
        commit(source, "ledgering", "payments", {0: 600})
        yield found


def placed(text: str, clusters: Mapping[str, LocalCluster]) -> str:
    """The page's file, of these clusters."""
    for alias, cluster in clusters.items():
        servers = f"{alias}.bootstrap.servers = {cluster.bootstrap}"
        text = re.sub(rf"^{alias}\.bootstrap\.servers = .*$", servers, text, flags=re.MULTILINE)
    return text + _SMALL


def assert_all_played(test: str, *pages: GuidePage) -> None:
    """As the pages say, and what the index says that this test plays, neither more nor less."""
    problems = [problem for page in pages for problem in page.problems]
    assert problems == [], "\n\n".join(problems)
    assert {name for page in pages for name in page.played} == set(PLAYED[test])


@pytest.mark.timeout(600)
def test_a_migration_and_the_way_home(lab: Lab) -> None:
    clusters = lab.clusters
    failover, migration = GuidePage("failover.md", lab), GuidePage("migration.md", lab)
    readme, operate = GuidePage("README.md", lab), GuidePage("operate.md", lab)
    rest, page = GuidePage("rest.md", lab), GuidePage("page.md", lab)
    drill = GuidePage("drill.md", lab)
    file = failover.block("clusters = A, B").body
    lab.file.write_text(lab.placed(placed(file, clusters)))

    migration.play("$ heliograph plan mm2.properties")
    page.play("$ heliograph run mm2.properties --api 127.0.0.1:8080")
    rest.play("$ heliograph run mm2.properties --api 127.0.0.1:8080")
    rest.play("$ head -c 24 /dev/urandom | base64")
    lab.printed["heliograph run mm2.properties"] = (0, "")
    migration.play("$ heliograph run mm2.properties")
    migration.play("$ heliograph status mm2.properties")
    failover.play("$ heliograph status mm2.properties (2)")
    migration.play("$ heliograph offsets mm2.properties --flow 'A->B' --group '.*' --to copy")
    operate.play(
        "$ heliograph pause mm2.properties --flow 'A->B' --topic orders"
        " --why 'the target is upgraded' --for 2h"
    )
    assert lab.type("heliograph resume mm2.properties --flow 'A->B' --topic orders")[0] == 0
    readme.play(
        "$ heliograph plan mm2.properties          # what would be mirrored, created, renamed,"
        " granted; changes nothing"
    )
    drill.play(
        "$ heliograph drill mm2.properties --flow 'A->B' --report drill.html",
        # Of lag, and of more places than one drill compares.
        without=("topic ", "orders ", "shipping ", "note: records were compared"),
    )
    failover.play("$ heliograph status mm2.properties (5)")
    failover.play("$ heliograph failover mm2.properties --flow 'A->B' --planned --dry-run (2)")
    failover.play("$ heliograph failover mm2.properties --flow 'A->B' --planned --yes")
    migration.same("$ heliograph failover mm2.properties --flow 'A->B' --planned --yes")
    failover.play("$ heliograph failover mm2.properties --flow 'A->B' --planned --dry-run")
    primary = (lab.folder / "primary.properties").read_text()
    failover.shows("# B is primary since 2026-11-18T11:02:52Z (after failover, flow A->B)", primary)
    failover.play("$ heliograph status mm2.properties (3)")
    failover.play("$ heliograph failback mm2.properties --flow 'A->B' --dry-run (2)", code=2)

    lab.file.write_text(lab.file.read_text() + _WAY_BACK)
    migration.play("$ heliograph failback mm2.properties --flow 'A->B'")
    migration.play("$ heliograph status mm2.properties (2)")
    produce(clusters["B"], "orders", numbered(30, partitions=3))
    failover.play("$ heliograph failover mm2.properties --flow 'B->A' --planned --yes")
    failover.play("$ heliograph failback mm2.properties --flow 'B->A' --yes")

    test = "tests/cluster/test_guides.py::test_a_migration_and_the_way_home"
    assert_all_played(test, failover, migration, readme, operate, rest, page, drill)


@pytest.mark.timeout(600)
def test_the_loss_of_the_primary(lab: Lab) -> None:
    """After the test above: A is primary, A->B is carried."""
    clusters = lab.clusters
    guide, drill = GuidePage("failover.md", lab), GuidePage("drill.md", lab)
    lab.file.write_text(lab.file.read_text().replace(_WAY_BACK, ""))
    commit(clusters["A"], "billing", "orders", {0: 600, 1: 1_000, 2: 1_000})
    run = lab.start()
    ends = end_offsets(clusters["A"], "orders")
    wait_until(lambda: end_offsets(clusters["B"], "orders") == ends, "all of orders on B")
    wait_until(lambda: checkpointed(lab, "billing") == {600, 1_000}, "a checkpoint", timeout_s=60)

    run.send_signal(signal.SIGSTOP)  # held up while the last records come and A dies
    for _ in range(2):  # the first answers the fetches that wait on A
        produce(clusters["A"], "orders", numbered(300, partitions=3))
    clusters["A"].halt()
    run.send_signal(signal.SIGCONT)
    guide.play("$ heliograph status mm2.properties", code=1)
    guide.play("$ heliograph failover mm2.properties --flow 'A->B' --dry-run (2)")
    with member(clusters["B"], "billing", "orders"):
        guide.play("$ heliograph failover mm2.properties --flow 'A->B' --dry-run (3)", code=3)
    guide.play("$ heliograph failover mm2.properties --flow 'A->B' --yes")
    guide.play("$ heliograph failover mm2.properties --flow 'A->B' --dry-run")
    guide.shows(
        "2026-11-18T11:22:05.892+00:00 WARNING flow A->B is fenced, not mirroring: failed over to B"
        " at 2026-11-18T11:22:05Z (unplanned); `heliograph failback` brings it back",
        run.said,
    )

    commit(clusters["B"], "billing", "orders", end_offsets(clusters["B"], "orders"))
    clusters["A"].revive()
    lab.file.write_text(lab.file.read_text() + _WAY_BACK)
    guide.play("$ heliograph failback mm2.properties --flow 'A->B' --dry-run (3)")
    guide.play("$ heliograph failback mm2.properties --flow 'A->B' --resync --dry-run")
    guide.play(
        "$ heliograph failback mm2.properties --flow 'A->B' --resync"
        " --export-dir /tmp/lab/export --yes"
    )
    guide.play("$ heliograph failback mm2.properties --flow 'A->B' --dry-run")
    saved = sorted(path for path in lab.folder.glob("export/**/*.parquet"))
    guide.shows(
        "export/7269d9f9ae5a/orders/0-10000-10334.parquet",
        "\n".join(str(path.relative_to(lab.folder)) for path in saved),
    )
    lab.start()
    guide.play("$ heliograph status mm2.properties (4)")
    lab.stop()
    drill.play(
        "$ heliograph drill mm2.properties --flow 'A->B' --every 7d --rpo-max-seconds 30",
        without=("A->B: drilled every 7 d",),  # the next is within a minute where none was before
    )

    test = "tests/cluster/test_guides.py::test_the_loss_of_the_primary"
    assert_all_played(test, guide, drill)


def checkpointed(lab: Lab, group: str) -> set[int]:
    """Offsets of the source that the last checkpoints have."""
    flow = FlowId(source=ClusterAlias("A"), target=ClusterAlias("B"))
    target = load_config(lab.file).target_of(flow)
    found = read_checkpoints(target, TopicName("A.checkpoints.internal")).checkpoints
    return {each.upstream_offset for (of, _), each in found.items() if of == group}


def test_a_mirror_from_python(lab: Lab, tmp_path: Path) -> None:
    page = GuidePage("library.md", lab)
    lines = ["clusters = east, west", "east->west.enabled = true", "east->west.topics = payments"]
    for alias, cluster in zip(("east", "west"), lab.clusters.values(), strict=True):
        lines.append(f"{alias}.bootstrap.servers = {cluster.bootstrap}")
    (tmp_path / FILE).write_text("\n".join(lines) + _SMALL)
    before = f"import sys; sys.path.insert(0, {str(ROOT)!r})\n"
    before += "from tests.kit.without_spark import install; install()\n"
    before += "import logging; logging.basicConfig(level=logging.INFO)\n"

    once = subprocess.run(
        [sys.executable, "-c", before + page.block("import heliograph").body],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    with subprocess.Popen(
        [sys.executable, "-c", before + page.block("import signal").body],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
    ) as child:
        try:
            assert child.stderr is not None
            next(line for line in child.stderr if " handed to " in line)
            child.send_signal(signal.SIGTERM)
            code = child.wait(60)
        finally:
            child.kill()

    assert once.returncode == 0, once.stderr
    told = re.fullmatch(r"(\d+) records\n", once.stdout)
    assert told is not None and int(told[1]) >= _RECORDS["payments"], once.stdout + once.stderr
    assert code == 0
    assert_all_played("tests/cluster/test_guides.py::test_a_mirror_from_python", page)


def test_transforms_are_tried_before_they_run(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page's functions and its files, each tried on two records of a topic of its own."""
    monkeypatch.syspath_prepend(tmp_path)
    here = Lab(folder=tmp_path, clusters=lab.clusters)
    page = GuidePage("transforms.md", here)
    for number, (module, function) in enumerate(_FUNCTIONS.items()):
        (tmp_path / f"{module}.py").write_text(page.block(function).body)
        topic = lasting_topic(lab.clusters["A"], f"changed-{number}", partitions=2)
        produce(lab.clusters["A"], topic, [_CARD, replace(_CARD, partition=1, headers=())])

    def tried(number: int, module: str, properties: str, more: str = "") -> None:
        flow = f"clusters = A, B\nA->B.enabled = true\nA->B.topics = changed-{number}\n"
        servers = "A.bootstrap.servers = x\nB.bootstrap.servers = x\n"
        body = page.block(properties).body.replace("my_transforms", module)
        body = body.replace("orders.*, payments", f"changed-{number}")
        if more:
            body = body.replace("transforms = tests", "transforms = tests, m")
        here.file.write_text(placed(flow + servers + body + more, lab.clusters))

    tried(0, "sketched", "A->B.transforms = tests, shout")
    _, shouted = here.type(_SAMPLE.replace("orders", "changed-0"))
    tried(2, "tagging", "A->B.transforms = tag")
    _, tagged = here.type(_SAMPLE.replace("orders", "changed-2"))
    tried(1, "masking", "A->B.transforms = tests", _AND_MASKED)
    code, masked = here.type(_SAMPLE.replace("orders", "changed-1"))

    assert '{"card"' in shouted and '{"CARD"' in shouted, shouted
    assert "seen-by" in tagged, tagged
    assert code == 0, masked
    as_on_the_page = masked.replace("masking:", "my_transforms:").replace("changed-1", "orders")
    page.shows(f"$ {_SAMPLE}", f"$ {_SAMPLE}\n{as_on_the_page}")
    test = "tests/cluster/test_guides.py::test_transforms_are_tried_before_they_run"
    assert_all_played(test, page)
