"""Tablets of single devices, many at once.

Those of the same number of events, whose texts have the same lengths, too, are rows of one array of bytes,
which numpy fills column by column. Where devices take turns, such a row is all tablets of a request, and the
values of one device are a slice with steps. Where texts of one device differ in length, or hardly another
tablet has such lengths, each tablet is put together on its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .tree_columns import Measured, Rows, Runs, pack_bits

_FEW = 8
"""For so many events of a request an array of their own takes as long as each tablet on its own."""

_MANY = 512
"""So many rows of a device are copied on their own at least as fast as they are picked one by one."""

_Octets = NDArray[np.uint8]
"""Bytes, a row of the array for each tablet."""


class Tablets(NamedTuple):
    """Some tablets of one request, all of so many events."""

    size: int
    paths: Sequence[bytes]
    values: Sequence[bytes | memoryview]
    """Of all tablets one after the other, in any number of pieces, each with its length before it."""
    stamps: memoryview


class Group:
    """Tablets of all of a block's requests that are made together."""

    def __init__(
        self,
        runs: NDArray[np.intp],
        size: int,
        paths: Sequence[bytes],
        values: _Octets | Sequence[bytes],
        stamps: _Octets,
    ) -> None:
        self.runs = runs
        """Their numbers, request by request."""
        self._size, self._paths = size, [paths[run] for run in runs.tolist()]
        self._values = _flatten(values) if isinstance(values, np.ndarray) else values
        self._stamps = _flatten(stamps)

    def cut(self, begin: int, end: int) -> Tablets:
        """Those of the runs [begin, end) of this group, which are all that it has of some requests."""
        values = self._values
        pieces = (
            [self._cut(values, begin, end)] if isinstance(values, memoryview) else values[begin:end]
        )
        stamps = self._cut(self._stamps, begin, end)
        return Tablets(self._size, self._paths[begin:end], pieces, stamps)

    def _cut(self, octets: memoryview, begin: int, end: int) -> memoryview:
        """Either all runs take as many bytes, or all requests do and have as many runs."""
        runs = len(self._paths)
        return octets[len(octets) * begin // runs : len(octets) * end // runs]


def make_groups(
    runs: Runs, requests: int, columns: Sequence[Measured], stamps: Measured, paths: Sequence[bytes]
) -> list[Group]:
    """The tablets of so many requests. `paths`: of each run the device's."""
    kinds = list(_sort(runs, requests, columns))
    if len(kinds) > 1 and _can_take_turns(runs, requests, columns):
        order = np.concatenate([chosen[chosen < runs.turns] for chosen, _ in kinds])
        return [_take_turns(runs, order, columns, stamps, paths)]
    groups = []
    for chosen, lengths in kinds:
        size = int(runs.sizes[chosen[0]])
        rows = runs.find_rows(chosen, size)
        bits = pack_bits(columns, rows)
        values = (
            _join(columns, rows, bits) if lengths is None else _fill(columns, lengths, rows, bits)
        )
        times = _fill([stamps], [0], rows, bits[:, :0])
        groups.append(Group(chosen, size, paths, values, times))
    return groups


def _can_take_turns(runs: Runs, requests: int, columns: Sequence[Measured]) -> bool:
    """Whether devices take turns, the tablets of each take as many bytes in all requests, and it has enough
    rows."""
    if not runs.turns or int(runs.sizes[0]) * requests < _MANY:
        return False
    for one in columns:
        if one.missing is not None:
            return False
        if one.lengths is not None:
            after = one.lengths[runs.turns :]
            if not one.per_run or not np.array_equal(after, one.lengths[: -runs.turns]):
                return False
    return True


def _take_turns(
    runs: Runs,
    order: NDArray[np.intp],
    columns: Sequence[Measured],
    stamps: Measured,
    paths: Sequence[bytes],
) -> Group:
    """The tablets of devices that take turns, as one row of bytes for each request, in which they stand in
    this order of the first request's runs. So each column of a device is copied for all requests at once."""
    requests, size = runs.sizes.size // runs.turns, int(runs.sizes[0])
    taken = [
        (runs.find_turns(run), [one.length_of(run) for one in columns]) for run in order.tolist()
    ]
    width = sum(_measure(columns, lengths, size) for _, lengths in taken)
    values = np.empty((requests, width), np.uint8)
    times = np.empty((requests, len(taken) * _measure([stamps], [0], size)), np.uint8)
    end, end_of_times = 0, 0
    for rows, lengths in taken:
        end = _put(values, end, columns, lengths, rows)
        end_of_times = _put(times, end_of_times, [stamps], [0], rows)
    chosen = np.arange(0, runs.sizes.size, runs.turns)[:, None] + order
    return Group(chosen.reshape(-1), size, paths, values, times)


def _sort(
    runs: Runs, requests: int, columns: Sequence[Measured]
) -> Iterator[tuple[NDArray[np.intp], Sequence[int] | None]]:
    """Runs that can be made together, and how long the texts of each column are, unless they differ."""
    plain = 2 * runs.sizes
    masks = [one.missing for one in columns if one.missing is not None]
    if masks:
        plain += runs.find_all(np.logical_or.reduce(masks))
    kinds, are_alike = plain, np.ones(len(plain), bool)
    found: list[NDArray[np.int64] | None] = []
    for one in columns:
        least = None
        if one.lengths is not None:
            least = one.lengths
            if not one.per_run:
                least, alike = runs.find_alike(least)
                are_alike &= alike
            # Numbered anew for each column, kinds can't become too large.
            _, kinds = np.unique(kinds * (1 + one.values.itemsize) + least, return_inverse=True)
        found.append(least)
    if kinds is not plain:
        events = np.bincount(kinds, runs.sizes)
        are_alike &= events[kinds] >= _FEW * requests
        kinds = np.where(are_alike, kinds, ~plain)
    for kind in np.unique(kinds).tolist():
        chosen = np.flatnonzero(kinds == kind)
        first = int(chosen[0])
        lengths = [
            one.length if least is None else int(least[first])
            for one, least in zip(columns, found, strict=True)
        ]
        yield chosen, lengths if are_alike[first] else None


def _fill(
    columns: Sequence[Measured], lengths: Sequence[int], rows: Rows, bits: _Octets
) -> _Octets:
    """The values of tablets, column by column, and the bits of missing ones, all with their length before
    them. `lengths`: that of each column's texts."""
    end = _measure(columns, lengths, rows.size)
    octets = np.empty((rows.runs, end + bits.shape[1]), np.uint8)
    _put(octets, 0, columns, lengths, rows, bits.shape[1])
    octets[:, end:] = bits
    return octets


def _find_widths(columns: Sequence[Measured], lengths: Sequence[int]) -> list[int]:
    """How many bytes a value of each column takes."""
    return [
        np.dtype(one.kind).itemsize if one.kind else 4 + length
        for one, length in zip(columns, lengths, strict=True)
    ]


def _measure(columns: Sequence[Measured], lengths: Sequence[int], size: int) -> int:
    """How many bytes the values of so many events take, with their length before them."""
    return 4 + size * sum(_find_widths(columns, lengths))


def _put(
    octets: _Octets,
    at: int,
    columns: Sequence[Measured],
    lengths: Sequence[int],
    rows: Rows,
    more: int = 0,
) -> int:
    """Puts the values of a run of these into each row of `octets`, from there on. The length before them says
    that so many bytes more follow. Returns where the values end."""
    size, widths = rows.size, _find_widths(columns, lengths)
    _view(octets, at, ">i4", 1, 4)[:] = size * sum(widths) + more
    at += 4
    for one, length, width in zip(columns, lengths, widths, strict=True):
        if one.kind:
            _view(octets, at, one.kind, size, width)[:] = one.pick(rows)
        else:
            _view(octets, at, ">i4", size, width)[:] = length
            if length:
                _view(octets, at + 4, f"S{length}", size, width)[:] = one.pick(rows)
        at += size * width
    return at


def _view(octets: _Octets, at: int, kind: str, count: int, step: int) -> NDArray[Any]:
    """Values of a type in each row, so many, the first of them there."""
    shape = (len(octets), count)
    return np.ndarray(shape, kind, octets.data, at, (octets.shape[1], step))


def _join(columns: Sequence[Measured], rows: Rows, bits: _Octets) -> list[bytes]:
    """The same, each tablet on its own."""
    size = rows.size
    given = [one.spell_rows(rows) for one in columns]
    if size > 1:
        begins = range(0, rows.runs * size, size)
        given = [[b"".join(values[at : at + size]) for at in begins] for values in given]
    if bits.shape[1]:
        given.append([row.tobytes() for row in bits])
    bodies = map(b"".join, zip(*given, strict=True))
    return [len(body).to_bytes(4, "big") + body for body in bodies]


def _flatten(octets: _Octets) -> memoryview:
    return octets.reshape(-1).data
