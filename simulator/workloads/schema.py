"""The structure of a workload's events: columns and their meaning, tags, and blocks of events by column, as
generated and encoded.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import lru_cache
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from ..documents import Problem
from ..errors import OptionError, did_you_mean, list_names
from .queries import Aggregate, Every, Function, Query, Shape, find_problems

ID = "tags_id"
"""The column with the id, in both tables."""


class Tags(StrEnum):
    """Where a device's name and tags are stored."""

    ROW = "row"
    """In the row of each event."""
    TABLE = "table"
    """Once per device, in a separate table."""


# 2024-01-01T00:00:00Z. Fixed, so that a run can be repeated to the byte on another day.
FIRST_TIMESTAMP_MS = 1_704_067_200_000


class ColumnType(StrEnum):
    """Type of a column; each module maps it to one of its database's types."""

    TIMESTAMP_MS = "timestamp_ms"
    """Milliseconds since 1970-01-01 UTC, in an int64 array."""
    INT64 = "int64"
    INT32 = "int32"
    FLOAT32 = "float32"
    FLOAT64 = "float64"
    BOOL = "bool"
    TEXT = "text"
    """UTF-8 in a bytes array (numpy `S`): no NUL characters."""
    JSON = "json"
    """A JSON document, as `TEXT`."""


FLOATS = (ColumnType.FLOAT32, ColumnType.FLOAT64)
_TEXTS = (ColumnType.TEXT, ColumnType.JSON)
NUMBERS = (ColumnType.INT64, ColumnType.INT32, *FLOATS)
"""Types of numbers that can be measured and computed with."""


@dataclass(frozen=True)
class Column:
    """One column. `decimals` (FLOAT32 and FLOAT64 only) is the number of decimals sent to every database, so
    that all get payloads of equal precision."""

    name: str
    type: ColumnType
    decimals: int | None = None
    nullable: bool = False
    """Whether some events have no value: see `EventBlock.missing`. Never for the key, the time or the
    device."""
    tag: bool = False
    """Whether it describes the device and depends only on its name."""
    texts: tuple[str, ...] = ()
    """The possible texts of a TEXT or JSON column, as far as known."""
    least: float | None = None
    """Its lowest possible number, if known."""
    most: float | None = None
    """The highest one."""
    not_finite: int = 0
    """How many of its values are NaN or infinite."""
    source: str = ""
    """Its name in the recording; empty: it isn't recorded."""
    path: tuple[str, ...] = ()
    """Where in the documents of a JSON column the values are; its `texts` are these documents."""

    @property
    def stored_as(self) -> str:
        """The name of the column of a table that it is, or is in."""
        return self.name[: -sum(len(step) + 1 for step in self.path)] if self.path else self.name

    @property
    def is_number(self) -> bool:
        """Whether it can be measured and computed with."""
        return self.type in NUMBERS


