"""Described queries in AQL. Each returns arrays."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from ...encoding.columns import text_format
from ...workloads.drawing import BoundQuery
from ...workloads.queries import Aggregate, Every, Function, Query, Shape, Where
from ...workloads.schema import ID, Column, ColumnType, Schema
from ..own_statements import quote_json

SHAPES = frozenset(Shape)
"""The supported shapes."""

_FUNCTIONS = {
    Function.MIN: "MIN",
    Function.MAX: "MAX",
    Function.AVG: "AVERAGE",
    Function.SUM: "SUM",
}


def name_field(schema: Schema, name: str) -> str:
    """A column of the event e, or of the tags t of its device, in AQL; `id`: the device's id."""
    path = schema.device_path if name == schema.device else None
    column = schema.column(name) if name != ID else Column(ID, ColumnType.INT64)
    # The events' collection has the id, too.
    document = "t" if column.stored_as in [c.name for c in schema.tags_row[1:]] else "e"
    steps = "".join(f"[{quote_json(step)}]" for step in column.path)
    return f"{document}.`{name}`.`{path}`" if path else f"{document}.`{column.stored_as}`{steps}"


_ID = f"e.`{ID}`"


def compile_query(bound: BoundQuery, schema: Schema) -> str:
    """The query for the bound values, with its parameters as literals.

    Missing values are `null`, which is less than anything else: conditions exclude it, and so does each
    aggregate function but COUNT.
    """
    query, table = bound.query, f"`{schema.table}`"
    lookups: list[str] = []
    conditions = list(_list_conditions(bound, schema, lookups))
    if query.compute == (Aggregate(function=Function.COUNT),) and not (query.per or conditions):
        # A collection knows its number of documents.
        return f"RETURN [LENGTH({table})]"
    clauses = [*lookups, f"FOR e IN {table}"]
    if conditions:
        clauses.append(f"FILTER {' AND '.join(conditions)}")
    if query.newest and bound.devices is not None and len(bound.devices) == 1:
        values = [name_field(schema, name) for name in (schema.device, *query.events)]
        clauses += [f"SORT {name_field(schema, schema.time)} DESC", "LIMIT 1"]
        if schema.is_apart(schema.device):
            clauses += _join_tags(_ID, schema)
        return _finish(clauses, values)
    if query.newest:
        values = _collect_newest(clauses, query.events, schema)
    elif query.events:
        values = [name_field(schema, name) for name in query.events]
        if any(map(schema.is_apart, query.events)):
            clauses += _join_tags(_ID, schema)
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
    by = value = values[order.by]
    if schema.orders_texts(query):
        # Texts would be in the order of the server's language: github.com/arangodb/arangodb/issues/19526
        value = f"TO_HEX({by})"
    places = [f"{value} DESC" if order.descending else value]
    sorted_by = [
        *query.per,
        *([schema.device] if query.newest else []),
        *query.compute,
        *query.events,
    ]
    kind = sorted_by[order.by]
    name = kind.column if isinstance(kind, Aggregate) else kind
    if not order.descending and isinstance(name, str) and schema.column(name).nullable:
        # Nothing follows: it would keep an index from being used.
        places.insert(0, f"{by} == null")
    places += [values[key] for key in range(query.keys) if key != order.by]
    return f"SORT {', '.join(places)}"


def _join_tags(key: str, schema: Schema) -> list[str]:
    """The clauses that find the tags t of the device with this id, by the primary index."""
    return [f"FOR t IN `{schema.tags_table}`", f"FILTER t._key == TO_STRING({key})"]


def _finish(clauses: Sequence[str], values: Sequence[str]) -> str:
    return "\n".join([*clauses, f"RETURN [{', '.join(values)}]"])


# --- conditions -----------------------------------------------------------------------------------


def _list_conditions(bound: BoundQuery, schema: Schema, lookups: list[str]) -> Iterator[str]:
    """The conditions for events. Clauses that find ids by tags are added to `lookups`: they must come
    first."""
    if bound.devices is not None:
        device = name_field(schema, schema.device)
        names = list(map(quote_json, bound.devices))
        condition = (
            f"{device} == {names[0]}" if len(names) == 1 else f"{device} IN [{', '.join(names)}]"
        )
        if not schema.is_apart(schema.device):
            yield condition
        else:
            lookups.append(_find_ids("deviceIds", condition, schema))
            # An equality, after which an index is in the order of time.
            yield f"{_ID} == deviceIds[0]" if len(bound.devices) == 1 else f"{_ID} IN deviceIds"
    time = name_field(schema, schema.time)
    if bound.start_ms is not None and bound.end_ms is not None:
        if bound.end_ms == bound.start_ms + 1:
            yield f"{time} == {bound.start_ms}"
        else:
            yield f"{time} >= {bound.start_ms} AND {time} < {bound.end_ms}"
    if bound.query.where is not None:
        comparison = _compare(bound.query.where, schema)
        if not schema.is_apart(bound.query.where.column):
            yield comparison
        else:
            lookups.append(_find_ids("tagIds", comparison, schema))
            yield f"{_ID} IN tagIds"


def _find_ids(name: str, condition: str, schema: Schema) -> str:
    """The clause that assigns the ids of the devices whose tags meet a condition. The name can't clash with a
    collection's, since it has a capital."""
    return f"LET {name} = (FOR t IN `{schema.tags_table}` FILTER {condition} RETURN t.`{ID}`)"


