"""Described queries in CQL: each is several executions of a statement, whose results are combined.

CQL queries one partition (a device) or a range of the token ring, so such statements are sent concurrently,
as an application would. Events, and the newest ones, are taken as they come (`Selection`). For all else the
client does part of the work (`Plan`), which counts in the query's time, since CQL can't do it: groups other
than a device's, means, order and limit over partitions, and querying in smaller parts what took too long.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import chain, pairwise
from typing import Any, NamedTuple

from ...encoding.columns import quote_name
from ...errors import Retryable
from ...workloads.drawing import BoundQuery
from ...workloads.queries import Aggregate, Function, Parameter, Where, parse_statement
from ...workloads.queries import Query as Description
from ...workloads.schema import ColumnType, Schema
from ..kit import series
from ..kit.series import Row, put_in_order
from ..own_statements import write_constants
from ..sending import carry_out
from .encoding import CassandraOptions, Flavor

_SHOWN = 2
"""The number of rows of parameters to show."""


class Statement(NamedTuple):
    """A statement to be prepared."""

    text: str
    kinds: tuple[ColumnType, ...]


class Selection(NamedTuple):
    """A statement with several rows of parameters: a query whose answer is their results, or a plan's next
    step, then with one row at least."""

    statement: Statement
    parameters: Sequence[Row]
    may_be_late: bool = False
    """Whether a plan can continue when the server times out; otherwise that is an error."""

    def describe(self) -> str:
        """The statement with the first rows of its parameters, for people to read."""
        shown = [f"  with {', '.join(map(repr, values))}" for values in self.parameters[:_SHOWN]]
        if len(self.parameters) > _SHOWN:
            shown.append(f"  and so on, {len(self.parameters)} times in all, several at once")
        return "\n".join([self.statement.text, *shown])


@dataclass(frozen=True)
class Plan:
    """A query in which the client does part of the work: see `CassandraQueries.begin`."""

    bound: BoundQuery
    table: str


Parts = Sequence[list[Row] | None]
"""The rows of a statement for each row of parameters; None: the server timed out."""
Steps = Generator[Selection, Parts, list[Row]]
"""Yields statements, and returns the rows of an answer."""


def ask(
    statement: Statement, parameters: Sequence[Row]
) -> Generator[Selection, Parts, list[list[Row]]]:
    """The rows of a statement for each of `parameters`."""
    if not parameters:
        return []
    answers = yield Selection(statement, parameters)
    return [rows for rows in answers if rows is not None]


def describe_steps(steps: Steps) -> str:
    """The statements of a plan as long as the server doesn't time out, for people to read."""
    lines: list[str] = []

    def answer(step: Selection) -> Parts:
        lines.append(step.describe())
        answers: list[list[Row]] = [[] for _ in step.parameters]
        if step.statement.text.startswith("SELECT DISTINCT "):
            answers[0].append(("<each device>",))
        return answers

    carry_out(steps, answer)
    return "\n".join([*lines, "the client combines the results"])


_SLICES = 16
"""The slices into which a partition's time is cut if the server times out on all of it."""
BUCKETS_SINCE = (4, 1)
"""The first version of Cassandra that can group by buckets of time."""

# Computed times come as datetimes without a time zone, in UTC.
_EPOCH, _MILLISECOND = datetime(1970, 1, 1), timedelta(milliseconds=1)  # noqa: DTZ001

# CQL's sum has the type of its column, so it would lose digits or overflow.
_WIDER = {
    ColumnType.INT32: "bigint",
    ColumnType.INT64: "varint",
    ColumnType.FLOAT32: "double",
    ColumnType.FLOAT64: "double",
}
_BITS = {ColumnType.INT32: 31, ColumnType.INT64: 63}

_FIRST_TOKEN, _TOKENS = -(2**63), 2**64
_TOKEN_KINDS = (ColumnType.INT64, ColumnType.INT64)

Slice = tuple[str, int, int]
"""A device, and the first and last time to query."""


