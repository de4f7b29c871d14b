"""Functions of pipelines for tests, as an operator would write them."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as sql


def routed(records: DataFrame) -> DataFrame:
    """By content, with a random mark that another try would draw differently."""
    mark = sql.concat(sql.col("value"), sql.lit("#"), sql.rand().cast("string"))
    return records.select("key", mark.alias("value"), "headers", "timestamp")


def failing(records: DataFrame) -> DataFrame:
    """Its tasks fail, whatever is tried."""
    return records.select(
        sql.assert_true(sql.lit(False), sql.lit("no such row")).alias("x")
    ).select(sql.coalesce("x", sql.lit("never")).cast("string").alias("value"))


def wanting(records: DataFrame) -> DataFrame:
    """Lacks what a row needs."""
    return records.select("key")
