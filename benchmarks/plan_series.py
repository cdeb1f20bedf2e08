"""Other forms of the common queries for Cassandra, InfluxDB and IoTDB."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from dataclasses import replace
from typing import Any

from simulator.modules.cassandra.queries import Selection
from simulator.modules.cassandra.queries import Statement as CqlStatement
from simulator.modules.influxdb.flux import Question, select_bound
from simulator.modules.iotdb.queries import Selection as TreeSelection
from simulator.modules.iotdb.schema import LEVEL, Model, split_path
from simulator.modules.kit.series import Row, name_device, put_in_order
from simulator.units import write_duration
from simulator.workloads.drawing import BoundQuery
from simulator.workloads.queries import HOUR_MS, Query
from simulator.workloads.schema import ColumnType

from .plan_forms import Form, find_bucket_ms, name_devices, replace_part

Forms = Iterator[tuple[str, Form]]

# --- Cassandra ------------------------------------------------------------------------------------


def list_cassandra(module: Any, query: Query, devices: Sequence[str]) -> Forms:
    """Name and form."""
    schema = module.job.schema
    device, time = f'"{schema.device}"', f'"{schema.time}"'
    table = f'"{module.options.keyspace}"."{schema.table}"'

    def among(bound: BoundQuery) -> Selection:
        """The newest event of each device, by one statement."""
        [first, *_] = module.compile(replace(bound, devices=tuple(devices))).statement
        columns = first[: first.index(" FROM ")]
        marks = ", ".join("?" * len(devices))
        text = f"{columns} FROM {table} WHERE {device} IN ({marks}) PER PARTITION LIMIT 1"
        kinds = (ColumnType.TEXT,) * len(devices)
        return Selection(CqlStatement(text, kinds), [tuple(devices)])

    def average(bound: BoundQuery) -> Selection:
        """The means of ten devices, by one statement."""
        names = bound.devices or ()
        marks = ", ".join("?" * len(names))
        value = f'avg(CAST("{query.compute[0].column}" AS double))'
        bucket = f"floor({time}, {find_bucket_ms(query)}ms)"
        text = (
            f"SELECT {device}, tounixtimestamp({bucket}), {value} FROM {table} WHERE {device} IN ({marks})"
            f" AND {time} >= ? AND {time} < ? GROUP BY {device}, {bucket}"
        )
        kinds = (ColumnType.TEXT,) * len(names) + (ColumnType.TIMESTAMP_MS,) * 2
        executions = [(*names, bound.start_ms, bound.end_ms)]
        return Selection(CqlStatement(text, kinds), executions)

    if query.devices == "all":
        yield "each device", name_devices(module, devices)
        if query.newest:
            yield "IN", Form(among, alone=True)
    if query.name == "downsample":
        yield "IN", Form(average, alone=True)


# --- InfluxDB -------------------------------------------------------------------------------------


class _Rows(Question):
    """Flux whose rows are those of the answer."""

    def __init__(self, bound: BoundQuery, module: Any, text: str, columns: Sequence[str]) -> None:
        super().__init__(bound, module.job.schema, module.options.bucket)
        self.text, self.columns = text, columns

    def read(self, answers: Sequence[Any]) -> list[Row]:
        """A time becomes that of its bucket, whose beginning the range may have cut off."""
        rows = [row for _, row in answers[0]]
        if "_time" in self.columns:
            place = list(self.columns).index("_time")
            every = find_bucket_ms(self._query)
            rows = [
                (*row[:place], row[place] - row[place] % every, *row[place + 1 :]) for row in rows
            ]
        return put_in_order(self._query, rows)


def list_influxdb(module: Any, query: Query, devices: Sequence[str]) -> Forms:
    """Name and form."""
    schema = module.job.schema
    tag = name_device(schema)

    def change(pattern: str, by: str) -> Form:
        def compiled(bound: BoundQuery) -> Any:
            question = copy(module.compile(bound))
            question.text = replace_part(question.text, pattern, by, schema)
            return question

        return Form(compiled)

    def write(steps: str, columns: Sequence[str]) -> Form:
        """Steps after the events of a query's only value."""

        def compiled(bound: BoundQuery) -> _Rows:
            column = query.compute[0].column
            assert column is not None
            events = select_bound(bound, schema, module.options.bucket, [column])
            return _Rows(bound, module, f"{events} |> {steps}", columns)

        return Form(compiled)

    def share(bound: BoundQuery) -> Any:
        """One stream for all functions."""
        question = copy(module.compile(bound))
        source = re.match(r"from\(.*?\|> filter\(fn: \(r\) => .*?\)(?= \|>)", question.text)
        assert source is not None
        question.text = f"rows = {source[0]}\n{question.text.replace(source[0], 'rows')}"
        return question

    hour, own = f"every: {write_duration(find_bucket_ms(query) or HOUR_MS)}", f'["{tag}"]'
    means = f'aggregateWindow({hour}, fn: mean, createEmpty: false, timeSrc: "_start")'
    if query.newest:
        sort = 'sort(columns: ["_time"], desc: true) |> limit(n: 1)'
        yield "sort, limit", change(r"last\(\)", sort)
        grouped = f'group(columns: ["{tag}", "_field"]) |> last()'
        yield "group, last", change(r"last\(\)", grouped)
        if len({*query.events} - {schema.time}) > 1:
            yield (
                "pivot, then last",
                change(r"\|> last\(\) \|> (pivot\([^)]*\))", r'|> \1 |> last(column: "_time")'),
            )
    if query.name == "aggregate":
        yield "one stream", Form(share)
    if query.name == "downsample":
        yield (
            "window, mean",
            change(
                r"aggregateWindow\([^)]*\)",
                f'window({hour}) |> mean() |> duplicate(column: "_start", as: "_time")',
            ),
        )
    if query.name == "fleet-downsample":
        keep = 'keep(columns: ["_time", "_value"])'
        yield "group, means", write(f"group() |> {means} |> {keep}", ["_time", "_value"])
    if query.name == "top-devices":
        keep = f'keep(columns: ["{tag}", "_value"])'
        yield "top", write(f"mean() |> group() |> top(n: 10) |> {keep}", [tag, "_value"])
        yield (
            "group, mean",
            write(
                f"group(columns: {own}) |> mean() |> group() |> top(n: 10) |> {keep}",
                [tag, "_value"],
            ),
        )


