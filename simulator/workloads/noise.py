"""Random numbers of each event, computed without those of earlier events.

Described workloads draw by (seed, column, device, event time), from a hash of everything that a value depends
on. It has the multiplications and shifts of MurmurHash3's finalizer
(https://github.com/aappleby/smhasher/wiki/MurmurHash3), with 64 bits of the device's key mixed in, so that
two devices' values are neither equal nor shifted in time. The others draw by (seed, worker, number), from
Philox.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from threading import get_ident
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from .random_streams import multiply_high

Words = NDArray[np.uint32]
Noise = NDArray[np.float32]
"""From -1 to 1, or from 0 to 1."""

_FIRST_FACTOR = np.uint32(0x85EBCA6B)
_SECOND_FACTOR = np.uint32(0xC2B2AE35)
_GOLDEN = 0x9E3779B97F4A7C15  # odd, with well-spread bits: 2**64 / the golden ratio

Picks = NDArray[np.uint16]

PICKS = 65_536
"""Values are picked from this many equally likely places: weights are rounded accordingly."""


@dataclass(frozen=True)
class Points:
    """Where values are needed: the time of each event (ms since 1970) and the two keys of its device."""

    times_ms: NDArray[np.int64]
    first: Words
    second: Words

    @cached_property
    def instants(self) -> Words:
        """Distinct for each time of a device: the basis of an event's own noise."""
        spread = self.times_ms.view(np.uint64) * np.uint64(_GOLDEN)
        spread >>= np.uint64(32)
        return spread.astype(np.uint32) ^ self.first

    @cached_property
    def moments(self) -> NDArray[np.float64]:
        """The times as floats, which represent milliseconds exactly for 285,000 years."""
        return self.times_ms.astype(np.float64)


def device_keys(
    seed: int, fleets: int | NDArray[np.int64], devices: NDArray[np.int64]
) -> tuple[Words, Words]:
    """Two keys for each device of a fleet, by number and seed. `fleets`: of all devices, or of each."""
    # Hashed one after the other: a sum of the three would be the same for a device of one seed and the next
    # device of another.
    origin = _split_mix(np.array([seed], dtype=np.uint64))
    origin = _split_mix(origin + np.asarray(fleets).astype(np.uint64))
    keys = _split_mix(devices.astype(np.uint64) + origin)
    return keys.astype(np.uint32), (keys >> np.uint64(32)).astype(np.uint32)


