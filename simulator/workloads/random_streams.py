"""Random numbers of many streams at once: row i gets exactly what numpy's own generator with seed i gives.

Creating one of numpy's generators costs as much as a query of a quick database, so the arithmetic is done
here for all rows of a block: the hash of `numpy.random.SeedSequence` (M. E. O'Neill, "Developing a seed_seq
alternative", 2015), PCG64 (O'Neill, "PCG: A family of simple fast space-efficient statistically good
algorithms for random number generation", 2014), bounded integers (Lemire, "Fast random integer generation in
an interval", 2019) and samples without replacement (Floyd, in Bentley, "A sample of brilliance", 1987).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Words = NDArray[np.uint64]
Rows = NDArray[np.intp]

_LOW = 0xFFFF_FFFF
_HALF = np.uint64(32)

MOST_CHOSEN = 32
"""For larger samples, comparing each number with all earlier ones costs more than numpy's generators. These
use another method for samples of many thousands, which therefore isn't needed here."""

FEWEST_ROWS = 8
"""With fewer rows, numpy's generators are faster."""


def open_streams(before: Sequence[int], numbers: range, after: int, size: int = 0) -> Streams:
    """The streams seeded with `[*before, number, after]`: one row for each number, at least one. `size`: the
    size of the largest sample that will be taken. ValueError for a negative seed."""
    words = [word for value in before for word in _split(value)]
    is_plain = 2 <= len(words) <= _MOST_BEFORE and max(numbers.stop - 1, after) < 2**32
    if size > MOST_CHOSEN or len(numbers) < FEWEST_ROWS or not is_plain:
        return NumpyStreams([[*before, number, after] for number in numbers])
    drawn = np.arange(numbers.start, numbers.stop, dtype=np.uint32)
    return BlockStreams([*words, drawn, after], len(numbers))


def _split(value: int) -> list[int]:
    """A seed's 32-bit words, the lowest first; one word for 0."""
    if value < 0:
        raise ValueError("seeds of random numbers can't be negative")
    words = [value & _LOW]
    while value := value >> 32:
        words.append(value & _LOW)
    return words


class NumpyStreams:
    """A stream of random numbers for each row of a block, as numpy makes them."""

    def __init__(self, seeds: Sequence[Sequence[int]]) -> None:
        """`seeds`: the seeds of each row."""
        self._generators = [
            np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed))) for seed in seeds
        ]

    def integers(self, low: int, high: int, rows: Rows | None = None) -> NDArray[np.int64]:
        """A number from `low` to `high` (inclusive) for each row, or for these: shape (rows,)."""
        numbers = range(len(self._generators)) if rows is None else rows.tolist()
        drawn = [self._generators[row].integers(low, high, endpoint=True) for row in numbers]
        return np.array(drawn, dtype=np.int64)

    def choose(self, count: int, size: int) -> NDArray[np.int64]:
        """`size` different numbers below `count` for each row: shape (rows, size)."""
        drawn = [generator.choice(count, size, replace=False) for generator in self._generators]
        return np.array(drawn, dtype=np.int64).reshape(len(drawn), size)


class BlockStreams:
    """The same streams, all rows at once."""

    def __init__(self, words: Sequence[int | NDArray[np.uint32]], count: int) -> None:
        """`words`: 4 to 8 words of 32 bits, from which all rows, or each of `count`, are seeded."""
        seeds = _hash_seeds(words, count)
        # The increment is odd: twice the second half of the seed, plus one.
        self._step_high = (seeds[2] << np.uint64(1)) | (seeds[3] >> np.uint64(63))
        self._step_low = (seeds[3] << np.uint64(1)) | np.uint64(1)
        low = self._step_low + seeds[1]
        high = self._step_high + seeds[0] + (low < seeds[1])
        self._high, self._low = _advance(high, low, self._step_high, self._step_low)
        self._rows: Rows = np.arange(count)
        # A word is two numbers of 32 bits; the second waits here for the next call.
        self._kept = np.zeros(count, dtype=np.uint64)
        self._has_kept = np.zeros(count, dtype=np.bool_)

    def integers(self, low: int, high: int, rows: Rows | None = None) -> NDArray[np.int64]:
        """As `NumpyStreams.integers`."""
        numbers = self._draw_below(high - low + 1, rows).view(np.int64)
        numbers += low
        return numbers

    def choose(self, count: int, size: int) -> NDArray[np.int64]:
        """As `NumpyStreams.choose`."""
        samples = np.empty((len(self._rows), size), dtype=np.int64)
        for place, most in enumerate(range(count - size, count)):
            drawn = self.integers(0, most)
            if place:
                is_there = (samples[:, :place] == drawn[:, None]).any(axis=1)
                drawn[is_there] = most
            samples[:, place] = drawn
        for place in range(size - 1, 0, -1):
            other = self.integers(0, place)
            drawn = samples[self._rows, other]
            samples[self._rows, other] = samples[:, place]
            samples[:, place] = drawn
        return samples

    def _draw_below(self, count: int, rows: Rows | None) -> Words:
        """A number below `count`, which is from 1 to 2**64 - 1, for each row."""
        length = len(self._rows) if rows is None else len(rows)
        if count == 1:
            return np.zeros(length, dtype=np.uint64)
        draw = self._draw_small if count <= 1 << 32 else self._draw_great
        numbers, rest = draw(count, rows)
        # If the product's lower half is in its last, incomplete part, the number is drawn again.
        bits = 32 if count <= 1 << 32 else 64
        least = (1 << bits) % count
        places = np.flatnonzero(rest < least)
        while len(places):
            retried = places if rows is None else rows[places]
            numbers[places], rest = draw(count, retried)
            places = places[rest < least]
        return numbers

    def _draw_small(self, count: int, rows: Rows | None) -> tuple[Words, Words]:
        """The halves of the product of `count`, up to 2**32, and 32 random bits."""
        product = self._draw_half(rows)
        product *= np.uint64(count)
        return product >> _HALF, product & np.uint64(_LOW)

    def _draw_great(self, count: int, rows: Rows | None) -> tuple[Words, Words]:
        """The halves of the product of `count` and 64 random bits."""
        words, factor = self._draw_word(rows), np.uint64(count)
        return multiply_high(words, factor), words * factor

    def _draw_half(self, rows: Rows | None) -> Words:
        """The next 32 bits of each row: a word's lower half first."""
        chosen: Any = slice(None) if rows is None else rows
        has_kept = self._has_kept[chosen]
        lacking = np.flatnonzero(~has_kept)
        if len(lacking) < len(has_kept):
            halves: Words = self._kept[chosen].copy()
            self._has_kept[chosen] = False
            if not len(lacking):
                return halves
            halves[lacking] = self._draw_half(lacking if rows is None else rows[lacking])
            return halves
        word = self._draw_word(rows)
        self._kept[chosen] = word >> _HALF
        self._has_kept[chosen] = True
        word &= np.uint64(_LOW)
        return word

    def _draw_word(self, rows: Rows | None) -> Words:
        """The next 64 bits of each row."""
        chosen: Any = slice(None) if rows is None else rows
        high, low = _advance(
            self._high[chosen], self._low[chosen], self._step_high[chosen], self._step_low[chosen]
        )
        self._high[chosen], self._low[chosen] = high, low
        turn = high >> np.uint64(58)
        word = high ^ low
        turned = word >> turn
        # Rotating a word by 0 must not shift it by 64 bits.
        np.subtract(np.uint64(64), turn, out=turn)
        turn &= np.uint64(63)
        turned |= word << turn
        return turned


