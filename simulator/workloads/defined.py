"""The generator for a definition's events."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import Annotated, Any, ClassVar, overload

import numpy as np
from numpy.typing import NDArray
from pydantic import BeforeValidator, Field

from ..errors import OptionError
from . import noise
from .base import (
    MAX_DEVICES,
    Workload,
    WorkloadOptions,
    describe_queries,
    device_ids,
    round_up_dealt,
)
from .definition import NOW, Definition, Late, Maker, read_epoch
from .noise import Points, Words
from .numbering import LateEvents, SendOrder, delay_events
from .schema import EventBlock, LazyColumns, Tags

WINDOW = 262_144
"""The length of a window: the most by which late events are moved back, in events of their worker."""

_MOST_WINDOWS = 4
"""With more windows than this, an incomplete last one makes no difference."""

_SEARCHED = 8_192
"""How many events are searched for late ones at once, in reused memory."""

_TAGS_SEED = 0
"""Tags follow from a device's name alone, whatever the seed."""

_SAMPLED, _SAMPLED_TICKS = 1000, 101
"""How many events are sampled to find a high value, and how many ticks apart."""


def format_epoch(epoch_ms: int) -> str:
    """A time as an option of a workload takes it."""
    moment = datetime.fromtimestamp(epoch_ms / 1000, UTC)
    unit = "milliseconds" if epoch_ms % 1000 else "seconds"
    return moment.isoformat(timespec=unit).replace("+00:00", "Z")


def read_epoch_option(value: object) -> str:
    """The epoch in its normal form, to the millisecond."""
    epoch = value if value == "" else read_epoch(value)
    return format_epoch(epoch) if isinstance(epoch, int) else str(epoch)


class DefinedOptions(WorkloadOptions):
    """Options of a workload with a definition."""

    device_spread: int = Field(
        0, ge=0, le=MAX_DEVICES, description="devices per worker, which get events in turn"
    )
    devices: int | None = Field(
        None, ge=1, le=MAX_DEVICES, description="total number of devices, divided among the workers"
    )
    sharing_workers: int = Field(
        1,
        ge=1,
        le=MAX_DEVICES,
        description="number of workers that share the total number of devices",
    )
    late: float | None = Field(
        None,
        ge=0,
        le=1,
        description="share of events that are sent late (0.02), if the workload has any",
    )
    epoch: Annotated[str, BeforeValidator(read_epoch_option)] = Field(
        "", description="the first time (2024-01-01T00:00:00Z), or now"
    )


@dataclass(frozen=True, slots=True)
class _Fleet:
    """What each event gets from its device. Devices are stored in turn, repeatedly, so those of consecutive
    events are a slice: looking up each would cost as much as generating its values."""

    devices: int
    names: NDArray[np.bytes_]
    first: NDArray[np.uint32]
    second: NDArray[np.uint32]
    tags: dict[str, NDArray[Any]]


