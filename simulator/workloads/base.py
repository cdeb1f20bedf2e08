"""A workload: a schema and a function from (seed, worker, event number) to events; and the queries that every
workload with numbers has."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import ConfigDict, Field

from ..conditions import Condition, Written
from ..errors import OptionError
from .queries import HOUR_MS, Aggregate, Every, Function, Order, Query, Where, Window
from .schema import DEVICES_APART, ID, EventBlock, Schema, Tags, join_blocks, number_devices

if TYPE_CHECKING:
    from .schema import Schema


MAX_DEVICES = DEVICES_APART
MAX_CLOCK_FACTOR = 10**7
CLOCK_FACTOR = "clock_factor"
"""The option of all workloads that compresses their clock."""

SHARING_WORKERS = "sharing_workers"
"""The option for how many workers share the total number of devices."""

SCATTERED = 256
"""For fewer consecutive events than this, `pick` is faster event by event."""

_DEALT_STEP = 16_384
DEVICE_ROWS = 10_000
"""Rows of the tags' table stored at a time."""


class WorkloadOptions(Written):
    """Options of a workload: keys of a target and of `--extra-option`, like a module's."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True, allow_inf_nan=False)

    device_spread: int = Field(
        1, ge=1, le=MAX_DEVICES, description="devices per worker, which get events in turn"
    )
    clock_factor: Annotated[int, Condition.WORKLOAD] = Field(
        1,
        ge=1,
        le=MAX_CLOCK_FACTOR,
        description="factor on the interval between a device's events, so that days pass in a run of a"
        " minute",
    )
    tags: Annotated[Tags, Condition.SCHEMA] = Field(
        Tags.ROW,
        description="where to store a device's name and tags: row (with each event) or table (once per"
        " device in a separate table, if the database has joins)",
    )


class Workload(ABC):
    """Generates events: event i of worker w depends only on (seed, w, i). So any process and block size gives
    the same event, and a run can be repeated, continued and checked. The option `device_spread`
    is the number of devices per worker; event i belongs to device i modulo `device_spread`."""

    name: ClassVar[str]
    options_model: ClassVar[type[WorkloadOptions]] = WorkloadOptions
    schema: Schema
    """The schema of an instance. The class has that of the default options."""
    queries: ClassVar[tuple[Query, ...]] = ()
    """Its queries besides those that all workloads have. The schema gets their names."""
    high: ClassVar[tuple[str, float] | None] = None
    """A field and a value that few of its values exceed, for conditions of queries."""
    event_interval_ms: ClassVar[float] = 1000
    """The mean time from one event of a worker to the next, if its devices take turns."""
    disorder: int = 4096
    """The most events of a worker between two that are out of time order."""

    def __init_subclass__(cls) -> None:
        """OptionError if a query can't be run on the workload's events."""
        super().__init_subclass__()
        if "block" in cls.__dict__ and "locate" not in cls.__dict__:
            # A base class's shortcuts hold only for blocks that it makes itself.
            cls.locate = Workload.locate  # type: ignore[method-assign]
        if "schema" not in cls.__dict__:
            return
        schema = cls.schema
        for query in cls.queries:
            schema.check_query(query)
        names = tuple(query.name for query in cls.queries) or schema.queries
        described = describe_queries(cls.queries, schema, cls.event_interval_ms, cls.high)
        cls.schema = replace(schema, queries=names, descriptions=described)

    def __init__(self, seed: int = 0, **options: Any) -> None:
        """Raises ValueError (pydantic's, if it is about the options) if one is out of range."""
        if not 0 <= seed < 2**64:
            raise ValueError("seed must be from 0 to 2**64 - 1")
        self.seed = seed
        self.options = self.options_model.model_validate(options)
        self.device_spread = self.options.device_spread
        self.clock_factor = self.options.clock_factor
        schema = type(self).schema
        interval_ms = self.device_interval_ms
        self.schema = replace(
            schema,
            devices_per_worker=self.device_spread,
            descriptions=describe_queries(self.queries, schema, interval_ms, self.high),
            tags=self.options.tags,
        )
        if self.options.tags is Tags.TABLE and any(column.name == ID for column in schema.columns):
            raise OptionError(
                f"workload {self.name} has a column {ID}, which tags=table creates: rename it"
            )

    def remake(self, **changes: Any) -> Workload:
        """The same workload with some other options."""
        return type(self)(self.seed, **self.options.model_dump() | changes)

    @classmethod
    def begins_now(cls, options: WorkloadOptions) -> bool:
        """Whether its first event has the time of the command that inserts it."""
        return False

    @classmethod
    def begin_at(cls, options: WorkloadOptions, now_ms: int) -> WorkloadOptions:
        """The options, with this time as the beginning of a workload that begins now."""
        return options

    @property
    def begin_ms(self) -> int:
        """When the first event is sent, by the events' own clock."""
        return self.schema.epoch_ms

    @property
    def late_share(self) -> float:
        """Share of events that should come late."""
        return 0.0

    def find_late_share(self, worker: int, first: int, count: int) -> float:
        """Share of these events of a worker that are sent late: after others with a later time."""
        return 0.0

    @property
    def device_interval_ms(self) -> float:
        """The mean time from one event of a device to the next."""
        return self.event_interval_ms * self.clock_factor * self.device_spread

    def find_tick(self, since_ms: int) -> float:
        """How many events a device has up to `since_ms` after the first timestamp."""
        return since_ms / self.device_interval_ms

    own_rate_per_s: float | None = None
    """Events per second of all devices by their own clock, at its speed; None: they have none, and the load
    decides when events are due."""
    own_length_s: float = 0.0
    """The length of that clock before it starts over."""
    own_speed: float = 1.0
    """The default speed-up."""
    ends: bool = False
    """Whether a worker has no more events than its `turn`: a recording that isn't repeated."""

    def find_due_ms(self, worker: int, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """When events are due by that clock, in ms since its beginning. OptionError if they have none."""
        raise OptionError(f"workload {self.name} has no clock of its own")

    @abstractmethod
    def block(self, worker: int, first: int, count: int, time_origin: int = 0) -> EventBlock:
        """Events [first, first + count) of a worker. Event `time_origin` gets the first timestamp."""

    def pick(self, worker: int, numbers: NDArray[np.int64]) -> EventBlock:
        """At least one event of a worker, by ascending numbers: as in `block`, but none late. This generates
        consecutive ones at once; override it for a faster way to scattered ones."""
        runs = np.split(numbers, np.flatnonzero(np.diff(numbers) != 1) + 1)
        return join_blocks([self.block(worker, int(run[0]), len(run)) for run in runs])

    def order_until(self, tick: int) -> None:  # noqa: B027 - without late events there is nothing to do
        """Let late events begin with this tick of the devices: only `pick` is used for older ones."""

    def locate(
        self, workers: NDArray[np.int64], numbers: NDArray[np.int64]
    ) -> tuple[NDArray[np.bytes_], NDArray[np.int64]]:
        """Device and time (ms) of at least one event: number `numbers[i]` of worker `workers[i]`. Override it
        to avoid generating the rest."""
        pairs = zip(workers.tolist(), numbers.tolist(), strict=True)
        blocks = [self.block(worker, number, 1) for worker, number in pairs]
        times = np.concatenate([block.columns[self.schema.time] for block in blocks])
        return np.concatenate([block.devices for block in blocks]), times

    @property
    def instants_are_distinct(self) -> bool:
        """Whether no device has two events at one time."""
        return set(self.schema.key) <= {self.schema.device, self.schema.time}

    def devices(self, worker: int) -> NDArray[np.bytes_]:
        """IDs of the worker's devices, of equal width, each containing the worker's number."""
        return _device_ids(worker, self.device_spread)

    def device_count(self, worker: int) -> int:
        """The number of the worker's devices."""
        return self.device_spread

    def turn(self, worker: int) -> int:
        """How many consecutive events of the worker cover all of its devices, if none is late."""
        return self.device_count(worker)

    def devices_among(self, worker: int, first: int, count: int) -> NDArray[np.bytes_]:
        """The devices that have events among [first, first + count) of a worker."""
        if count >= self.turn(worker):
            return self.devices(worker)
        return np.unique(self.block(worker, first, count).devices)

    def device_rows(self, worker: int) -> Iterator[Mapping[str, NDArray[Any]]]:
        """The columns of `Schema.tags_row` of all of the worker's devices, some thousand at a time.
        OptionError if the devices aren't named as in this class."""
        count = self.device_count(worker)
        for first in range(0, count, DEVICE_ROWS):
            columns = self._describe_devices(worker, first, min(DEVICE_ROWS, count - first))
            names = self.devices(worker)[first : first + DEVICE_ROWS]
            ids = number_devices(names)
            owner, numbers = int(ids[0]) // DEVICES_APART, ids % DEVICES_APART
            if not np.array_equal(device_ids(owner, numbers), names):
                raise OptionError(
                    f"workload {self.name} has device names unlike w00007d000042: use tags=row"
                )
            yield {ID: ids, **columns}

    def _describe_devices(self, worker: int, first: int, count: int) -> Mapping[str, NDArray[Any]]:
        """Name and tags of devices [first, first + count) of a worker, if events are dealt to them in
        turn."""
        block = self.block(worker, first, count)
        return {column.name: block.columns[column.name] for column in self.schema.tags_row[1:]}

    def dealt_devices(self, worker: int, first: int, count: int) -> NDArray[np.bytes_]:
        """The device id of each event of [first, first + count): a view that must not be written to."""
        start = first % self.device_spread
        length = round_up_dealt(self.device_spread, count)
        return _dealt_device_ids(worker, self.device_spread, length)[start : start + count]


def device_ids(workers: int | NDArray[np.int64], devices: NDArray[np.int64]) -> NDArray[np.bytes_]:
    """The id of each device, by number: w00007d000042. `workers`: the worker of all devices, or of each."""
    text = np.empty((len(devices), 13), dtype=np.uint8)
    text[:, 0], text[:, 6] = b"wd"
    digits = _three_digits()
    text[:, 1:3] = digits[np.floor_divide(workers, 1000), 1:]
    text[:, 3:6] = digits[np.remainder(workers, 1000)]
    thousands = devices // 1000
    text[:, 7:10] = digits[thousands]
    text[:, 10:] = digits[devices - 1000 * thousands]
    return text.view("S13").reshape(len(devices))


@cache
def _three_digits() -> NDArray[np.uint8]:
    """The digits of each number below 1000: shape (1000, 3)."""
    text = b"".join(b"%03d" % number for number in range(1000))
    return np.frombuffer(text, dtype=np.uint8).reshape(1000, 3)


def round_up_dealt(spread: int, count: int) -> int:
    """How many items dealt in turn are kept for blocks of `count` events: blocks of similar lengths share one
    array."""
    return spread + -(-count // _DEALT_STEP) * _DEALT_STEP


@lru_cache(maxsize=4)
def _device_ids(worker: int, count: int) -> NDArray[np.bytes_]:
    return device_ids(worker, np.arange(count, dtype=np.int64))


@lru_cache(maxsize=4)
def _dealt_device_ids(worker: int, spread: int, length: int) -> NDArray[np.bytes_]:
    """`length` ids: all of them in turn, repeatedly. Blocks are slices of it: looking up each event's id
    would cost as much CPU as all other work of generating events."""
    ids = np.resize(_device_ids(worker, spread), length)
    ids.flags.writeable = False
    return ids


# --- the queries that every workload with numbers has ---------------------------------------------

MOST_FIELDS = 10
"""The most fields in a common query."""


def describe_queries(
    own: Sequence[Query],
    schema: Schema,
    device_interval_ms: float,
    high: tuple[str, float] | None = None,
) -> tuple[Query, ...]:
    """All queries of a workload: its own, and the common ones it doesn't replace. For slower devices (an
    event per `device_interval_ms`), an hour and a day are extended to as many events as with an event a
    minute. `high`: a field and a value that few of its values exceed."""
    names = {query.name for query in own}
    common = _describe_common(schema, device_interval_ms, high) if schema.fields else ()
    possible = (query for query in common if not any(schema.find_query_problems(query)))
    return (*own, *(query for query in possible if query.name not in names))


def _describe_common(
    schema: Schema, device_interval_ms: float, high: tuple[str, float] | None
) -> Iterator[Query]:
    # Whole hours, so that buckets have the lengths that users would choose.
    hour = HOUR_MS * max(1, round(60 * device_interval_ms / HOUR_MS))
    day = 24 * hour
    fields = tuple(schema.fields[:MOST_FIELDS])
    # Databases treat NaN differently.
    finite = [name for name in fields if not schema.column(name).not_finite]
    first = high[0] if high else next(iter(finite), fields[0])
    event = (schema.time, *fields)
    mean = (Aggregate(function=Function.AVG, column=first),)
    statistics = tuple(
        Aggregate(function=function, column=first)
        for function in (Function.MIN, Function.AVG, Function.MAX)
    )
    above = Where(column=high[0], above=high[1]) if high else None
    hours, days = _format_hours(hour), _format_hours(day)
    in_hour, in_day = Window(span=hour), Window(span=day)
    yield Query(
        name="point", about="one device, one instant", devices=1, instant=True, events=event
    )
    yield Query(
        name="range", about=f"a device's events of {hours}", devices=1, window=in_hour, events=event
    )
    if above:
        yield Query(
            name="range-filter",
            about=f"of a device's events of {days}, those with {first} above {above.above:g}",
            devices=1,
            window=in_day,
            where=above,
            events=event,
        )
    yield Query(
        name="aggregate",
        about=f"count; min, avg, max of {first} of a device in {days}",
        devices=1,
        window=in_day,
        compute=(Aggregate(function=Function.COUNT), *statistics),
    )
    yield Query(
        name="downsample",
        about=f"means of {first} of ten devices in {days}, for each {hours}",
        devices=10,
        window=in_day,
        compute=mean,
        per=(schema.device, Every(every=hour)),
    )
    yield Query(
        name="fleet-downsample",
        about=f"means of {first} of all devices in {days}, for each {hours}",
        window=in_day,
        compute=mean,
        per=(Every(every=hour),),
    )
    newest = "the newest event of"
    yield Query(name="last-values", about=f"{newest} each device", newest=True, events=event)
    yield Query(
        name="last-value", about=f"{newest} one device", devices=1, newest=True, events=event
    )
    if above:
        yield Query(
            name="threshold",
            about=f"all events of {hours} with {first} above {above.above:g}",
            window=in_hour,
            where=above,
            events=(schema.device, *event),
        )
    yield Query(
        name="top-devices",
        about=f"the ten devices with the highest means of {first} in {days}",
        window=in_day,
        compute=mean,
        per=(schema.device,),
        order=Order(by=1, descending=True),
        limit=10,
    )


def _format_hours(span_ms: int) -> str:
    """`1 h`, `3 days`."""
    hours = span_ms // HOUR_MS
    return f"{hours // 24} days" if hours % 24 == 0 and hours > 24 else f"{hours} h"
