"""What a workload is: a schema and a function from (seed, worker, event number) to events."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import lru_cache
from threading import get_ident
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from ..errors import OptionError
from .common_queries import describe_queries, name_queries
from .queries import Query
from .tags import DEVICES_APART, ID, LazyColumns, Tags, number_devices

# 2024-01-01T00:00:00Z. Fixed, so that a run can be repeated to the byte on another day.
FIRST_TIMESTAMP_MS = 1_704_067_200_000

MAX_DEVICES = DEVICES_APART

SHARING_WORKERS = "sharing_workers"
"""The option of a workload with devices in all that says how many workers share them."""

_DEALT_STEP = 16_384
_DEVICE_ROWS = 10_000


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


NUMBERS = (ColumnType.INT64, ColumnType.INT32, ColumnType.FLOAT32, ColumnType.FLOAT64)
"""Types of numbers that can be measured and computed with."""


@dataclass(frozen=True)
class Column:
    """One column. `decimals` (FLOAT32 and FLOAT64 only) is the number of digits after the point that
    every database is sent, so that no database gets a longer payload than another."""

    name: str
    type: ColumnType
    decimals: int | None = None
    nullable: bool = False
    """Some events have no value: see `EventBlock.missing`. Never of the key, the time or the device."""
    tag: bool = False
    """It describes the device and follows from its name alone."""
    may_be_empty: bool = False
    """It's known that some of its texts are empty."""

    @property
    def is_number(self) -> bool:
        """Whether it can be measured and computed with."""
        return self.type in NUMBERS


@dataclass(frozen=True)
class Schema:
    """Columns of a workload's table and what they mean.

    `time` is the column of the event time, `device` the one that names the device (with
    `device_path`, the device is that key of the JSON column), and `key` names the columns that
    together identify an event (the natural key; with `device_path` the device counts, not the
    whole document).
    """

    table: str
    columns: tuple[Column, ...]
    time: str
    device: str
    key: tuple[str, ...]
    device_path: str | None = None
    queries: tuple[str, ...] = ()
    """Names of what is asked of the stored events unless others are named."""
    descriptions: tuple[Query, ...] = ()
    """All that can be asked, the queries that every workload with numbers has among them."""
    devices_per_worker: int = 1
    epoch_ms: int = FIRST_TIMESTAMP_MS
    """The first timestamp."""
    extra_json_keys: int = 0
    """Members of a JSON column that only the workload's options make."""
    tags: Tags = Tags.ROW
    """Where the device's name and the tags are stored."""

    def column(self, name: str) -> Column:
        """The column of that name; KeyError if there is none."""
        for column in self.columns:
            if column.name == name:
                return column
        raise KeyError(name)

    def is_apart(self, name: str) -> bool:
        """Whether a column is stored in the tags' table: the device's, or a tag."""
        return self._is_apart(self.column(name))

    def _is_apart(self, column: Column) -> bool:
        return self.tags is Tags.TABLE and (column.tag or column.name == self.device)

    @property
    def tags_table(self) -> str:
        """The table of the tags, if they have one of their own."""
        return f"{self.table}_tags"

    @property
    def row(self) -> tuple[Column, ...]:
        """The columns of an event's row: with a tags' table, the id in the device's place."""
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
        """How many measured values an event has."""
        return len(self.fields)

    @property
    def sequence(self) -> str | None:
        """The key's INT64 column, which numbers a worker's events, or None."""
        return next((name for name in self.key if self.column(name).type is ColumnType.INT64), None)


@dataclass(frozen=True, slots=True)
class EventBlock:
    """Consecutive events of one worker: a numpy array per column, all of the same length.

    `first` is the number of the first event, `devices` the device id of each event (bytes array).
    """

    schema: Schema
    worker: int
    first: int
    columns: Mapping[str, NDArray[Any]]
    devices: NDArray[np.bytes_]
    missing: Mapping[str, NDArray[np.bool_]] = field(default_factory=dict)
    """Nullable column -> where an event has no value; the column holds some number or text there. A
    nullable column that isn't named has all its values."""

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
        return EventBlock(self.schema, self.worker, first, columns, devices, missing)

    def choose(self, rows: NDArray[np.integer[Any]]) -> EventBlock:
        """These events alone, copied, with what their rows have. `first` is not theirs."""
        names = [column.name for column in self.schema.row if column.name != ID]
        columns = {name: self.columns[name][rows] for name in names}
        missing = {name: places[rows] for name, places in self.missing.items()}
        return EventBlock(
            self.schema, self.worker, self.first, columns, self.devices[rows], missing
        )

    @property
    def row_columns(self) -> Mapping[str, NDArray[Any]]:
        """The columns of `Schema.row`."""
        if self.schema.tags is Tags.ROW:
            return self.columns
        names = [column.name for column in self.schema.row if column.name != ID]
        return {ID: number_devices(self.devices), **{name: self.columns[name] for name in names}}

    def key_of(self, row: int) -> dict[str, int | str]:
        """The natural key of one event as Python values, e.g. to look it up in the database."""
        key: dict[str, int | str] = {}
        for name in self.schema.row_key:
            if name == ID:
                key[name] = int(number_devices(self.devices[row : row + 1])[0])
                continue
            value = self.devices[row] if name == self.schema.device else self.columns[name][row]
            key[name] = value.decode() if isinstance(value, bytes) else int(value)
        return key


