"""Every table of `heliograph.tables` as Spark has it: `python -m tests.spark.tables_shown FILE`."""

from __future__ import annotations

import json
import sys

from pyspark.sql import SparkSession

import heliograph
from tests.spark.kit import engine, running_session

if __name__ == "__main__":
    with running_session(engine("local[1]")) as context:
        tables = heliograph.tables(SparkSession(context), sys.argv[1])
        names = ("lanes", "lag", "offset_map", "ledger", "losses", "audit")
        counts = {name: getattr(tables, name)().count() for name in names}
        late = tables.lag().where("lag_records > 0").count()
    print(json.dumps({"counts": counts, "late": late}))  # noqa: T201
