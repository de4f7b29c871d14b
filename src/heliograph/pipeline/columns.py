"""Which columns a DataFrame needs to be written, and how they are made alike. Runs on the
driver."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from pyspark.sql import functions as sql
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    ByteType,
    DataType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructType,
    TimestampType,
)

from heliograph.errors import PipelineRefused

_BYTES: Final = (BinaryType, StringType)
_WHOLE: Final = (ByteType, ShortType, IntegerType, LongType)
_TAKEN: Final[dict[str, tuple[tuple[type[DataType], ...], str]]] = {
    "topic": ((StringType,), "string"),
    "partition": (_WHOLE, "int"),
    "timestamp": ((TimestampType,), "timestamp"),
    "key": (_BYTES, "binary or string"),
    "value": (_BYTES, "binary or string"),
}
_HEADERS: Final = "array<struct<key:string,value:binary>>"


def require_columns(schema: StructType, topic: str | None) -> None:
    """Raises `PipelineRefused` that names every column that is missing or of another type.

    Columns with other names are left alone: a DataFrame read from Kafka has some.
    """
    types = {field.name: field.dataType for field in schema.fields}
    problems = [
        f"column {name} is {types[name].simpleString()}, not {wanted}"
        for name, (kinds, wanted) in _TAKEN.items()
        if name in types and not isinstance(types[name], kinds)
    ]
    if "headers" in types and not _are_headers(types["headers"]):
        problems.append(f"column headers is {types['headers'].simpleString()}, not {_HEADERS}")
    if "value" not in types:
        problems.append("column value is missing")
    if topic is None and "topic" not in types:
        problems.append("column topic is missing, and the pipeline has no topic")
    if problems:
        raise PipelineRefused(f"the rows cannot be written: {'; '.join(problems)}")


def selected(rows: Any, *, with_topic: bool) -> Any:
    """The columns that `staging_task.columns_of` reads, those that are there, of one type each.

    A pipeline that has a topic of its own leaves out that of the rows, as Spark's own sink does:
    rows read from Kafka name the topic they came from.

    A column of nulls in the place of one that is missing would cost ten times what all others do:
    Spark takes its time over empty lists of structures.
    """
    made: dict[str, Callable[[], Any]] = {
        "topic": lambda: sql.col("topic"),
        "partition": lambda: sql.col("partition").cast("int"),
        "timestamp": lambda: sql.unix_millis("timestamp"),
        "key": lambda: sql.col("key").cast("binary"),
        "value": lambda: sql.col("value").cast("binary"),
        "headers": lambda: sql.col("headers"),
    }
    present = set(rows.columns) - (set() if with_topic else {"topic"})
    return rows.select(*(make().alias(name) for name, make in made.items() if name in present))


def _are_headers(kind: DataType) -> bool:
    if not isinstance(kind, ArrayType) or not isinstance(kind.elementType, StructType):
        return False
    fields = {field.name: field.dataType for field in kind.elementType.fields}
    return (
        fields.keys() == {"key", "value"}
        and isinstance(fields["key"], StringType)
        and isinstance(fields["value"], BinaryType)
    )
