"""Described queries in ClickHouse's SQL, and their answers in the Native format, which the vendor's drivers
use: it is the cheapest format for the server to write and for a client to read.

A block is the numbers of its columns and rows, then each column: name, type, values (see `encoding`). For a
LowCardinality column, a block has a dictionary and each row's index in it.

https://clickhouse.com/docs/interfaces/http
https://clickhouse.com/docs/interfaces/formats/Native
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ...encoding.columns import quote_name
from ...workloads.drawing import BoundQuery
from ...workloads.queries import Aggregate, Function
from ...workloads.schema import Column, ColumnType, Schema, Tags
from ..kit.sql_queries import SqlDialect, compile_query, list_aliased


class ClickhouseDialect(SqlDialect):
    """https://clickhouse.com/docs/sql-reference/statements/select"""

    NUMBERS: Mapping[ColumnType, str] = {
        ColumnType.INT32: "Int32",
        ColumnType.INT64: "Int64",
        ColumnType.FLOAT32: "Float32",
        ColumnType.FLOAT64: "Float64",
    }

    def device(self, schema: Schema) -> str:
        return name_device(schema)

    def instant(self, time_ms: int) -> str:
        return f"fromUnixTimestamp64Milli({time_ms}, 'UTC')"

    def text(self, text: str) -> str:
        return quote_text(text)

    def value(self, column: Column) -> str:
        name = self.read(column)
        return _in_ms(name) if column.type is ColumnType.TIMESTAMP_MS else name

    def read_path(self, column: Column) -> str:
        kind = "String" if column.type is ColumnType.TEXT else self.NUMBERS[column.type]
        steps = ", ".join([quote_name(column.stored_as), *map(quote_text, column.path)])
        return f"JSONExtract({steps}, 'Nullable({kind})')"

    def bucket(self, time: str, every_ms: int) -> str:
        return f"intDiv({_in_ms(time)}, {every_ms}) * {every_ms}"

    def aggregate(self, aggregate: Aggregate, schema: Schema) -> str:
        if aggregate.column is None:
            return "count()"
        column = schema.column(aggregate.column)
        value = self.read(column)
        if aggregate.function.percent is not None:
            # `quantile` would estimate it from about 8,000 values.
            return f"quantileExactInclusive({aggregate.function.percent / 100:g})({value})"
        if aggregate.function is Function.LAST:
            time = quote_name(schema.time)
            if not column.nullable:
                return f"argMax({value}, {time})"
            # For a single value, `argMax` would skip events without one. Takes three times as long.
            return f"argMax(tuple({value}), {time}).1"
        computed = f"{aggregate.function}({value})"
        return _in_ms(computed) if aggregate.column == schema.time else computed

    def select_newest(self, values: Sequence[str], time: str, source: str) -> str:
        # Both descending, so that a table is read in its own order: a third of the time.
        return (
            f"SELECT {list_aliased(values)} FROM {source}"
            f" ORDER BY {values[0]} DESC, {time} DESC LIMIT 1 BY {values[0]}"
        )


def name_device(schema: Schema) -> str:
    """The expression for the name of an event's device."""
    column, path = quote_name(schema.device), schema.device_path
    return f"{column}.{quote_name(path)}" if path else column


def quote_text(text: str) -> str:
    """A text as a constant: unlike in standard SQL, a backslash is an escape."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def _in_ms(time: str) -> str:
    """A time in ms since 1970."""
    return f"toUnixTimestamp64Milli({time})"


def compile_statement(bound: BoundQuery, schema: Schema) -> str:
    """The statement for a bound query."""
    settings = []
    if bound.query.compute and not bound.query.per:
        # Otherwise the minimum of no values would be 0.
        settings.append("aggregate_functions_null_for_empty = 1")
    if schema.tags is Tags.TABLE:
        # A device's row may exist more than once until parts are merged.
        settings.append("final = 1")
    statement = compile_query(bound, schema, ClickhouseDialect())
    return f"{statement} SETTINGS {', '.join(settings)}" if settings else statement


_NUMPY = {
    "Bool": "?",
    "UInt8": "u1", "UInt16": "<u2", "UInt32": "<u4", "UInt64": "<u8",
    "Int8": "i1", "Int16": "<i2", "Int32": "<i4", "Int64": "<i8",
    "Float32": "<f4", "Float64": "<f8",
    # ms since 1970
    "DateTime64(3)": "<i8", "DateTime64(3, 'UTC')": "<i8",
}  # fmt: skip
_WIDTHS = {kind.encode(): np.dtype(dtype).itemsize for kind, dtype in _NUMPY.items()}
# The map of missing values comes before all values.
_WIDTHS |= {b"Nullable(%b)" % kind: 1 + width for kind, width in _WIDTHS.items()}

_VERSION_BYTES, _COUNT_BYTES = 8, 8
"""The bytes before a LowCardinality column's dictionary, and before its indexes."""


