"""Tags in a table of their own: a device has one row there, with an id that the rows of its events hold
instead of its name and tags."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import OptionError

ID = "tags_id"
"""The column with the id, in both tables."""

DEVICES_APART = 1_000_000
"""Ids of one worker's devices begin so far behind those of the worker before it."""

_NAME, _NAME_BYTES = re.compile(rb"w\d{5}d\d{6}"), 13
_DIGITS = range(7, 13)
"""Where in a name the device's number stands."""


class Tags(StrEnum):
    """Where a device's name and its tags are stored."""

    ROW = "row"
    """In the row of each event."""
    TABLE = "table"
    """Once per device, in a table of their own."""


def number_devices(names: NDArray[np.bytes_]) -> NDArray[np.int64]:
    """The ids of one worker's devices, read from their names: 7,000,042 of w00007d000042.

    A function of the name alone, so an id needs no look-up and is the same in each run. OptionError for
    names of another kind.
    """
    if not len(names):
        return np.empty(0, dtype=np.int64)
    if names.dtype.itemsize != _NAME_BYTES or not _NAME.fullmatch(names[0]):
        raise OptionError(
            f"tags=table needs devices with names such as w00007d000042, not {names[0].decode()!r}"
        )
    octets = np.ascontiguousarray(names).view(np.uint8).reshape(len(names), _NAME_BYTES)
    ids = np.zeros(len(names), dtype=np.int64)
    for place in _DIGITS:
        ids *= 10
        ids += octets[:, place]
    # What digits have more than their values, of each place; and the worker, which all names have.
    ids += int(octets[0, 1:6].tobytes()) * DEVICES_APART - ord("0") * 111_111
    return ids


class LazyColumns(Mapping[str, NDArray[Any]]):
    """Columns of which some are made when they are asked for: tags, where events are sent without them."""

    def __init__(
        self,
        made: Mapping[str, NDArray[Any]],
        makers: Mapping[str, Callable[[], NDArray[Any]]],
    ) -> None:
        self._made = dict(made)
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
        """The same of some rows."""

        def take(name: str) -> Callable[[], NDArray[Any]]:
            return lambda: self[name][rows]

        made = {name: values[rows] for name, values in self._made.items()}
        return LazyColumns(made, {name: take(name) for name in self._makers})