def read_column(name: str, schema: Schema) -> str:
    """How to select a column of an event: times in ms since 1970, a document by the device in it."""
    if name == schema.device:
        return quote_name(schema.device_path or name)
    if schema.column(name).type is ColumnType.TIMESTAMP_MS:
        return f"tounixtimestamp({quote_name(name)})"
    return quote_name(name)


def compare(where: Where, schema: Schema) -> tuple[str, float]:
    """Operator and limit of a condition, with the limit in the column's own type."""
    sign, limit = series.compare(where, schema)
    bits = _BITS.get(schema.column(where.column).type)
    if bits is None:
        return sign, limit
    least, most = -(2**bits), 2**bits - 1
    # What all numbers of the type meet, and what none does.
    if limit < least:
        return ">=" if sign == ">" else "<", least
    if limit > most:
        return ">" if sign == ">" else "<=", most
    return sign, limit


class Computation(series.Partials):
    """A bound query with computed values."""

    COUNTS_SUMS = True

    def __init__(self, bound: BoundQuery, schema: Schema, is_ycql: bool) -> None:
        self.bound = bound
        self._is_ycql = is_ycql
        super().__init__(bound.query, schema)
        self.by_device = bool(bound.query.per)
        """Whether each part must be of one device: tags follow from it, and CQL groups by it first."""

    def number(self, column: str | None) -> str:
        if column is None or not self._schema.column(column).nullable:
            return "count(*)"
        return self.count(column)

    def count(self, column: str) -> str:
        return f"count({quote_name(column)})"

    def sum(self, column: str) -> str:
        if self._is_ycql:
            return f"sum({quote_name(column)})"
        return f"sum(CAST({quote_name(column)} AS {_WIDER[self._schema.column(column).type]}))"

    def extreme(self, function: Function, column: str) -> str:
        return f"{function}({quote_name(column)})"

    def last(self, column: str) -> str:
        return read_column(column, self._schema)

    def last_time(self, column: str) -> str:
        return read_column(self._schema.time, self._schema)

    def read(self, value: Any) -> Any:
        return (value - _EPOCH) // _MILLISECOND if isinstance(value, datetime) else value

    def bucket_of(self, time_ms: int) -> int:
        """The start of the bucket that contains a time."""
        return time_ms - time_ms % self.every_ms


@dataclass(frozen=True)
class _Source:
    """The events that a statement queries."""

    table: str
    one_device: bool
    """Whether it queries one device; otherwise a range of tokens."""
    in_time: bool
    """Whether it queries a span of time."""
    bound: BoundQuery
    """It may have a condition on a value."""