# --- IoTDB ----------------------------------------------------------------------------------------


def _select(text: str, query: Query, places: Sequence[int], device: int | None) -> TreeSelection:
    """A statement in the tree whose rows, put into other places, are those of the answer. `places`: where the
    answer's values are in a row; `device`: which of the row's values is a path."""

    def read(rows: list[Row]) -> list[Row]:
        if device is not None:
            rows = [
                (*row[:device], split_path(row[device])[-1], *row[device + 1 :]) for row in rows
            ]
        return put_in_order(query, [tuple(row[place] for place in places) for row in rows])

    return TreeSelection(text, read)


def list_iotdb(module: Any, query: Query, devices: Sequence[str]) -> Forms:
    """Name and form."""
    return (_list_tree if module.options.model is Model.TREE else _list_table)(module, query)


def _list_tree(module: Any, query: Query) -> Forms:
    schema = module.job.schema
    root = f"root.{module.options.database}.{schema.table}"
    value = query.compute[0].column if query.compute else None
    every = find_bucket_ms(query)

    def ask(
        write: Callable[[str, str, str], str], places: Sequence[int], device: int | None
    ) -> Form:
        """`write`: takes paths, condition and buckets."""

        def compiled(bound: BoundQuery) -> TreeSelection:
            named = [f"{root}.{name}" for name in bound.devices or ("*",)]
            start, end = bound.start_ms or 0, bound.end_ms or 0
            where = f" WHERE time >= {start} AND time < {end}" if end else ""
            buckets = f" GROUP BY ([{start - start % every}, {end}), {every}ms)" if every else ""
            return _select(write(", ".join(named), where, buckets), query, places, device)

        return Form(compiled, alone=True)

    if query.name == "last-value":
        fields = [name for name in query.events if name != schema.time]
        columns = ", ".join(fields)
        yield "order by time", ask(
            lambda paths, where, buckets: (
                f"SELECT {columns} FROM {paths} ORDER BY time DESC LIMIT 1 ALIGN BY DEVICE"
            ),
            (1, 0, *range(2, 2 + len(fields))), 1,
        )  # fmt: skip
    if query.name == "downsample":
        yield "avg", ask(
            lambda paths, where, buckets: (
                f"SELECT avg({value}) FROM {paths}{where}{buckets} HAVING count({value}) > 0 ALIGN BY DEVICE"
            ),
            (1, 0, 2), 1,
        )  # fmt: skip
    if query.name == "fleet-downsample":
        yield "avg", ask(
            lambda paths, where, buckets: (
                f"SELECT avg({value}) FROM {paths}{where}{buckets}, LEVEL = {LEVEL}"
            ),
            (0, 1), None,
        )  # fmt: skip
    if query.name == "top-devices":
        yield "order by avg", ask(
            lambda paths, where, buckets: (
                f"SELECT avg({value}) FROM {paths}{where} ORDER BY avg({value}) DESC LIMIT 10 ALIGN BY DEVICE"
            ),
            (0, 1), 0,
        )  # fmt: skip


def _list_table(module: Any, query: Query) -> Forms:
    schema = module.job.schema
    table, device = f'"{schema.table}"', f'"{schema.device}"'
    values = ["time" if name == schema.time else f'"{name}"' for name in query.events]
    if query.name == "last-value":
        newest = ", ".join(
            "max(time)" if name == "time" else f"last_by({name}, time)" for name in values
        )

        def compiled(bound: BoundQuery) -> str:
            [name] = bound.devices or ()
            return f"SELECT {device}, {newest} FROM {table} WHERE {device} = '{name}' GROUP BY 1"

        yield "last_by", Form(compiled, alone=True)
    if query.newest and query.devices == "all":
        columns = ", ".join(f"e.{name}" for name in (device, *values))
        text = (
            f"SELECT {columns} FROM {table} AS e JOIN (SELECT {device}, max(time) AS newest FROM {table}"
            f" GROUP BY {device}) AS n ON e.{device} = n.{device} AND e.time = n.newest"
        )
        yield "max and join", Form(lambda bound: text, alone=True)
