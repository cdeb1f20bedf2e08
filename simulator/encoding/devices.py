"""Which device each event of a block is of: as numbers, which are sorted in a tenth of the time of names."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .columns import all_alike, is_constant, octets_of

SHORT_NUMBERS = 1 << 16
"""Numbers of 16 bits are sorted fastest."""
_MOST_NUMBERS = 1 << 31


def number_names(devices: NDArray[np.bytes_]) -> tuple[NDArray[Any], int]:
    """A number for each event's device, in the order of names, and what all of them are below; 1: there is
    one device."""
    numbers: NDArray[Any] = np.zeros(len(devices), np.uint16)
    kinds = 1
    if is_constant(devices) or all_alike(devices):
        return numbers, kinds
    # The places in which names differ, as digits.
    for octets in octets_of(devices).T:
        least = int(octets.min())
        span = int(octets.max()) - least + 1
        if span == 1:
            continue
        kinds *= span
        if kinds > _MOST_NUMBERS:
            names, numbers = np.unique(devices, return_inverse=True)
            return numbers, len(names)
        if kinds > SHORT_NUMBERS:
            numbers = numbers.astype(np.int64, copy=False)
        numbers *= span
        numbers += octets - least
    return numbers, kinds


def count_turns(devices: NDArray[np.bytes_], batch: int) -> int:
    """How many devices take turns throughout, if each request of so many events ends with the last of them;
    0: they don't."""
    if is_constant(devices) or len(devices) % batch or (devices[1:2] == devices[:1]).all():
        return 0
    again = devices[1 : batch + 1] == devices[0]
    turns = int(again.argmax()) + 1
    # Where the first one doesn't come again, it isn't found at 0 either.
    if not again[turns - 1] or batch % turns:
        return 0
    octets = octets_of(devices)
    is_alike = bool((octets[turns:] == octets[:-turns]).all())
    return turns if is_alike and len(set(devices[:turns].tolist())) == turns else 0