@dataclass(frozen=True)
class Schema:
    """Columns of a workload's table and what they mean. `time` is the column of the event time, `device` the
    one that names the device (with `device_path`, the device is that key of the JSON column), and `key` names
    the columns that together identify an event (the natural key; with `device_path` the device counts, not
    the whole document)."""

    table: str
    columns: tuple[Column, ...]
    time: str
    device: str
    key: tuple[str, ...]
    device_path: str | None = None
    queries: tuple[str, ...] = ()
    """Names of the default queries."""
    descriptions: tuple[Query, ...] = ()
    """All possible queries, including those that every workload with numbers has."""
    devices_per_worker: int = 1
    epoch_ms: int = FIRST_TIMESTAMP_MS
    """The first timestamp."""
    json_keys: int = 0
    """How many members its JSON column has, if known."""
    tags: Tags = Tags.ROW
    """Where the device's name and the tags are stored."""
    tags_of: str | None = None
    """The table after which the tags' table is named; None: `table`."""
    given_indexes: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Name and columns of each index, if they don't follow from the queries."""
    repeated_instants: int = 0
    """Recorded events that repeat a device and time."""
    statements: Mapping[str, tuple[str, ...]] = field(default_factory=dict, hash=False)
    """Module -> the workload's own statements that make the tables."""

    def column(self, name: str) -> Column:
        """The column of that name, or the values at that path, as in `payload.a.b`. KeyError if there is
        none."""
        for column in self.columns:
            if column.name == name:
                return column
        document, *path = name.split(".")
        for column in self.columns:
            if path and column.name == document and column.type is ColumnType.JSON:
                return find_in_documents(column, tuple(path))
        raise KeyError(name)

    def list_paths(self, document: str) -> list[Column]:
        """The paths that queries use in the documents of a column."""
        names = [name for query in self.descriptions for name in query.columns if "." in name]
        columns = map(self.column, dict.fromkeys(names))
        return [column for column in columns if column.path and column.stored_as == document]

    def is_apart(self, name: str) -> bool:
        """Whether a column is stored in the tags' table: the device's, or a tag."""
        return self._is_apart(self.column(name))

    def _is_apart(self, column: Column) -> bool:
        return self.tags is Tags.TABLE and (column.tag or column.name == self.device)

    @property
    def tags_table(self) -> str:
        """The tags' table, if they have one."""
        return f"{self.tags_of or self.table}_tags"

    @property
    def row(self) -> tuple[Column, ...]:
        """The columns of an event's row; with a tags' table, the id instead of the device."""
        return tuple(
            Column(ID, ColumnType.INT64) if self._is_apart(column) else column
            for column in self.columns
            if column.name == self.device or not self._is_apart(column)
        )

    @property
    def tags_row(self) -> tuple[Column, ...]:
        """The columns of a device's row in the tags' table."""
        return (Column(ID, ColumnType.INT64), *filter(self._is_apart, self.columns))

    @property
    def row_key(self) -> tuple[str, ...]:
        """The columns of `row` that together identify an event."""
        return tuple(ID if self.is_apart(name) else name for name in self.key)

    @property
    def indexes(self) -> dict[str, tuple[str, ...]]:
        """Name -> columns of each index that the events' table has with `create_indices`: on device and time,
        which identify events, and on the columns that the workload's own queries filter by (if it has none,
        the queries that all workloads have). A query uses one index: on device and time if it covers some
        devices, on time if it has a window, otherwise on the column of its condition, unless that only
        excludes texts."""
        if self.given_indexes:
            indexes = dict(self.given_indexes)
        else:
            indexes = {"device_ts": (self.device, self.time)}
            for query in self.descriptions:
                by_device = query.devices != "all" or query.newest
                if by_device or (self.queries and query.name not in self.queries):
                    continue
                if query.window is not None:
                    indexes[f"by_{self.time}"] = (self.time,)
                elif (where := query.where) and not (where.none_of or self.is_apart(where.column)):
                    indexes[f"by_{where.column}"] = (where.column,)
        return {
            name: tuple(ID if self.is_apart(column) else column for column in columns)
            for name, columns in indexes.items()
        }

    def description(self, name: str) -> Query | None:
        """The query of that name, or None."""
        return next((query for query in self.descriptions if query.name == name), None)

    @property
    def fields(self) -> list[str]:
        """The columns of measured numbers, in order."""
        return [
            column.name
            for column in self.columns
            if column.is_number and not column.tag and column.name not in self.key
        ]

    @property
    def metrics(self) -> int:
        """The number of measured values per event."""
        return len(self.fields)

    @property
    def sequence(self) -> str | None:
        """The key's INT64 column, which numbers a worker's events, or None."""
        return next((name for name in self.key if self.column(name).type is ColumnType.INT64), None)

    # --- which queries are possible -------------------------------------------------------------

    def has_one_device_per_row(self, query: Query) -> bool:
        """Whether each row of a query's answer is computed from one device's events."""
        is_named = isinstance(query.devices, tuple) and len(query.devices) == 1
        return self.device in query.per or query.devices == 1 or is_named

    def orders_texts(self, query: Query) -> bool:
        """Whether the rows of a query's answer are sorted by a text."""
        if query.order is None:
            return False
        device = (self.device,) if query.newest else ()
        value = (*query.per, *device, *query.compute, *query.events)[query.order.by]
        return isinstance(value, str) and self.column(value).type in _TEXTS

    def shapes_of(self, query: Query) -> frozenset[Shape]:
        """The shapes of a query."""
        where = query.where
        ranked = [self.column(name).least for name in query.ranked]
        alone = self.has_one_device_per_row(query)
        groups = [p for p in query.per if isinstance(p, str) and p != self.device]
        tags = [self.column(name).tag for name in groups]
        shapes = {
            Shape.DEVICES: query.devices != "all",
            Shape.WINDOW: query.window is not None or query.instant,
            Shape.WHERE: where is not None and not where.texts,
            Shape.WHERE_TEXT: where is not None and where.one_of is not None,
            Shape.WHERE_NOT: where is not None and where.none_of is not None,
            Shape.PATH: any(self.column(name).path for name in query.columns),
            Shape.COMPUTE: bool(query.compute),
            Shape.LAST: any(aggregate.function is Function.LAST for aggregate in query.compute),
            Shape.PERCENTILE: bool(ranked) and alone,
            Shape.PERCENTILE_OF_ALL: bool(ranked) and not alone,
            Shape.PERCENTILE_BELOW_0: any(least is not None and least < 0 for least in ranked),
            Shape.EVENTS: bool(query.events) and not query.newest,
            Shape.PER_DEVICE: self.device in query.per,
            Shape.PER_TAG: any(tags),
            Shape.PER_TEXT: not all(tags),
            Shape.PER_TIME: any(isinstance(part, Every) for part in query.per),
            Shape.NEWEST: query.newest,
            Shape.ORDER: query.order is not None,
        }
        return frozenset(shape for shape, applies in shapes.items() if applies)

    def check_query(self, query: Query) -> None:
        """OptionError, with the problems, if a query can't be run on such events."""
        for way, problem in self.find_query_problems(query):
            raise OptionError(f"query {query.name}: {way[0]}: {problem}")

    def find_query_problems(self, query: Query) -> Iterator[Problem]:
        """All reasons why a query can't be run on such events."""
        if query.where and query.where.texts:
            yield from self._require_text(query.where.column, "where", "column")
        elif query.where:
            yield from self._require_number(query.where.column, "where", "column")
        yield from self._find_newest_problems(query)
        alone = self.has_one_device_per_row(query)
        for number, aggregate in enumerate(query.compute):
            yield from self._check_aggregate(aggregate, alone, "compute", number)
        for number, name in enumerate(query.events):
            column = yield from self._require_column(name, "events", number)
            if column is None or name == self.device:
                continue
            if column.path:
                yield ("events", number), "a path into documents is for where, compute and per"
            elif column.type is ColumnType.JSON:
                yield ("events", number), f"{name} is a document, not a value"
        for number, part in enumerate(query.per):
            if isinstance(part, Every) or part == self.device:
                continue
            column = yield from self._require_column(part, "per", number)
            if column and not column.tag and column.type is not ColumnType.TEXT:
                problem = f"{part} is neither the device ({self.device}), nor a tag, nor a text"
                yield ("per", number), problem
        for module, text in query.statement.items():
            for problem in find_problems(text, query.parameters):
                yield ("statement", module), problem

    def _find_newest_problems(self, query: Query) -> Iterator[Problem]:
        asks_last = any(aggregate.function is Function.LAST for aggregate in query.compute)
        if self.repeated_instants and (query.newest or asks_last):
            problem = "a device may have several events at its newest time, of which any is right"
            yield ("newest" if query.newest else "compute",), problem

    def _check_aggregate(
        self, aggregate: Aggregate, alone: bool, *way: str | int
    ) -> Iterator[Problem]:
        """`alone`: each row is computed from one device."""
        name, function = aggregate.column, aggregate.function
        if name is None or (name == self.time and function in (Function.MIN, Function.MAX)):
            return
        if function is Function.COUNT:
            yield way, "count has no column"
            return
        for further, problem in self._require_number(name, *way, "column"):
            yield further, f"{function}: {problem}"
        if function is Function.LAST and not alone:
            problem = (
                f"last needs per: [{self.device}] or devices: 1, since several devices may have"
                " an event at the newest time"
            )
            yield way, problem

    def _require_number(self, name: str, *way: str | int) -> Iterator[Problem]:
        column = yield from self._require_column(name, *way)
        if column and not column.is_number:
            yield way, f"{name} is of type {column.type}, not a number"
        elif column and column.not_finite:
            problem = (
                f"{name} has NaN or infinite numbers, with which databases compute differently"
            )
            yield way, problem

    def _require_text(self, name: str, *way: str | int) -> Iterator[Problem]:
        column = yield from self._require_column(name, *way)
        if name == self.device:
            yield way, f"{name} is the device: name devices by the query's key `devices`"
        elif column and column.type is not ColumnType.TEXT:
            remedy = "use above or below" if column.is_number else "is and is_not are for texts"
            yield way, f"{name} is of type {column.type}, not a text: {remedy}"

    def _require_column(
        self, name: str, *way: str | int
    ) -> Generator[Problem, None, Column | None]:
        try:
            return self.column(name)
        except PathError as error:
            yield way, str(error)
        except KeyError:
            names = [column.name for column in self.columns]
            hint = f"{did_you_mean(name, names)} (known: {list_names(names)})"
            yield way, f"there is no column {name!r}{hint}"
        return None


