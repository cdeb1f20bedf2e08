"""A recording as a workload: its events are repeated, by as many devices as requested."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Annotated, Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import BeforeValidator, Field

from ..errors import OptionError
from .base import DEVICE_ROWS, MAX_DEVICES, Workload, WorkloadOptions, describe_queries
from .defined import format_epoch, read_epoch_option
from .definition import NOW, read_epoch
from .recording import Recorded, Recording
from .recording.definition import RecordedDefinition, make_schema
from .recording.playback import MOST_MERGED, Events, Playback, Rows, Share
from .recording.store import Header, chunks
from .schema import ID, ColumnType, EventBlock, Schema, Tags, join_blocks

_SAMPLED = 100_000


class ReplayOptions(WorkloadOptions):
    """Options of a recording."""

    device_spread: int = Field(
        0, ge=0, le=MAX_DEVICES, description="devices per worker, including copies"
    )
    devices: int | None = Field(
        None,
        ge=1,
        le=MAX_DEVICES,
        description="total number of devices, divided among the workers: some of the recorded ones, or all"
        " plus copies",
    )
    sharing_workers: int = Field(
        1, ge=1, le=MAX_DEVICES, description="number of workers that share the devices"
    )
    epoch: Annotated[str, BeforeValidator(read_epoch_option)] = Field(
        "", description="the first time (2024-01-01T00:00:00Z), or now; by default as recorded"
    )


class Replayed(Workload):
    """Events of a recording. `replay` makes a class for each."""

    recording: ClassVar[Recording]
    recorded: ClassVar[Recorded]
    options_model = ReplayOptions

    def __init__(self, seed: int = 0, **options: Any) -> None:
        super().__init__(seed, **options)
        chosen, header = self.options, self.recording.header
        assert isinstance(chosen, ReplayOptions)
        if chosen.devices and chosen.device_spread:
            raise OptionError(
                "devices is the total, device_spread the number per worker: set one of them"
            )
        sampled = min(self.recorded.devices or header.devices, header.devices)
        in_all = (
            chosen.devices
            or chosen.device_spread * chosen.sharing_workers
            or sampled * self.recorded.fleet
        )
        if in_all < (sharing := chosen.sharing_workers):
            raise OptionError(
                f"workload {self.name} has {in_all} devices in all, too few for {sharing} workers:"
                " set the option devices, which adds copies"
            )
        self._playback = Playback(self.recording, min(sampled, in_all), in_all, sharing)
        self.device_spread = -(-in_all // sharing)
        self._begin_ms = int(self.recording.due_ms[0])
        epoch_ms = (
            header.first_ms if self._playback.copies == 1 else self._begin_ms - header.latest_ms
        )
        if chosen.epoch:
            wanted = read_epoch(chosen.epoch)
            if wanted == NOW:
                raise OptionError(
                    f"workload {self.name} begins now: set the time with its option epoch"
                )
            self._begin_ms += wanted - epoch_ms
            epoch_ms = wanted
        self.schema = replace(self.schema, devices_per_worker=self.device_spread, epoch_ms=epoch_ms)
        self.disorder = self._playback.find_disorder()
        self.own_length_s = self._playback.period_ms / 1000
        self.own_rate_per_s = header.rows / header.devices * in_all / self.own_length_s
        self.own_speed, self.ends = self.recorded.speed, not self.recorded.repeat

    @classmethod
    def begins_now(cls, options: WorkloadOptions) -> bool:
        assert isinstance(options, ReplayOptions)
        return options.epoch == NOW

    @classmethod
    def begin_at(cls, options: WorkloadOptions, now_ms: int) -> WorkloadOptions:
        return options.model_copy(update={"epoch": format_epoch(now_ms)})

    def device_rows(self, worker: int) -> Iterator[Mapping[str, NDArray[Any]]]:
        share = self._playback.share(worker)
        for some in chunks(len(share.names), DEVICE_ROWS):
            numbers = np.arange(share.first + some.start, share.first + some.stop)
            yield {
                ID: numbers,
                self.schema.device: share.names[some],
                **{
                    column.name: self._read_tag(column.name, numbers)
                    for column in self.recording.columns
                    if column.tag
                },
            }

    def _read_tag(self, name: str, devices: NDArray[np.integer[Any]]) -> NDArray[np.bytes_]:
        """The values of a tag for devices, by their numbers among all."""
        places = self.recording.values(name)[devices % self._playback.used]
        return self.recording.texts(name).take(places)

    def devices(self, worker: int) -> NDArray[np.bytes_]:
        return self._playback.share(worker).names

    def device_count(self, worker: int) -> int:
        _, first, stop = self._playback.own(worker)
        return stop - first

    # --- events -----------------------------------------------------------------------------------

    def block(self, worker: int, first: int, count: int, time_origin: int = 0) -> EventBlock:
        share = self._playback.share(worker)
        # Events have no sequence number, so --timestamps restart, and thus a `time_origin`, is refused for
        # them.
        blocks: list[EventBlock] = []
        number, stop = first, first + count
        while number < stop or not blocks:
            repetition, place = divmod(number, share.events)
            until = min(share.events, place + stop - number)
            events = self._playback.list_events(worker, place, until)
            later = events.delay(repetition * self._playback.period_ms)
            blocks.append(self._make(worker, number, share, later))
            number += until - place
        return join_blocks(blocks)

    def pick(self, worker: int, numbers: Rows) -> EventBlock:
        share = self._playback.share(worker)
        return self._make(
            worker, int(numbers[0]), share, self._playback.find_events(worker, numbers)
        )

    def locate(self, workers: Rows, numbers: Rows) -> tuple[NDArray[np.bytes_], Rows]:
        names: list[NDArray[np.bytes_]] = []
        times = np.empty(len(numbers), dtype=np.int64)
        places = np.empty(len(numbers), dtype=np.intp)
        done = 0
        for worker in np.unique(workers).tolist():
            own = np.flatnonzero(workers == worker)
            share = self._playback.share(worker)
            events = self._playback.find_events(worker, numbers[own])
            times[own] = self._stamp(events)
            names.append(share.names[events.devices - share.first])
            places[own] = np.arange(done, done + len(own))
            done += len(own)
        return np.concatenate(names)[places], times

    def find_due_ms(self, worker: int, numbers: Rows) -> Rows:
        return self._playback.find_events(worker, numbers).due

    def _stamp(self, events: Events) -> Rows:
        """Their times since 1970. With a compressed clock, late events are as late as by their own clock."""
        if self.clock_factor == 1:
            return self._begin_ms + events.times
        return self._begin_ms + events.times + (self.clock_factor - 1) * events.due

    def _make(self, worker: int, first: int, share: Share, events: Events) -> EventBlock:
        recording, rows = self.recording, events.rows
        times = self._stamp(events)
        names = share.names[events.devices - share.first]
        header = recording.header
        columns: dict[str, NDArray[Any]] = {header.time: times, header.device: names}
        missing: dict[str, NDArray[np.bool_]] = {}
        for column in recording.columns:
            if column.tag:
                columns[column.name] = self._read_tag(column.name, events.devices)
                continue
            values = recording.values(column.name)
            own = values[rows]
            if column.type in (ColumnType.TEXT, ColumnType.JSON):
                own = recording.texts(column.name).take(own)
            columns[column.name] = own
            if (absent := recording.missing(column.name)) is not None:
                missing[column.name] = absent[rows]
        ids = events.devices.astype(np.int64) if self.schema.tags is Tags.TABLE else None
        return EventBlock(self.schema, worker, first, columns, names, missing, ids)

    # --- what is known of all events --------------------------------------------------------------

    @property
    def begin_ms(self) -> int:
        return self._begin_ms

    @property
    def device_interval_ms(self) -> float:
        return self.clock_factor * _find_interval_ms(self.recording.header)

    @property
    def instants_are_distinct(self) -> bool:
        return not self.recording.header.duplicates

    @property
    def late_share(self) -> float:
        return self.recording.header.late / self.recording.header.rows

    def find_late_share(self, worker: int, first: int, count: int) -> float:
        if not self.late_share or count > MOST_MERGED:
            return self.late_share
        events = self._playback.find_events(worker, np.arange(first, first + count))
        times = self._stamp(events)
        return float((times < np.maximum.accumulate(times)).mean())

    def turn(self, worker: int) -> int:
        return self._playback.turn(worker)

    def devices_among(self, worker: int, first: int, count: int) -> NDArray[np.bytes_]:
        share = self._playback.share(worker)
        if count >= share.events:
            return share.names
        there = np.zeros(len(share.names), dtype=np.bool_)
        for some in chunks(count):
            numbers = np.arange(first + some.start, first + some.stop)
            there[self._playback.find_events(worker, numbers).devices - share.first] = True
        return share.names[there]


# --- from definition to class ---------------------------------------------------------------------


def _find_interval_ms(header: Header) -> float:
    """The mean time between two events of a device. Within a period the last event has an interval, too."""
    period_ms = header.last_ms - header.first_ms + max(1, round(header.interval_ms))
    return period_ms * header.devices / header.rows


def _find_high(recording: Recording, schema: Schema) -> tuple[str, float] | None:
    """The first field whose values differ, and a value that about a tenth of them exceed."""
    rows = np.unique(np.linspace(0, len(recording) - 1, _SAMPLED).astype(np.int64))
    for name in schema.fields:
        if schema.column(name).not_finite:
            continue
        values = recording.values(name)[rows].astype(np.float64)
        missing = recording.missing(name)
        there = values if missing is None else values[~missing[rows]]
        if not len(there):
            continue
        limit = float(f"{np.percentile(there, 90):.3g}")
        if there.max() > limit:
            return name, limit
    return None


def replay(definition: RecordedDefinition, recording: Recording) -> type[Replayed]:
    """The class of a recording's workload."""
    schema = make_schema(definition, recording)
    members: Mapping[str, Any] = {
        "__doc__": definition.about,
        "name": definition.name,
        "recording": recording,
        "recorded": definition.recorded,
        "schema": schema,
        "queries": describe_queries(
            definition.queries,
            schema,
            _find_interval_ms(recording.header),
            _find_high(recording, schema),
        ),
    }
    return type(definition.name.title().replace("_", ""), (Replayed,), dict(members))