def _split_mix(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """SplitMix64's step and finalizer (Steele, Lea and Flood, OOPSLA'14)."""
    words = (words + np.uint64(1)) * np.uint64(_GOLDEN)
    words ^= words >> np.uint64(30)
    words *= np.uint64(0xBF58476D1CE4E5B9)
    words ^= words >> np.uint64(27)
    words *= np.uint64(0x94D049BB133111EB)
    words ^= words >> np.uint64(31)
    return words


def make_salt(column: str, use: str = "") -> int:
    """A salt that distinguishes a column's noise from all others', and from its own for another use."""
    return crc32(f"{column}\0{use}".encode())


def _mix(words: Words, second: Words, salt: int) -> Words:
    """Random words from `words`, which are overwritten."""
    words ^= np.uint32(salt)
    shifted = words >> np.uint32(16)
    words ^= shifted
    words *= _FIRST_FACTOR
    words += second
    np.right_shift(words, np.uint32(13), out=shifted)
    words ^= shifted
    words *= _SECOND_FACTOR
    np.right_shift(words, np.uint32(16), out=shifted)
    words ^= shifted
    return words


def event_words(points: Points, salt: int) -> Words:
    """A random word for each event."""
    return _mix(points.instants.copy(), points.second, salt)


def cell_words(points: Points, cells: Words, salt: int) -> Words:
    """A random word for each event's device and cell: the same for all events in it."""
    return _mix(cells * np.uint32(_GOLDEN & 0xFFFF_FFFF) ^ points.first, points.second, salt)


def device_words(points: Points, salt: int) -> Words:
    """A random word for each event's device: the same at all times."""
    return _mix(points.first.copy(), points.second, salt)


def signed(words: Words) -> Noise:
    """Words as uniform numbers from -1 to 1."""
    noise = words.view(np.int32).astype(np.float32)
    noise *= np.float32(2**-31)
    return noise


def find_cells(
    points: Points, period_ms: float, salt: int, shift: float = 1.0
) -> tuple[Words, NDArray[np.float64]]:
    """Which period each event is in, and how far into it (0 to 1). A device's periods begin within the first
    `shift`."""
    places = points.moments * (1 / period_ms)
    if shift:
        phases = (points.first + np.uint32(salt)) * np.uint32(0x2C1B3C6D)
        phases ^= points.second
        places += phases * (shift * 2.0**-32)
    cells = places.astype(np.uint32)
    places -= cells
    return cells, places


def uniform(points: Points, salt: int, low: float, high: float) -> NDArray[np.float64]:
    """Uniform numbers from `low` to `high`, independent for each event."""
    values = event_words(points, salt).astype(np.float64)
    values *= (high - low) * 2.0**-32
    values += low
    return values


def uniform_integers(points: Points, salt: int, low: int, high: int) -> NDArray[np.int64]:
    """Uniform whole numbers from `low` to `high`, which may be 2**32 - 1 apart."""
    words = event_words(points, salt).astype(np.uint64)
    words *= np.uint64(high - low + 1)
    words >>= np.uint64(32)
    values = words.view(np.int64)
    values += low
    return values


def absent(
    points: Points, salt: int, share: float, lasts_ms: float | None = None
) -> NDArray[np.bool_]:
    """Which events have no value: each independently, or all within a stretch of time."""
    if lasts_ms is None:
        words = event_words(points, salt)
    else:
        words = cell_words(points, find_cells(points, lasts_ms, salt)[0], salt)
    return words < np.uint32(min(round(share * 2**32), 2**32 - 1))


def pick_table(weights: Sequence[float]) -> Picks:
    """The number of the value that is picked at each of `PICKS` places."""
    shares = np.cumsum(weights) / np.sum(weights)
    stops = np.rint(shares * PICKS).astype(np.int64)
    counts = np.diff(stops, prepend=0)
    return np.repeat(np.arange(len(weights), dtype=np.uint16), counts)


def pick(words: Words, table: Picks) -> Picks:
    """The number of the value that each word picks; words are overwritten."""
    words >>= np.uint32(16)
    return table[words]


# --- by worker and number ---------------------------------------------------------------------------


def random_words(seed: int, worker: int, first: int, count: int, words: int) -> NDArray[np.uint64]:
    """`words` random 64-bit numbers for each event of [first, first + count): shape (count, words). Philox
    4x64-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC'11) is a function of key and
    counter, so any event's numbers can be computed without earlier ones. Its raw output is covered by numpy's
    promise of stream compatibility."""
    skipped_blocks, skipped_words = divmod(first * words, 4)
    raw = _stream(seed, worker, get_ident()).words(skipped_blocks, skipped_words + count * words)
    return raw[skipped_words:].reshape(count, words)


def random_word(
    seed: int, workers: int | NDArray[np.int64], numbers: NDArray[np.int64]
) -> NDArray[np.uint64]:
    """The random numbers of single events, as in `random_words` with one for each event. `workers`: the
    worker of all events, or of each. Moving numpy's generator to each would take microseconds, so the rounds
    are computed here."""
    blocks, places = np.divmod(numbers, 4)
    # Of a counter's four words, the first and third are multiplied, and yield the others.
    multiplied = np.zeros((2, len(numbers)), dtype=np.uint64)
    multiplied[0] = blocks + 1  # numpy's counter of the first block is 1
    others = np.zeros_like(multiplied)
    keys = np.empty_like(multiplied)
    keys[0], keys[1] = seed, workers
    for _ in range(_ROUNDS):
        upper = multiply_high(multiplied, _FACTORS)
        lower = multiplied * _FACTORS
        multiplied = upper[::-1] ^ others ^ keys
        others = lower[::-1]
        keys += _KEY_STEPS
    words = np.stack([multiplied[0], others[0], multiplied[1], others[1]])
    return words[places, np.arange(len(numbers))]


_ROUNDS = 10
_FACTORS = np.array([[0xD2E7470EE14C6C93], [0xCA5A826395121157]], dtype=np.uint64)
_KEY_STEPS = np.array([[0x9E3779B97F4A7C15], [0xBB67AE8584CAA73B]], dtype=np.uint64)


class _Stream:
    """A generator that is moved to where numbers are needed. Creating one takes as long as generating a
    thousand events, since numpy asks the system for a seed even if it is given a key."""

    def __init__(self, seed: int, worker: int) -> None:
        self._generator = np.random.Philox(key=np.array([seed, worker], dtype=np.uint64))
        self._block = 0

    def words(self, block: int, count: int) -> NDArray[np.uint64]:
        """`count` numbers, beginning with those of a block of four."""
        self._generator.advance(block - self._block)
        words: NDArray[np.uint64] = self._generator.random_raw(count)
        self._block = block + -(-count // 4)
        return words


@lru_cache(maxsize=16)
def _stream(seed: int, worker: int, _thread: int) -> _Stream:
    return _Stream(seed, worker)
