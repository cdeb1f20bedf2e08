"""Values as sensors give them: each a pure function of (seed, column, device, event time), in numpy.

Nothing has a state, so the value of any event can be computed without those before it, in any order.
Randomness comes from a hash of what a value depends on: the multiplications and shifts of MurmurHash3's
finalizer (https://github.com/aappleby/smhasher/wiki/MurmurHash3), with 64 bits of the device's key mixed
in, so that two devices' values are neither equal nor each other's shifted in time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

Words = NDArray[np.uint32]
Noise = NDArray[np.float32]
"""From -1 to 1, or from 0 to 1."""

_FIRST_FACTOR = np.uint32(0x85EBCA6B)
_SECOND_FACTOR = np.uint32(0xC2B2AE35)
_GOLDEN = 0x9E3779B97F4A7C15  # odd, and its bits are well spread: 2**64 / the golden ratio

Picks = NDArray[np.uint16]

PICKS = 65_536
"""By how many equally likely places values are picked: weights are rounded to that."""


@dataclass(frozen=True)
class Points:
    """Where values are wanted: for each event its time (ms since 1970) and its device's two keys."""

    times_ms: NDArray[np.int64]
    first: Words
    second: Words

    @cached_property
    def instants(self) -> Words:
        """Different for each time of a device: what events' own noise is made of."""
        spread = self.times_ms.view(np.uint64) * np.uint64(_GOLDEN)
        spread >>= np.uint64(32)
        return spread.astype(np.uint32) ^ self.first

    @cached_property
    def moments(self) -> NDArray[np.float64]:
        """The times as floats, which hold milliseconds exactly for 285,000 years."""
        return self.times_ms.astype(np.float64)


def device_keys(
    seed: int, fleets: int | NDArray[np.int64], devices: NDArray[np.int64]
) -> tuple[Words, Words]:
    """Two keys for each device, by number, that go with a seed. `fleets`: the fleet of all devices, or of
    each."""
    # Hashed one after the other: a sum of the three would make one seed's device another's next.
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


def salt(column: str, use: str = "") -> int:
    """What tells a column's noise from every other's, and from its own for another use."""
    return crc32(f"{column}\0{use}".encode())


def _mix(words: Words, second: Words, salt: int) -> Words:
    """`words`, which are overwritten, as random ones."""
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
    """A random word for each event's device and `cell`: the same for all events in it."""
    return _mix(cells * np.uint32(_GOLDEN & 0xFFFF_FFFF) ^ points.first, points.second, salt)


def device_words(points: Points, salt: int) -> Words:
    """A random word for each event's device: the same at all times."""
    return _mix(points.first.copy(), points.second, salt)


def _signed(words: Words) -> Noise:
    """Words as evenly spread numbers from -1 to 1."""
    noise = words.view(np.int32).astype(np.float32)
    noise *= np.float32(2**-31)
    return noise


def _cells(
    points: Points, period_ms: float, salt: int, shift: float = 1.0
) -> tuple[Words, NDArray[np.float64]]:
    """Which period each event is in, and how far (0 to 1). A device's periods begin at its own time,
    drawn from the first `shift` of a period."""
    places = points.moments * (1 / period_ms)
    if shift:
        phases = (points.first + np.uint32(salt)) * np.uint32(0x2C1B3C6D)
        phases ^= points.second
        places += phases * (shift * 2.0**-32)
    cells = places.astype(np.uint32)
    places -= cells
    return cells, places


def _scale(noise: Noise, middle: float, half: float, exact: bool) -> NDArray[Any]:
    """From -1..1 to `middle` ± `half`; `exact`: as float64."""
    if exact:
        values = noise.astype(np.float64)
        values *= half
        values += middle
        return values
    noise *= np.float32(half)
    noise += np.float32(middle)
    return noise


# --- numbers --------------------------------------------------------------------------------------


def uniform(points: Points, salt: int, low: float, high: float) -> NDArray[np.float64]:
    """Evenly spread from `low` to `high`, each event's without regard to the last."""
    values = event_words(points, salt).astype(np.float64)
    values *= (high - low) * 2.0**-32
    values += low
    return values


def uniform_integers(points: Points, salt: int, low: int, high: int) -> NDArray[np.int64]:
    """Evenly spread whole numbers from `low` to `high`, which may be 2**32 - 1 apart."""
    words = event_words(points, salt).astype(np.uint64)
    words *= np.uint64(high - low + 1)
    words >>= np.uint64(32)
    values = words.view(np.int64)
    values += low
    return values


