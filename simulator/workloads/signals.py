"""The signals of a definition, which generate a column's values: like those of sensors, each a pure function
of (seed, column, device, event time). There is no state, so the value of any event can be computed on its
own, in any order.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Mapping
from functools import lru_cache
from itertools import pairwise
from typing import Annotated, Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import BeforeValidator, Field, model_validator

from ..units import read_duration_ms
from .noise import (
    Noise,
    Points,
    Words,
    cell_words,
    device_keys,
    device_words,
    event_words,
    find_cells,
    signed,
    uniform,
)
from .queries import Part
from .schema import FIRST_TIMESTAMP_MS

MAX_VALUES = 1000

_SAMPLED = 1 << 16

_SHARE = re.compile(r"(-?\d+(?:\.\d+)?) ?%")
_PERCENTILE = re.compile(r"p(\d+(?:\.\d+)?)")


def _read_share(value: object) -> object:
    """A fraction: a number, or a text such as 2%."""
    match = _SHARE.fullmatch(value.strip()) if isinstance(value, str) else None
    return float(match[1]) / 100 if match else value


DurationMs = Annotated[float, BeforeValidator(read_duration_ms), Field(gt=0)]
DurationOrNoneMs = Annotated[float, BeforeValidator(read_duration_ms), Field(ge=0)]
Share = Annotated[float, BeforeValidator(_read_share), Field(ge=0, le=1)]


# --- numbers --------------------------------------------------------------------------------------


class Numbers(Part):
    """A signal of numbers."""

    @property
    @abstractmethod
    def span(self) -> tuple[float, float]:
        """The lowest and the highest possible value."""

    @abstractmethod
    def make(self, points: Points, salt: int, exact: bool, epoch_ms: int) -> NDArray[Any]:
        """The values of events. `salt` is the column's; `exact`: as float64; `epoch_ms`: the workload's first
        time."""


class _Between(Numbers):
    low: float
    """The lowest value."""
    high: float
    """The highest value."""

    @property
    def span(self) -> tuple[float, float]:
        return self.low, self.high

    @model_validator(mode="after")
    def _ascend(self) -> Self:
        if self.low >= self.high:
            raise ValueError(f"low ({self.low:g}) must be below high ({self.high:g})")
        return self


class Uniform(_Between):
    """Uniform noise."""

    kind: Literal["uniform"]

    def make(self, points: Points, salt: int, exact: bool, epoch_ms: int) -> NDArray[Any]:
        return uniform(points, salt, self.low, self.high)


class Normal(Numbers):
    """Normally distributed noise."""

    kind: Literal["normal"]
    mean: float
    """The mean of its values."""
    deviation: float = Field(gt=0)
    """Their standard deviation."""

    @property
    def span(self) -> tuple[float, float]:
        # The smallest random number gives 5.9 deviations.
        return self.mean - 6 * self.deviation, self.mean + 6 * self.deviation

    def make(self, points: Points, salt: int, exact: bool, epoch_ms: int) -> NDArray[Any]:
        """By Box and Muller (Annals of Mathematical Statistics 29, 1958)."""
        # Above 0, as 0 has no logarithm.
        radius = (event_words(points, salt) >> np.uint32(8)).astype(np.float32)
        radius += np.float32(0.5)
        radius *= np.float32(2**-24)
        np.log(radius, out=radius)
        radius *= np.float32(-2)
        np.sqrt(radius, out=radius)
        angle = signed(event_words(points, salt ^ 0x5BD1E995))
        angle *= np.float32(np.pi)
        radius *= np.cos(angle, out=angle)
        return _scale(radius, self.mean, self.deviation, exact)


class _Drifting(Numbers):
    """A sum of lattice noises."""

    period: DurationMs | None
    """The slowest noise is redrawn every period, such as 2h, and interpolated linearly. Values two periods
    apart are independent."""
    roughness: float = Field(0.5, ge=0, le=1)
    """The amplitude of each further noise relative to the previous one: 0 is smooth."""
    octaves: int = Field(4, ge=1, le=12)
    """How many noises are added up. Each has half the period of the previous one; the shortest must be at
    least a second."""

    @model_validator(mode="after")
    def _periods_are_seconds(self) -> Self:
        shortest_ms = (self.period or np.inf) / 2 ** (self.octaves - 1)
        if shortest_ms < 1000:
            raise ValueError(
                f"the shortest of its waves lasts period / 2**(octaves - 1) = {shortest_ms:g} ms,"
                " but the minimum is a second: use fewer octaves or a longer period"
            )
        return self

    @property
    def reach(self) -> float:
        """The largest sum of the noises."""
        return sum(self.roughness**octave for octave in range(self.octaves))

    def drift(self, points: Points, salt: int) -> Noise:
        """The sum of the noises, the slowest from -1 to 1."""
        assert self.period is not None
        total: Noise | None = None
        amplitude = 1.0
        for octave in range(self.octaves if self.roughness else 1):
            own = (salt + octave * 0x9E3779B9) & 0xFFFF_FFFF
            cells, places = find_cells(points, self.period / 2**octave, own)
            noise = signed(cell_words(points, cells, own))
            cells += np.uint32(1)
            step = signed(cell_words(points, cells, own))
            step -= noise
            step *= places.astype(np.float32)
            noise += step
            if total is None:
                total = noise
            else:
                amplitude *= self.roughness
                noise *= np.float32(amplitude)
                total += noise
        assert total is not None
        return total


@lru_cache(maxsize=16)
def _sample_drift(roughness: float, octaves: int) -> Noise:
    """A sample of drifts of many devices: their distribution doesn't depend on the period."""
    keys = device_keys(0, 0, np.arange(_SAMPLED, dtype=np.int64))
    values = {"low": -1, "high": 1, "period": f"{2**octaves}s"}
    signal = Wander.model_validate(
        {"kind": "wander", **values, "roughness": roughness, "octaves": octaves}
    )
    return signal.drift(Points(np.full(_SAMPLED, FIRST_TIMESTAMP_MS), *keys), 0)


