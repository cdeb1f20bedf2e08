"""Finds out which events a database holds, before a run and after its prefill, so that queries can be drawn
for them and answers checked."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import ceil
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..contract import Role, RunSettings, StoredPart, Timestamps, share
from ..errors import SimulatorError
from ..modules.base import AnyModule
from ..workloads.base import MOST_FIELDS, SHARING_WORKERS, Workload
from ..workloads.drawing import Range, Stored, bind, draw
from ..workloads.numbering import WithHistory
from ..workloads.queries import Aggregate, At, Function, Query, Window
from .answers import answer, compare_answers


@dataclass(frozen=True)
class Beginning:
    """The number of each writer's first event in a run, and how many events it prefills."""

    settings: RunSettings
    workload: Workload
    first_event: int = 0
    """Without a history: the number of every writer's first event."""
    next_events: Mapping[int, int] = field(default_factory=dict)
    """With a history: from which number each worker that has stored something continues."""
    is_certain: bool = True
    """With a history: whether all events before these numbers are stored, and nothing else."""

    @property
    def has_history(self) -> bool:
        """Whether the workload begins with a history."""
        return isinstance(self.workload, WithHistory)

    @property
    def writers(self) -> Iterator[int]:
        """The workers that insert, or prefill."""
        for group in self.settings.groups_of(Role.WRITE, Role.FILL):
            yield from range(group.first, group.end)

    def first_of(self, worker: int) -> int:
        """The number of a worker's first event, a prefill's among them."""
        return self.next_events.get(worker, 0) if self.has_history else self.first_event

    def prefill_of(self, worker: int) -> int:
        """How many events a worker inserts before the start: the missing part of a history, and its share of
        the prefill."""
        group = self.settings.group_of(worker)
        if group.load.role not in (Role.WRITE, Role.FILL):
            return 0
        own = share(self.settings.data.prefill, group.load.workers, worker - group.first)
        if isinstance(self.workload, WithHistory):
            own += max(0, self.workload.count_history(worker) - self.first_of(worker))
        return own

    @property
    def prefill(self) -> int:
        """How many events all writers prefill."""
        return sum(map(self.prefill_of, self.writers))

    def list_prefilled(self) -> list[StoredPart]:
        """What is stored after the prefill, as far as this run knows: with a history, everything."""
        if not self.has_history:
            return [
                StoredPart(worker, self.first_event, count)
                for worker in self.writers
                if (count := self.prefill_of(worker))
            ]
        until = dict(self.next_events)
        until |= {
            worker: self.first_of(worker) + self.prefill_of(worker) for worker in self.writers
        }
        return [StoredPart(worker, 0, count) for worker, count in sorted(until.items())]

    def find_next(self, counts: Mapping[int, int]) -> dict[int, int]:
        """With a history: from which number each worker continues, after writers have stored this many events
        of this run."""
        until = {part.worker: part.count for part in self.list_prefilled()}
        return {worker: count + counts.get(worker, 0) for worker, count in until.items()}

    def find_frontier(self) -> int | None:
        """The earliest time, in ms since 1970, of events after the prefill; None if there are no writers."""
        begins = {own: self.first_of(own) + self.prefill_of(own) for own in self.writers}
        return self._find_earliest(begins) if begins else None

    def skip_to(self, newest_ms: int) -> Beginning:
        """Without a history: behind all stored events, of which the newest has this time."""
        first = self.first_event
        step = max(map(self.workload.device_count, self.writers))
        while self._find_earliest(dict.fromkeys(self.writers, first)) <= newest_ms:
            first, step = first + step, 2 * step
        return replace(self, first_event=first)

    def _find_earliest(self, begins: Mapping[int, int]) -> int:
        """The earliest time of events from these numbers of workers on."""
        time, count = self.workload.schema.time, self.workload.disorder + 1
        blocks = (self.workload.block(worker, first, count) for worker, first in begins.items())
        return min(int(block.columns[time].min()) for block in blocks)


# --- what is stored -------------------------------------------------------------------------------

