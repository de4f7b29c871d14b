"""`heliograph.tables` of a mirror; what makes a DataFrame of rows is the test's own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from heliograph.pipeline.tables import tables
from heliograph_tools.localkafka.cluster import LocalCluster
from tests.kit.inside import running_inside
from tests.kit.mirror import write_config
from tests.kit.records import numbered, produce, read_all
from tests.kit.topics import create_topic, wait_until


class Session:
    """Rows as dictionaries, by the schema that Spark would be given."""

    def createDataFrame(self, rows: list[tuple[Any, ...]], schema: str) -> list[dict[str, Any]]:
        names = [column.split()[0] for column in schema.split(", ")]
        return [dict(zip(names, row, strict=True)) for row in rows]


def test_tables_say_where_lanes_are_and_what_the_ledger_has(
    pair: dict[str, LocalCluster], tmp_path: Path, topic: Callable[[str], str]
) -> None:
    source = topic("orders")
    create_topic(pair["A"], source, partitions=2)
    produce(pair["A"], source, numbered(100, partitions=2))
    file = write_config(tmp_path / "mm2.properties", pair, {"A->B": {"topics": source}})

    def arrived(count: int) -> Callable[[], bool]:
        return lambda: sum(map(len, read_all(pair["B"], f"A.{source}").values())) == count

    with running_inside(file):
        wait_until(arrived(100), "all records")
    produce(pair["A"], source, numbered(4, partitions=2, start=100))
    found = tables(Session(), file)

    lanes = {row["partition"]: row for row in found.lanes()}
    assert (lanes[0]["target_topic"], lanes[0]["source_next_offset"]) == (f"A.{source}", 50)
    assert [row["lag_records"] for row in found.lag()] == [2, 2]
    assert [
        (row["partition"], row["source_offset"], row["target_offset"], row["records"])
        for row in found.offset_map()
    ] == [(0, 0, 0, 50), (1, 0, 0, 50)]
    assert {"flow", "start"} <= {row["kind"] for row in found.ledger()}
    assert found.losses() == found.audit() == []