class Defined(Workload):
    """Events of a definition. `define` makes a class for each.

    Number i of a worker with D devices belongs to device i modulo D, at tick i // D: the time is epoch + tick
    * interval + earlier gaps + jitter, where the jitter is at least 0 and less than the interval. With late
    events a worker's numbers are the order in which events are SENT: within each window of `WINDOW` numbers,
    a late one is moved back by its delay, at most to the window's end.

    With a total number of devices, each of the `sharing_workers` has its part of one fleet. However many
    workers there are, events differ only in which worker sends them.
    """

    definition: ClassVar[Definition]
    window: ClassVar[int] = WINDOW
    options_model = DefinedOptions
    _makers: dict[str, Maker]
    _tag_makers: ClassVar[dict[str, Maker]]
    _masks: ClassVar[dict[str, tuple[int, float, float | None]]]

    def __init__(self, seed: int = 0, **options: Any) -> None:
        super().__init__(seed, **options)
        chosen, definition = self.options, self.definition
        assert isinstance(chosen, DefinedOptions)
        if chosen.devices and chosen.device_spread:
            raise OptionError(
                "devices is the total, device_spread the number per worker: set one of them"
            )
        self._sharing, self._in_all = 1, 0
        if chosen.device_spread or not (chosen.devices or definition.devices.in_all):
            self.device_spread = chosen.device_spread or definition.devices.per_worker or 1
        else:
            self._in_all = chosen.devices or definition.devices.in_all or 1
            self._sharing = chosen.sharing_workers
            if self._in_all < self._sharing:
                raise OptionError(
                    f"workload {self.name} has {self._in_all} devices in all, too few for"
                    f" {self._sharing} workers: set the option devices, or device_spread per"
                    " worker"
                )
            self.device_spread = -(-self._in_all // self._sharing)
        self.schema = replace(self.schema, devices_per_worker=self.device_spread)
        epoch_ms = read_epoch(chosen.epoch) if chosen.epoch else definition.epoch
        if epoch_ms == NOW:
            raise OptionError(
                f"workload {self.name} begins now: set the time with its option epoch"
            )
        if epoch_ms != self.schema.epoch_ms:
            self.schema = replace(self.schema, epoch_ms=epoch_ms)
            self._makers = definition.make_makers(epoch_ms)
        late = definition.late
        if chosen.late is not None:
            # Without a definition of delays: up to ten intervals.
            late = late or Late(share=0, most=f"{10 * definition.interval:.0f}ms")
            late = late.model_copy(update={"share": chosen.late})
        self._late = late if late and late.share else None
        self._order: SendOrder | None = None
        self._late_from = 0
        """The first tick whose events may be late."""
        if self._late:
            self.disorder = self.window
            self._order = SendOrder(self.window, self._find_late)
        self._fleets: dict[int, _Fleet] = {}

    @property
    def interval_ms(self) -> int:
        """The time between two events of a device."""
        return int(self.definition.interval) * self.clock_factor

    @property
    def device_interval_ms(self) -> float:
        return self.interval_ms

    def find_tick(self, since_ms: int) -> float:
        between, gaps = self.definition.ticks_between_gaps, self.definition.gaps
        if gaps is None:
            return since_ms / self.interval_ms
        rounds, rest_ms = divmod(since_ms, int(gaps.every) * self.clock_factor)
        return rounds * between + min(rest_ms / self.interval_ms, between)

    @property
    def late_share(self) -> float:
        return self._late.share if self._late else 0.0

    def find_late_share(self, worker: int, first: int, count: int) -> float:
        if self._late is None or count > _MOST_WINDOWS * self.window:
            return self.late_share  # all are sent by the end of their window
        begin = first - (first - self._begin_late(worker)) % self.window
        numbers = self._numbers(worker, begin, first + count - begin)
        late = numbers < np.maximum.accumulate(numbers)
        return float(late[first - begin :].mean())

    @classmethod
    def begins_now(cls, options: WorkloadOptions) -> bool:
        assert isinstance(options, DefinedOptions)
        return (options.epoch or cls.definition.epoch) == NOW

    @classmethod
    def begin_at(cls, options: WorkloadOptions, now_ms: int) -> WorkloadOptions:
        return options.model_copy(update={"epoch": format_epoch(now_ms)})

    def devices(self, worker: int) -> NDArray[np.bytes_]:
        fleet = self._fleet(worker, 0)
        return fleet.names[: fleet.devices]

    def device_count(self, worker: int) -> int:
        return self._own_devices(worker)[2]

    def _describe_devices(self, worker: int, first: int, count: int) -> Mapping[str, NDArray[Any]]:
        fleet, rows = self._fleet(worker, 0), slice(first, first + count)
        tags = {name: values[rows] for name, values in fleet.tags.items()}
        return {self.definition.device: fleet.names[rows], **tags}

    def block(self, worker: int, first: int, count: int, time_origin: int = 0) -> EventBlock:
        fleet = self._fleet(worker, count)
        numbers = self._numbers(worker, first, count)
        ticks = numbers // fleet.devices
        start = first % fleet.devices
        rows: slice | NDArray[np.int64] = slice(start, start + count)
        if self._late is not None:
            rows = numbers - ticks * fleet.devices
        ticks -= time_origin // fleet.devices
        return self._make(worker, first, ticks, rows, fleet)

    def pick(self, worker: int, numbers: NDArray[np.int64]) -> EventBlock:
        fleet = self._fleet(worker, 0)
        ticks, rows = np.divmod(numbers, fleet.devices)
        return self._make(worker, int(numbers[0]), ticks, rows, fleet)

    def _make(
        self,
        worker: int,
        first: int,
        ticks: NDArray[np.int64],
        rows: slice | NDArray[np.int64],
        fleet: _Fleet,
    ) -> EventBlock:
        """Events at these ticks, which are overwritten, from these rows of the fleet."""
        points = self._points(ticks, fleet.first[rows], fleet.second[rows])
        definition, names = self.definition, fleet.names[rows]
        columns: dict[str, NDArray[Any]] = {}
        apart: dict[str, Callable[[], NDArray[Any]]] = {}
        for name, _ in definition.each_column():
            if name in self._makers:
                columns[name] = self._makers[name](points)
            elif name not in fleet.tags:
                columns[name] = names if name == definition.device else points.times_ms
            elif self.schema.tags is Tags.TABLE:
                apart[name] = partial(fleet.tags[name].__getitem__, rows)
            else:
                columns[name] = fleet.tags[name][rows]
        missing = {name: noise.absent(points, *mask) for name, mask in self._masks.items()}
        all_columns = LazyColumns(columns, apart) if apart else columns
        return EventBlock(self.schema, worker, first, all_columns, names, missing)

    def locate(
        self, workers: NDArray[np.int64], numbers: NDArray[np.int64]
    ) -> tuple[NDArray[np.bytes_], NDArray[np.int64]]:
        group, start, count = self._own_devices(workers)
        if self._order is not None:
            begins = np.broadcast_to(self._late_from * np.asarray(count), numbers.shape)
            late, numbers = np.flatnonzero(numbers >= begins), numbers.copy()
            relative = numbers[late] - begins[late]
            numbers[late] = begins[late] + self._order.find_single(workers[late], relative)
        ticks, places = np.divmod(numbers, count)
        devices = start + places
        points = self._points(ticks, *noise.device_keys(self.seed, group, devices))
        return device_ids(group, devices), points.times_ms

    def _points(self, ticks: NDArray[np.int64], first: Words, second: Words) -> Points:
        """Time and device of events, from their ticks and their devices' keys."""
        if between := self.definition.ticks_between_gaps:
            assert self.definition.gaps is not None
            rounds, ticks = np.divmod(ticks, between)
            times = ticks * self.interval_ms
            times += rounds * (int(self.definition.gaps.every) * self.clock_factor)
        else:
            times = ticks * self.interval_ms
        times += self.schema.epoch_ms
        points, most = Points(times, first, second), int(self.definition.jitter)
        if not most:
            return points
        jitter = noise.uniform_integers(points, noise.make_salt("", "jitter"), 0, most)
        jitter += times
        return Points(jitter, points.first, points.second)

    # --- devices --------------------------------------------------------------------------------

    def _fleet(self, worker: int, count: int) -> _Fleet:
        """The worker's devices, for blocks of `count` events."""
        fleet = self._fleets.get(worker)
        if fleet is None or len(fleet.names) < fleet.devices + count:
            if len(self._fleets) >= 4:
                self._fleets.clear()
            group, start, own = self._own_devices(worker)
            numbers = np.arange(start, start + own, dtype=np.int64)
            length = round_up_dealt(own, count)
            first, second = noise.device_keys(self.seed, group, numbers)
            tags = Points(numbers, *noise.device_keys(_TAGS_SEED, group, numbers))
            fleet = self._fleets[worker] = _Fleet(
                own,
                np.resize(device_ids(group, numbers), length),
                np.resize(first, length),
                np.resize(second, length),
                {name: np.resize(make(tags), length) for name, make in self._tag_makers.items()},
            )
        return fleet

    @overload
    def _own_devices(self, worker: int) -> tuple[int, int, int]: ...

    @overload
    def _own_devices(self, worker: NDArray[np.int64]) -> tuple[NDArray[np.int64], Any, Any]: ...

    def _own_devices(self, worker: Any) -> tuple[Any, Any, Any]:
        """The worker after which the devices are named, the number of the first, and how many there are."""
        group, place = divmod(worker, self._sharing)
        if not self._in_all:
            return group, 0, self.device_spread
        start, stop = (self._in_all * border // self._sharing for border in (place, place + 1))
        return group, start, stop - start

    # --- late events ----------------------------------------------------------------------------

    def _numbers(self, worker: int, first: int, count: int) -> NDArray[np.int64]:
        """Which events are sent as numbers `first` and following."""
        if self._order is None:
            return np.arange(first, first + count, dtype=np.int64)
        begin = self._begin_late(worker)
        return self._order.find(worker, first - begin, count) + begin

    def _begin_late(self, worker: int) -> int:
        """The number with which the worker's windows of late events begin."""
        return self._late_from * self.device_count(worker)

    def order_until(self, tick: int) -> None:
        self._late_from = tick

    def _find_late(self, worker: int, first: int, count: int) -> LateEvents:
        """The late ones among events [first, first + count) of one window, counted from `_begin_late`."""
        late = self._late
        assert late is not None
        first += self._begin_late(worker)
        group, start, own = self._own_devices(worker)
        devices = np.arange(start, start + own, dtype=np.int64)
        keys = noise.device_keys(self.seed, group, devices)

        def locate(numbers: NDArray[np.int64]) -> Points:
            ticks = numbers // own
            rows = numbers - ticks * own
            return self._points(ticks, *(key[rows] for key in keys))

        parts = []
        # In small parts: fresh memory for a whole window would cost as much time as the arithmetic.
        for begin in range(first, first + count, _SEARCHED):
            numbers = np.arange(begin, min(begin + _SEARCHED, first + count), dtype=np.int64)
            salt = noise.make_salt("", "late")
            parts.append(numbers[noise.absent(locate(numbers), salt, late.share)])
        numbers = np.concatenate(parts)
        points, salt = locate(numbers), noise.make_salt("", "delay")
        if late.mean is None:
            delays_ms = noise.uniform(points, salt, 0, late.most)
        else:
            shares = noise.uniform(points, salt, 0, 1)
            delays_ms = np.minimum(-late.mean * np.log1p(-shares), late.most)
        return delay_events(numbers - first, delays_ms * (own / self.interval_ms), count)


# --- from definition to class ---------------------------------------------------------------------


def define(definition: Definition) -> type[Defined]:
    """The class of a workload."""
    columns = dict(definition.each_column())
    makers = definition.make_makers(definition.epoch_ms)
    schema = definition.make_schema()
    # The first field whose values differ, and a value that about a tenth of them exceed.
    numbers = np.arange(_SAMPLED, dtype=np.int64)
    times = schema.epoch_ms + numbers * int(definition.interval) * _SAMPLED_TICKS
    points, high = Points(times, *noise.device_keys(0, 0, numbers)), None
    for name in schema.fields:
        values = makers[name](points).astype(np.float64)
        limit = float(f"{np.percentile(values, 90):.3g}")
        if values.max() > limit:
            high = name, limit
            break
    members = {
        "__doc__": definition.about,
        "name": definition.name,
        "definition": definition,
        "schema": schema,
        "queries": describe_queries(definition.queries, schema, definition.interval, high),
        "_makers": makers,
        "_tag_makers": definition.make_makers(schema.epoch_ms, tags=True),
        "_masks": {
            name: (noise.make_salt(name, "missing"), column.missing, column.missing_lasts)
            for name, column in columns.items()
            if column.missing
        },
    }
    return type(definition.name.title().replace("_", ""), (Defined,), members)