# --- values in documents --------------------------------------------------------------------------


class PathError(ValueError):
    """There are no values at a path into documents. The message says why."""


@lru_cache(maxsize=256)
def read_path(documents: Sequence[str], path: Sequence[str]) -> tuple[Any, ...]:
    """The value at a path in each of these documents; None: there is none."""
    values = []
    for text in documents:
        value = orjson.loads(text)
        for step in path:
            value = value.get(step) if isinstance(value, dict) else None
        values.append(value)
    return tuple(values)


_EXACT_INTEGERS = 2**53


@lru_cache(maxsize=256)
def find_in_documents(column: Column, path: tuple[str, ...]) -> Column:
    """The values at a path into a JSON column, as a column of whole numbers, floats or texts. PathError if
    there are no such values."""
    name = ".".join([column.name, *path])
    if not column.texts:
        raise PathError(f"the documents of {column.name} aren't known beforehand")
    found = read_path(column.texts, path)
    values = [value for value in found if value is not None]
    kinds = {type(value) for value in values}
    if dict in kinds:
        names = sorted({key for value in values if isinstance(value, dict) for key in value})
        raise PathError(
            f"{name} is a document: continue with one of its members ({list_names(names)})"
        )
    if not values:
        above = read_path(column.texts, path[:-1])
        names = sorted({key for value in above if isinstance(value, dict) for key in value})
        hint = f"{did_you_mean(path[-1], names)} (known: {list_names(names)})" if names else ""
        raise PathError(f"no document of {column.name} has {'.'.join(path)!r}{hint}")
    if kinds == {str}:
        kind = ColumnType.TEXT
    elif kinds == {int} and max(map(abs, values)) <= _EXACT_INTEGERS:
        kind = ColumnType.INT64
    elif kinds <= {int, float}:
        kind = ColumnType.FLOAT64
    else:
        raise PathError(f"{name} is not a number in all documents, nor a text in all")
    nullable = column.nullable or len(values) < len(found)
    least = None if kind is ColumnType.TEXT else min(values)
    return replace(column, name=name, type=kind, nullable=nullable, least=least, path=path)