class Wander(_Drifting, _Between):
    """Drifts up and down, like most sensors' values: a sum of lattice noises."""

    kind: Literal["wander"]
    period: DurationMs

    def make(self, points: Points, salt: int, exact: bool, epoch_ms: int) -> NDArray[Any]:
        half = (self.high - self.low) / 2 / self.reach
        return _scale(self.drift(points, salt), (self.low + self.high) / 2, half, exact)


class Percentiles(_Drifting):
    """Distributed by percentiles, linearly interpolated. With a `period` it drifts like `wander`; without,
    each event's value is drawn independently."""

    kind: Literal["percentiles"]
    values: Mapping[str, float]
    """From `p0`, the lowest value, to `p100`, the highest, as in {p0: 0, p50: 2, p99.9: 30, p100: 80}."""
    period: DurationMs | None = None

    @property
    def span(self) -> tuple[float, float]:
        return self.values["p0"], self.values["p100"]

    @model_validator(mode="after")
    def _ascend(self) -> Self:
        names = list(self.values)
        if not all(_PERCENTILE.fullmatch(name) for name in names) or not {"p0", "p100"} <= {*names}:
            raise ValueError("write values as {p0: 1, p50: 2, p99.9: 7, p100: 9}, with p0 and p100")
        shares, values = self._table
        if any(a >= b for a, b in pairwise(shares)) or any(a > b for a, b in pairwise(values)):
            raise ValueError("percentiles and their values must rise from p0 to p100")
        if values[0] == values[-1]:
            raise ValueError(f"p0 and p100 are both {values[0]:g}: use kind: constant")
        return self

    @property
    def _table(self) -> tuple[list[float], list[float]]:
        """Shares of one, and the values there."""
        return [float(name[1:]) / 100 for name in self.values], list(self.values.values())

    def make(self, points: Points, salt: int, exact: bool, epoch_ms: int) -> NDArray[Any]:
        shares, values = self._table
        if self.period is None:
            return np.interp(uniform(points, salt, 0, 1), shares, values)
        inner = np.quantile(_sample_drift(self.roughness, self.octaves), shares[1:-1])
        return np.interp(self.drift(points, salt), [-self.reach, *inner, self.reach], values)