MOST_SHARING = 32
"""The highest number of sharing workers that is tried."""

_SAMPLED = 3
"""How many events' values are checked: if those of one are right, so is the seed."""


class UnknownEvents(SimulatorError):
    """It isn't known which events are stored; the text says why."""


class OtherEvents(UnknownEvents):
    """The stored events don't belong to this seed and these options."""


@dataclass(frozen=True)
class RecognizedEvents:
    """The events that are stored."""

    workload: Workload
    """With the number of workers that shared its devices when the events were inserted."""
    parts: list[StoredPart]

    @property
    def sharing_workers(self) -> int | None:
        """How many workers shared the workload's devices; None if it has none that are shared."""
        workers = self.workload.options.model_dump().get(SHARING_WORKERS)
        return None if workers is None else int(workers)


def find_stored(begin: Beginning, module: AnyModule) -> RecognizedEvents:
    """The events stored when readers begin: those of the prefill, or what the database reports.
    UnknownEvents, with the reason, if that isn't known."""
    workload = begin.workload
    if not begin.settings.groups_of(Role.WRITE, Role.FILL):
        return recognize_events(module, workload, survey_devices(module, workload))
    if begin.settings.data.timestamps is Timestamps.RESTART and begin.first_event:
        raise UnknownEvents("with --timestamps restart, events repeat the times of earlier ones")
    if begin.is_certain:
        parts = begin.list_prefilled()
    elif isinstance(workload, WithHistory) and workload.history is not None:
        # What earlier runs have added comes later in time, as what this run adds.
        parts = [StoredPart(own, 0, workload.count_history(own)) for own in begin.writers]
    else:
        raise UnknownEvents("events of earlier runs have gaps")
    if not parts:
        raise UnknownEvents("no known events are stored before the run: set --prefill")
    return RecognizedEvents(workload, parts)


def resume_history(begin: Beginning, module: AnyModule) -> Beginning:
    """The beginning of a run on existing tables: each worker continues where it ended. OtherEvents if they
    hold anything but the history, UnknownEvents if that can't be found out."""
    workload = begin.workload
    assert isinstance(workload, WithHistory)
    inventory = survey_devices(module, workload)
    if not len(inventory):
        return begin
    try:
        recognized = recognize_events(module, workload, inventory)
    except UnknownEvents:
        if workload.history is None:
            raise
        next_events = find_next(workload, inventory)
        _check_history(module, workload, inventory, next_events)
        return replace(begin, next_events=next_events, is_certain=False)
    if recognized.workload is not workload:
        raise OtherEvents(
            f"they are from {recognized.sharing_workers} workers that share the devices"
        )
    return replace(begin, next_events={part.worker: part.count for part in recognized.parts})


def find_next(workload: WithHistory, inventory: DeviceInventory) -> dict[int, int]:
    """For each worker, a number after its last event in time; there may be gaps before it. OtherEvents if not
    all devices have the history's first event."""
    next_events: dict[int, int] = {}
    covered = 0
    while covered < len(inventory):
        worker = len(next_events)
        names, history = workload.devices(worker), workload.count_history(worker)
        places = inventory.find(names)
        first = workload.block(worker, 0, len(names))
        if not (
            np.all(places >= 0)
            and np.array_equal(inventory.first_ms[places], first.columns[workload.schema.time])
        ):
            raise OtherEvents("they are not the history's")
        border_ms = int(workload.block(worker, history, 1).columns[workload.schema.time][0])
        epoch_ms, last_ms = workload.schema.epoch_ms, int(inventory.last_ms[places].max())
        begun, passed = (workload.find_tick(at - epoch_ms) for at in (border_ms, last_ms))
        ticks = passed - begun
        next_events[worker] = history + (ceil(max(0, ticks)) + 1) * len(names) + workload.disorder
        covered += len(names)
    return next_events