class WorkloadOptions(BaseModel):
    """Options of a workload: keys of a target and of `--extra-option`, as a module's are."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    device_spread: int = Field(
        1, ge=1, le=MAX_DEVICES, description="devices per worker; events are dealt to them in turn"
    )
    tags: Tags = Field(
        Tags.ROW,
        description="where a device's name and tags are stored: row (with each event) or table (once per"
        " device in a table of their own, where the database has joins)",
    )


class Workload(ABC):
    """Generates events: event i of worker w depends on (seed, w, i) alone.

    So the same event comes out in any process and any block size, and a run can be repeated,
    continued and checked. The option `device_spread` is the number of devices per worker; event i
    belongs to device i modulo `device_spread`.
    """

    name: ClassVar[str]
    options_model: ClassVar[type[WorkloadOptions]] = WorkloadOptions
    schema: Schema
    """An instance's own. The class has the one that goes with the default options."""
    queries: ClassVar[tuple[Query, ...]] = ()
    """What is asked of it beside the queries that all workloads have. The schema gets their names."""
    high: ClassVar[tuple[str, float] | None] = None
    """A field and a value that few of its values exceed: what conditions of queries ask for."""
    event_interval_ms: ClassVar[float] = 1000
    """The mean time from one event of a worker to the next, if its devices take turns."""
    disorder: int = 4096
    """How many events of a worker may lie between two that aren't in the order of time, at most."""

    def __init_subclass__(cls) -> None:
        """Raises OptionError if a query can't be asked of the workload's events."""
        super().__init_subclass__()
        if "schema" not in cls.__dict__:
            return
        schema = cls.schema
        for query in cls.queries:
            query.check(schema)
        names = name_queries(cls.queries) or schema.queries
        described = describe_queries(cls.queries, schema, cls.event_interval_ms, cls.high)
        cls.schema = replace(schema, queries=names, descriptions=described)

    def __init__(self, seed: int = 0, **options: Any) -> None:
        """Raises ValueError (pydantic's, if it is about the options) if one is out of range."""
        if not 0 <= seed < 2**64:
            raise ValueError("seed must be from 0 to 2**64 - 1")
        self.seed = seed
        self.options = self.options_model.model_validate(options)
        self.device_spread = self.options.device_spread
        schema = type(self).schema
        interval_ms = self.device_interval_ms
        self.schema = replace(
            schema,
            devices_per_worker=self.device_spread,
            descriptions=describe_queries(self.queries, schema, interval_ms, self.high),
            tags=self.options.tags,
        )
        if self.options.tags is Tags.TABLE and any(one.name == ID for one in schema.columns):
            raise OptionError(
                f"workload {self.name} has a column {ID}, which tags=table makes: call it something else"
            )

    @classmethod
    def begins_now(cls, options: WorkloadOptions) -> bool:
        """Whether its first event is to have the time of the command that inserts it."""
        return False

    @classmethod
    def begin_at(cls, options: WorkloadOptions, now_ms: int) -> WorkloadOptions:
        """The options, so that one that begins now does so at this time."""
        return options

    @property
    def device_interval_ms(self) -> float:
        """The mean time from one event of a device to the next."""
        return self.event_interval_ms * self.device_spread

    @abstractmethod
    def block(self, worker: int, first: int, count: int, time_origin: int = 0) -> EventBlock:
        """Events [first, first + count) of a worker. Event `time_origin` gets the first timestamp."""

    def devices(self, worker: int) -> NDArray[np.bytes_]:
        """Ids of the worker's devices, all of one width, each with the worker's number in it."""
        return _device_ids(worker, self.device_spread)

    def device_count(self, worker: int) -> int:
        """How many devices the worker has."""
        return self.device_spread

    def device_rows(self, worker: int) -> Iterator[Mapping[str, NDArray[Any]]]:
        """The columns of `Schema.tags_row` of all of the worker's devices, some thousand at a time.

        OptionError if the devices are not named as those of this class.
        """
        count = self.device_count(worker)
        for first in range(0, count, _DEVICE_ROWS):
            columns = self._describe_devices(worker, first, min(_DEVICE_ROWS, count - first))
            names = self.devices(worker)[first : first + _DEVICE_ROWS]
            ids = number_devices(names)
            owner, numbers = int(ids[0]) // DEVICES_APART, ids % DEVICES_APART
            if not np.array_equal(device_ids(owner, numbers), names):
                raise OptionError(
                    f"workload {self.name} names its devices otherwise than w00007d000042: use tags=row"
                )
            yield {ID: ids, **columns}

    def _describe_devices(self, worker: int, first: int, count: int) -> Mapping[str, NDArray[Any]]:
        """Name and tags of devices [first, first + count) of a worker. This is right if events are dealt
        to devices in turn."""
        block = self.block(worker, first, count)
        return {column.name: block.columns[column.name] for column in self.schema.tags_row[1:]}

    def dealt_devices(self, worker: int, first: int, count: int) -> NDArray[np.bytes_]:
        """The device id of each event of [first, first + count): a view, not to be written to."""
        start = first % self.device_spread
        length = round_up_dealt(self.device_spread, count)
        return _dealt_device_ids(worker, self.device_spread, length)[start : start + count]


