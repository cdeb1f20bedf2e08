"""Described queries in KQL, and how to read their answers.

https://learn.microsoft.com/kusto/query/
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from math import isinf
from typing import Any

import numpy as np

from ...encoding.columns import text_format
from ...errors import SimulatorError
from ...units import write_duration
from ...workloads.drawing import BoundQuery
from ...workloads.queries import Every, Function, Query, Shape, Where
from ...workloads.schema import FLOATS, ID, Column, ColumnType, EventBlock, Schema
from ..own_statements import Literals, fill_statement

SHAPES = frozenset(Shape)

# The origin of `bin`: the first of January of the year 1.
_BINS_BEGIN_MS = -62_135_596_800_000

_EXACT_INTEGERS = 2**53

Row = tuple[Any, ...]
Read = Callable[[Any], Any]


@dataclass(frozen=True)
class Compiled:
    """A query's text, and how to read each value of a row of its answer."""

    text: str
    reads: Sequence[Read]

    def read(self, rows: Sequence[Sequence[Any]]) -> list[Row]:
        """The answer's rows; SimulatorError if a row has a different number of values."""
        for row in rows[:1]:
            if len(row) != len(self.reads):
                raise SimulatorError(f"a row has {len(row)} values, not {len(self.reads)}")
        return [
            tuple(read(value) for read, value in zip(self.reads, row, strict=True)) for row in rows
        ]


def compile_query(bound: BoundQuery, schema: Schema) -> Compiled:
    """The bound query in KQL, and how to read its answer. The values of a row are named v0, v1, ..."""
    query = bound.query
    steps = [quote_name(schema.table), *_list_conditions(bound, schema)]
    names = _name_values(query.width)
    if query.newest:
        steps += _ask_newest(query, schema)
    elif query.events:
        values = (_name_column(name, schema) for name in query.events)
        steps += _join_tags(query.events, schema)
        steps.append(f"project {_assign(names, values)}")
    else:
        steps += _compute(query, schema)
    if query.order is not None:
        direction = "desc" if query.order.descending else "asc"
        ordered = names[query.order.by]
        by = [f"{ordered} {direction} nulls last"]
        if query.events and schema.column(query.events[query.order.by]).type is ColumnType.TEXT:
            # A missing text is an empty one, which sorts before all others.
            by.insert(0, f"isempty({ordered}) asc")
        by += [f"{names[key]} asc" for key in range(query.keys) if key != query.order.by]
        steps.append(f"sort by {', '.join(by)}")
    if query.limit is not None:
        steps.append(f"take {query.limit}")
    return Compiled(" | ".join(steps), _choose_reads(query, schema))


def take_statement(text: str, bound: BoundQuery, schema: Schema) -> Compiled:
    """A workload's own statement, and how to read its answer."""
    table = quote_name(schema.table)
    filled = fill_statement(text, bound, schema, LITERALS, _write_number, table)
    return Compiled(filled, _choose_reads(bound.query, schema))


# --- conditions -----------------------------------------------------------------------------------


def _list_conditions(bound: BoundQuery, schema: Schema) -> list[str]:
    conditions = []
    # Times first: they tell which extents can be skipped.
    if bound.start_ms is not None and bound.end_ms is not None:
        time = quote_name(schema.time)
        start, end = _write_time(bound.start_ms), _write_time(bound.end_ms)
        conditions.append(
            f"where {time} == {start}"
            if bound.end_ms == bound.start_ms + 1
            else f"where {time} >= {start} and {time} < {end}"
        )
    if bound.devices is not None:
        names = [quote_text(name) for name in bound.devices]
        among = f"== {names[0]}" if len(names) == 1 else f"in ({', '.join(names)})"
        condition = f"where {_name_column(schema.device, schema)} {among}"
        apart = schema.is_apart(schema.device)
        conditions.append(
            _find_ids(condition, schema, alone=len(names) == 1) if apart else condition
        )
    if bound.query.where is not None:
        where = bound.query.where
        comparison = f"where {_compare(where, schema)}"
        apart = schema.is_apart(where.column)
        conditions.append(_find_ids(comparison, schema) if apart else comparison)
    return conditions


def _compare(where: Where, schema: Schema) -> str:
    """A condition on a value."""
    column, name = schema.column(where.column), _name_column(where.column, schema)
    if not where.texts:
        sign, value = where.comparison
        return f"{name} {sign} {_write_number(value, column)}"
    texts = ", ".join(map(quote_text, where.texts))
    if where.one_of:
        return f"{name} in ({texts})"
    # A missing text is an empty one, and differs from others.
    there = f"isnotempty({name}) and " if column.nullable else ""
    return f"{there}{name} !in ({texts})"


_ID = f"['{ID}']"


