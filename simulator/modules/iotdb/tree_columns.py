"""A block's measurements, and the order in which its events go to the tablets of single devices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...encoding.columns import BIG_ENDIAN, all_alike, is_constant, octets_of
from ...workloads.events import EventBlock
from ...workloads.schema import ColumnType
from .encoding import TableColumn

_SHORT = 4
"""Names that differ in so many places are told apart by those, as one number."""


class Rows(NamedTuple):
    """The rows of a block that are in some runs of the same size."""

    chosen: NDArray[np.intp]
    """The runs' numbers."""
    places: NDArray[np.intp] | slice
    size: int
    turns: int = 0
    """Of a whole block whose devices take turns in the order of their names, how many do; else 0."""

    @property
    def runs(self) -> int:
        return self.chosen.size

    def pick(self, values: NDArray[Any]) -> NDArray[Any]:
        """Their values, in a row for each run."""
        if self.turns:
            values = values.reshape(-1, self.size, self.turns).transpose(0, 2, 1)
            return values.reshape(self.runs, self.size)
        return values[self.places].reshape(self.runs, self.size)


class Runs(NamedTuple):
    """A block's tablets: runs of one request's, one table's and one device's events, by time."""

    order: NDArray[np.intp] | None
    """The block's rows in the runs' order; None: they are in it."""
    starts: NDArray[np.intp]
    firsts: NDArray[np.intp]
    """The block's row with which each run starts."""
    sizes: NDArray[np.intp]
    """How many events each run has."""
    requests: NDArray[np.intp]
    """The number of each run's request; they rise."""
    tables: NDArray[np.intp]
    devices: NDArray[np.bytes_]
    turns: int = 0
    """How many devices take turns throughout, so that each request has a run of each of them, all of one
    size; 0: that isn't known."""

    def find_rows(self, chosen: NDArray[np.intp], size: int) -> Rows:
        """The rows of these runs, which have so many events."""
        starts = self.starts[chosen]
        first, end = int(starts[0]), int(starts[-1]) + size
        places: NDArray[np.intp] | slice = slice(first, end)
        if end - first != starts.size * size:
            places = (starts[:, None] + np.arange(size)).reshape(-1)
        if self.order is None:
            return Rows(chosen, places, size)
        is_whole = chosen.size == self.starts.size
        is_named = bool((np.diff(self.firsts[: self.turns]) == 1).all())
        turns = self.turns if is_whole and is_named else 0
        return Rows(chosen, self.order[places], size, turns)

    def find_turns(self, run: int) -> Rows:
        """Where devices take turns: the rows of this run of the first request, and of its device's in all
        others."""
        chosen = np.arange(run, self.starts.size, self.turns)
        return Rows(chosen, slice(int(self.firsts[run]), None, self.turns), int(self.sizes[run]))

    def find_all(self, found: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Of each run whether any of its events is among these rows."""
        return np.logical_or.reduceat(self._arrange(found), self.starts)

    def find_alike(self, numbers: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.bool_]]:
        """Of each run the least of its events' numbers, and whether it is the greatest, too."""
        arranged = self._arrange(numbers)
        least = np.minimum.reduceat(arranged, self.starts)
        return least, least == np.maximum.reduceat(arranged, self.starts)

    def _arrange(self, values: NDArray[Any]) -> NDArray[Any]:
        return values if self.order is None else values[self.order]


def find_runs(block: EventBlock, time: str, batch: int, tables: int) -> Runs:
    """The tablets of a block's requests of `batch` events, which go to so many tables in turn."""
    count, times = len(block), block.columns[time]
    is_sorted = bool((times[1:] >= times[:-1]).all())
    if is_sorted and tables == 1 and (turns := _count_turns(block.devices, batch)):
        return _take_turns(block, batch, turns)
    rows = np.arange(count)
    places = rows // batch * tables + (block.first + rows) % tables
    numbers, kinds = _number_devices(block.devices)
    keys = places if numbers is None else places * kinds + numbers
    order = None
    if not is_sorted:
        order = np.lexsort((times, keys))
    elif numbers is not None or tables > 1:
        order = np.argsort(keys, kind="stable")
    if order is not None:
        keys, places = keys[order], places[order]
    starts = np.flatnonzero(np.append(True, keys[1:] != keys[:-1]))
    firsts = starts if order is None else order[starts]
    requests, dealt = np.divmod(places[starts], tables)
    sizes = np.diff(starts, append=count)
    return Runs(order, starts, firsts, sizes, requests, dealt, block.devices[firsts])


def _count_turns(devices: NDArray[np.bytes_], batch: int) -> int:
    """How many devices take turns throughout, if each request of so many events ends with the last of them;
    0: they don't."""
    if is_constant(devices) or len(devices) % batch:
        return 0
    again = devices[1 : batch + 1] == devices[0]
    turns = int(again.argmax()) + 1
    # Where the first one doesn't come again, it isn't found at 0 either.
    if not again[turns - 1] or batch % turns or turns == 1:
        return 0
    octets = octets_of(devices)
    is_alike = bool((octets[turns:] == octets[:-turns]).all())
    return turns if is_alike and len(set(devices[:turns].tolist())) == turns else 0


def _take_turns(block: EventBlock, batch: int, turns: int) -> Runs:
    """The tablets of one table's requests, in which so many devices take turns. They are in the order that
    sorting gives."""
    requests, size = len(block) // batch, batch // turns
    rows = np.arange(len(block)).reshape(requests, size, turns).transpose(0, 2, 1)
    names = block.devices[:turns]
    if (names[1:] < names[:-1]).any():
        rows = rows[:, np.argsort(names)]
    order = np.ascontiguousarray(rows).reshape(-1)
    starts = np.arange(0, len(block), size)
    firsts = order[starts]
    return Runs(
        order,
        starts,
        firsts,
        np.full(len(starts), size),
        np.repeat(np.arange(requests), turns),
        np.zeros(len(starts), np.intp),
        block.devices[firsts],
        turns,
    )


def _number_devices(devices: NDArray[np.bytes_]) -> tuple[NDArray[np.int64] | None, int]:
    """A number for each event's device, and what all of them are below; None: there is one device."""
    if is_constant(devices) or all_alike(devices):
        return None, 1
    octets = octets_of(devices)
    differing = np.flatnonzero((octets != octets[0]).any(axis=0))
    if len(differing) > _SHORT:
        names, numbers = np.unique(devices, return_inverse=True)
        return numbers, len(names)
    numbers = np.zeros(len(devices), dtype=np.int64)
    for place in differing.tolist():
        numbers <<= 8
        numbers += octets[:, place]
    return numbers, 256 ** len(differing)


class Measured(NamedTuple):
    """The values of a measurement."""

    kind: str | None
    """Numpy's type of the bytes that are sent; None: a text."""
    values: NDArray[Any]
    missing: NDArray[np.bool_] | None
    """Where there is none."""
    lengths: NDArray[np.int64] | None
    """Of texts that differ in length, 0 where one is missing."""
    length: int
    """Of all texts that don't."""
    per_run: bool = False
    """Whether there is one value for each run, and not for each event."""

    def pick(self, rows: Rows) -> Any:
        """The values of these rows, a row for each run, or what stands for all of them there."""
        if is_constant(self.values):
            return self.values[0]
        return self.values[rows.chosen, None] if self.per_run else rows.pick(self.values)

    def length_of(self, run: int) -> int:
        """Of the texts of a run, if they have one length there: of numbers 0."""
        return self.length if self.lengths is None else int(self.lengths[run])

    def spell_rows(self, rows: Rows) -> list[bytes]:
        """The values of these rows as bytes, each on its own; of a missing one something."""
        return self.spell(np.repeat(rows.chosen, rows.size) if self.per_run else rows.places)

    def spell(self, places: NDArray[np.intp] | slice) -> list[bytes]:
        """The values at these places as bytes, each on its own; of a missing one something."""
        values = self.values[places]
        if self.kind is not None:
            packed = np.ascontiguousarray(values.astype(self.kind))
            spelt: list[bytes] = packed.view(f"V{packed.itemsize}").tolist()
            return spelt
        texts: list[bytes] = values.tolist()
        if self.missing is not None:
            gone = self.missing[places].tolist()
            texts = [b"" if no else text for text, no in zip(texts, gone, strict=True)]
        return [len(text).to_bytes(4, "big") + text for text in texts]


def measure(column: TableColumn, block: EventBlock, runs: Runs | None = None) -> Measured:
    """A measurement of a block's events. What follows from the device is taken once for each of the runs."""
    values, missing = block.columns[column.name], block.missing.get(column.name)
    if missing is not None and not missing.any():
        missing = None
    per_run = False
    if runs is not None and column.is_of_device and missing is None and not is_constant(values):
        values, per_run = values[runs.firsts], True
    if kind := BIG_ENDIAN.get(column.column.type):
        return Measured(kind, values, missing, None, 0, per_run)
    if missing is None and is_constant(values):
        return Measured(None, values, None, None, len(values[0]))
    octets = octets_of(values)
    if missing is None and octets.shape[1] and octets[:, -1].all():
        return Measured(None, values, None, None, octets.shape[1], per_run)
    lengths = np.char.str_len(values)
    if missing is not None:
        lengths[missing] = 0
    return Measured(None, values, missing, lengths, 0, per_run)


def measure_times(times: NDArray[np.int64]) -> Measured:
    """When a block's events were."""
    return Measured(BIG_ENDIAN[ColumnType.TIMESTAMP_MS], times, None, None, 0)


def pack_bits(columns: Sequence[Measured], rows: Rows) -> NDArray[np.uint8]:
    """Of each run where values are missing, of all columns: nothing if none is."""
    gaps = [None if one.missing is None else rows.pick(one.missing) for one in columns]
    runs = rows.runs
    if not any(gap is not None and gap.any() for gap in gaps):
        return np.empty((runs, 0), np.uint8)
    size = rows.size // 8 + 1
    pieces = []
    for gap in gaps:
        if gap is None:
            pieces.append(np.zeros((runs, 1), np.uint8))
            continue
        bits = np.zeros((runs, 1 + size), np.uint8)
        bits[:, 0] = 1
        packed = np.packbits(gap, axis=1, bitorder="little")
        bits[:, 1 : 1 + packed.shape[1]] = packed
        pieces.append(bits)
    return np.concatenate(pieces, axis=1)