class CassandraQueries:
    """A schema's queries, and its count of events."""

    def __init__(
        self, options: CassandraOptions, schema: Schema, release: Callable[[], tuple[int, int]]
    ) -> None:
        """`release`: the servers' version, as (5, 0); Retryable if no node answers."""
        self._options = options
        self._schema = schema
        self._release = release
        self._is_ycql = options.flavor is Flavor.YCQL
        self._ring = cut_ring(options.scan_ranges)
        self._device = quote_name(schema.device_path or schema.device)
        self._time = quote_name(schema.time)
        self._late: set[Statement] = set()
        """Statements on which the server timed out."""

    def compile(self, bound: BoundQuery) -> Selection | Plan:
        """The bound query in the form to send."""
        query = bound.query
        lists_devices = query.newest and bound.devices is None and self._is_ycql
        if query.compute or query.order or lists_devices:
            return Plan(bound, self._schema.table)
        source, statement = self._select_events(bound)
        return Selection(statement, self._list_asked(source, bound.devices))

    def take_statement(self, text: str, bound: BoundQuery) -> Selection:
        """The workload's own statement, with the values for its markers."""
        table = self._options.name_table(self._schema.table)
        constants = write_constants(bound.query, self._schema, lambda value, _: f"{value:g}", table)
        times: dict[str, int | None] = {
            Parameter.START: bound.start_ms,
            Parameter.END: bound.end_ms,
        }
        parsed, kinds, values = parse_statement(text), list[ColumnType](), list[Any]()
        marked = [parsed.parts[0]]
        for name, part in zip(parsed.names, parsed.parts[1:], strict=True):
            if name in constants:
                marked += [constants[name], part]
                continue
            own = [times[name]] if name in times else list(bound.devices or ())
            kinds += [ColumnType.TIMESTAMP_MS if name in times else ColumnType.TEXT] * len(own)
            values += own
            marked += [", ".join("?" * len(own)), part]
        return Selection(Statement("".join(marked), tuple(kinds)), [tuple(values)])

    def count(self, table: str) -> Plan:
        """The plan that counts the events in a table: one row with one value."""
        query = Description(name="count", compute=(Aggregate(function=Function.COUNT),))
        return Plan(BoundQuery(query), table)

    def begin(self, plan: Plan) -> Steps:
        """The statements of a plan, and what it makes of the answers. Raises Retryable if the server times
        out on a single event."""
        bound = plan.bound
        if bound.query.compute:
            computation = Computation(bound, self._schema, self._is_ycql)
            parts = yield from self._ask_parts(computation, plan.table)
            return put_in_order(bound.query, computation.put_together(parts))
        devices: Sequence[str] | None = bound.devices
        if devices is None and self._count_first(bound) and self._is_ycql:
            devices = yield from self._list_devices(self._schema.table, self._ring)
        source, statement = self._select_events(bound, devices)
        answers = yield from ask(statement, self._list_asked(source, devices))
        return put_in_order(bound.query, chain.from_iterable(answers))

    # --- events -----------------------------------------------------------------------------------

    def _select_events(
        self, bound: BoundQuery, devices: Sequence[str] | None = None
    ) -> tuple[_Source, Statement]:
        """The statement for events' columns, of these devices or the bound ones, and the events that it
        queries."""
        query = bound.query
        one_device = bound.devices is not None or devices is not None
        source = _Source(self._schema.table, one_device, bound.start_ms is not None, bound)
        names = (self._schema.device, *query.events) if query.newest else query.events
        columns = ", ".join(read_column(name, self._schema) for name in names)
        first = self._count_first(bound)
        limit = f" LIMIT {first}" if first else ""
        if limit and not one_device:
            limit = " PER PARTITION" + limit
        return source, self._select(columns, source, limit)

    def _count_first(self, bound: BoundQuery) -> int | None:
        """How many newest events of each device suffice for the answer; None: there is no such number."""
        query, order = bound.query, bound.query.order
        if query.newest:
            return 1
        if order and order.descending and query.events[order.by] == self._schema.time:
            # Partitions are in this order, so no more are needed.
            return query.limit
        return None

    # --- computed values --------------------------------------------------------------------------

    def _ask_parts(self, computation: Computation, table: str) -> Steps:
        """The computed values of parts of the events: of ranges of tokens; of each device, if that times out
        or the server doesn't group; of slices of a device's time, if that times out, too."""
        rows: list[Row] = []
        devices: Sequence[str] | None = computation.bound.devices
        if devices is None:
            late: list[Row] = list(self._ring)
            if self._groups(computation) or not computation.by_device:
                late = yield from self._ask_whole(computation, table, None, rows)
            devices = (
                (yield from self._list_devices(table, [part[:2] for part in late])) if late else ()
            )
        if self._groups(computation) or not computation.every_ms:
            late = yield from self._ask_whole(computation, table, devices, rows)
            devices = [part[0] for part in late]
        slices = yield from self._cut(computation, table, devices)
        return rows + (yield from self._ask_slices(computation, table, slices))

    def _ask_whole(
        self, computation: Computation, table: str, devices: Sequence[str] | None, rows: list[Row]
    ) -> Steps:
        """Add to `rows` the computed values of each device, or range of tokens, over the whole time. Returns
        those on which the server timed out."""
        source = _Source(
            table, devices is not None, computation.bound.start_ms is not None, computation.bound
        )
        parameters = self._list_asked(source, devices)
        statement = self._select(", ".join(computation.computed), source)
        if statement in self._late:
            return parameters
        answers = yield from self._ask_groups(computation, source, parameters)
        rows += [row for answer in answers for row in answer or ()]
        late = [part for part, answer in zip(parameters, answers, strict=True) if answer is None]
        if late:
            self._late.add(statement)
        return late

    def _groups(self, computation: Computation) -> bool:
        """Whether the server groups as the query needs."""
        if self._is_ycql:
            return False
        return not computation.every_ms or self._release() >= BUCKETS_SINCE

    def _ask_groups(
        self, computation: Computation, source: _Source, parameters: Sequence[Row]
    ) -> Generator[Selection, Parts, list[list[Row] | None]]:
        """Device, bucket of time (None: not told apart) and computed values for each of `parameters`; None
        where the server timed out."""
        if not parameters:
            return []
        grouping = self._groups(computation)
        keys: list[str] = []
        if grouping and computation.by_device and (computation.every_ms or not source.one_device):
            keys.append(self._device)
        if grouping and computation.every_ms:
            keys.append(f"floor({self._time}, {computation.every_ms}ms)")
        columns = [*keys[:1], *(f"tounixtimestamp({key})" for key in keys[1:])]
        group = f" GROUP BY {', '.join(keys)}" if keys else ""
        newest: list[list[Row]] = [[()]] * len(parameters)
        if computation.newest and self._is_ycql:
            # CQL either computes over many rows or selects them, but not both in one statement.
            statement = self._select(", ".join(computation.newest), source, " LIMIT 1")
            nothing = (None,) * len(computation.newest)
            newest = [rows or [nothing] for rows in (yield from ask(statement, parameters))]
        else:
            columns += computation.newest
        statement = self._select(", ".join([*columns, *computation.computed]), source, group)
        answers = yield Selection(statement, parameters, may_be_late=True)
        results: list[list[Row] | None] = []
        for values, [last], rows in zip(parameters, newest, answers, strict=True):
            if rows is None or len(keys) == 2:
                results.append(rows)
            elif keys:
                results.append([(row[0], None, *row[1:]) for row in rows])
            else:
                device = values[0] if source.one_device else None
                bucket = computation.bucket_of(values[1]) if computation.every_ms else None
                results.append([(device, bucket, *last, *row) for row in rows])
        return results

    def _ask_slices(self, computation: Computation, table: str, slices: list[Slice]) -> Steps:
        """As `_ask_groups`, for all slices; those that time out are queried in halves."""
        source = _Source(table, True, True, computation.bound)
        rows: list[Row] = []
        while slices:
            late: list[Slice] = []
            parameters = [(*part, *self._list_limits(computation.bound)) for part in slices]
            answers = yield from self._ask_groups(computation, source, parameters)
            for part, answer in zip(slices, answers, strict=True):
                if answer is not None:
                    rows += answer
                    continue
                device, begin, end = part
                if begin == end:
                    raise Retryable("read_timeout", f"{table}: too slow to be read")
                late += [(device, *half) for half in cut_time(begin, end, 2)]
            slices = late
        return rows

    def _cut(
        self, computation: Computation, table: str, devices: Sequence[str]
    ) -> Generator[Selection, Parts, list[Slice]]:
        """Slices of the devices' queried time (all of it if there is no window), each within one bucket of
        time unless the server groups."""
        bound = computation.bound
        if bound.start_ms is not None and bound.end_ms is not None:
            spans = [(device, bound.start_ms, bound.end_ms - 1) for device in devices]
        else:
            ends = []
            for order in ("ASC", "DESC"):
                text = (
                    f"SELECT tounixtimestamp({self._time}) FROM {self._options.name_table(table)}"
                    f" WHERE {self._device} = ? ORDER BY {self._time} {order} LIMIT 1"
                )
                statement = Statement(text, (ColumnType.TEXT,))
                ends.append((yield from ask(statement, [(device,) for device in devices])))
            spans = [
                (device, first[0][0], last[0][0])
                for device, first, last in zip(devices, *ends, strict=True)
                if first and last
            ]
        slices: list[Slice] = []
        for device, first, last in spans:
            parts = (
                cut_buckets(first, last, computation.every_ms)
                if computation.every_ms and not self._groups(computation)
                else cut_time(first, last, _SLICES)
            )
            slices += [(device, *part) for part in parts]
        return slices

    def _list_devices(
        self, table: str, ranges: Sequence[Row]
    ) -> Generator[Selection, Parts, list[str]]:
        text = (
            f"SELECT DISTINCT {self._device} FROM {self._options.name_table(table)}"
            f" WHERE token({self._device}) >= ? AND token({self._device}) <= ?"
        )
        answers = yield from ask(Statement(text, _TOKEN_KINDS), ranges)
        return [device for rows in answers for (device,) in rows]

    # --- statements -------------------------------------------------------------------------------

    def _select(self, columns: str, source: _Source, rest: str = "") -> Statement:
        """The statement; it takes the parameters of `_list_asked`."""
        token = f"token({self._device})"
        conditions = [
            f"{self._device} = ?" if source.one_device else f"{token} >= ? AND {token} <= ?"
        ]
        kinds = [ColumnType.TEXT] if source.one_device else [*_TOKEN_KINDS]
        if source.in_time:
            conditions.append(f"{self._time} >= ? AND {self._time} <= ?")
            kinds += [ColumnType.TIMESTAMP_MS] * 2
        if where := source.bound.query.where:
            count = len(where.texts)
            marks = f"IN ({', '.join('?' * count)})" if count > 1 else "= ?"
            comparison = marks if count else f"{compare(where, self._schema)[0]} ?"
            conditions.append(f"{quote_name(where.column)} {comparison}")
            kinds += [self._schema.column(where.column).type] * (count or 1)
        # CQL wants a confirmation to read more rows than it returns.
        filters = where is not None or (source.in_time and not source.one_device)
        filtering = " ALLOW FILTERING" if filters else ""
        text = (
            f"SELECT {columns} FROM {self._options.name_table(source.table)}"
            f" WHERE {' AND '.join(conditions)}{rest}{filtering}"
        )
        return Statement(text, tuple(kinds))

    def _list_asked(self, source: _Source, devices: Sequence[str] | None) -> list[Row]:
        """The parameters: devices or ranges of tokens, each with the window and the value's limit."""
        bound = source.bound
        window: Row = ()
        if bound.start_ms is not None and bound.end_ms is not None:
            window = (bound.start_ms, bound.end_ms - 1)
        parts = self._ring if devices is None else [(device,) for device in devices]
        return [(*part, *window, *self._list_limits(bound)) for part in parts]

    def _list_limits(self, bound: BoundQuery) -> Row:
        where = bound.query.where
        return (where.texts or (compare(where, self._schema)[1],)) if where else ()


def cut_ring(count: int) -> list[tuple[int, int]]:
    """The token ring in `count` parts: first and last token of each."""
    begins = [_FIRST_TOKEN + part * _TOKENS // count for part in range(count + 1)]
    return [(begin, after - 1) for begin, after in pairwise(begins)]


def cut_time(first: int, last: int, count: int) -> list[tuple[int, int]]:
    """The times from `first` to `last` in `count` parts, or fewer if there are fewer times: ends of each."""
    count = min(count, last - first + 1)
    begins = [first + part * (last - first + 1) // count for part in range(count + 1)]
    return [(begin, after - 1) for begin, after in pairwise(begins)]


def cut_buckets(first: int, last: int, every_ms: int) -> list[tuple[int, int]]:
    """The times from `first` to `last`, cut at the bounds of buckets of time: ends of each part."""
    begins = range(first - first % every_ms, last + 1, every_ms)
    return [(max(first, begin), min(last, begin + every_ms - 1)) for begin in begins]
