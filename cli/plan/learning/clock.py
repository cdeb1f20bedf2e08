"""When devices send: the interval, its jitter, and how late their events arrive."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .samples import Sample

_GAP = 1.5
"""A time without events is a gap from this many intervals."""
_LEAST_STRAY = 0.3
"""Without a clock, more steps than that are far from the usual one: 65 % of exponential ones. Of devices that
rest at weekends a fifth are."""
_TAIL = 3.0
"""The 99th percentile is twice the mean for uniform delays, and 4.6 times for exponential ones."""
_MOST_LATE = 0.5
"""If more events than this follow one with a later time, a clock is wrong or the file is a concatenation."""


@dataclass(frozen=True)
class Delays:
    """How late the late events arrive."""

    share: float
    most_ms: float
    mean_ms: float | None
    """For exponential delays; None: uniform."""


@dataclass(frozen=True)
class Pauses:
    """Times in which no device sends."""

    count: int
    every_ms: int
    """From the beginning of one to that of the next, on average."""
    lasts_ms: int


@dataclass(frozen=True)
class Clock:
    """The clock of the recorded devices."""

    first_ms: int
    last_ms: int
    interval_ms: int
    jitter_ms: int
    """How much later events come than the earliest of their tick."""
    late: Delays | None
    gap_share: float
    """The share of the time in which expected events are missing."""
    gaps: int
    pauses: Pauses | None
    """Gaps that all devices have in common, if there are some."""
    duplicates: int
    """Events that repeat a device and time."""
    by_device: bool
    """Whether the file lists one device after the other."""


def read_clock(sample: Sample) -> Clock:
    """The clock of a recording of at least two events."""
    times, devices = sample.sorted_times_ms, sample.sorted_devices
    same = devices[1:] == devices[:-1]
    steps = np.diff(times)[same]
    moved = steps[steps > 0]
    typical = float(np.median(moved)) if len(moved) else 1000.0
    # The ticks in each step, so that the interval follows from whole spans, not from single steps.
    ticks = np.maximum(np.rint(moved / typical), 1)
    near = ticks < 1000
    interval = float(moved[near].sum() / ticks[near].sum()) if near.any() else typical
    is_steady = not np.mean(np.abs(moved - typical) > typical / 2) > _LEAST_STRAY
    if not is_steady:
        # Event-driven instead of clocked: the same mean rate.
        interval = float(moved[moved < 20 * moved.mean()].mean())
    interval = _round_near(interval)
    gap_steps = moved[moved > _GAP * interval]
    span = float(moved.sum()) or 1.0
    interval_ms = max(1, round(interval))
    jitter_ms = min(_find_jitter(sample, interval), interval_ms - 1)
    count = sample.device_count
    by_device = count > 1 and np.count_nonzero(np.diff(sample.devices)) < 2 * count
    return Clock(
        first_ms=int(times.min()),
        last_ms=int(times.max()),
        interval_ms=interval_ms,
        jitter_ms=jitter_ms,
        late=_find_delays(sample, interval, bool(by_device)),
        gap_share=float((gap_steps - interval).sum() / span),
        gaps=len(gap_steps),
        pauses=_find_pauses(sample, interval_ms, jitter_ms) if is_steady else None,
        duplicates=int(np.count_nonzero(steps == 0)),
        by_device=bool(by_device),
    )


def _round_near(duration_ms: float) -> float:
    """The duration in the largest unit that divides it, within a thousandth."""
    for unit_ms in (86_400_000, 3_600_000, 60_000, 1000, 100, 10, 1):
        rounded = round(duration_ms / unit_ms) * unit_ms
        if rounded and abs(rounded - duration_ms) <= duration_ms / 1000:
            return float(rounded)
    return duration_ms


def _find_pauses(sample: Sample, interval_ms: int, jitter_ms: int) -> Pauses | None:
    """Whole intervals in which no device sends. On average they are as long and as far apart as recorded."""
    times = np.sort(sample.times_ms)
    steps = np.diff(times)
    places = np.flatnonzero(steps > _GAP * interval_ms + jitter_ms)
    if not len(places):
        return None
    lasts_ms = max(1, round(float(steps[places].mean()) / interval_ms - 1)) * interval_ms
    every_ms = (times[places[-1]] - times[places[0]]) / max(len(places) - 1, 1) or np.ptp(times)
    ticks = max(1, round((every_ms - lasts_ms) / interval_ms))
    return Pauses(len(places), ticks * interval_ms + lasts_ms, lasts_ms)


def _find_jitter(sample: Sample, interval: float) -> int:
    """The spread of a device's tick times. For a uniform jitter, which is what is generated, the middle 80 %
    are as wide as 80 % of it."""
    spreads, weights = [], []
    for start, stop in zip(sample.starts[:-1], sample.starts[1:], strict=True):
        if stop - start < 10:
            continue
        times = sample.sorted_times_ms[start : min(stop, start + 5000)].astype(np.float64)
        # A few hundred ticks at a time: a drifting clock isn't jitter.
        for first in range(0, len(times) - 9, 200):
            part = times[first : first + 200] - times[first]
            offsets = part - np.cumsum(np.rint(np.diff(part, prepend=0.0) / interval)) * interval
            low, high = np.percentile(offsets, [10, 90])
            spreads.append((high - low) / 0.8)
            weights.append(len(part))
        if len(spreads) > 500:
            break
    if not spreads:
        return 0
    jitter = float(np.average(spreads, weights=weights))
    return 0 if jitter < 1 else round(_round_near(jitter))


def _find_delays(sample: Sample, interval: float, by_device: bool) -> Delays | None:
    """Lateness from the order of the file: an event is late by as much as the newest one before it is newer.

    A batch of devices sends at each tick, so a delay shorter than an interval shows as a whole interval in a

    proportional share of the cases. So the mean visible delay is the mean delay, but fewer events appear late

    than are.
    """
    if not by_device:
        lateness = np.maximum.accumulate(sample.times_ms) - sample.times_ms
        by_device = float(np.mean(lateness > interval / 2)) > _MOST_LATE
    if by_device:
        lateness = _find_lateness_by_device(sample)
    shown = lateness[lateness > interval / 2].astype(np.float64)
    if not len(shown):
        return None
    mean, total = float(shown.mean()), float(shown.sum()) / len(lateness)
    most = _round_near(float(shown.max()))
    if np.percentile(shown, 99) > _TAIL * mean:
        mean_delay = -interval / np.log1p(-min(interval / mean, 0.99))
        return Delays(min(1.0, total / mean_delay), most, min(float(mean_delay), most))
    longest = mean + np.sqrt(max(mean**2 - mean * interval, 0.0))
    return Delays(min(1.0, float(2 * total / longest)), max(float(longest), 1.0), None)


def _find_lateness_by_device(sample: Sample) -> NDArray[np.int64]:
    order = np.argsort(sample.devices, kind="stable")
    times, devices = sample.times_ms[order], sample.devices[order]
    # Far enough apart that each device's newest time is below the next one's first.
    apart = int(times.max() - times.min()) + 1
    lifted = times - times.min() + devices * apart
    return np.asarray(np.maximum.accumulate(lifted) - lifted)