# --- tags in a table of their own -----------------------------------------------------------------
#
# A device has one row there, with an id that its events' rows hold instead of its name and tags.

DEVICES_APART = 1_000_000
"""The distance between the first ids of two consecutive workers' devices."""

_NAME = re.compile(rb"w\d{5}d\d{6}")
NAME_BYTES = 13
"""The length of devices' names."""
_DIGITS = range(7, 13)
"""The positions of a device's number in its name."""


def number_devices(names: NDArray[np.bytes_]) -> NDArray[np.int64]:
    """The ids of one worker's devices, read from their names: 7,000,042 for w00007d000042. They depend on the
    name alone, so an id needs no look-up and is the same in each run. OptionError for names of another
    form."""
    if not len(names):
        return np.empty(0, dtype=np.int64)
    if names.dtype.itemsize != NAME_BYTES or not _NAME.fullmatch(names[0]):
        raise OptionError(
            f"tags=table needs devices with names such as w00007d000042, not {names[0].decode()!r}"
        )
    octets = np.ascontiguousarray(names).view(np.uint8).reshape(len(names), NAME_BYTES)
    ids = np.zeros(len(names), dtype=np.int64)
    for place in _DIGITS:
        ids *= 10
        ids += octets[:, place]
    # Subtract what each character code exceeds its digit by; add the worker, which all names share.
    ids += int(octets[0, 1:6].tobytes()) * DEVICES_APART - ord("0") * 111_111
    return ids


class LazyColumns(Mapping[str, NDArray[Any]]):
    """Columns of which some are made only on request: tags, if events are sent without them."""

    def __init__(
        self, columns: Mapping[str, NDArray[Any]], makers: Mapping[str, Callable[[], NDArray[Any]]]
    ) -> None:
        self._made = dict(columns)
        self._makers = dict(makers)

    def __getitem__(self, name: str) -> NDArray[Any]:
        if name in self._makers:
            self._made[name] = self._makers.pop(name)()
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter([*self._made, *self._makers])

    def __len__(self) -> int:
        return len(self._made) + len(self._makers)

    def part(self, rows: slice) -> LazyColumns:
        """The same columns for some rows."""

        def take(name: str) -> Callable[[], NDArray[Any]]:
            return lambda: self[name][rows]

        made = {name: values[rows] for name, values in self._made.items()}
        return LazyColumns(made, {name: take(name) for name in self._makers})