def _check_history(
    module: AnyModule, workload: WithHistory, inventory: DeviceInventory, workers: Iterable[int]
) -> None:
    """OtherEvents if a device has fewer or more events before the measured data than the history has."""
    time, count = workload.schema.time, workload.disorder + 1
    end_ms = min(
        int(workload.block(worker, workload.count_history(worker), count).columns[time].min())
        for worker in workers
    )
    start_ms = int(inventory.first_ms.min())
    assert workload.history is not None
    query = Query(
        name="history",
        window=Window(span=end_ms - start_ms, at=At.FIRST),
        compute=(Aggregate(function=Function.COUNT),),
        per=(workload.schema.device,),
    )
    _require(module, query)
    rows = module.fetch(module.compile(bind(query, start_ms)))
    if len(rows) != len(inventory) or any(row[1] != workload.history.count for row in rows):
        raise OtherEvents("they are not the history's")


# --- what the database reports --------------------------------------------------------------------


@dataclass(frozen=True)
class DeviceInventory:
    """What a database reports about its devices, in the order of their names."""

    names: NDArray[np.bytes_]
    counts: NDArray[np.int64]
    """How many events each device has."""
    first_ms: NDArray[np.int64]
    last_ms: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.names)

    @classmethod
    def of(cls, rows: Iterable[tuple[Any, ...]]) -> DeviceInventory:
        """From rows of name, number of events, and times of the first and the last event."""
        names, counts, first, last = list(zip(*rows, strict=True)) or ((), (), (), ())
        texts = np.array([name.encode() for name in names], dtype=np.bytes_)
        order = np.argsort(texts)
        numbers = (np.array(column, dtype=np.int64)[order] for column in (counts, first, last))
        return cls(texts[order], *numbers)

    def find(self, names: NDArray[np.bytes_]) -> NDArray[np.intp]:
        """The index of each name; -1 if it isn't there."""
        places = np.minimum(np.searchsorted(self.names, names), len(self) - 1)
        return np.where(self.names[places] == names, places, -1)


def survey_devices(module: AnyModule, workload: Workload) -> DeviceInventory:
    """What the database reports about its devices. UnknownEvents if it supports no such query."""
    schema = workload.schema
    times = (Aggregate(function=f, column=schema.time) for f in (Function.MIN, Function.MAX))
    count = Aggregate(function=Function.COUNT)
    survey = Query(name="survey", compute=(count, *times), per=(schema.device,))
    _require(module, survey)
    return DeviceInventory.of(module.fetch(module.compile(bind(survey, schema.epoch_ms))))


def _require(module: AnyModule, query: Query) -> None:
    lacking = module.job.schema.shapes_of(query) - frozenset(module.CAPABILITIES.shapes)
    if lacking:
        raise UnknownEvents(
            f"module {module.name} can't find out which events are stored: it supports no queries with"
            f" {', '.join(sorted(lacking))}"
        )


# --- which events these are -----------------------------------------------------------------------


def recognize_events(
    module: AnyModule, workload: Workload, inventory: DeviceInventory
) -> RecognizedEvents:
    """The workload's events that match the stored ones; UnknownEvents if there are none. Compares each
    device's number and times of events, and then the values of some events."""
    recognized = recognize_devices(workload, inventory)
    workload = recognized.workload
    fields = tuple(workload.schema.fields[:MOST_FIELDS])
    if not fields:
        raise UnknownEvents(
            "events without numbers can't be distinguished from those of another seed"
        )
    sample = Query(name="sample", devices=1, instant=True, events=fields)
    _require(module, sample)
    stored = Stored(workload, recognized.parts)
    for number in range(_SAMPLED):
        bound = draw(sample, stored, 0, number)
        if compare_answers(answer(bound, stored), module.fetch(module.compile(bound))) is None:
            return recognized
    raise OtherEvents(f"they have other values than events of seed {workload.seed}")


def recognize_devices(workload: Workload, inventory: DeviceInventory) -> RecognizedEvents:
    """The same by numbers and times alone: consecutive events of each worker."""
    if not len(inventory):
        raise UnknownEvents("no events are stored: run insert first")
    refused: UnknownEvents | None = None
    for candidate in _list_candidates(workload):
        try:
            return RecognizedEvents(candidate, _recognize_parts(candidate, inventory))
        except UnknownEvents as error:
            refused = refused or error
    assert refused is not None
    raise refused


