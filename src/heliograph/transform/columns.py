"""Records as Arrow columns, and columns back into records. Runs on executors.

A column that a function leaves as it is never becomes Python objects again: the objects it was made
of are still there.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, Final

import pyarrow as pa

from heliograph.transform.record import BadResult, Where
from heliograph.wire.opened import Content

_HEADER: Final = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
_TIME: Final = pa.timestamp("ms", tz="UTC")
SCHEMA: Final = pa.schema(
    [
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("timestamp", _TIME),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("headers", pa.list_(_HEADER)),
    ]
)
"""What a function on columns gets."""
_CHANGEABLE: Final = ("timestamp", "key", "value", "headers")
"""In the order of a record's content."""

Function = Callable[[Any], Any]


def batch_of(where: Where, offsets: Sequence[int], contents: Sequence[Content]) -> Any:
    times, keys, values, headers = zip(*contents, strict=True)
    count = len(contents)
    return pa.RecordBatch.from_arrays(
        [
            pa.repeat(pa.scalar(where.topic, pa.string()), count),
            pa.repeat(pa.scalar(where.partition, pa.int32()), count),
            pa.array(offsets, pa.int64()),
            pa.array(times, _TIME),
            pa.array(keys, pa.binary()),
            pa.array(values, pa.binary()),
            headers_array(headers),
        ],
        schema=SCHEMA,
    )


def apply_columns(
    function: Function, where: Where, offsets: Sequence[int], contents: Sequence[Content]
) -> list[Content | None]:
    """What the function makes of each record; raises what it raises, and `BadResult`."""
    batch = batch_of(where, offsets, contents)
    made = function(batch)
    if made is batch:
        return list(contents)
    if isinstance(made, pa.Table):
        made = made.combine_chunks().to_batches()
        made = made[0] if made else batch.slice(0, 0)
    if not isinstance(made, pa.RecordBatch):
        return [
            content if keeps else None
            for content, keeps in zip(contents, _mask(made, len(contents)), strict=True)
        ]
    rows = _rows(made, offsets)
    return _contents(batch, made, rows, contents)


def _mask(made: Any, count: int) -> list[bool]:
    if isinstance(made, pa.Array | pa.ChunkedArray):
        if not pa.types.is_boolean(made.type):
            raise BadResult(f"returned a column of {made.type}, not a batch or a boolean mask")
        keeps = made.to_pylist()
    else:
        try:
            keeps = made.tolist() if hasattr(made, "tolist") else list(made)
        except TypeError as exc:
            said = type(made).__name__
            raise BadResult(f"returned {said}, not a RecordBatch or a boolean mask") from exc
    if len(keeps) != count:
        raise BadResult(f"returned a mask of {len(keeps)} for {count} records")
    if not all(keep is True or keep is False for keep in keeps):
        raise BadResult("returned a mask with something else than true and false")
    return list(keeps)


def _rows(made: Any, offsets: Sequence[int]) -> list[int]:
    """Which of the records given each row is the successor of."""
    if made.num_rows > len(offsets):
        raise BadResult(
            f"returned {made.num_rows} rows for {len(offsets)} records: each becomes none or one"
        )
    if "offset" not in made.schema.names:
        if made.num_rows != len(offsets):
            raise BadResult(
                f"returned {made.num_rows} rows for {len(offsets)} records, without the column "
                "`offset` that says of which"
            )
        return list(range(len(offsets)))
    of = {offset: row for row, offset in enumerate(offsets)}
    try:
        rows = [of[offset] for offset in made.column("offset").to_pylist()]
    except KeyError as exc:
        raise BadResult(f"returned offset {exc}, which it was not given") from exc
    if any(after <= before for before, after in itertools.pairwise(rows)):
        raise BadResult("returned offsets twice or out of order: records keep their order")
    return rows


def _contents(
    batch: Any, made: Any, rows: list[int], contents: Sequence[Content]
) -> list[Content | None]:
    fields = [_field(name, index, batch, made, rows, contents) for index, name in _FIELDS]
    result: list[Content | None] = [None] * len(contents)
    for row, content in zip(rows, zip(*fields, strict=True), strict=True):
        result[row] = content
    return result


_FIELDS: Final = tuple(enumerate(_CHANGEABLE))


def _field(
    name: str, index: int, batch: Any, made: Any, rows: list[int], contents: Sequence[Content]
) -> list[Any]:
    """One field of all records that stay, as it was where its column is what it was."""
    if name in made.schema.names:
        before, after = batch.column(name), made.column(name)
        if len(rows) < len(contents):
            before = before.take(pa.array(rows, pa.int64()))
        if not (after.type == before.type and after.equals(before)):
            return _READ[name](after)
    return [contents[row][index] for row in rows]


def _bytes_of(column: Any) -> list[Any]:
    kind = column.type
    if not (
        pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_fixed_size_binary(kind)
        or pa.types.is_null(kind)
    ):
        raise BadResult(f"returned a key or value column of {kind}, not of bytes or text")
    if not pa.types.is_binary(kind):
        column = column.cast(pa.binary())
    if column.null_count == len(column):
        return [None] * len(column)
    # By way of numpy, in a fifth of `to_pylist`'s time.
    return column.to_numpy(zero_copy_only=False).tolist()  # type: ignore[no-any-return]


def _times_of(column: Any) -> list[Any]:
    if column.null_count:
        raise BadResult("returned a record without a timestamp")
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("ms", tz=column.type.tz), safe=False).cast(pa.int64())
    if not pa.types.is_integer(column.type):
        raise BadResult(f"returned a timestamp column of {column.type}")
    return column.cast(pa.int64()).to_pylist()  # type: ignore[no-any-return]


def _headers_of(column: Any) -> list[Any]:
    try:
        column = column.cast(pa.list_(_HEADER))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as exc:
        raise BadResult(f"returned a headers column of {column.type}") from exc
    found = [
        tuple((header["key"], header["value"]) for header in headers or ())
        for headers in column.to_pylist()
    ]
    if any(name is None for headers in found for name, _ in headers):
        raise BadResult("returned a header without a name")
    return found


_READ: Final[dict[str, Callable[[Any], list[Any]]]] = {
    "timestamp": _times_of,
    "key": _bytes_of,
    "value": _bytes_of,
    "headers": _headers_of,
}


def headers_array(headers: Sequence[tuple[tuple[str, bytes | None], ...]]) -> Any:
    """By offsets into two flat columns, in a tenth of the time that lists of dictionaries take."""
    flat = list(itertools.chain.from_iterable(headers))
    ends = pa.array(itertools.accumulate(map(len, headers), initial=0), pa.int32())
    names = pa.array([name for name, _ in flat], pa.string())
    values = pa.array([value for _, value in flat], pa.binary())
    entries = pa.StructArray.from_arrays([names, values], fields=list(_HEADER))
    return pa.ListArray.from_arrays(ends, entries)