# --- blocks of events -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class EventBlock:
    """Consecutive events of one worker: a numpy array per column, all of the same length. `first` is the
    number of the first event, `devices` the device id of each event (bytes array)."""

    schema: Schema
    worker: int
    first: int
    columns: Mapping[str, NDArray[Any]]
    devices: NDArray[np.bytes_]
    missing: Mapping[str, NDArray[np.bool_]] = field(default_factory=dict)
    """Nullable column -> where an event has no value; the column holds some number or text there. A
    nullable column that isn't named has all its values."""
    own_ids: NDArray[np.int64] | None = None
    """The id of each event's device in the tags' table, if it doesn't follow from the device's name."""

    @property
    def device_ids(self) -> NDArray[np.int64]:
        """The id of each event's device in the tags' table."""
        return number_devices(self.devices) if self.own_ids is None else self.own_ids

    def __len__(self) -> int:
        return len(self.devices)

    def part(self, start: int, stop: int, step: int = 1) -> EventBlock:
        """Every `step`-th event of [start, stop), as views. `first` is exact for step 1 only."""
        rows = slice(start, stop, step)
        columns = (
            self.columns.part(rows)
            if isinstance(self.columns, LazyColumns)
            else {name: values[rows] for name, values in self.columns.items()}
        )
        missing = {name: places[rows] for name, places in self.missing.items()}
        first, devices = self.first + start, self.devices[rows]
        own_ids = None if self.own_ids is None else self.own_ids[rows]
        return EventBlock(self.schema, self.worker, first, columns, devices, missing, own_ids)

    def choose(self, rows: NDArray[np.integer[Any]]) -> EventBlock:
        """Only these events, copied, with everything their rows have. `first` is not valid."""
        names = [column.name for column in self.schema.row if column.name != ID]
        columns = {name: self.columns[name][rows] for name in names}
        missing = {name: places[rows] for name, places in self.missing.items()}
        own_ids = None if self.own_ids is None else self.own_ids[rows]
        devices = self.devices[rows]
        return replace(self, columns=columns, devices=devices, missing=missing, own_ids=own_ids)

    @property
    def row_columns(self) -> Mapping[str, NDArray[Any]]:
        """The columns of `Schema.row`."""
        if self.schema.tags is Tags.ROW:
            return self.columns
        names = [column.name for column in self.schema.row if column.name != ID]
        return {ID: self.device_ids, **{name: self.columns[name] for name in names}}

    def key_of(self, row: int) -> dict[str, int | str]:
        """The natural key of one event as Python values, for example to look it up in the database."""
        key: dict[str, int | str] = {}
        for name in self.schema.row_key:
            if name == ID:
                key[name] = int(self.part(row, row + 1).device_ids[0])
                continue
            value = self.devices[row] if name == self.schema.device else self.columns[name][row]
            key[name] = value.decode() if isinstance(value, bytes) else int(value)
        return key


def join_blocks(blocks: Sequence[EventBlock]) -> EventBlock:
    """The events of several blocks of one worker, at least one, joined in order. `first` is exact only if
    their numbers are consecutive."""
    head = blocks[0]
    if len(blocks) == 1:
        return head

    def join(name: str) -> Callable[[], NDArray[Any]]:
        return lambda: np.concatenate([block.columns[name] for block in blocks])

    columns: Mapping[str, NDArray[Any]] = LazyColumns(
        {}, {name: join(name) for name in head.columns}
    )
    if not isinstance(head.columns, LazyColumns):
        columns = dict(columns)
    missing = {
        name: np.concatenate(
            [block.missing.get(name, np.zeros(len(block), dtype=np.bool_)) for block in blocks]
        )
        for name in {name for block in blocks for name in block.missing}
    }
    devices = np.concatenate([block.devices for block in blocks])
    own_ids = None
    if head.own_ids is not None:
        own_ids = np.concatenate([block.device_ids for block in blocks])
    return replace(head, columns=columns, devices=devices, missing=missing, own_ids=own_ids)