def device_ids(worker: int, devices: NDArray[np.int64]) -> NDArray[np.bytes_]:
    """The id of each device of a worker, by number: w00007d000042."""
    text = np.empty((len(devices), 13), dtype=np.uint8)
    text[:, :7] = np.frombuffer(b"w%05dd" % worker, dtype=np.uint8)
    rest = devices
    for place in range(12, 6, -1):
        rest, digit = np.divmod(rest, 10)
        text[:, place] = digit
    text[:, 7:] += ord("0")
    return text.view("S13").reshape(len(devices))


def round_up_dealt(spread: int, count: int) -> int:
    """How long what is dealt in turn is kept for blocks of so many events: rounded up, so that blocks of
    different lengths share one cached array."""
    return spread + -(-count // _DEALT_STEP) * _DEALT_STEP


@lru_cache(maxsize=4)
def _device_ids(worker: int, count: int) -> NDArray[np.bytes_]:
    return device_ids(worker, np.arange(count, dtype=np.int64))


@lru_cache(maxsize=4)
def _dealt_device_ids(worker: int, spread: int, length: int) -> NDArray[np.bytes_]:
    """`length` ids: all of them in turn, over and over.

    Blocks are slices of it: looking up each event's id would cost as much CPU as everything else
    in generating events.
    """
    ids = np.resize(_device_ids(worker, spread), length)
    ids.flags.writeable = False
    return ids


def random_words(seed: int, worker: int, first: int, count: int, words: int) -> NDArray[np.uint64]:
    """`words` random 64-bit numbers for each event of [first, first + count): shape (count, words).

    Philox 4x64-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC'11) is a
    function of key and counter, so any event's numbers are computed without those before it. Its
    raw output is covered by numpy's stream compatibility promise.
    """
    skipped_blocks, skipped_words = divmod(first * words, 4)
    raw = _stream(seed, worker, get_ident()).words(skipped_blocks, skipped_words + count * words)
    return raw[skipped_words:].reshape(count, words)


class _Stream:
    """A generator that is moved to the place from which numbers are wanted.

    Making a new one takes as long as generating a thousand events, since numpy asks the system for a
    seed even if it's given a key.
    """

    def __init__(self, seed: int, worker: int) -> None:
        self._generator = np.random.Philox(key=np.array([seed, worker], dtype=np.uint64))
        self._block = 0

    def words(self, block: int, count: int) -> NDArray[np.uint64]:
        """`count` numbers, beginning with those of a block of four."""
        self._generator.advance(block - self._block)
        found: NDArray[np.uint64] = self._generator.random_raw(count)
        self._block = block + -(-count // 4)
        return found


@lru_cache(maxsize=16)
def _stream(seed: int, worker: int, _thread: int) -> _Stream:
    return _Stream(seed, worker)
