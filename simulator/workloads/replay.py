"""A recording as a workload: its events again and again, by as many devices as are asked for.

One repetition are all rows of the recording, once for each copy of a device. Copies play it from another
place of it on, as if they stood elsewhere in time: copy c of F begins with its part c/F, and what comes
before that follows at the end, a period later. To find what is due when, a period is cut into slots of
equal length, by which copies are shifted: slot s of all copies are the rows of slots s + shift, in the order
in which they are sent. So an event is a function of (worker, number), and nothing is kept that grows with
the events.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from tempfile import TemporaryFile
from typing import Annotated, Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import BeforeValidator, Field

from ..errors import OptionError
from .base import DEVICE_ROWS, MAX_DEVICES, Workload, WorkloadOptions, describe_queries
from .defined import format_epoch, read_epoch_option
from .definition import NOW, read_epoch
from .recording import Recorded, Recording
from .recording.definition import RecordedDefinition, make_schema
from .recording.store import Header, chunks
from .schema import ID, ColumnType, EventBlock, Schema, Tags, join_blocks

Rows = NDArray[np.int64]

_SLOT_EVENTS = 8_192
"""About how many events of all devices a slot has."""
_MOST_SLOTS = 1 << 20
_FINEST = 64
"""A slot is so many milliseconds at least: a period is rounded up to whole slots of whole milliseconds, which
stretches it by less than one in so many."""
_MOST_MERGED = 16_000_000
"""The most events of a slot: more of them lie so near each other that no slots tell them apart."""
_KEPT_EVENTS = 1_000_000
"""About how many events are kept of slots that have been merged."""
_SAMPLED = 100_000
_NONE = np.empty(0, np.int32)


class ReplayOptions(WorkloadOptions):
    """Options of a recording."""

    device_spread: int = Field(
        0, ge=0, le=MAX_DEVICES, description="devices per worker, copies among them"
    )
    devices: int | None = Field(
        None,
        ge=1,
        le=MAX_DEVICES,
        description="total number of devices, divided among the workers: some of those that are recorded, or"
        " all and copies of them",
    )
    sharing_workers: int = Field(
        1, ge=1, le=MAX_DEVICES, description="number of workers that share the devices"
    )
    epoch: Annotated[str, BeforeValidator(read_epoch_option)] = Field(
        "", description="the first time (2024-01-01T00:00:00Z), or now; by default as recorded"
    )


class _Events(NamedTuple):
    """Some events: row of the recording, device among all, and time (and when it is due) in ms since the
    recording's first."""

    rows: Any
    """An array, or of consecutive ones a slice."""
    devices: NDArray[np.integer[Any]]
    times: Rows
    due: Rows

    def take(self, places: Rows | slice) -> _Events:
        """Some of them."""
        return _Events(
            self.rows[places], self.devices[places], self.times[places], self.due[places]
        )


@dataclass(frozen=True)
class _Part:
    """Whole copies of some of the recorded devices: those numbered from `low` to before `high`."""

    copies: range
    low: int
    high: int
    rows: NDArray[np.int32] | None
    """Their rows, in order; None: all."""

    def find_rows(self, places: Rows) -> Rows:
        """The rows at these places of the part."""
        return places if self.rows is None else self.rows[places].astype(np.int64)


@dataclass(frozen=True)
class _Share:
    """What a worker has."""

    group: int
    """The number of the first device of all workers that share them."""
    first: int
    """Its first device, numbered copy by copy."""
    names: NDArray[np.bytes_]
    parts: tuple[_Part, ...]
    bounds: tuple[Rows, ...]
    """For each part, the place of the first of its rows in each slot, and of the end."""
    ends: Rows
    """How many events there are up to each slot's beginning in a repetition, and in all."""

    @property
    def events(self) -> int:
        """Events of a repetition."""
        return int(self.ends[-1])


