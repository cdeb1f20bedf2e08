"""Building blocks of Flux: literals, conditions, the selection of events, and what all queries share; and its
answers, annotated CSV.

https://docs.influxdata.com/flux/v0/spec/
https://docs.influxdata.com/influxdb/v2/reference/syntax/annotated-csv/
"""

from __future__ import annotations

import csv
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from io import StringIO
from typing import Any

import numpy as np

from ...encoding.columns import text_format
from ...errors import SimulatorError
from ...workloads.drawing import BoundQuery
from ...workloads.queries import Query, Where
from ...workloads.schema import FLOATS, Column, ColumnType, Schema
from ..kit.series import Row, field_columns, find_witness, label, name_device

ALL_TIME = ("1970-01-01T00:00:00Z", "2262-04-11T23:47:16.854775806Z")
"""The first time that the delete API accepts, and the last time that storage can hold."""

Result = tuple[str, Row]
"""A row of an answer, after the name of its result (`yield`)."""

_MOST = 2**63 - 1
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - in UTC, as all times of answers and queries are


def quote_text(text: str) -> str:
    """A string literal. https://docs.influxdata.com/flux/v0/spec/lexical-elements/"""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("${", "\\${")
    return f'"{escaped}"'


def quote_texts(texts: Sequence[str]) -> str:
    """An array of string literals."""
    return f"[{', '.join(map(quote_text, texts))}]"


def write_time(time_ms: int) -> str:
    """A time literal."""
    moment = _EPOCH + timedelta(milliseconds=time_ms)
    return moment.isoformat(timespec="milliseconds") + "Z"


def write_float(value: float) -> str:
    """A float literal: it has a point and no exponent."""
    text = format(Decimal(repr(value)), "f")
    return text if "." in text else f"{text}.0"


def cast(column: Column) -> str:
    """A tag's text as the number that it stands for."""
    kind = "float" if column.type in FLOATS else "int"
    return f"{kind}(v: r[{quote_text(column.name)}])"


def compare(expression: str, where: Where, column: Column) -> str:
    """A condition on a column's value, which excludes missing values."""
    if where.texts:
        return _compare_texts(expression, where, column)
    sign, limit = where.comparison
    if column.type not in FLOATS:
        whole = math.floor(limit) if sign == ">" else math.ceil(limit)
        return f"{expression} {sign} {max(-_MOST, min(_MOST, whole))}"
    if column.type is ColumnType.FLOAT32:
        # It is stored as the double of its text, so the limit has to be converted in the same way.
        narrow = np.float32(limit)
        text = float(label(column, narrow) if column.tag else text_format(column) % narrow)
        limit = text if np.float32(text) == narrow else float(narrow)
    return f"{expression} {sign} {write_float(limit)}"


def _compare_texts(expression: str, where: Where, column: Column) -> str:
    sign, junction = ("==", " or ") if where.one_of else ("!=", " and ")
    comparisons = [f"{expression} {sign} {quote_text(text)}" for text in where.texts]
    condition = junction.join(comparisons)
    # An empty tag isn't stored.
    if column.tag and ("" in where.texts) == (sign == "=="):
        return f"(not exists {expression} or {condition})"
    return f"({condition})" if len(comparisons) > 1 else condition


def any_of(name: str, values: Sequence[str]) -> str:
    """The condition that a tag has one of these values."""
    column = f"r[{quote_text(name)}]"
    condition = " or ".join(f"{column} == {quote_text(value)}" for value in values)
    return f"({condition})" if len(values) > 1 else condition


def select_events(
    bucket: str, table: str, span: tuple[str, str], fields: Sequence[str], *conditions: str
) -> str:
    """Flux for a table's points in [start, stop), of these fields (none: of all). Storage itself can do this,
    if the steps directly follow each other."""
    filters = [f'r["_measurement"] == {quote_text(table)}']
    if fields:
        filters.append(any_of("_field", fields))
    condition = " and ".join([*filters, *conditions])
    return (
        f"from(bucket: {quote_text(bucket)}) |> range(start: {span[0]}, stop: {span[1]})"
        f" |> filter(fn: (r) => {condition})"
    )


def select_bound(
    bound: BoundQuery, schema: Schema, bucket: str, fields: Sequence[str], *conditions: str
) -> str:
    """Flux for the points that a query selects, of these fields."""
    span = ALL_TIME
    if bound.start_ms is not None and bound.end_ms is not None:
        span = (write_time(bound.start_ms), write_time(bound.end_ms))
    devices = [] if bound.devices is None else [any_of(name_device(schema), bound.devices)]
    chosen = set(fields) != {column.name for column in field_columns(schema)}
    text = select_events(
        bucket, schema.table, span, fields if chosen else (), *devices, *conditions
    )
    where = bound.query.where
    if where is not None and (column := schema.column(where.column)).tag:
        value = f"r[{quote_text(where.column)}]" if where.texts else cast(column)
        text += f" |> filter(fn: (r) => {compare(value, where, column)})"
    return text


def write_sort(columns: Sequence[str], descending: bool, limit: int | None) -> str:
    """A step that sorts rows and keeps `limit` of them."""
    text = f"sort(columns: {quote_texts(columns)}, desc: {str(descending).lower()})"
    return text if limit is None else f"{text} |> limit(n: {limit})"


# --- queries ---------------------------------------------------------------------------------------

_AS_COLUMNS = 'pivot(rowKey: ["_time"], columnKey: ["_field"], valueColumn: "_value")'


