"""`heliograph demo`: two clusters, a mirror, a failover, a check. Runs on the driver."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Annotated, Final

import typer
from confluent_kafka import KafkaException

from heliograph.cli.output import EXIT_FAILED, remarks, results, start_logging
from heliograph.cli.run import mirror
from heliograph.cli.tables import new_table
from heliograph.config.load import load_config
from heliograph.errors import LocalClusterError, MirrorError
from heliograph.model import ClusterAlias, FlowId, LaneId, LaneProgress
from heliograph_tools.demo.moving import GROUP
from heliograph_tools.demo.story import Story
from heliograph_tools.localkafka.cluster import ClusterSpec, LocalCluster, local_clusters
from heliograph_tools.localkafka.java import java_executable

log = logging.getLogger("heliograph")

_FLOW: Final = FlowId(source=ClusterAlias("A"), target=ClusterAlias("B"))
_RECORDS_DEFAULT: Final = 200_000
_RECORDS_PER_S: Final = 10_000
_LIVE_S_MAX: Final = 12.0

DEMO_HELP: Final = """Mirror between two real clusters on this machine, and prove it.

Starts Kafka clusters A and B, fills topics of all kinds on A (every codec, one with transactions
some of which abort, one compacted), mirrors them to B on Spark while producers go on writing, moves
a consumer group from A to B in the middle of a topic, and compares every record of both sides.

Ends by itself, with 0 only when nothing was lost or repeated. Needs Java 17 or newer; Kafka is
fetched once.

Examples:

  heliograph demo

  heliograph demo --keep --records 1000000
"""


def demo(
    keep: Annotated[
        bool, typer.Option("--keep", help="Stay up after the check, until Ctrl-C.")
    ] = False,
    records: Annotated[
        int, typer.Option("--records", min=100, help="About how many records to write.")
    ] = _RECORDS_DEFAULT,
) -> None:
    start_logging("%(asctime)s %(message)s")
    # What was created, and which settings were not copied, is for `plan` to tell.
    for quiet in ("heliograph.driver", "heliograph.compat", "heliograph.groups"):
        logging.getLogger(quiet).setLevel(logging.WARNING)
    java_executable()
    said = remarks()
    specs = [ClusterSpec(alias=alias) for alias in (_FLOW.source, _FLOW.target)]
    with (
        local_clusters(specs, on_progress=said.print) as clusters,
        tempfile.TemporaryDirectory(prefix="heliograph-demo-") as folder,
    ):
        file = _write_config(Path(folder) / "mm2.properties", clusters)
        for alias, cluster in clusters.items():
            said.print(f"cluster {alias} is at {cluster.bootstrap}")
        story = Story(clusters[_FLOW.source], clusters[_FLOW.target], records)
        try:
            _tell(story, file, clusters, keep=keep, records=records)
        except KafkaException as exc:
            raise LocalClusterError(f"the demo's own clients failed: {exc}") from exc
    _print(story)
    if not story.is_equal:
        raise typer.Exit(EXIT_FAILED)


def _tell(
    story: Story, file: Path, clusters: Mapping[str, LocalCluster], *, keep: bool, records: int
) -> None:
    config = load_config(file)
    log.info("writing the first half of the records")
    story.prepare()
    seconds = min(_LIVE_S_MAX, max(2.0, records / _RECORDS_PER_S))
    with ThreadPoolExecutor(1, thread_name_prefix="story") as beside:
        ending = Ending(
            lambda: beside.submit(story.run, config, _FLOW, seconds),
            invite=(lambda: _invite(file, clusters)) if keep else None,
        )
        try:
            mirror(config, until=ending.is_due)
        finally:
            story.stop.set()
    ending.raise_problem()
    if not story.comparisons:
        raise MirrorError("stopped before the check")


class Ending:
    """When the demo's mirror may end: once the story is told, unless people are invited to stay."""

    def __init__(
        self, begin: Callable[[], Future[None]], *, invite: Callable[[], None] | None
    ) -> None:
        self._begin, self._invite = begin, invite
        self._telling: Future[None] | None = None
        self._invited = False

    def is_due(self, progress: Mapping[LaneId, LaneProgress]) -> bool:
        if self._telling is None:
            if progress:
                self._telling = self._begin()
            return False
        if not self._telling.done():
            return False
        if self._invite is None or self._telling.exception() is not None:
            return True
        if not self._invited:
            self._invite()
        self._invited = True
        return False

    def raise_problem(self) -> None:
        """What went wrong in the story, if anything did."""
        if self._telling is not None:
            self._telling.result()


def _write_config(path: Path, clusters: Mapping[str, LocalCluster]) -> Path:
    lines = [
        f"clusters = {', '.join(clusters)}",
        *(f"{alias}.bootstrap.servers = {each.bootstrap}" for alias, each in clusters.items()),
        f"{_FLOW}.enabled = true",
        f"{_FLOW}.topics = .*",
        "replication.factor = 1",
        "checkpoints.topic.replication.factor = 1",
        "refresh.topics.interval.seconds = 5",
        # The demo counts lanes, and has no MirrorMaker 2 to hand over to.
        "emit.heartbeats.enabled = false",
        "emit.offset-syncs.enabled = false",
    ]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def _invite(file: Path, clusters: Mapping[str, LocalCluster]) -> None:
    lines = [
        "all compared; the mirror goes on until Ctrl-C. Try in another terminal:",
        *(f"  # cluster {alias}: {each.bootstrap}" for alias, each in clusters.items()),
        f"  heliograph status {file} --watch",
        f"  heliograph plan {file}",
        f"  heliograph ledger {file} --topic payments --runs",
        f"  heliograph ledger {file} --topic orders --partition 0 --translate 100",
    ]
    for line in lines:
        log.info("%s", line)


def _print(story: Story) -> None:
    console = results()
    table = new_table(
        [("topic", "left"), ("records", "right"), ("lost", "right"), ("repeated", "right")]
    )
    for each in story.comparisons:
        table.add_row(each.topic, f"{each.records:,}", str(each.lost), str(each.repeated))
    console.print(table)
    moved = story.moved
    if moved is not None:
        console.print(
            f"group {GROUP}: {moved.records_before:,} records read on {_FLOW.source}, the other "
            f"{moved.records_after:,} on {_FLOW.target}: lost {moved.lost}, "
            f"repeated {moved.repeated}"
        )
    wrong = [each for each in story.comparisons if each.strange or each.disordered_partitions]
    for each in wrong:
        console.print(
            f"{each.topic}: {each.strange} records that were never on {_FLOW.source}, "
            f"{each.disordered_partitions} partitions out of order"
        )
    count = sum(each.records for each in story.comparisons)
    lost = sum(each.lost for each in story.comparisons)
    repeated = sum(each.repeated for each in story.comparisons)
    console.print(
        f"{count:,} records compared on both sides (key, value, headers, timestamp, partition, "
        f"order), {story.aborted_records:,} of aborted transactions left out: "
        f"lost {lost}, repeated {repeated}",
        soft_wrap=True,
    )
