"""Described queries in the part of the query language that Elasticsearch and OpenSearch share.

Groups of a known number (buckets of a window, some devices) use `terms` and `date_histogram`, large enough to
hold all of them. All others use `composite`, page by page: `terms` over several shards would be approximate.
With a single shard, the server finds the first few groups by a value; otherwise all groups are fetched and
sorted here.

Newest events use a search whose hits are collapsed by device, which takes half the time of a `top_hits` in
each group. `top_hits` is used for more devices than a page holds, and for the last value of a group;
`top_metrics`, which would be cheaper, is only in Elastic's own distribution.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from math import inf, prod
from typing import Any

from ...workloads.drawing import BoundQuery
from ...workloads.queries import Aggregate, Every, Function, Query, Shape, Where
from ...workloads.schema import ColumnType, Schema
from ..kit.series import Row
from .paging import (
    GROUPS,
    Bucket,
    EventPages,
    GroupPages,
    Groups,
    Newest,
    Plan,
    Question,
    Statement,
    Totals,
)

SHAPES = frozenset(Shape)

PAGE = 10_000
"""Buckets or documents per page of an answer: the default of index.max_result_window, and well below that of
search.max_buckets (65,536)."""

# The default of index.max_docvalue_fields_search.
_MOST_DOCVALUE_FIELDS = 100

# The values that a field can be compared with, excluding the end: for floats, those that would be rounded to
# infinity.
_RANGES = {
    ColumnType.INT32: (-(2.0**31), 2.0**31),
    ColumnType.INT64: (-(2.0**63), 2.0**63),
    ColumnType.FLOAT32: (2.0**103 - 2.0**128, 2.0**128 - 2.0**103),
}


def compile_query(bound: BoundQuery, schema: Schema, shards: int | None = None) -> Statement:
    """A bound query. Only devices and times differ between executions. `shards`: of the index, None if
    unknown."""
    query = bound.query
    conditions: list[Question] = []
    if bound.devices is not None:
        conditions.append({"terms": {find_field(schema, schema.device): list(bound.devices)}})
    if bound.start_ms is not None and bound.end_ms is not None:
        window = {"gte": bound.start_ms, "lt": bound.end_ms}
        conditions.append({"range": {schema.time: window}})
    if query.where is not None:
        conditions.append(_compare(query.where, schema))
    events: Question = {"track_total_hits": False}
    if conditions:
        events["query"] = require_all(*conditions)
    if query.newest:
        return Statement(events, _plan_newest(bound, schema))
    if query.events:
        columns = _Columns(query.events, schema)
        sort: dict[str, Any] = {
            find_field(schema, name): "asc" for name in (schema.time, *schema.key)
        }
        if query.order is not None:
            direction = "desc" if query.order.descending else "asc"
            by = find_field(schema, query.events[query.order.by])
            others = {name: how for name, how in sort.items() if name != by}
            sort = {by: {"order": direction, "missing": "_last"}} | others
        question = columns.question | {"sort": [{name: how} for name, how in sort.items()]}
        return Statement(events, EventPages(question, columns.read, PAGE, query.limit))
    computed = _Computed(query.compute, schema)
    if not query.per:
        events["track_total_hits"] = computed.counts
        return Statement(events, Totals(computed.aggregations, computed.read_all))
    return Statement(events, _plan_groups(bound, schema, computed, shards))


def _plan_groups(
    bound: BoundQuery, schema: Schema, computed: _Computed, shards: int | None
) -> Plan:
    query = bound.query
    depth = len(query.per)
    read_all = partial(_unnest, key=(), depth=depth, computed=computed)
    sizes = []
    for part in query.per:
        # The most groups there can be, if known.
        if isinstance(part, Every) and bound.start_ms is not None and bound.end_ms is not None:
            # Wherever the window begins.
            sizes.append((bound.end_ms - bound.start_ms - 2) // part.every + 2)
        elif part == schema.device and bound.devices is not None:
            sizes.append(len(bound.devices))
    if len(sizes) == depth and prod(sizes) <= PAGE:
        return Groups(query, _nest(query, sizes, schema, computed), read_all)
    order = computed.order_terms(query, shards)
    if order is not None:
        sizes = [query.limit or PAGE]
        return Groups(query, _nest(query, sizes, schema, computed, order), read_all)
    sources = {str(place): _group_by(part, schema) for place, part in enumerate(query.per)}

    def read(group: Bucket) -> Row:
        return (*(group["key"][name] for name in sources), *computed.read(group))

    return GroupPages(sources, computed.aggregations, read, PAGE, query)


def find_field(schema: Schema, name: str) -> str:
    """The name of the field that holds a column's values."""
    if name == schema.device and schema.device_path:
        return f"{name}.{schema.device_path}"
    return name