class Question(ABC):
    """A bound query in Flux, and how to count and read the rows of its answer."""

    text: str
    columns: Sequence[str]
    counted: str | None = None
    """The result whose rows are counted; None: all rows."""
    repeated: int = 1
    """The number of counted rows per row of the answer."""
    is_scanned: bool = True
    """Whether counting rows is enough, and no second request follows. Otherwise they must be read by this
    same query."""

    def __init__(self, bound: BoundQuery, schema: Schema, bucket: str) -> None:
        self._bound, self._schema, self._bucket = bound, schema, bucket
        self._query: Query = bound.query
        where = bound.query.where
        self._filtered = None if where is None or schema.column(where.column).tag else where.column
        """The field with a condition, if there is one."""
        self._witness = self._filtered or find_witness(schema)
        """A field that each selected event has."""
        self._fields: Mapping[str, Column] = {
            column.name: column for column in field_columns(schema)
        }

    def count(self, lines: int) -> int:
        """The number of rows in the answer, from the counted rows."""
        limit = self._query.limit if self._query.order else None
        rows = lines // self.repeated
        return rows if limit is None else min(rows, limit)

    def find_missing(self, answer: Sequence[Result]) -> str | None:
        """Flux for rows that this answer may lack; None: there are none."""
        return None

    @abstractmethod
    def read(self, answers: Sequence[Sequence[Result]]) -> list[Row]:
        """The rows of the answer, and of the one to `find_missing` if that was sent."""

    def _is_certain(self, name: str) -> bool:
        """Whether each selected event has a value in this column."""
        return name == self._witness or not self._schema.column(name).nullable

    def _select(self, fields: Sequence[str]) -> str:
        """The values of these fields. With several, a condition on one is left to `_pivot`."""
        conditions = []
        if fields == [self._filtered]:
            conditions.append(self._compare('r["_value"]'))
        return select_bound(self._bound, self._schema, self._bucket, fields, *conditions)

    def _compare(self, expression: str) -> str:
        where = self._query.where
        assert where is not None
        return compare(expression, where, self._schema.column(where.column))

    def _pivot(self, values: str) -> str:
        """Events with their fields as columns, filtered by the condition."""
        text = f"{values} |> {_AS_COLUMNS}"
        if self._filtered is not None:
            text += f" |> filter(fn: (r) => {self._compare(f'r[{quote_text(self._filtered)}]')})"
        return text

    def _cast(self, name: str, to: str) -> str:
        """A step that turns a tag's texts into numbers."""
        number = cast(self._schema.column(name))
        return f"map(fn: (r) => ({{r with {quote_text(to)}: {number}}}))"


# --- answers --------------------------------------------------------------------------------------

_RESULT, _FIRST_COLUMN = 1, 3
"""The index of the result's name in a row, and of its first own column."""


def read_text(text: str) -> str:
    """The text as it was stored: a line break is two characters in CSV.

    https://pkg.go.dev/encoding/csv#Writer
    """
    return text.replace("\r\n", "\n")


_CONVERTERS: Mapping[str, Callable[[str], Any]] = {
    "long": int,
    "double": float,
    "string": read_text,
    "boolean": {"true": True, "false": False, "": None}.__getitem__,
    "dateTime:RFC3339": lambda text: round(datetime.fromisoformat(text).timestamp() * 1000),
}


def parse_csv(text: str, columns: Sequence[str]) -> list[Row]:
    """The values of these columns in annotated CSV, over all its tables; times are in ms since 1970. A value
    is None if it is missing, or if a table lacks the column; CSV has one form for a missing text and an
    empty one, which is read as empty. SimulatorError if the query failed after part of the answer was
    sent."""
    return [row for _, row in parse_results(text, columns)]


def parse_results(text: str, columns: Sequence[str]) -> Iterator[Result]:
    """The rows of `parse_csv`, each with its result."""
    types: list[str] = []
    header: list[str] = []
    places: list[tuple[Callable[[str], Any], int]] = []
    for row in csv.reader(StringIO(text, newline="")):
        if not row or row[0] == "#datatype":
            types, header = row, []
        elif not header:
            header = row
            # A missing column has no values.
            found = [
                header.index(name, _FIRST_COLUMN) if name in header[_FIRST_COLUMN:] else 0
                for name in columns
            ]
            places = [(_CONVERTERS[types[at]] if at else lambda _: None, at) for at in found]
        elif header[1:] == ["error", "reference"]:
            raise SimulatorError(f"InfluxDB aborted a query: {row[1]}")
        else:
            yield row[_RESULT], _read_row(row, places)


_QUOTED = re.compile(rb'"[^"]*"')
_EMPTY, _END = b"\r\n", b"\r\n\r\n"


def count_lines(body: bytes, result: str | None) -> int:
    """The number of rows in an answer, or in one of its results. SimulatorError if the query failed after
    part of the answer was sent, or if the answer is cut off."""
    if not body.endswith(_END) and body != _EMPTY:
        # An error comes last.
        for _ in parse_results(body.decode(errors="replace"), []):
            pass
        raise SimulatorError("InfluxDB ended an answer early")
    # Only quoted values may have line breaks.
    plain = _QUOTED.sub(b"", body) if b'"' in body else body
    if result is not None:
        return plain.count(b"\r\n,%b," % result.encode())
    return plain.count(b"\r\n,") - plain.count(b"\r\n,result,table,")


def _read_row(row: Sequence[str], places: Sequence[tuple[Callable[[str], Any], int]]) -> Row:
    try:
        return tuple([convert(row[place]) for convert, place in places])
    except ValueError:
        # Numbers and times are never empty: that is a missing value.
        return tuple(
            [
                convert(row[place]) if row[place] or convert is read_text else None
                for convert, place in places
            ]
        )