Streams = NumpyStreams | BlockStreams

# --- PCG64 ----------------------------------------------------------------------------------------

_FACTOR_HIGH, _FACTOR_LOW = np.uint64(0x2360ED051FC65DA4), np.uint64(0x4385DF649FCCF645)


def _advance(high: Words, low: Words, step_high: Words, step_low: Words) -> tuple[Words, Words]:
    """The next states: each of 128 bits times a factor, plus the stream's own increment."""
    high = high * _FACTOR_LOW
    high += low * _FACTOR_HIGH
    high += multiply_high(low, _FACTOR_LOW)
    high += step_high
    low = low * _FACTOR_LOW
    low += step_low
    high += low < step_low
    return high, low


def multiply_high(words: Words, factor: np.uint64 | Words) -> Words:
    """The upper 64 of the 128 bits of each product. `factor`: a number, or a column of them."""
    factor_low, factor_high = factor & np.uint64(_LOW), factor >> _HALF
    low, high = words & np.uint64(_LOW), words >> _HALF
    middle = low * factor_low
    middle >>= _HALF
    middle += high * factor_low
    low *= factor_high
    low += middle & np.uint64(_LOW)
    low >>= _HALF
    middle >>= _HALF
    high *= factor_high
    high += middle
    high += low
    return high


# --- seeds ----------------------------------------------------------------------------------------

_POOL = 4
_MOST_BEFORE = 6
"""How many words may precede the number by which rows differ: there are constants for all words of two
pools."""


def _multiply_on(first: int, factor: int, count: int) -> NDArray[np.uint32]:
    """Powers of `factor` times `first`, in 32 bits: a column."""
    powers = [first * factor**power & _LOW for power in range(count)]
    return np.array(powers, dtype=np.uint32)[:, None]


_MIXED_CALLS = _POOL + _POOL * (_POOL - 1) + _POOL * _POOL
_MIXING = _multiply_on(0x43B0D7E5, 0x931E8875, _MIXED_CALLS + 1)
_GENERATING = _multiply_on(0x8B51F9DD, 0x58F38DED, 2 * _POOL + 1)
_OTHERS = [[place for place in range(_POOL) if place != own] for own in range(_POOL)]


def _hash_seeds(words: Sequence[int | NDArray[np.uint32]], count: int) -> Words:
    """The four 64-bit words of each row's seed: shape (4, count)."""
    entropy = np.empty((len(words), count), dtype=np.uint32)
    for place, word in enumerate(words):
        entropy[place] = word
    pool = _hash(entropy[:_POOL], _MIXING, 0, _POOL)
    used = _POOL
    for own, others in enumerate(_OTHERS):
        pool[others] = _mix(pool[others], _hash(pool[own], _MIXING, used, _POOL - 1))
        used += _POOL - 1
    for word in entropy[_POOL:]:
        pool = _mix(pool, _hash(word, _MIXING, used, _POOL))
        used += _POOL
    halves = _hash(np.concatenate([pool, pool]), _GENERATING, 0, 2 * _POOL).astype(np.uint64)
    return halves[::2] | (halves[1::2] << _HALF)


def _hash(
    words: NDArray[np.uint32], constants: NDArray[np.uint32], used: int, calls: int
) -> NDArray[np.uint32]:
    """Words, a row for each call or one for all, mixed with the next constants."""
    mixed = words ^ constants[used : used + calls]
    mixed *= constants[used + 1 : used + 1 + calls]
    mixed ^= mixed >> np.uint32(16)
    return mixed


def _mix(first: NDArray[np.uint32], second: NDArray[np.uint32]) -> NDArray[np.uint32]:
    mixed = first * np.uint32(0xCA01F9DD)
    mixed -= second * np.uint32(0x4973F715)
    mixed ^= mixed >> np.uint32(16)
    return mixed