def require_all(*conditions: Mapping[str, Any]) -> Question:
    """A query for events that meet all conditions, unranked."""
    return {"bool": {"filter": list(conditions)}}


# --- conditions -----------------------------------------------------------------------------------


def _compare(where: Where, schema: Schema) -> Question:
    if where.texts:
        among: Question = {"terms": {where.column: list(where.texts)}}
        if where.one_of:
            return among
        return {"bool": {"filter": {"exists": {"field": where.column}}, "must_not": among}}
    value = where.above if where.above is not None else where.below
    assert value is not None
    least, end = _RANGES.get(schema.column(where.column).type, (-inf, inf))
    if least <= value < end:
        # The server compares in the field's own precision.
        sign = "lt" if where.above is None else "gt"
        return {"range": {where.column: {sign: value}}}
    # It refuses numbers outside the field's range, even if all values are below or above them.
    all_fit = (value < 0) == (where.above is not None)
    return {"exists": {"field": where.column}} if all_fit else {"match_none": {}}


# --- events ---------------------------------------------------------------------------------------


class _Columns:
    """Columns of single events: how to request them, and how to read them from hits."""

    def __init__(self, names: Sequence[str], schema: Schema) -> None:
        self._fields = [find_field(schema, name) for name in names]
        self._times = {
            column.name for column in schema.columns if column.type is ColumnType.TIMESTAMP_MS
        }
        fields = list(dict.fromkeys(self._fields))
        # Without the documents' ids: reading them from the documents almost doubles the time for an answer of
        # thousands.
        self.question: Question = {"stored_fields": "_none_", "docvalue_fields": fields}
        if len(fields) > _MOST_DOCVALUE_FIELDS:
            self.question = {"_source": False, "fields": fields}

    def read(self, hit: Mapping[str, Any]) -> Row:
        """The columns' values, None where there is none."""
        fields, row = hit.get("fields", {}), []
        for name in self._fields:
            value = fields[name][0] if name in fields else None
            # Times come as text.
            row.append(int(value) if value is not None and name in self._times else value)
        return tuple(row)


def _plan_newest(bound: BoundQuery, schema: Schema) -> Plan:
    columns = _Columns((schema.device, *bound.query.events), schema)
    newest = _ask_newest(columns, schema)
    if bound.devices is not None and len(bound.devices) == 1:
        del newest["size"]
        return EventPages(newest, columns.read, PAGE, 1)
    device = _group_by(schema.device, schema)

    def read(group: Bucket) -> Row:
        return columns.read(group["newest"]["hits"]["hits"][0])

    top = {"newest": {"top_hits": newest}}
    pages = GroupPages({"device": device}, top, read, PAGE, bound.query)
    collapsed = newest | {"collapse": device["terms"]}
    return Newest(bound.query, collapsed, columns.read, PAGE, pages)


def _ask_newest(columns: _Columns, schema: Schema) -> Question:
    return {"size": 1, "sort": [{schema.time: "desc"}], **columns.question}


# --- computed values ------------------------------------------------------------------------------