def _find_ids(condition: str, schema: Schema, alone: bool = False) -> str:
    """A condition on names or tags, as one on the events' ids; `alone`: a single device meets it."""
    ids = f"{quote_name(schema.tags_table)} | {condition} | project {_ID}"
    return f"where {_ID} == toscalar({ids})" if alone else f"where {_ID} in (({ids}))"


def _write_number(value: float, column: Column) -> str:
    """A number to compare with a column's values, in the column's precision."""
    if column.type is ColumnType.FLOAT32:
        # The digits that were sent are stored.
        with np.errstate(over="ignore"):
            single = np.float32(value)
        text = (text_format(column) % single).decode()
        value = float(text if np.float32(text) == single else f"{single:.9g}")
    if isinf(value):
        return "real(+inf)" if value > 0 else "real(-inf)"
    if value.is_integer() and abs(value) < _EXACT_INTEGERS:
        return str(int(value))
    return repr(value)


def _write_time(time_ms: int) -> str:
    moment = datetime.fromtimestamp(time_ms // 1000, UTC)
    rest = f".{time_ms % 1000:03d}" if time_ms % 1000 else ""
    return f"datetime({moment:%Y-%m-%dT%H:%M:%S}{rest}Z)"


# --- values ---------------------------------------------------------------------------------------


def _ask_newest(query: Query, schema: Schema) -> list[str]:
    """The steps that find newest events: with `arg_max`, since `partition` is limited to 64 devices."""
    newest, aliases = _ask_last(
        [name for name in query.events if not schema.is_apart(name)], schema
    )
    names = _name_values(query.width)
    if schema.is_apart(schema.device):
        # By id first; tags are looked up for the result.
        columns = (schema.device, *query.events)
        lookup, tags = _look_up(columns, schema)
        aliases |= tags
        row = [aliases[name] for name in columns]
        return [f"summarize {newest} by {_ID}", lookup, f"project {_assign(names, row)}"]
    row = [aliases[name] for name in query.events]
    return [
        f"summarize {newest} by v0 = {_name_column(schema.device, schema)}",
        f"project v0, {_assign(names[1:], row)}",
    ]


def _join_tags(names: Iterable[str], schema: Schema) -> list[str]:
    """The step that joins columns from the tags' table to events, if there are any."""
    columns = [quote_name(name) for name in dict.fromkeys(names) if schema.is_apart(name)]
    if not columns:
        return []
    tags = f"{quote_name(schema.tags_table)} | project {', '.join([_ID, *columns])}"
    return [f"lookup kind=inner ({tags}) on {_ID}"]


def _look_up(names: Iterable[str], schema: Schema) -> tuple[str, dict[str, str]]:
    """The step that joins tags to results by id, and the name that each column gets."""
    apart = [name for name in dict.fromkeys(names) if schema.is_apart(name)]
    aliases = {name: f"t{place}" for place, name in enumerate(apart)}
    values = _assign(aliases.values(), (_name_column(name, schema) for name in apart))
    tags = f"{quote_name(schema.tags_table)} | project {_ID}, {values}"
    return f"lookup kind=inner ({tags}) on {_ID}", aliases


def _compute(query: Query, schema: Schema) -> list[str]:
    names = _name_values(query.width)
    keys = names[: query.keys]
    groups = {}
    for key, part in zip(keys, query.per, strict=True):
        if not isinstance(part, Every):
            groups[key] = _name_column(part, schema)
            continue
        time, span = quote_name(schema.time), write_duration(part.every)
        counted = _BINS_BEGIN_MS % part.every == 0
        zero = _write_time(0)
        groups[key] = f"bin({time}, {span})" if counted else f"bin_at({time}, {span}, {zero})"
    apart = {
        key: part
        for key, part in zip(keys, query.per, strict=True)
        if isinstance(part, str) and schema.is_apart(part)
    }
    columns = [aggregate.column for aggregate in query.compute if aggregate.column is not None]
    by_id = schema.device in apart.values() and not any(map(schema.is_apart, columns))
    steps = [] if by_id else _join_tags([*apart.values(), *columns], schema)
    last = [
        aggregate.column
        for aggregate in query.compute
        if aggregate.column and aggregate.function is Function.LAST
    ]
    newest, aliases = _ask_last(last, schema) if last else ("", {})
    row, computed, after = list(keys), [], []
    if by_id:
        # Tags are looked up for groups, which are fewer than events.
        groups = {_ID: _ID} | {key: text for key, text in groups.items() if key not in apart}
        lookup, tags = _look_up(apart.values(), schema)
        row = [tags[apart[key]] if key in apart else key for key in keys]
        after = [lookup]
    for name, aggregate in zip(names[query.keys :], query.compute, strict=True):
        if aggregate.function is Function.LAST:
            row.append(aliases[aggregate.column or ""])
            continue
        row.append(name)
        if aggregate.column is None:
            computed.append(f"{name} = count()")
            continue
        column, quoted = schema.column(aggregate.column), _name_column(aggregate.column, schema)
        if aggregate.function.percent is not None:
            computed.append(
                f"{name} = percentile(todouble({quoted}), {aggregate.function.percent:g})"
            )
            continue
        value = f"{aggregate.function}({quoted})"
        if aggregate.function is Function.SUM and (column.nullable or not query.per):
            # For no values, it would be 0.
            kind = "real" if column.type in FLOATS else "long"
            value = f"iff(isnull(min({quoted})), {kind}(null), {value})"
        computed.append(f"{name} = {value}")
    step = f"summarize {', '.join([*computed, newest] if newest else computed)}"
    if query.per:
        step += f" by {_assign(groups, groups.values())}"
    if last or by_id:
        after.append(f"project {_assign(names, row)}")
    return [*steps, step, *after]


def _ask_last(names: Iterable[str], schema: Schema) -> tuple[str, dict[str, str]]:
    """The expression for these columns of a group's newest event, and the name that each gets."""
    aliases = {schema.time: "happened"}
    for name in names:
        aliases.setdefault(name, f"c{len(aliases)}")
    time, *columns = (_name_column(name, schema) for name in aliases)
    if not columns:
        return f"happened = max({time})", aliases
    return f"({', '.join(aliases.values())}) = arg_max({', '.join([time, *columns])})", aliases


def _name_column(name: str, schema: Schema) -> str:
    column = schema.column(name)
    path = column.path
    if name == schema.device and schema.device_path:
        path = (schema.device_path,)
    member = "".join(map(quote_name, (column.stored_as, *path)))
    if not path:
        return member
    converts = {ColumnType.INT64: "tolong", ColumnType.FLOAT64: "todouble"}
    return f"{converts.get(column.type, 'tostring')}({member})"


def _name_values(count: int) -> list[str]:
    return [f"v{place}" for place in range(count)]


def _assign(names: Iterable[str], values: Iterable[str]) -> str:
    pairs = zip(names, values, strict=True)
    return ", ".join(name if name == value else f"{name} = {value}" for name, value in pairs)


def quote_name(name: str) -> str:
    """The name of a table or column, quoted."""
    return f"[{quote_text(name)}]"


# https://learn.microsoft.com/kusto/query/scalar-data-types/string#string-literals
_ESCAPES = str.maketrans({"\\": r"\\", "'": r"\'", "\n": r"\n", "\r": r"\r", "\t": r"\t"})


def quote_text(text: str) -> str:
    """A string literal."""
    return f"'{text.translate(_ESCAPES)}'"


LITERALS = Literals(quote_text, _write_time)


def select_stored(table: str, events: EventBlock) -> str:
    """KQL for the number of stored events with the device and time of the last one of these."""
    schema, key = events.schema, events.key_of(len(events) - 1)
    if schema.is_apart(schema.device):
        device = f"{_ID} == {key[ID]}"
    else:
        name = quote_text(str(key[schema.device]))
        device = f"{_name_column(schema.device, schema)} == {name}"
    time = f"{quote_name(schema.time)} == {_write_time(int(key[schema.time]))}"
    return f"{quote_name(table)} | where {time} | where {device} | summarize found = count()"


def select_ids(schema: Schema, first: int, last: int) -> str:
    """KQL for the ids from first to last in the tags' table."""
    table = quote_name(schema.tags_table)
    return f"{table} | where {_ID} >= {first} and {_ID} <= {last} | project {_ID}"


# --- answers --------------------------------------------------------------------------------------


def read_time(value: str | datetime | None) -> int | None:
    """Milliseconds since 1970 from a text, or from what Microsoft's client makes of it."""
    if value is None:
        return None
    time = datetime.fromisoformat(value) if isinstance(value, str) else value
    return round(time.timestamp() * 1000)


def _choose_reads(query: Query, schema: Schema) -> list[Read]:
    """How to read each value of a row."""
    own = (schema.device, *query.events) if query.newest else query.events or query.per
    reads = [_choose_read(schema, part) for part in own]
    for aggregate in query.compute:
        if aggregate.function is Function.AVG or aggregate.function.percent is not None:
            # NaN is the mean of no values.
            reads.append(lambda value: None if value == "NaN" else value)
        else:
            reads.append(_choose_read(schema, aggregate.column))
    return reads


def _choose_read(schema: Schema, part: str | Every | None) -> Read:
    """How to read a column, a bucket of time, or a number of events (None)."""
    column = schema.column(part) if isinstance(part, str) else None
    if isinstance(part, Every) or (column and column.type is ColumnType.TIMESTAMP_MS):
        return read_time
    if column and column.type is ColumnType.TEXT and column.nullable:
        return lambda value: value or None  # there is no null
    return lambda value: value
