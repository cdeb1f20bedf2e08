"""The workloads' queries in Flux, and what is read from the answers."""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from io import StringIO
from typing import Any

from ...errors import SimulatorError
from ...workloads.base import FIRST_TIMESTAMP_MS
from ...workloads.cpu import (
    HIGH_CPU_ABOVE,
    HIGH_CPU_UNTIL_MS,
    MAX_ALL_HOSTS,
    MAX_ALL_UNTIL_MS,
    METRICS,
)

NAMES = (
    "count-events", "temperature-min-max", "temperature-stats", "temperature-stats-per-device",
    "newest-per-device", "cpu-max-all", "high-cpu", "last-point",
)  # fmt: skip
"""The queries that `compile_query` makes."""

ALL_TIME = ("1970-01-01T00:00:00Z", "2262-04-11T23:47:16.854775806Z")
"""The first time that the delete API accepts, and the last that storage can hold."""

# Aggregates over all series, computed for each series first.
_MIN = "min() |> group() |> min()"
_MAX = "max() |> group() |> max()"
COUNT = "count() |> group() |> sum()"


def quote_text(text: str) -> str:
    """A string literal. https://docs.influxdata.com/flux/v0/spec/lexical-elements/"""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("${", "\\${")
    return f'"{escaped}"'


def write_time(time_ms: int) -> str:
    """A time literal."""
    seconds, milliseconds = divmod(time_ms, 1000)
    moment = datetime.fromtimestamp(seconds, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{milliseconds:03d}Z"


def select_events(bucket: str, table: str, span: tuple[str, str], field: str | None = None) -> str:
    """Flux for a table's points in [start, stop): of one field, or of all."""
    condition = f"r._measurement == {quote_text(table)}"
    if field:
        condition += f" and r._field == {quote_text(field)}"
    return (
        f"from(bucket: {quote_text(bucket)}) |> range(start: {span[0]}, stop: {span[1]})"
        f" |> filter(fn: (r) => {condition})"
    )


def compile_query(name: str, bucket: str, span: tuple[str, str]) -> tuple[str, list[str]]:
    """A query of a workload, and the columns of its answer.

    Each begins with what storage itself can do (`range`, `filter` and one aggregate), so that Flux
    gets few rows to work on: one per series, which are the devices. For a few devices with many
    events, storage does that four times as fast as an aggregate over all series (`group() |> min()`);
    only from thousands of devices on it is the slower way. Each aggregate reads the
    events again, even if it's of the same ones: a stream that is used twice is handed to Flux as it is.
    https://docs.influxdata.com/influxdb/v2/query-data/optimize-queries/
    """
    temperatures = select_events(bucket, "events", span, "temperature")
    if name == "count-events":
        return f"{temperatures} |> {COUNT}", ["_value"]
    if name == "temperature-min-max":
        return _join_aggregates(temperatures, {"min": _MIN, "max": _MAX}, "_all"), ["min", "max"]
    if name == "temperature-stats":
        parts = {"min": _MIN, "sum": "sum() |> group() |> sum()", "count": COUNT, "max": _MAX}
        mean = "map(fn: (r) => ({r with mean: r.sum / r.count}))"
        columns = ["min", "mean", "max"]
        return f"{_join_aggregates(temperatures, parts, '_all')} |> {mean}", columns
    if name == "temperature-stats-per-device":
        parts = {"min": "min()", "mean": "mean()", "max": "max()"}
        return _join_aggregates(temperatures, parts, "device_id"), ["device_id", *parts]
    if name == "newest-per-device":
        return f"{temperatures} |> last() |> group()", ["device_id", "_value"]
    return _compile_cpu_query(name, bucket, span)


def _join_aggregates(values: str, aggregates: Mapping[str, str], by: str) -> str:
    """Aggregates of the same values as columns of one row for each `by`.

    `by`: a tag that tells the series apart, or a name that is none, for one row of all.
    """
    streams = [
        f"{values} |> {aggregate} |> toFloat() |> group()"
        f' |> keep(columns: ["_value", {quote_text(by)}])'
        f' |> set(key: "of", value: {quote_text(name)})'
        for name, aggregate in aggregates.items()
    ]
    if by == "_all":
        streams = [f'{stream} |> set(key: "_all", value: "")' for stream in streams]
    return (
        f"union(tables: [{', '.join(streams)}])"
        f' |> pivot(rowKey: [{quote_text(by)}], columnKey: ["of"], valueColumn: "_value")'
    )


def _compile_cpu_query(name: str, bucket: str, span: tuple[str, str]) -> tuple[str, list[str]]:
    """A query of workload cpu. Its metrics are fields, and so series of their own."""
    begin = write_time(FIRST_TIMESTAMP_MS)
    as_columns = 'pivot(rowKey: ["_time"], columnKey: ["_field"], valueColumn: "_value")'
    columns = ["hostname", "_time", *METRICS]
    if name == "cpu-max-all":
        hosts = " or ".join(f"r.hostname == {quote_text(host)}" for host in MAX_ALL_HOSTS)
        query = (
            f"{select_events(bucket, 'cpu', (begin, write_time(MAX_ALL_UNTIL_MS)))}"
            f" |> filter(fn: (r) => {hosts})"
            ' |> aggregateWindow(every: 1h, fn: max, createEmpty: false, timeSrc: "_start")'
            f' |> group(columns: ["_field", "_time"]) |> max() |> group() |> {as_columns}'
        )
        return query, columns[1:]
    if name == "high-cpu":
        query = (
            f"{select_events(bucket, 'cpu', (begin, write_time(HIGH_CPU_UNTIL_MS)))} |> {as_columns}"
            f" |> filter(fn: (r) => r.usage_user > {HIGH_CPU_ABOVE}) |> group()"
        )
        return query, columns
    assert name == "last-point", name
    return f"{select_events(bucket, 'cpu', span)} |> last() |> {as_columns} |> group()", columns


# https://docs.influxdata.com/influxdb/v2/reference/syntax/annotated-csv/
_CONVERTERS: Mapping[str, Callable[[str], Any]] = {
    "long": int,
    "double": float,
    "string": str,
    "dateTime:RFC3339": lambda text: round(datetime.fromisoformat(text).timestamp() * 1000),
}


def parse_csv(text: str, columns: Sequence[str]) -> list[tuple[Any, ...]]:
    """The values of these columns in annotated CSV, of all its tables.

    Raises SimulatorError if the query failed when part of the answer was on its way already.
    """
    rows = []
    types: list[str] = []
    header: list[str] = []
    places: list[tuple[Callable[[str], Any], int]] = []
    for row in csv.reader(StringIO(text, newline="")):
        if not row or row[0] == "#datatype":
            types, header = row, []
        elif not header:
            header = row
            if "error" not in header:
                found = [header.index(name) for name in columns]
                places = [(_CONVERTERS[types[place]], place) for place in found]
        elif "error" in header:
            raise SimulatorError(f"InfluxDB gave up a query: {row[header.index('error')]}")
        else:
            rows.append(tuple([convert(row[place]) for convert, place in places]))
    return rows