class _Computed:
    """Values computed over a group of events: as aggregations, and read from their answer."""

    def __init__(self, compute: Sequence[Aggregate], schema: Schema) -> None:
        self._compute = compute
        self._schema = schema
        self.counts = any(aggregate.function is Function.COUNT for aggregate in compute)
        self.aggregations: Question = {}
        last = [
            aggregate.column
            for aggregate in compute
            if aggregate.column and aggregate.function is Function.LAST
        ]
        self._last = _Columns(last, schema)
        if last:
            self.aggregations["last"] = {"top_hits": _ask_newest(self._last, schema)}
        self._places = [self._aggregate(aggregate) for aggregate in compute]
        """The aggregation of each value, and which of its members is the value."""

    def _aggregate(self, aggregate: Aggregate) -> tuple[str, str]:
        if aggregate.column is None or aggregate.function is Function.LAST:
            return "", ""
        if aggregate.function.percent is not None:
            percents = sorted(
                {
                    p
                    for a in self._compute
                    if a.column == aggregate.column and (p := a.function.percent)
                }
            )
            asked = {"field": aggregate.column, "percents": percents, "keyed": False}
            place = percents.index(aggregate.function.percent)
            return self._name({"percentiles": asked}), str(place)
        # Everything computed from the column.
        together = {
            other.function
            for other in self._compute
            if other.column == aggregate.column and other.function.percent is None
        } - {Function.LAST}
        # One pass for all statistics of a column. Minimum and maximum alone can take a short cut. A sum needs
        # the number of its values: the sum of none is 0.
        if Function.SUM in together or (Function.AVG in together and len(together) > 1):
            return self._name({"stats": {"field": aggregate.column}}), aggregate.function.value
        return self._name({aggregate.function.value: {"field": aggregate.column}}), "value"

    def _name(self, aggregation: Question) -> str:
        """The name of an aggregation; equal ones are requested once."""
        for name, earlier in self.aggregations.items():
            if earlier == aggregation:
                return name
        name = f"c{len(self.aggregations)}"
        self.aggregations[name] = aggregation
        return name

    def read(self, bucket: Bucket) -> Row:
        """The values of a group, in the order of the requests."""
        hits = bucket["last"]["hits"]["hits"] if "last" in self.aggregations else []
        last = iter(self._last.read(hits[0]) if hits else ())
        values: list[Any] = []
        for aggregate, (name, member) in zip(self._compute, self._places, strict=True):
            if aggregate.column is None:
                values.append(bucket["doc_count"])
            elif aggregate.function is Function.LAST:
                values.append(next(last, None))
            elif aggregate.function.percent is not None:
                values.append(bucket[name]["values"][int(member)]["value"])
            else:
                statistics = bucket[name]
                values.append(None if statistics.get("count") == 0 else statistics[member])
        return tuple(values)

    def read_all(self, answer: Any) -> Row:
        """The values over all selected events."""
        bucket = dict(answer.get("aggregations", {}))
        if self.counts:
            bucket["doc_count"] = answer["hits"]["total"]["value"]
        return self.read(bucket)

    def order_terms(self, query: Query, shards: int | None) -> list[Question] | None:
        """How to let the server find the first few groups; None if it couldn't do so exactly."""
        order = query.order
        if order is None or query.limit is None or query.limit > PAGE or len(query.per) > 1:
            return None
        if isinstance(query.per[0], Every) or self._schema.column(query.per[0]).nullable:
            return None
        direction = "desc" if order.descending else "asc"
        if order.by == 0:
            return [{"_key": direction}]
        aggregate = self._compute[order.by - 1]
        if shards != 1 or aggregate.function is Function.LAST or aggregate.function.percent:
            return None
        if aggregate.column is None:
            return [{"_count": direction}, {"_key": "asc"}]
        # Of no values, the maximum and the like are some number, which would not come last.
        if (
            aggregate.function is not Function.AVG
            and self._schema.column(aggregate.column).nullable
        ):
            return None
        path = ".".join(self._places[order.by - 1])
        return [{path: direction}, {"_key": "asc"}]


# --- groups ---------------------------------------------------------------------------------------


def _group_by(part: str | Every, schema: Schema) -> Question:
    if isinstance(part, Every):
        return {"date_histogram": {"field": schema.time, "fixed_interval": f"{part.every}ms"}}
    terms: Question = {"field": find_field(schema, part)}
    if schema.column(part).nullable:
        terms["missing_bucket"] = True
    return {"terms": terms}


def _nest(
    query: Query,
    sizes: Sequence[int],
    schema: Schema,
    computed: _Computed,
    order: Sequence[Question] = (),
) -> Question:
    """Groups within groups, of at most these sizes, that contain the computed values."""
    aggregations = computed.aggregations
    for part, size in zip(reversed(query.per), reversed(sizes), strict=True):
        [(kind, grouping)] = _group_by(part, schema).items()
        grouping |= {"min_doc_count": 1} if isinstance(part, Every) else {"size": size}
        grouping |= {"order": order} if order else {}
        aggregations = {GROUPS: {kind: grouping, "aggs": aggregations}}
    return aggregations


def _unnest(answer: Bucket, key: Row, depth: int, computed: _Computed) -> Iterator[Row]:
    """The rows from the groups of `_nest`."""
    if not depth:
        yield (*key, *computed.read(answer))
        return
    for bucket in answer[GROUPS]["buckets"]:
        yield from _unnest(bucket, (*key, bucket["key"]), depth - 1, computed)
