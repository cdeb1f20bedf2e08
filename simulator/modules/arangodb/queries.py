"""Described queries in AQL. Each returns arrays."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

import numpy as np

from ...encoding import text_format
from ...workloads.base import Column, ColumnType, Schema
from ...workloads.queries import Aggregate, Bound, Every, Function, Query, Shape, Where

SHAPES = frozenset(Shape)
"""What can be compiled."""

_FUNCTIONS = {
    Function.MIN: "MIN",
    Function.MAX: "MAX",
    Function.AVG: "AVERAGE",
    Function.SUM: "SUM",
}


def name_field(schema: Schema, name: str) -> str:
    """How AQL names that column of the event e; the device's by its id."""
    path = schema.device_path if name == schema.device else None
    return f"e.`{name}`.`{path}`" if path else f"e.`{name}`"


def compile_query(bound: Bound, schema: Schema) -> str:
    """The query that asks what is bound, its parameters in it as literals.

    Missing values are `null`, which is less than anything else: conditions leave it out, and so does each
    aggregate function but COUNT.
    """
    query, table = bound.query, f"`{schema.table}`"
    conditions = list(_list_conditions(bound, schema))
    if query.compute == (Aggregate(function=Function.COUNT),) and not (query.per or conditions):
        # A collection knows how many documents it has.
        return f"RETURN [LENGTH({table})]"
    clauses = [f"FOR e IN {table}"]
    if conditions:
        clauses.append(f"FILTER {' AND '.join(conditions)}")
    if query.newest and bound.devices is not None and len(bound.devices) == 1:
        values = [name_field(schema, name) for name in (schema.device, *query.events)]
        clauses += [f"SORT {name_field(schema, schema.time)} DESC", "LIMIT 1"]
        return _finish(clauses, values)
    if query.newest:
        values = _collect_newest(clauses, query.events, schema)
    elif query.events:
        values = [name_field(schema, name) for name in query.events]
    else:
        values = _collect(clauses, bound, schema)
    if query.order:
        clauses.append(_sort(query, values, schema))
    if query.limit is not None:
        clauses.append(f"LIMIT {query.limit}")
    return _finish(clauses, values)


def _sort(query: Query, values: Sequence[str], schema: Schema) -> str:
    """The clause that puts rows of these values in the query's order."""
    order = query.order
    assert order is not None
    by = values[order.by]
    places = [f"{by} DESC" if order.descending else by]
    if not order.descending and _may_lack(query, order.by, schema):
        # Nothing comes last. It would keep an index from being used.
        places.insert(0, f"{by} == null")
    places += [values[key] for key in range(query.keys) if key != order.by]
    return f"SORT {', '.join(places)}"


def _may_lack(query: Query, place: int, schema: Schema) -> bool:
    """Whether rows may have no value at that place."""
    values = [*query.per, *([schema.device] if query.newest else []), *query.compute, *query.events]
    found = values[place]
    name = found.column if isinstance(found, Aggregate) else found
    return isinstance(name, str) and schema.column(name).nullable


def _finish(clauses: Sequence[str], values: Sequence[str]) -> str:
    return "\n".join([*clauses, f"RETURN [{', '.join(values)}]"])


# --- conditions -----------------------------------------------------------------------------------


def _list_conditions(bound: Bound, schema: Schema) -> Iterator[str]:
    if bound.devices is not None:
        device = name_field(schema, schema.device)
        if len(bound.devices) == 1:
            yield f"{device} == {_quote(bound.devices[0])}"
        else:
            yield f"{device} IN [{', '.join(map(_quote, bound.devices))}]"
    time = name_field(schema, schema.time)
    if bound.start_ms is not None and bound.end_ms is not None:
        if bound.end_ms == bound.start_ms + 1:
            yield f"{time} == {bound.start_ms}"
        else:
            yield f"{time} >= {bound.start_ms} AND {time} < {bound.end_ms}"
    if bound.query.where is not None:
        yield _compare(bound.query.where, schema)


def _compare(where: Where, schema: Schema) -> str:
    column, field = schema.column(where.column), name_field(schema, where.column)
    if where.above is not None:
        return f"{field} > {_number(where.above, column)}"
    assert where.below is not None
    below = f"{field} < {_number(where.below, column)}"
    return f"{field} != null AND {below}" if column.nullable else below


def _number(value: float, column: Column) -> str:
    """A number to compare a column's values with, which are the decimal fractions that were sent."""
    if column.type is ColumnType.FLOAT32:
        # Numbers of 64 bits: what is the same in 32 bits must be the same text.
        single = np.float32(value)
        sent = float(text_format(column) % float(single))
        value = sent if np.float32(sent) == single else float(value)
    return repr(int(value)) if float(value).is_integer() else repr(value)


def _quote(text: str) -> str:
    """A text as AQL writes it, which has JSON's escapes."""
    return json.dumps(text, ensure_ascii=False)


# --- groups ---------------------------------------------------------------------------------------


def _collect_newest(clauses: list[str], names: Sequence[str], schema: Schema) -> list[str]:
    """Add the clause that finds each device's newest event; the device's and the columns' values in it."""
    columns = [name for name in names if name not in (schema.device, schema.time)]
    places = {name: f"newest[{place}]" for place, name in enumerate([schema.time, *columns])}
    clauses.append(
        f"COLLECT device = {name_field(schema, schema.device)}"
        f" AGGREGATE newest = MAX({_begin_with_time(columns, schema)})"
    )
    return ["device" if name == schema.device else places[name] for name in (schema.device, *names)]


def _begin_with_time(names: Sequence[str], schema: Schema) -> str:
    """An array of an event's values. Arrays are compared element by element: the newest is the greatest."""
    return f"[{', '.join(name_field(schema, name) for name in (schema.time, *names))}]"


def _collect(clauses: list[str], bound: Bound, schema: Schema) -> list[str]:
    """Add the clause that computes of groups; the values of a row."""
    keys = [f"key{place}" for place in range(len(bound.query.per))]
    groups = [
        f"{key} = {_group(part, schema)}" for key, part in zip(keys, bound.query.per, strict=True)
    ]
    aggregates: dict[str, str] = {}

    def compute(function: str, of: str) -> str:
        """The variable of what is computed, the same each time."""
        return aggregates.setdefault(f"{function}({of})", f"value{len(aggregates)}")

    values = []
    for one in bound.query.compute:
        if one.column is None:
            values.append(compute("COUNT", "1"))
        elif one.function is Function.LAST:
            values.append(f"{compute('MAX', _begin_with_time([one.column], schema))}[1]")
        else:
            field = name_field(schema, one.column)
            value = compute(_FUNCTIONS[one.function], field)
            if one.function is Function.SUM:
                # The sum of nothing but `null` is 0.
                value = f"({compute('MAX', field)} == null ? null : {value})"
            values.append(value)
    computed = ", ".join(f"{name} = {text}" for text, name in aggregates.items())
    clauses.append(" ".join(["COLLECT", *filter(None, [", ".join(groups)]), "AGGREGATE", computed]))
    return [*keys, *values]


def _group(part: str | Every, schema: Schema) -> str:
    if not isinstance(part, Every):
        return name_field(schema, part)
    time = name_field(schema, schema.time)
    return f"{time} - {time} % {part.every}"
