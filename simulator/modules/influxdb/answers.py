"""What is read from InfluxDB's answers: annotated CSV.

https://docs.influxdata.com/influxdb/v2/reference/syntax/annotated-csv/
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from io import StringIO
from typing import Any

from ...errors import SimulatorError
from .._base.row_order import Row

_RESULT, _FIRST_COLUMN = 1, 3
"""Where a row has the name of its result, and its own columns from."""

_CONVERTERS: Mapping[str, Callable[[str], Any]] = {
    "long": int,
    "double": float,
    "string": str,
    "boolean": {"true": True, "false": False, "": None}.__getitem__,
    "dateTime:RFC3339": lambda text: round(datetime.fromisoformat(text).timestamp() * 1000),
}


def parse_csv(text: str, columns: Sequence[str]) -> list[Row]:
    """The values of these columns in annotated CSV, of all its tables. Times are in ms since 1970.

    A value that is missing, or of a column that a table hasn't, is None; but CSV has one form for a missing
    text and an empty one, which is read as empty.
    Raises SimulatorError if the query failed when part of the answer was on its way already.
    """
    return [row for _, row in parse_results(text, columns)]


def parse_results(text: str, columns: Sequence[str]) -> Iterator[tuple[str, Row]]:
    """The rows of `parse_csv`, each behind the name of its result (`yield`)."""
    types: list[str] = []
    header: list[str] = []
    places: list[tuple[Callable[[str], Any], int]] = []
    for row in csv.reader(StringIO(text, newline="")):
        if not row or row[0] == "#datatype":
            types, header = row, []
        elif not header:
            header = row
            places = [_find_column(name, header, types) for name in columns]
        elif header[1:] == ["error", "reference"]:
            raise SimulatorError(f"InfluxDB gave up a query: {row[1]}")
        else:
            yield row[_RESULT], _read_row(row, places)


def _find_column(
    name: str, header: Sequence[str], types: Sequence[str]
) -> tuple[Callable[[str], Any], int]:
    """How a column is read, and where it is."""
    try:
        place = header.index(name, _FIRST_COLUMN)
    except ValueError:
        return _read_nothing, 0
    return _CONVERTERS[types[place]], place


def _read_row(row: Sequence[str], places: Sequence[tuple[Callable[[str], Any], int]]) -> Row:
    try:
        return tuple([convert(row[place]) for convert, place in places])
    except ValueError:
        # No number or time is empty: that is a missing one.
        return tuple(
            [
                convert(row[place]) if row[place] or convert is str else None
                for convert, place in places
            ]
        )


def _read_nothing(_text: str) -> None:
    """The value of a column that isn't there."""
