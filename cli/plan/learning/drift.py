"""The parameters of drifting signals (`wander`, and `percentiles` with a period) and of periodic ones
(`cycle`)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .samples import Floats, Walk

_LAGS = 28
_PERIODS, _ROUGHNESSES = 48, 21
_MOST_OCTAVES = 12
_SHORTEST_MS = 1010
"""A definition's minimum, allowing for the rounding of a period to three digits."""
_MODEL_ERROR = 1e-5
"""The minimum deviation of recorded values from any such drift, from lag to lag: 0.3 %."""
_BY_OCTAVE = 0.1
"""How much another noise must improve the fit, in standard deviations squared."""
_LONGEST = 4
"""A period of this many times a device's span looks like any longer one."""


@dataclass(frozen=True)
class Drift:
    """A sum of lattice noises."""

    period_ms: float
    roughness: float
    octaves: int
    amplitude: float
    """The period of the slowest noise."""

    @property
    def reach(self) -> float:
        """The largest possible sum of the noises, given that the slowest reaches 1."""
        return sum(self.roughness**octave for octave in range(self.octaves))


def fit_drift(walk: Walk, interval_ms: float, quantum: float) -> Drift | None:
    """The noises whose variogram (half the mean squared difference of values one lag apart) is closest to the
    values'. None if there are too few values.

    Linear interpolation of independent values with a random phase has the cubic B-spline as its
    autocovariance (Unser, "Splines: a perfect fit", IEEE Signal Processing Magazine 16, 1999), and the
    octaves are independent. The variance of a noise from -1 to 1 is 1/3.
    """
    longest = int(np.diff(walk.starts).max())
    span_ms = interval_ms * longest
    variance = float(walk.values.var())
    lags, gammas, errors = [], [], []
    for lag in np.unique(np.geomspace(1, max(longest // 2, 1), _LAGS).astype(np.int64)).tolist():
        first, second = walk.pairs(lag)
        apart_ms = walk.times_ms[second] - walk.times_ms[first]
        near = np.abs(apart_ms - lag * interval_ms) < (lag / 4 + 0.5) * interval_ms
        if np.count_nonzero(near) < 10:
            continue
        first, second = first[near], second[near]
        gamma = float(((walk.values[second] - walk.values[first]) ** 2).mean() / 2)
        # Differences below the resolution say nothing.
        gamma -= quantum**2 / 12
        if gamma > max(quantum**2 / 4, variance * 1e-9):
            lags.append(float(apart_ms[near].mean()))
            gammas.append(gamma)
            errors.append(lag / len(walk))
    if len(lags) < 3:
        return None
    # Distant values differ as much as the values of all devices.
    lags.append(np.inf)
    gammas.append(max(variance - quantum**2 / 12, max(gammas) / 2))
    errors.append(2 * errors[-1])
    return _search(
        np.array(lags), np.array(gammas), np.array(errors), 2 * interval_ms, _LONGEST * span_ms
    )


def _search(
    lags: Floats, gammas: Floats, errors: Floats, least_ms: float, most_ms: float
) -> Drift | None:
    """The closest point of a grid, which is refined around it twice. Errors of neighbouring lags correlate,
    as they share events; from one to the next the error of the logarithm has about the variance `errors`, one
    over the number of lags in all events."""
    least_ms = max(least_ms, _SHORTEST_MS)
    if most_ms <= least_ms:
        return None
    periods = np.geomspace(least_ms, most_ms, _PERIODS)
    roughnesses = np.linspace(0, 1, _ROUGHNESSES)
    octaves = np.arange(_MOST_OCTAVES)
    # Noises faster than half an interval look like a single one.
    shortest_ms = max(least_ms / 4, _SHORTEST_MS)
    weights = 1 / (errors[1:] + _MODEL_ERROR)
    best = None
    for _ in range(3):
        scaled = lags / periods[:, None, None] * 2.0 ** octaves[:, None]
        single = (2 / 3 - _spline(scaled)) / 3  # period, octave, lag
        powers = roughnesses[:, None] ** (2 * octaves)  # roughness, octave
        models = np.cumsum(powers[:, None, :, None] * single, axis=2)
        apart = np.log(gammas / np.maximum(models, 1e-300))
        misses = (np.diff(apart) ** 2 * weights).sum(-1) + _BY_OCTAVE * octaves
        misses[:, periods[:, None] / 2.0**octaves < shortest_ms] = np.inf
        place = np.unravel_index(np.argmin(misses), misses.shape)
        rough, slow, last = (int(part) for part in place)
        period, roughness = float(periods[slow]), float(roughnesses[rough])
        best = Drift(
            period, roughness, last + 1, float(np.exp(apart[rough, slow, last].mean() / 2))
        )
        ratio = (periods[1] / periods[0]) ** 1.5
        periods = np.clip(np.geomspace(period / ratio, period * ratio, 25), least_ms, most_ms)
        width = 1.5 * (roughnesses[1] - roughnesses[0])
        roughnesses = np.linspace(max(0, roughness - width), min(1, roughness + width), 16)
    return best


def _spline(x: Floats) -> Floats:
    """The cubic B-spline at positions from 0."""
    x = np.minimum(x, 2)
    near = 2 / 3 - x**2 + x**3 / 2
    far = np.maximum(2 - x, 0) ** 3 / 6
    return np.where(x < 1, near, far)


# --- periodic signals ---------------------------------------------------------------------------------

_DEVICES, _BLOCKS, _FITTED = 16, 1 << 15, 2000
_LEAST_SHARE = 0.2
"""The share of variance that a sine must explain to be considered."""


@dataclass(frozen=True)
class Sine:
    """A sine in the values of each device."""

    period_ms: float
    middle: float
    amplitude: float
    noise: float
    """The standard deviation of the residual."""
    shift: float
    """The share of a period over which the devices' phases are spread."""
    explained: float
    """The share of the variance within devices that it explains."""


def fit_sine(walk: Walk, interval_ms: float) -> Sine | None:
    """The sine that explains most of the values, found by a periodogram and refined by least squares; None if
    none explains a fifth, or if there are fewer than two periods."""
    chosen = walk.part(_DEVICES, len(walk))
    parts = [
        (chosen.values[a:b], chosen.times_ms[a:b].astype(np.float64))
        for a, b in zip(chosen.starts[:-1], chosen.starts[1:], strict=True)
        if b - a >= 32
    ]
    if not parts:
        return None
    origin = min(float(times[0]) for _, times in parts)
    generator = np.random.default_rng(0)
    thinned = []
    for values, times in parts:
        rows = np.arange(len(values))
        if len(values) > _FITTED:
            rows = np.sort(generator.choice(len(values), _FITTED, replace=False))
        thinned.append((values[rows], times[rows] - origin))
    frequency = max(
        filter(None, (_find_peak(parts, interval_ms, whole) for whole in (True, False))),
        key=lambda found: _explain(thinned, found)[0],
        default=None,
    )
    if frequency is None:
        return None
    span_ms = max(float(times[-1] - times[0]) for _, times in thinned)
    width = 1 / span_ms
    for _ in range(3):
        around = np.linspace(max(frequency - width, 0.5 * frequency), frequency + width, 25)
        frequency = float(max(around, key=lambda found: _explain(thinned, found)[0]))
        width /= 8
    explained, middle, amplitude, phases, noise = _explain(thinned, frequency)
    if explained < _LEAST_SHARE or frequency * span_ms < 1.8:
        return None
    return Sine(1 / frequency, middle, amplitude, noise, _spread(phases), explained)


def _find_peak(parts: list[tuple[Floats, Floats]], interval_ms: float, whole: bool) -> float | None:
    """The frequency (per ms) with most power over all devices: from whole spans, in blocks if necessary, or
    from their first events."""
    longest = max(float(times[-1] - times[0]) for _, times in parts) / interval_ms + 1
    block = max(1.0, longest / _BLOCKS) if whole else 1.0
    length = int(min(longest / block, _BLOCKS)) + 1
    if length < 16 or (not whole and longest <= _BLOCKS):
        return None
    power = np.zeros(2 * length // 2 + 1)
    for values, times in parts:
        places = ((times - times[0]) / (interval_ms * block)).astype(np.int64)
        inside = places < length
        counts = np.bincount(places[inside], minlength=length)
        sums = np.bincount(places[inside], values[inside] - values.mean(), minlength=length)
        means = np.divide(sums, counts, out=np.zeros(length), where=counts > 0)
        spread = means.std()
        if spread:
            power += np.abs(np.fft.rfft(means / spread, 2 * length)) ** 2
    # In half bins, since spans are padded to twice their length. The slowest are drift.
    power[:4] = 0
    peak = int(np.argmax(power))
    return peak / (2 * length * interval_ms * block) if power[peak] else None


def _explain(
    parts: list[tuple[Floats, Floats]], frequency: float
) -> tuple[float, float, float, Floats, float]:
    """The fit of a sine of this frequency in each device: share of the variance explained; middle and
    amplitude; the devices' phases; standard deviation of the residual."""
    total = rest = 0.0
    count, middles, amplitudes, phases = 0, [], [], []
    for values, times in parts:
        angles = 2 * np.pi * frequency * times
        design = np.stack([np.ones_like(angles), np.cos(angles), np.sin(angles)])
        found = np.linalg.lstsq(design @ design.T, design @ values, rcond=None)[0]
        total += float(((values - values.mean()) ** 2).sum())
        rest += float(((values - found @ design) ** 2).sum())
        count += len(values)
        middles.append(float(found[0]))
        amplitudes.append(float(np.hypot(found[1], found[2])))
        phases.append(float(np.arctan2(found[2], found[1])))
    explained = 1 - rest / total if total else 0.0
    middle, amplitude = float(np.mean(middles)), float(np.mean(amplitudes))
    return explained, middle, amplitude, np.array(phases), (rest / count) ** 0.5


def _spread(phases: Floats) -> float:
    """The shortest arc that contains all phases, if there are more devices than this."""
    if len(phases) < 3:
        return 0.0
    places = np.sort(phases / (2 * np.pi) % 1)
    largest = float(np.diff(np.append(places, places[0] + 1)).max())
    return min(1.0, (1 - largest) * (len(phases) + 1) / (len(phases) - 1))