def normal(points: Points, salt: int, mean: float, deviation: float, exact: bool) -> NDArray[Any]:
    """Normally distributed, by Box and Muller (Annals of Mathematical Statistics 29, 1958)."""
    # From above 0, as there is no logarithm of it.
    radius = (event_words(points, salt) >> np.uint32(8)).astype(np.float32)
    radius += np.float32(0.5)
    radius *= np.float32(2**-24)
    np.log(radius, out=radius)
    radius *= np.float32(-2)
    np.sqrt(radius, out=radius)
    angle = _signed(event_words(points, salt ^ 0x5BD1E995))
    angle *= np.float32(np.pi)
    radius *= np.cos(angle, out=angle)
    return _scale(radius, mean, deviation, exact)


def wander(
    points: Points,
    salt: int,
    low: float,
    high: float,
    period_ms: float,
    roughness: float,
    octaves: int,
    exact: bool,
) -> NDArray[Any]:
    """Drifts up and down between `low` and `high`, as a temperature does.

    A sum of lattice noises. The first is drawn anew, evenly, at each multiple of `period_ms` and
    interpolated linearly in between; each further one has half the period and `roughness` times the
    amplitude.
    """
    total: Noise | None = None
    amplitude = 1.0
    for octave in range(octaves if roughness else 1):
        own = (salt + octave * 0x9E3779B9) & 0xFFFF_FFFF
        cells, places = _cells(points, period_ms / 2**octave, own)
        noise = _signed(cell_words(points, cells, own))
        cells += np.uint32(1)
        step = _signed(cell_words(points, cells, own))
        step -= noise
        step *= places.astype(np.float32)
        noise += step
        if total is None:
            total = noise
        else:
            amplitude *= roughness
            noise *= np.float32(amplitude)
            total += noise
    assert total is not None
    reach = sum(roughness**octave for octave in range(octaves))
    return _scale(total, (low + high) / 2, (high - low) / 2 / reach, exact)


def cycle(
    points: Points,
    salt: int,
    low: float,
    high: float,
    period_ms: float,
    shift: float,
    noise: float,
    exact: bool,
) -> NDArray[Any]:
    """A sine between `low` and `high`, lowest when a period begins, plus evenly spread noise of ±`noise`.

    A device's periods begin up to `shift` of a period before those of all.
    """
    _, places = _cells(points, period_ms, salt, shift)
    curve = places.astype(np.float32)
    curve *= np.float32(2 * np.pi)
    np.cos(curve, out=curve)
    half = (high - low) / 2
    if noise:
        own = _signed(event_words(points, salt))
        own *= np.float32(-noise / half)
        curve += own
    return _scale(curve, (low + high) / 2, -half, exact)


def counter(
    points: Points, salt: int, start: float, rate_per_ms: float, origin_ms: int, spread: float
) -> NDArray[np.float64]:
    """Rises steadily by `rate_per_ms` from `start` at `origin_ms`, which each device exceeds by its own
    number up to `spread`."""
    values = points.moments - origin_ms
    values *= rate_per_ms
    values += start
    if spread:
        values += device_words(points, salt) * (spread * 2.0**-32)
    return values


def rounded(values: NDArray[Any], decimals: int) -> NDArray[Any]:
    """Numbers to so many digits after the point; no negative zero. Those that are too large to be multiplied
    have none."""
    factor = values.dtype.type(10**decimals)
    with np.errstate(over="ignore"):
        units: NDArray[Any] = values * factor
    np.rint(units, out=units)
    units += units.dtype.type(0)  # which makes a 0 of -0: texts would differ
    units /= factor
    np.copyto(units, values, where=np.isinf(units))
    return units


# --- one of several values ------------------------------------------------------------------------


def pick_table(weights: Sequence[float]) -> Picks:
    """For each of `PICKS` places the number of the value that is picked there."""
    shares = np.cumsum(weights) / np.sum(weights)
    stops = np.rint(shares * PICKS).astype(np.int64)
    counts = np.diff(stops, prepend=0)
    return np.repeat(np.arange(len(weights), dtype=np.uint16), counts)


def choice(points: Points, salt: int, table: Picks) -> Picks:
    """The number of one of several values, by weights: each event's without regard to the last."""
    return _pick(event_words(points, salt), table)


def hold(points: Points, salt: int, table: Picks, lasts_ms: float) -> Picks:
    """The number of one of several values, drawn anew every `lasts_ms`."""
    cells, _ = _cells(points, lasts_ms, salt)
    return _pick(cell_words(points, cells, salt), table)


def tag(points: Points, salt: int, table: Picks) -> Picks:
    """The number of one of several values, which a device has for good."""
    return _pick(device_words(points, salt), table)


def _pick(words: Words, table: Picks) -> Picks:
    words >>= np.uint32(16)
    return table[words]


def absent(points: Points, salt: int, share: float) -> NDArray[np.bool_]:
    """Which events have no value."""
    return event_words(points, salt) < np.uint32(min(round(share * 2**32), 2**32 - 1))
