"""A block's columns as bytes, in the order in which they go to the tablets of single devices."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...encoding import BIG_ENDIAN, all_alike, is_constant, octets_of
from ...workloads.base import EventBlock
from .encoding import TableColumn

_SHORT = 4
"""Names that differ in so many places are told apart by those, as one number."""


class Runs(NamedTuple):
    """A block's tablets: runs of one request's, one table's and one device's events, by time."""

    order: NDArray[np.intp] | None
    """The block's rows in the runs' order; None: they are in it."""
    starts: NDArray[np.intp]
    ends: NDArray[np.intp]
    requests: NDArray[np.intp]
    """The number of each run's request; they rise."""
    tables: NDArray[np.intp]
    devices: NDArray[np.bytes_]


def find_runs(block: EventBlock, time: str, batch: int, tables: int) -> Runs:
    """The tablets of a block's requests of `batch` events, which go to so many tables in turn."""
    count, times = len(block), block.columns[time]
    rows = np.arange(count)
    is_sorted = bool((times[1:] >= times[:-1]).all())
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
    ends = np.append(starts[1:], count)
    firsts = starts if order is None else order[starts]
    requests, dealt = np.divmod(places[starts], tables)
    return Runs(order, starts, ends, requests, dealt, block.devices[firsts])


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


class Packed(ABC):
    """A column's values as bytes."""

    missing: NDArray[np.bool_] | None = None
    """Where there is none."""

    @abstractmethod
    def cut(self, starts: NDArray[np.intp], rows: int) -> NDArray[np.uint8] | list[bytes]:
        """Of each run that begins there its values, so many: a row of bytes if all have the same length."""

    @abstractmethod
    def rows(self) -> Sequence[bytes]:
        """Each value on its own."""

    def cut_missing(self, starts: NDArray[np.intp], rows: int) -> NDArray[np.bool_]:
        """Of each run where its values are missing."""
        assert self.missing is not None
        found: NDArray[np.bool_] = self.missing[starts[:, None] + np.arange(rows)]
        return found


class _Wide(Packed):
    """Values of the same length."""

    def __init__(self, octets: NDArray[np.uint8], missing: NDArray[np.bool_] | None = None) -> None:
        self._octets = octets
        self.missing = missing

    def cut(self, starts: NDArray[np.intp], rows: int) -> NDArray[np.uint8]:
        first, last = int(starts[0]), int(starts[-1]) + rows
        width = self._octets.shape[1]
        if last - first == rows * len(starts):
            return self._octets[first:last].reshape(len(starts), rows * width)
        chosen: NDArray[np.uint8] = self._octets[(starts[:, None] + np.arange(rows)).reshape(-1)]
        return chosen.reshape(len(starts), rows * width)

    def rows(self) -> Sequence[bytes]:
        found: list[bytes] = self._octets.view(f"V{self._octets.shape[1]}").reshape(-1).tolist()
        return found


class _Varying(Packed):
    """Texts of different lengths, each with its length before it."""

    def __init__(self, texts: NDArray[np.bytes_], missing: NDArray[np.bool_] | None) -> None:
        lengths = np.char.str_len(texts)
        if missing is not None:
            lengths[missing] = 0
        octets = np.empty((len(texts), 4 + texts.dtype.itemsize), np.uint8)
        octets[:, :4] = octets_of(lengths.astype(">i4"))
        octets[:, 4:] = octets_of(texts)
        used = np.arange(octets.shape[1]) < lengths[:, None] + 4
        self._data = octets[used].tobytes()
        self._bounds = np.concatenate(([0], np.cumsum(lengths + 4)))
        self.missing = missing

    def cut(self, starts: NDArray[np.intp], rows: int) -> list[bytes]:
        return self._slice(self._bounds[starts], self._bounds[starts + rows])

    def rows(self) -> Sequence[bytes]:
        return self._slice(self._bounds[:-1], self._bounds[1:])

    def _slice(self, begins: NDArray[np.int64], ends: NDArray[np.int64]) -> list[bytes]:
        data = self._data
        return [data[a:b] for a, b in zip(begins.tolist(), ends.tolist(), strict=True)]


def pack_numbers(values: NDArray[Any], kind: str) -> Packed:
    """Values of a numpy type."""
    return _Wide(octets_of(values.astype(kind)))


def pack(column: TableColumn, block: EventBlock, order: NDArray[np.intp] | None) -> Packed:
    """A measurement's values in this order of the block's rows."""
    values, missing = block.columns[column.name], block.missing.get(column.name)
    if missing is not None and not missing.any():
        missing = None
    if order is not None:
        values = values if is_constant(values) else values[order]
        missing = None if missing is None else missing[order]
    if kind := BIG_ENDIAN.get(column.column.type):
        return _Wide(octets_of(values.astype(kind)), missing)
    if missing is None and is_constant(values):
        text = len(values[0]).to_bytes(4, "big") + bytes(values[0])
        return _Wide(np.tile(np.frombuffer(text, np.uint8), (len(values), 1)))
    octets = octets_of(values)
    if missing is None and octets.shape[1] and octets[:, -1].all():
        length = np.frombuffer(octets.shape[1].to_bytes(4, "big"), np.uint8)
        lengths = np.broadcast_to(length, (len(octets), 4))
        return _Wide(np.concatenate((lengths, octets), axis=1))
    return _Varying(values, missing)


def pack_bits(gaps: Sequence[NDArray[np.bool_] | None], runs: int, rows: int) -> NDArray[np.uint8]:
    """Of each run where values are missing, of all columns: nothing if none is."""
    if not any(gap is not None and gap.any() for gap in gaps):
        return np.empty((runs, 0), np.uint8)
    size = rows // 8 + 1
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
