"""Which columns of its records a pipeline's SQL looks at. Runs on the driver.

Spark does not tell a source in Python what a query wants of it, and each column costs in two Python
processes and in the JVM. So the plan is asked, of the same SQL over records that are none.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from pyspark.sql import SparkSession

from heliograph.pipeline.source_options import COLUMNS

_PASSING: Final = frozenset({"Project", "Filter", "SubqueryAlias"})
"""Nodes that hand on the columns they are given: of others it is not known what they need."""
_LEAST: Final = "offset"
"""Where no column is needed there is a row for each record all the same."""


def columns_needed(spark: SparkSession, query: str, view: str) -> list[str]:
    """Of `COLUMNS`, in their order; all of them for SQL that is more than a projection and filters.

    `view` is made anew. Raises what Spark raises for wrong SQL.
    """
    empty = ", ".join(f"CAST(NULL AS {kind}) AS {name}" for name, kind in COLUMNS.items())
    spark.sql(f"SELECT {empty} WHERE false").createOrReplaceTempView(view)
    node = spark.sql(query)._jdf.queryExecution().analyzed()
    used = [node.outputSet()]
    while node.nodeName() in _PASSING and node.subqueries().isEmpty():
        used.append(node.references())
        node = node.children().head()
    if node.nodeName() != "View" or node.desc().identifier().table() != view:
        return list(COLUMNS)
    wanted = {name for each in used for name in _names(each.intersect(node.outputSet()).toSeq())}
    return [name for name in COLUMNS if name in wanted] or [_LEAST]


def _names(attributes: Any) -> Iterator[str]:
    return (attributes.apply(index).name() for index in range(attributes.size()))
