"""What a query runs on is killed -9 at each step of a batch; each row is there once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import pytest

from heliograph import probe
from heliograph_tools.localkafka.cluster import LocalCluster
from heliograph_tools.localkafka.spec import ClusterSpec
from tests.kit.clusters import ClusterFactory
from tests.kit.faulty_runs import FaultyRun, disturbed
from tests.soak.test_pipeline_faults import assert_each_once, assert_totals, order_of
from tests.spark.faulty_query import BETWEEN
from tests.spark.standalone import standalone

pytestmark = pytest.mark.timeout(900)

STAGED = (
    probe.PIPELINE_STAGED,
    probe.PIPELINE_CLAIMED,
    BETWEEN,
    probe.PIPELINE_TO_NOTE,
    probe.PIPELINE_NOTED,
)
DIRECT = tuple(step for step in STAGED if step != probe.PIPELINE_STAGED)
"""Nothing is staged."""


class Ground(NamedTuple):
    """Where a query runs, what is killed there, and what is done when it has gone on."""

    master: str
    kill: Callable[[FaultyRun], None]
    mend: Callable[[], None] = lambda: None


@contextmanager
def ground_of(what: str, pair: dict[str, LocalCluster], folder: Path) -> Iterator[Ground]:
    if what == "driver":
        yield Ground("local[2]", FaultyRun.kill)
    elif what == "executors":
        yield Ground("local-cluster[2,1,1024]", kill_all_executors)
    elif what == "worker":
        with standalone(folder / "spark") as cluster:
            workers = [cluster.start_worker(), cluster.start_worker()]

            def replace_worker(_: FaultyRun) -> None:
                worker = workers.pop(0)
                for member in [*worker.children(recursive=True), worker]:
                    with suppress(psutil.NoSuchProcess):
                        member.kill()
                workers.append(cluster.start_worker())

            yield Ground(cluster.url, replace_worker)
    else:
        broker = pair[what]
        yield Ground("local[2]", lambda _: broker.kill_broker(0), lambda: broker.start_broker(0))


def kill_all_executors(query: FaultyRun) -> None:
    for member in query.executors():
        with suppress(psutil.NoSuchProcess):
            member.kill()


@pytest.mark.parametrize(
    ("what", "kind"),
    [
        *((what, kind) for what in ("driver", "executors") for kind in ("random", "stateful")),
        *((what, kind) for what in ("driver", "executors") for kind in ("repartitioned", "direct")),
        *((what, "random") for what in ("worker", "A", "B")),
        *((what, "stateful") for what in ("worker", "A", "B")),
        ("B", "direct"),
    ],
)
def test_each_row_is_there_once_whatever_is_killed_at_each_step(
    pair: dict[str, LocalCluster],
    clusters: ClusterFactory,
    tmp_path: Path,
    topic: Any,
    what: str,
    kind: str,
) -> None:
    """`A` and `B` are the only brokers of source and target: both are the scene's own."""
    both = pair
    if what in pair:
        both = clusters(ClusterSpec(alias="A"), ClusterSpec(alias="B"))
    with ground_of(what, both, tmp_path) as ground:
        order = order_of(
            both,
            tmp_path,
            topic,
            14_000,
            kind=kind,
            master=ground.master,
            records_max=2_000,
            holds=DIRECT if kind == "direct" else STAGED,
        )

        disturbed(order, tmp_path, ground.kill, ground.mend)

    check = assert_totals if kind == "stateful" else assert_each_once
    check(both, order)


def test_rows_that_a_lost_executor_had_shuffled_at_random_are_there_once(
    pair: dict[str, LocalCluster], tmp_path: Path, topic: Any
) -> None:
    """Spark computes what an executor took with it again, and a random key sends it elsewhere."""
    order = order_of(
        pair,
        tmp_path,
        topic,
        60_000,
        kind="shuffled",
        master="local-cluster[2,1,1024]",
        shuffle_partitions=8,
    )

    query = FaultyRun(order, tmp_path)
    query.await_begin()
    killed = query.kill_executors(4)
    query.finish()

    assert killed >= 2, query.said
    assert_each_once(pair, order)