def _compare(where: Where, schema: Schema) -> str:
    column, field = schema.column(where.column), name_field(schema, where.column)
    if where.texts:
        among = f"IN [{', '.join(map(quote_json, where.texts))}]"
        if where.one_of:
            return f"{field} {among}"
        return (
            f"{field} != null AND {field} NOT {among}"
            if column.nullable
            else f"{field} NOT {among}"
        )
    if where.above is not None:
        return f"{field} > {write_number(where.above, column)}"
    assert where.below is not None
    below = f"{field} < {write_number(where.below, column)}"
    return f"{field} != null AND {below}" if column.nullable else below


def write_number(value: float, column: Column) -> str:
    """A number to compare with a column's values, which are stored as the decimal fractions sent."""
    if column.type is ColumnType.FLOAT32:
        # Numbers have 64 bits: values that are equal in 32 bits must be the same text.
        single = np.float32(value)
        sent = float(text_format(column) % float(single))
        value = sent if np.float32(sent) == single else float(value)
    return repr(int(value)) if float(value).is_integer() else repr(value)


# --- groups ---------------------------------------------------------------------------------------


def _collect_newest(clauses: list[str], names: Sequence[str], schema: Schema) -> list[str]:
    """Add the clause that finds each device's newest event. Returns the device's and the columns' values."""
    columns = [name for name in names if name not in (schema.device, schema.time)]
    columns = [name for name in columns if not schema.is_apart(name)]
    places = {name: f"newest[{place}]" for place, name in enumerate([schema.time, *columns])}
    apart = schema.is_apart(schema.device)
    clauses.append(
        f"COLLECT device = {_ID if apart else name_field(schema, schema.device)}"
        f" AGGREGATE newest = MAX({_begin_with_time(columns, schema)})"
    )
    if apart:
        # By id first; names are looked up for the result.
        clauses += _join_tags("device", schema)
        return [places.get(name, name_field(schema, name)) for name in (schema.device, *names)]
    return ["device" if name == schema.device else places[name] for name in (schema.device, *names)]


def _begin_with_time(names: Sequence[str], schema: Schema) -> str:
    """An array of an event's values. Arrays are compared element by element, so the newest is the
    greatest."""
    return f"[{', '.join(name_field(schema, name) for name in (schema.time, *names))}]"


def _collect(clauses: list[str], bound: BoundQuery, schema: Schema) -> list[str]:
    """Add the clause that computes values of groups. Returns the values of a row."""
    query = bound.query
    keys = [f"key{place}" for place in range(len(query.per))]
    groups = dict(zip(keys, (_group(part, schema) for part in query.per), strict=True))
    apart = {
        key: groups[key]
        for key, part in zip(keys, query.per, strict=True)
        if isinstance(part, str) and schema.is_apart(part)
    }
    computed = [aggregate.column for aggregate in query.compute if aggregate.column is not None]
    reads_tags = any(map(schema.is_apart, computed))
    by_id = schema.is_apart(schema.device) and schema.device in query.per and not reads_tags
    if by_id:
        # Tags are looked up for groups, which are fewer than events.
        groups = {"id": _ID} | {key: text for key, text in groups.items() if key not in apart}
        keys = [apart.get(key, key) for key in keys]
    elif apart or reads_tags:
        clauses += _join_tags(_ID, schema)
    aggregates: dict[str, str] = {}

    def compute(function: str, argument: str) -> str:
        """The variable of a computed value, the same each time."""
        return aggregates.setdefault(f"{function}({argument})", f"value{len(aggregates)}")

    values = []
    # All values of a group, from which percentiles are computed.
    ranked = list(dict.fromkeys(query.ranked))
    percentiles = []
    for aggregate in query.compute:
        if aggregate.column is None:
            values.append(compute("COUNT", "1"))
        elif aggregate.function.percent is not None:
            place, percent = ranked.index(aggregate.column), aggregate.function.percent
            percentiles.append(f'PERCENTILE(members[*][{place}], {percent:g}, "rank")')
            values.append(f"percentile{len(percentiles) - 1}")
        elif aggregate.function is Function.LAST:
            values.append(f"{compute('MAX', _begin_with_time([aggregate.column], schema))}[1]")
        else:
            field = name_field(schema, aggregate.column)
            value = compute(_FUNCTIONS[aggregate.function], field)
            if aggregate.function is Function.SUM:
                # The sum of nothing but `null` is 0.
                value = f"({compute('MAX', field)} == null ? null : {value})"
            values.append(value)
    grouped = ", ".join(f"{key} = {text}" for key, text in groups.items())
    if ranked and not aggregates:
        compute("COUNT", "1")
    assigned = ", ".join(f"{name} = {text}" for text, name in aggregates.items())
    collect = " ".join(["COLLECT", *filter(None, [grouped]), "AGGREGATE", assigned])
    if ranked:
        collect += f" INTO members = [{', '.join(name_field(schema, name) for name in ranked)}]"
    clauses.append(collect)
    clauses += [f"LET percentile{place} = {text}" for place, text in enumerate(percentiles)]
    if by_id:
        clauses += _join_tags("id", schema)
    return [*keys, *values]


def _group(part: str | Every, schema: Schema) -> str:
    if not isinstance(part, Every):
        return name_field(schema, part)
    time = name_field(schema, schema.time)
    return f"{time} - {time} % {part.every}"