def _list_candidates(workload: Workload) -> Iterator[Workload]:
    """The workload; also with other numbers of workers that shared its devices, if that number isn't
    known."""
    yield workload
    options = workload.options.model_dump()
    if options.get(SHARING_WORKERS) != 1:
        return
    devices = len(workload.devices(0))
    for workers in range(2, min(MOST_SHARING, devices) + 1):
        candidate = workload.remake(**{SHARING_WORKERS: workers})
        if len(candidate.devices(0)) == devices:
            return  # each worker has its own
        yield candidate


def _recognize_parts(workload: Workload, inventory: DeviceInventory) -> list[StoredPart]:
    """The consecutive events of each worker that match the numbers and times of its devices."""
    parts: list[StoredPart] = []
    unplaced = np.ones(len(inventory), dtype=bool)
    while unplaced.any():
        worker = len(parts)
        names = workload.devices(worker)
        places = inventory.find(names)
        there = places[places >= 0]
        if not len(there):
            stranger = bytes(inventory.names[np.argmax(unplaced)]).decode(errors="replace")
            raise OtherEvents(f"unknown events of device {stranger!r}")
        count = int(inventory.counts[there].sum())
        since = int(inventory.first_ms[there].min()) - workload.schema.epoch_ms
        ticks, devices = workload.find_tick(since), len(names)
        # Devices take turns, or all have an event at each tick.
        guesses = (0, round(ticks * devices), int(ticks) * devices)
        for number in dict.fromkeys(max(0, guess) for guess in guesses):
            part = StoredPart(worker, number, count)
            if _has_these(workload, part, names, inventory, places):
                break
        else:
            raise OtherEvents(
                f"the {count:,} events of device {bytes(names[0]).decode()} and similar ones have other"
                f" times than {count:,} consecutive events of seed {workload.seed}"
            )
        parts.append(part)
        unplaced[there] = False
    return parts


def _has_these(
    workload: Workload,
    part: StoredPart,
    names: NDArray[np.bytes_],
    inventory: DeviceInventory,
    places: NDArray[np.intp],
) -> bool:
    """Whether the part's devices have the numbers and times that were found."""
    # Each device's first event is among the first `edge` events, its last one among as many at the end.
    edge = workload.turn(part.worker) + 2 * workload.disorder + 2
    starts = [(part.first, min(edge, part.count))]
    if part.count > edge:
        size = min(edge, part.count - edge)
        starts.append((part.first + part.count - size, size))
    order = np.argsort(names)
    first = np.full(len(names), np.iinfo(np.int64).max)
    last = np.full(len(names), np.iinfo(np.int64).min)
    counts = np.zeros(len(names), dtype=np.int64)
    in_turn = workload.turn(part.worker) == len(names)
    stored = Stored(workload, [part])
    for block in stored.blocks(Range(0, start, start + size) for start, size in starts):
        times = block.columns[workload.schema.time]
        devices = order[np.searchsorted(names, block.devices, sorter=order)]
        np.minimum.at(first, devices, times)
        np.maximum.at(last, devices, times)
        counts += np.bincount(devices, minlength=len(names))
        numbers = np.arange(block.first, block.first + len(block))
        in_turn &= bool(np.all(devices == numbers % len(names)))
    if part.count > 2 * edge and in_turn:
        numbers = np.arange(len(names))
        until = part.first + part.count - 1 - numbers
        counts = until // len(names) - (part.first - 1 - numbers) // len(names)
    there = places >= 0
    if not np.array_equal(there, counts > 0):
        return False
    at = places[there]
    exact = part.count <= 2 * edge or in_turn
    return (
        np.array_equal(inventory.first_ms[at], first[there])
        and np.array_equal(inventory.last_ms[at], last[there])
        and (not exact or np.array_equal(inventory.counts[at], counts[there]))
    )