class Cycle(_Between):
    """A sine, lowest at the beginning of each period, plus noise."""

    kind: Literal["cycle"]
    period: DurationMs = Field("1d", validate_default=True, ge=1000)
    """The length of a period; default: a day."""
    shift: Share = 0
    """The maximum phase shift between devices, as a share of a period."""
    noise: float = Field(0, ge=0)
    """The amplitude of uniform noise that is added or subtracted."""

    @property
    def span(self) -> tuple[float, float]:
        return self.low - self.noise, self.high + self.noise

    @model_validator(mode="after")
    def _can_be_seen(self) -> Self:
        # The noise is computed as a multiple of the sine, in float32.
        if self.noise > 1e6 * (self.high - self.low) / 2:
            raise ValueError(
                f"noise ({self.noise:g}) hides a sine from {self.low:g} to {self.high:g}: use kind: uniform"
            )
        return self

    def make(self, points: Points, salt: int, exact: bool, epoch_ms: int) -> NDArray[Any]:
        _, places = find_cells(points, self.period, salt, self.shift)
        curve = places.astype(np.float32)
        curve *= np.float32(2 * np.pi)
        np.cos(curve, out=curve)
        half = (self.high - self.low) / 2
        if self.noise:
            own = signed(event_words(points, salt))
            own *= np.float32(-self.noise / half)
            curve += own
        return _scale(curve, (self.low + self.high) / 2, -half, exact)


class Counter(Numbers):
    """Rises by `step` in each `every`; devices begin up to `spread` above `start`, once or at each reset
    (`resets`)."""

    kind: Literal["counter"]
    start: float = 0
    """The value at the workload's first time."""
    step: float = Field(1, gt=0)
    """The steady rise in each `every`."""
    every: DurationMs
    """The time in which it rises by `step`, such as 12s."""
    spread: float = Field(0, ge=0)
    """The maximum by which a device's start is higher."""
    resets: DurationMs | None = Field(None, ge=1000)
    """The time between resets, with each device at its own phase; default: never."""

    @property
    def span(self) -> tuple[float, float]:
        longest_ms = self.resets or 100 * 365.25 * 86_400_000  # a century
        return self.start, self.start + self.spread + self.step / self.every * longest_ms

    def make(self, points: Points, salt: int, exact: bool, epoch_ms: int) -> NDArray[Any]:
        if self.resets:
            values = find_cells(points, self.resets, salt)[1]
            values *= self.resets
        else:
            values = points.moments - epoch_ms
        values *= self.step / self.every
        values += self.start
        if self.spread:
            values += device_words(points, salt) * (self.spread * 2.0**-32)
        return values


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


# --- one of several values ------------------------------------------------------------------------


class _Several(Part):
    values: tuple[Any, ...] = Field(min_length=1, max_length=MAX_VALUES)
    """The values, of the column's type; at most 1,000."""


class _Weighed(_Several):
    weights: tuple[float, ...] | None = None
    """How often each value is drawn, relative to the others; default: all equally."""

    @model_validator(mode="after")
    def _weigh_each(self) -> Self:
        weights = self.weights
        if weights is None:
            return self
        if len(weights) != len(self.values):
            raise ValueError(
                f"{len(self.values)} values need the same number of weights, not {len(weights)}"
            )
        if min(weights) < 0 or not sum(weights):
            raise ValueError("weights must be 0 or more, and not all of them 0")
        return self


class Choice(_Weighed):
    """One of several values; for a tag, fixed for each device."""

    kind: Literal["choice"]

    def draw(self, points: Points, salt: int) -> Words:
        """A random word for each event, which selects its value."""
        return event_words(points, salt)


class Hold(_Weighed):
    """One of several values, redrawn every `lasts`."""

    kind: Literal["hold"]
    lasts: DurationMs = Field(ge=1000)
    """How long a value lasts, such as 20m; at least a second."""

    def draw(self, points: Points, salt: int) -> Words:
        """As `Choice.draw`."""
        cells, _ = find_cells(points, self.lasts, salt)
        return cell_words(points, cells, salt)


class Follows(_Several):
    """Determined by another column's value: the first of `values` goes with the first of that column's, and
    so on, like countries with cities."""

    kind: Literal["follows"]
    column: str
    """The other column, whose signal is `choice` or `hold`. Both are tags, or neither is."""


class Constant(Part):
    """The same value in all events."""

    kind: Literal["constant"]
    value: Any
    """The value, of the column's type."""

    @property
    def values(self) -> tuple[Any, ...]:
        """As in `Choice`."""
        return (self.value,)


Signal = (
    Uniform | Normal | Percentiles | Wander | Cycle | Counter | Choice | Hold | Follows | Constant
)
SIGNALS: dict[str, type[Part]] = {
    "uniform": Uniform, "normal": Normal, "percentiles": Percentiles, "wander": Wander,
    "cycle": Cycle, "choice": Choice, "hold": Hold, "follows": Follows, "counter": Counter,
    "constant": Constant,
}  # fmt: skip