class NotNative(Exception):
    """An answer isn't whole blocks; the text says why."""


def count_rows(body: bytes) -> int:
    """The number of rows in an answer; NotNative if it isn't complete."""
    at = total = 0
    try:
        while at < len(body):
            columns, at = _read_number(body, at)
            rows, at = _read_number(body, at)
            for _ in range(columns):
                kind, at = _read_head(body, at)
                at = _skip(kind, body, at, rows)
            total += rows
    except (IndexError, struct.error) as error:
        raise NotNative("it ends in the middle of a block") from error
    if at != len(body):
        raise NotNative("it ends in the middle of a column")
    return total


def read_rows(body: bytes) -> list[tuple[Any, ...]]:
    """The rows of an answer that `count_rows` accepted. Texts are `str`, times ms since 1970, a missing value
    is None."""
    rows: list[tuple[Any, ...]] = []
    at = 0
    while at < len(body):
        columns, at = _read_number(body, at)
        count, at = _read_number(body, at)
        block = []
        for _ in range(columns):
            kind, at = _read_head(body, at)
            block.append(_read(kind, body, at, count))
            at = _skip(kind, body, at, count)
        rows += zip(*block, strict=True)
    return rows


def _read_number(body: bytes, at: int) -> tuple[int, int]:
    """A number of variable length, and its end."""
    octet = body[at]
    at += 1
    number, shift = octet & 0x7F, 7
    while octet > 0x7F:
        octet = body[at]
        at += 1
        number |= (octet & 0x7F) << shift
        shift += 7
    return number, at


def _read_head(body: bytes, at: int) -> tuple[bytes, int]:
    """A column's type, and the start of its values."""
    for _ in range(2):
        # As `_read_number`, which would take as long as everything else.
        size, begin = (body[at], at + 1) if body[at] <= 0x7F else _read_number(body, at)
        at = begin + size
    kind = body[begin:at]
    if len(kind) < size:
        raise IndexError(at)
    return kind, at


def _inner(kind: bytes, outer: bytes) -> bytes | None:
    """The type within `outer(…)`; None if the type isn't of this form."""
    return kind[len(outer) + 1 : -1] if kind.startswith(outer + b"(") else None


def _skip(kind: bytes, body: bytes, at: int, rows: int) -> int:
    """The end of a column's values, from their start. IndexError if they are cut off."""
    if (width := _WIDTHS.get(kind)) is not None:
        return at + width * rows
    if not rows:
        return at
    if kind == b"String":
        for _ in range(rows):
            size = body[at]
            if size > 0x7F:
                size, at = _read_number(body, at)
                at += size
            else:
                at += size + 1
        return at
    if (inner := _inner(kind, b"Nullable")) is not None:
        return _skip(inner, body, at + rows, rows)
    if (inner := _inner(kind, b"LowCardinality")) is not None:
        texts = _open_dictionary(inner, body, at)
        return _skip(texts.kind, body, texts.begin, texts.size) + _COUNT_BYTES + texts.width * rows
    raise NotNative(
        f"it has a column of type {kind.decode(errors='replace')}, which this module can't read"
    )


class _Dictionary(NamedTuple):
    kind: bytes
    begin: int
    size: int
    width: int
    """Bytes of an index."""


def _open_dictionary(inner: bytes, body: bytes, at: int) -> _Dictionary:
    """The dictionary of a LowCardinality column, from the start of its values."""
    flags, size = struct.unpack_from("<QQ", body, at + _VERSION_BYTES)
    begin = at + _VERSION_BYTES + struct.calcsize("<QQ")
    # For Nullable texts, the first entry means missing.
    return _Dictionary(_inner(inner, b"Nullable") or inner, begin, size, 1 << (flags & 0xFF))


def _read(kind: bytes, body: bytes, at: int, rows: int) -> list[Any]:
    """A column's values."""
    values: list[Any]
    if not rows:
        return []
    if dtype := _NUMPY.get(kind.decode()):
        values = np.frombuffer(body, dtype, rows, at).tolist()
        return values
    if kind == b"String":
        values = []
        for _ in range(rows):
            size, at = _read_number(body, at)
            values.append(body[at : at + size].decode(errors="replace"))
            at += size
        return values
    if (inner := _inner(kind, b"Nullable")) is not None:
        missing = np.frombuffer(body, "?", rows, at).tolist()
        values = _read(inner, body, at + rows, rows)
        return [
            None if is_missing else value for is_missing, value in zip(missing, values, strict=True)
        ]
    inner = _inner(kind, b"LowCardinality")
    assert inner is not None
    texts = _open_dictionary(inner, body, at)
    entries: list[Any] = _read(texts.kind, body, texts.begin, texts.size)
    if texts.kind != inner:
        entries[0] = None
    at = _skip(texts.kind, body, texts.begin, texts.size) + _COUNT_BYTES
    places = np.frombuffer(body, f"<u{texts.width}", rows, at)
    return [entries[place] for place in places.tolist()]