class Replayed(Workload):
    """Events of a recording. `replay` makes a class of each."""

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
        self._sharing, self._in_all = chosen.sharing_workers, in_all
        if in_all < self._sharing:
            raise OptionError(
                f"workload {self.name} has {in_all} devices in all, too few for {self._sharing} workers:"
                " set the option devices, which makes copies of them"
            )
        self._base = min(sampled, in_all)
        """How many recorded devices are used."""
        self._copies = -(-in_all // self._base)
        self._cut_slots()
        self.device_spread = -(-in_all // self._sharing)
        self._begin_ms = int(self.recording.due_ms[0])
        epoch_ms = header.first_ms if self._copies == 1 else self._begin_ms - header.latest_ms
        if chosen.epoch:
            wanted = read_epoch(chosen.epoch)
            if wanted == NOW:
                raise OptionError(
                    f"workload {self.name} begins now: set the time with its option epoch"
                )
            self._begin_ms += wanted - epoch_ms
            epoch_ms = wanted
        self.schema = replace(self.schema, devices_per_worker=self.device_spread, epoch_ms=epoch_ms)
        self.disorder = self._find_disorder()
        self.own_length_s = self._period_ms / 1000
        self.own_rate_per_s = header.rows / header.devices * in_all / self.own_length_s
        self.own_speed, self.ends = self.recorded.speed, not self.recorded.repeat
        self._shares: dict[int, _Share] = {}
        self._merged: OrderedDict[tuple[int, int, int], _Events] = OrderedDict()
        self._merged_events = 0

    @classmethod
    def begins_now(cls, options: WorkloadOptions) -> bool:
        assert isinstance(options, ReplayOptions)
        return options.epoch == NOW

    @classmethod
    def begin_at(cls, options: WorkloadOptions, now_ms: int) -> WorkloadOptions:
        return options.model_copy(update={"epoch": format_epoch(now_ms)})

    # --- slots ------------------------------------------------------------------------------------

    def _cut_slots(self) -> None:
        """Cut the period into slots, by which copies are shifted."""
        due = self.recording.due_ms
        self._period_ms = int(due[-1] - due[0]) + max(1, round(self.recording.header.interval_ms))
        if self._copies == 1:
            # Nothing is to be merged: numbers are places.
            self._slots, self._turn, self._shifts = 1, 1, 1
            self._slot_ms = self._period_ms
            return
        most = min(_MOST_SLOTS, max(1, self._period_ms // _FINEST))
        self._shifts = min(self._copies, most)
        """How many different shifts there are: copy c has shift c modulo this."""
        wanted = len(self.recording) * self._copies // _SLOT_EVENTS
        self._turn = max(1, min(wanted, most) // self._shifts)
        """The slots from one shift to the next."""
        self._slots = self._turn * self._shifts
        self._slot_ms = -(-self._period_ms // self._slots)
        self._period_ms = self._slot_ms * self._slots

    @cached_property
    def _slot_rows(self) -> Rows:
        """The first row of each slot, and the end."""
        due = self.recording.due_ms
        begins = due[0] + self._slot_ms * np.arange(1, self._slots, dtype=np.int64)
        return np.concatenate([[0], np.searchsorted(due, begins), [len(due)]])

    def _find_disorder(self) -> int:
        """How many events lie at most between two that aren't in the order of time."""
        header = self.recording.header
        if self._copies == 1 or not header.late:
            return header.disorder
        most = int(np.diff(self._slot_rows).max()) * self._copies
        return most * (2 + header.latest_ms // self._slot_ms)

    # --- what a worker has ------------------------------------------------------------------------

    def _share(self, worker: int) -> _Share:
        share = self._shares.get(worker)
        if share is None:
            if len(self._shares) >= 4:
                self._shares.clear()
            share = self._shares[worker] = self._deal(worker)
        return share

    def _own(self, worker: int) -> tuple[int, int, int]:
        """The number of the first device of all workers that share them, and behind it the worker's own first
        device and the end. More workers than share them send other devices of the same recording."""
        group, place = divmod(worker, self._sharing)
        start, stop = (self._in_all * border // self._sharing for border in (place, place + 1))
        return group * self._copies * self._base, start, stop

    def _deal(self, worker: int) -> _Share:
        group, first, end = self._own(worker)
        parts, at = [], first
        while at < end:
            copy, low = divmod(at, self._base)
            if low or end - at < self._base:
                high = min(self._base, low + end - at)
                parts.append(self._make_part(range(copy, copy + 1), low, high))
                at += high - low
            else:
                until = end // self._base
                parts.append(self._make_part(range(copy, until), 0, self._base))
                at = until * self._base
        bounds = tuple(
            self._slot_rows if part.rows is None else np.searchsorted(part.rows, self._slot_rows)
            for part in parts
        )
        counted = sum(
            self._count_by_slot(part, np.diff(bound))
            for part, bound in zip(parts, bounds, strict=True)
        )
        ends = np.concatenate([[0], np.cumsum(counted)])
        if self._copies > 1 and np.max(counted) > _MOST_MERGED:
            raise OptionError(
                f"workload {self.name}: {np.max(counted):,} of its events are due within {self._slot_ms} ms,"
                " too many to be sent by one worker: use fewer devices, or more workers"
            )
        names = self._name(group + first, group + end)
        return _Share(group, group + first, names, tuple(parts), bounds, ends)

    def _make_part(self, copies: range, low: int, high: int) -> _Part:
        if low == 0 and high == self.recording.header.devices:
            return _Part(copies, low, high, None)
        numbers = self.recording.device_numbers
        # They may be more than memory should hold, and are mapped as the recording is.
        with TemporaryFile(dir=self.recording.folder.parent) as file:
            for rows in chunks(len(numbers)):
                own = np.asarray(numbers[rows])
                chosen = np.flatnonzero((own >= low) & (own < high)) + rows.start
                file.write(chosen.astype(np.int32).tobytes())
            file.flush()
            found = np.asarray(np.memmap(file, np.int32, "r")) if file.tell() else _NONE
        return _Part(copies, low, high, found)

    def _count_by_slot(self, part: _Part, counts: Rows) -> Rows:
        """How many events all copies of a part have in each slot, whose rows are counted."""
        whole, rest = divmod(len(part.copies), self._shifts)
        # The shifts of consecutive copies lie `turn` slots apart: sums of a row of these are differences.
        by_turn = counts.reshape(self._shifts, self._turn)
        twice = np.concatenate([by_turn, by_turn])
        sums = np.concatenate([np.zeros((1, self._turn), np.int64), np.cumsum(twice, axis=0)])
        first = part.copies.start % self._shifts
        begins = (np.arange(self._shifts) + first) % self._shifts
        summed = sums[begins + rest] - sums[begins] + whole * by_turn.sum(axis=0)
        counted: Rows = summed.reshape(-1)
        return counted

    def _name(self, first: int, stop: int) -> NDArray[np.bytes_]:
        """Names of devices: those that are recorded, and copies, which have their number behind the name."""
        names = self.recording.devices
        numbers = np.arange(first, stop)
        copies, places = np.divmod(numbers, self._base)
        if not copies.any():
            return names[places]
        texts = names[places].tolist()
        return np.array(
            [
                b"%s~%d" % (name, copy) if copy else name
                for name, copy in zip(texts, copies.tolist(), strict=True)
            ]
        )

    def device_rows(self, worker: int) -> Iterator[Mapping[str, NDArray[Any]]]:
        share = self._share(worker)
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
        """What a tag says of devices, by their numbers among all."""
        places = self.recording.values(name)[devices % self._base]
        return self.recording.texts(name).take(places)

    def devices(self, worker: int) -> NDArray[np.bytes_]:
        return self._share(worker).names

    def device_count(self, worker: int) -> int:
        _, first, stop = self._own(worker)
        return stop - first

    # --- events -----------------------------------------------------------------------------------

    def block(self, worker: int, first: int, count: int, time_origin: int = 0) -> EventBlock:
        share = self._share(worker)
        # Events have no sequence number: --timestamps restart, and so a `time_origin`, is refused for them.
        blocks: list[EventBlock] = []
        number, stop = first, first + count
        while number < stop or not blocks:
            repetition, place = divmod(number, share.events)
            until = min(share.events, place + stop - number)
            events = self._list(worker, share, place, until)
            later = events._replace(times=events.times + repetition * self._period_ms)
            blocks.append(self._make(worker, number, share, later))
            number += until - place
        return join_blocks(blocks)

    def pick(self, worker: int, numbers: Rows) -> EventBlock:
        share = self._share(worker)
        return self._make(worker, int(numbers[0]), share, self._find(worker, share, numbers))

    def locate(self, workers: Rows, numbers: Rows) -> tuple[NDArray[np.bytes_], Rows]:
        names: list[NDArray[np.bytes_]] = []
        times = np.empty(len(numbers), dtype=np.int64)
        places = np.empty(len(numbers), dtype=np.intp)
        done = 0
        for worker in np.unique(workers).tolist():
            own = np.flatnonzero(workers == worker)
            share = self._share(worker)
            events = self._find(worker, share, numbers[own])
            times[own] = self._begin_ms + events.times * self.clock_factor
            names.append(share.names[events.devices - share.first])
            places[own] = np.arange(done, done + len(own))
            done += len(own)
        return np.concatenate(names)[places], times

    def find_due_ms(self, worker: int, numbers: Rows) -> Rows:
        return self._find(worker, self._share(worker), numbers).due

    def _list(self, worker: int, share: _Share, place: int, until: int) -> _Events:
        """Consecutive events of a repetition."""
        if self._copies == 1:
            [part] = share.parts
            rows: Rows | slice = slice(place, until)
            if part.rows is not None:
                rows = part.rows[place:until].astype(np.int64)
            return self._take(rows, share.group)
        slots = np.searchsorted(share.ends, [place, until - 1], side="right") - 1
        low, high = int(slots[0]), int(slots[1]) + 1
        events = self._merge(worker, share, low, high)
        own = slice(place - int(share.ends[low]), until - int(share.ends[low]))
        return events.take(own)

    def _find(self, worker: int, share: _Share, numbers: Rows) -> _Events:
        """Any events."""
        repetitions, places = np.divmod(numbers, share.events)
        later = repetitions * self._period_ms
        if self._copies == 1:
            [part] = share.parts
            rows, devices, times, due = self._take(part.find_rows(places), share.group)
        else:
            slots = np.searchsorted(share.ends, places, side="right") - 1
            rows, devices, times, due = (np.empty(len(numbers), np.int64) for _ in range(4))
            for slot in np.unique(slots).tolist():
                own = np.flatnonzero(slots == slot)
                merged = self._merge(worker, share, slot, slot + 1)
                at = places[own] - int(share.ends[slot])
                for target, source in zip((rows, devices, times, due), merged, strict=True):
                    target[own] = source[at]
        return _Events(rows, devices, times + later, due + later)

    def _take(self, rows: Rows | slice, ahead: int = 0) -> _Events:
        """Rows of the recording itself; `ahead`: the number of its first device."""
        begin = int(self.recording.due_ms[0])
        times = self.recording.times_ms[rows] - begin
        due = self.recording.due_ms[rows] - begin if self.recording.header.late else times
        devices = self.recording.device_numbers[rows]
        return _Events(rows, devices + ahead if ahead else devices, times, due)

    def _merge(self, worker: int, share: _Share, low: int, high: int) -> _Events:
        """All events of these slots, in the order in which they are sent."""
        key = worker, low, high
        if (known := self._merged.get(key)) is not None:
            self._merged.move_to_end(key)
            return known
        slots = np.arange(low, high, dtype=np.int64)[:, None]
        found: list[_Events] = []
        for part, bounds in zip(share.parts, share.bounds, strict=True):
            copies = np.array(part.copies, dtype=np.int64)[None, :]
            sources = (slots + copies % self._shifts * self._turn) % self._slots
            starts, counts = bounds[sources], np.diff(bounds)[sources]
            counts, starts = counts.reshape(-1), starts.reshape(-1)
            before = np.cumsum(counts) - counts
            places = np.repeat(starts - before, counts) + np.arange(counts.sum())
            events = self._take(part.find_rows(places))
            shifts = np.repeat(((slots - sources) * self._slot_ms).reshape(-1), counts)
            whose = np.repeat(np.broadcast_to(copies, sources.shape).reshape(-1), counts)
            found.append(
                _Events(
                    events.rows,
                    share.group + whose * self._base + events.devices,
                    events.times + shifts,
                    events.due + shifts,
                )
            )
        rows, devices, times, due = map(np.concatenate, zip(*found, strict=True))
        joined = _Events(rows, devices, times, due)
        order = np.argsort(joined.due, kind="stable")
        merged = joined.take(order)
        self._merged[key] = merged
        self._merged_events += len(merged.due)
        while self._merged_events > _KEPT_EVENTS and len(self._merged) > 1:
            _, oldest = self._merged.popitem(last=False)
            self._merged_events -= len(oldest.due)
        return merged

    def _make(self, worker: int, first: int, share: _Share, events: _Events) -> EventBlock:
        recording, rows = self.recording, events.rows
        times = self._begin_ms + events.times * self.clock_factor
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

    # --- what is known of all ---------------------------------------------------------------------

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
        if not self.late_share or count > _MOST_MERGED:
            return self.late_share
        events = self._find(worker, self._share(worker), np.arange(first, first + count))
        return float((events.times < np.maximum.accumulate(events.times)).mean())

    @cached_property
    def _rows_until(self) -> Rows:
        """How many rows the devices before each of those that are used have, and all of them."""
        numbers, counts = self.recording.device_numbers, np.zeros(self._base, dtype=np.int64)
        for some in chunks(len(numbers)):
            counts += np.bincount(numbers[some], minlength=self._base)[: self._base]
        return np.concatenate([[0], np.cumsum(counts)])

    def turn(self, worker: int) -> int:
        until = self._rows_until
        start, stop = (divmod(device, self._base) for device in self._own(worker)[1:])
        return int((stop[0] - start[0]) * until[-1] + until[stop[1]] - until[start[1]])

    def devices_among(self, worker: int, first: int, count: int) -> NDArray[np.bytes_]:
        share = self._share(worker)
        if count >= share.events:
            return share.names
        there = np.zeros(len(share.names), dtype=np.bool_)
        for some in chunks(count):
            numbers = np.arange(first + some.start, first + some.stop)
            there[self._find(worker, share, numbers).devices - share.first] = True
        return share.names[there]


# --- from definition to class ---------------------------------------------------------------------


def _find_interval_ms(header: Header) -> float:
    """From one event of a device to its next on average. As in a period, the last has one, too."""
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
