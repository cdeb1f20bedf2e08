"""The signal of each column: several are fitted, values generated from each, and the closest is chosen."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from statistics import NormalDist
from typing import Any

import numpy as np
from pydantic import ValidationError

from simulator.workloads.definition import ColumnDefinition
from simulator.workloads.noise import Points, device_keys
from simulator.workloads.schema import FLOATS, ColumnType
from simulator.workloads.signals import MAX_VALUES

from .drift import Drift, fit_drift, fit_sine
from .nearness import JUDGED, measure_distance
from .samples import Floats, Series, Walk

MOST_CHOICES = 100
"""The most distinct values to list."""
_FEW = 20
"""This few distinct values are listed, unless they drift."""
_PERCENTS = (0, 1, 5, 10, 25, 50, 75, 90, 95, 99, 99.9, 100)
_JUDGED_ROWS, _JUDGED_RUN = 40_000, 2000
_LASTS = 1.5
"""Values held for this many intervals aren't drawn for each event."""
_DRIFTS = 0.1
"""The autocorrelation from which values aren't drawn independently."""
_JUMPS = 0.5
"""A held value changes as much as random draws differ; a drifting one changes less."""
_KEPT = 0.999
"""The share of values that are a device's last one from which on it nearly keeps one for good."""
_BY_PARAMETER = 0.004
"""How much each parameter of a signal must improve the fit."""
_MOST_MARGIN, _COARSER = 0.08, 0.1
"""The most that chance explains; and how much rounding must improve the fit."""
_MOST_DROPS, _STEADY = 0.1, 0.001
"""The share of a counter's steps that may fall: if it restarts, and if it doesn't."""
_YEAR_MS = 366 * 86_400_000


@dataclass(frozen=True)
class Found:
    """A signal as in a definition, and its evidence."""

    signal: dict[str, Any]
    about: str
    numbers: int = 0
    """The number of its parameters."""
    margin: float = 0.0
    """How much closer than others it must be, as chance spreads the percentiles of drifting signals."""
    decimals: int | None = None
    """The step to which its values are rounded."""


def show_ms(duration_ms: float) -> str:
    """A duration as in definitions, to three digits: `20m`, `1.5h`, `450ms`."""
    for unit, length_ms in (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000)):
        count = float(f"{duration_ms / length_ms:.3g}")
        if count >= 2 or (count >= 1 and f"{count:g}" == f"{count:.0f}"):
            return f"{count:g}{unit}"
    return f"{max(1, round(duration_ms))}ms"


def shorten(value: float, digits: int = 4) -> float:
    """A number rounded to this many digits; an integer if it is whole."""
    short = float(f"{value:.{digits}g}")
    return int(short) if short == int(short) and abs(short) < 2**53 else short


def show_share(share: float) -> str:
    """A share as in definitions."""
    return f"{float(f'{share * 100:.3g}'):.10g}%"


# --- one of several ---------------------------------------------------------------------------------


def find_choice(
    series: Series, walk: Walk, interval_ms: float, *, drifting: bool = False
) -> Found | None:
    """A constant, a choice or a hold; None if there are too many distinct numbers, or if they drift, unless
    `drifting`."""
    values, counts = np.unique(walk.values, return_counts=True)
    named = series.choices
    if len(values) == 1:
        value = series.read(values[0])
        return Found({"kind": "constant", "value": value}, "the same in all events")
    total = int(counts.sum())
    left = ""
    if len(values) > MOST_CHOICES:
        if named is None:
            return None
        common = np.sort(np.argsort(-counts, kind="stable")[:MOST_CHOICES])
        left = f", the {MOST_CHOICES} most frequent of {len(values):,}"
        values, counts = values[common], counts[common]
    shares = counts / counts.sum()
    steps, apart_ms = walk.steps
    changes = steps[steps != 0]
    # How often, and by how much, two draws differ.
    differ = 1 - float((shares**2).sum())
    if named is None and not drifting and len(values) > 3 and len(changes):
        by_chance = 2 * float(walk.values.var()) / differ
        if float((changes**2).mean()) < _JUMPS * by_chance:
            return None
    signal: dict[str, Any] = {"kind": "choice", "values": [series.read(v) for v in values]}
    about = f"{len(values)} different values in {total:,} events{left}"
    if np.ptp(shares) > 3 * np.sqrt(shares.mean() / total) + 0.02 * shares.mean():
        largest = 10.0 ** max(2, np.ceil(-np.log10(shares.min())) + 1)
        signal["weights"] = [max(1, round(share * largest)) for share in shares.tolist()]
    if len(steps):
        # Values are also redrawn while there are no events.
        usual = apart_ms <= 3 * interval_ms
        changed = float((steps[usual] != 0).mean()) if usual.any() else 1.0
        lasts_ms = float(apart_ms[usual].mean()) * differ / changed if changed else _YEAR_MS
        if lasts_ms > _LASTS * interval_ms:
            lasts = {"kind": "hold", "lasts": show_ms(max(lasts_ms, 1000))}
            signal = lasts | signal | lasts
            about += f"; the next event has another in {show_share(changed)}"
    return Found(signal, about, len(values) + 1)


def find_tag(series: Series) -> Found:
    """A constant or a choice, fixed for each device."""
    values, counts = np.unique(series.values, return_counts=True)
    listed = [series.read(value) for value in values[:MAX_VALUES]]
    if len(values) == 1:
        return Found({"kind": "constant", "value": listed[0]}, "the same for all devices")
    about = f"{len(values):,} different values of {len(series.values):,} devices"
    signal: dict[str, Any] = {"kind": "choice", "values": listed}
    if len(values) <= MOST_CHOICES and counts.min() < counts.max():
        signal["weights"] = counts.tolist()
    if len(values) > MAX_VALUES:
        about += f"; {MAX_VALUES:,} of them"
    return Found(signal, about, len(values))


# --- numbers ----------------------------------------------------------------------------------------


def find_signal(series: Series, walk: Walk, interval_ms: float, epoch_ms: int) -> Found:
    """The signal of a column of numbers that isn't a tag: the closest of the possible ones."""
    chosen = find_choice(series, walk, interval_ms)
    if chosen is None or len(chosen.signal.get("values", ())) > _FEW:
        counter = _find_counter(series, walk, epoch_ms)
    else:
        counter = chosen
    if counter is not None:
        return replace(counter, decimals=series.decimals)
    if chosen is None and walk.repeats > _KEPT:
        chosen = find_choice(series, walk, interval_ms, drifting=True)
    found = [*([chosen] if chosen else []), *_list_numbers(series, walk, interval_ms)]
    judge = _make_judge(series, walk, epoch_ms)
    found = [replace(one, decimals=series.decimals) for one in found]
    found = [one for one in found if _is_possible(one, series)]
    best = min(found, key=lambda one: judge(one) + _BY_PARAMETER * one.numbers + one.margin)
    if series.type not in FLOATS or best.signal["kind"] in ("choice", "hold") or not walk.repeats:
        return best
    # A sensor's resolution may not be a power of ten: use as many decimals as make values repeat as often.
    width = float(np.ptp(walk.values))
    fewer = range(9 if series.decimals is None else series.decimals)
    coarser = [replace(best, decimals=digits) for digits in fewer if 10.0**-digits < width / 10]
    nearest = min(coarser, key=judge, default=best)
    return nearest if judge(nearest) < judge(best) - _COARSER else best


def _define(one: Found, series: Series) -> ColumnDefinition:
    """The column with this signal."""
    return ColumnDefinition.model_validate(
        {
            "name": series.name, "type": series.type, "decimals": one.decimals,
            "signal": one.signal,
        }
    )  # fmt: skip


def _is_possible(one: Found, series: Series) -> bool:
    """Whether the column's type and decimals have numbers within the signal's ends."""
    try:
        _define(one, series)
    except ValidationError:
        return False
    return True


def _make_judge(series: Series, walk: Walk, epoch_ms: int) -> Callable[[Found], float]:
    devices = len(walk.starts) - 1
    shown = walk.part(min(devices, max(_JUDGED_ROWS // _JUDGED_RUN, 1)), _JUDGED_RUN)
    points = Points(shown.times_ms, *device_keys(0, 0, shown.devices))
    # More devices than recorded, at spread times: the long-run distribution of the signal.
    generator = np.random.default_rng(0)
    numbers = np.arange(_JUDGED_ROWS, dtype=np.int64)
    times = generator.choice(walk.times_ms, _JUDGED_ROWS)
    fleet = Points(times, *device_keys(0, 0, numbers % max(devices, 400)))
    percentiles = np.percentile(walk.values, JUDGED)

    def judge(one: Found) -> float:
        make = _define(one, series).make_maker(series.name, epoch_ms)
        made = shown.with_values(make(points).astype(np.float64))
        spread = make(fleet).astype(np.float64)
        return measure_distance(shown, made, percentiles, spread, series.type)

    return judge


def _list_numbers(series: Series, walk: Walk, interval_ms: float) -> Iterator[Found]:
    values, quantum = walk.values, series.quantum
    digits = 4 if quantum in (0, 1) else max(4, (series.decimals or 0) + 2)
    low, high = float(values.min()), float(values.max())
    mean, deviation = float(values.mean()), float(values.std())
    table = _list_percentiles(values, digits)
    together = [walk.autocorrelation(lag) for lag in (1, 2)]
    if not any(alike > _DRIFTS for alike in together):
        yield Found({"kind": "uniform", "low": shorten(low, 9), "high": shorten(high, 9)},
                    "independent events; all values equally frequent", 2)  # fmt: skip
        yield Found({"kind": "normal", "mean": shorten(mean, digits),
                     "deviation": shorten(deviation, digits)},
                    "independent events; mean and standard deviation", 2)  # fmt: skip
        yield Found({"kind": "percentiles", "values": table},
                    "independent events; percentiles", 8)  # fmt: skip
    sine = fit_sine(walk, interval_ms)
    if sine is not None:
        # Rounding isn't noise.
        noise = max(3 * (sine.noise**2 - quantum**2 / 12), 0) ** 0.5
        signal = {
            "kind": "cycle", "low": shorten(sine.middle - sine.amplitude, digits),
            "high": shorten(sine.middle + sine.amplitude, digits), "period": show_ms(sine.period_ms),
            "shift": show_share(sine.shift), "noise": shorten(noise, 3),
        }  # fmt: skip
        yield Found(
            signal, f"a sine explains {show_share(sine.explained)} of a device's variance", 5
        )
    if any(alike > _DRIFTS for alike in together):
        drift = fit_drift(walk, interval_ms, quantum)
        if drift is not None:
            half = drift.amplitude * drift.reach
            ends = {"low": shorten(mean - half, digits), "high": shorten(mean + half, digits)}
            about = "from how values differ over time"
            yield Found({"kind": "wander", **ends, **_show_drift(drift)}, about, 5)
        ranks = walk.with_values(_make_normal(values))
        # Too few steps to see how it drifts: each device nearly keeps its value.
        drift = fit_drift(ranks, interval_ms, 0.0) or Drift(_YEAR_MS, 0, 1, 1)
        signal = {"kind": "percentiles", "values": table, **_show_drift(drift)}
        about = "percentiles, and how ranks differ over time"
        seen = len(walk) * interval_ms / drift.period_ms
        yield Found(signal, about, 11, margin=min(seen**-0.5, _MOST_MARGIN))


def _show_drift(drift: Drift) -> dict[str, Any]:
    shown: dict[str, Any] = {"period": show_ms(drift.period_ms)}
    return shown | {"roughness": shorten(drift.roughness, 2), "octaves": drift.octaves}


def _list_percentiles(values: Floats, digits: int) -> dict[str, float]:
    found = np.percentile(values, _PERCENTS).tolist()
    rounded = np.maximum.accumulate([shorten(value, digits) for value in found]).tolist()
    return {f"p{p:g}": shorten(v, 15) for p, v in zip(_PERCENTS, rounded, strict=True)}


@cache
def _probits() -> tuple[Floats, Floats]:
    shares = np.linspace(0.0005, 0.9995, 1000)
    return shares, np.array([NormalDist().inv_cdf(share) for share in shares.tolist()])


def _make_normal(values: Floats) -> Floats:
    """Values mapped by rank to a normal distribution; equal ones stay equal."""
    shares, normal = _probits()
    table = np.quantile(values, shares)
    places = (np.searchsorted(table, values) + np.searchsorted(table, values, "right")) / 2
    return np.interp(places / len(shares), shares, normal)


# --- counters ---------------------------------------------------------------------------------------


def _find_counter(series: Series, walk: Walk, epoch_ms: int) -> Found | None:
    """A counter, if hardly any value is below the device's previous one, except at restarts."""
    steps, apart_ms = walk.steps
    moved = np.count_nonzero(steps)
    if len(steps) < 20 or moved < 10:
        return None
    drops = steps < 0
    share = float(drops.mean())
    starts, ends = walk.starts[:-1], walk.starts[1:] - 1
    rises = steps[~drops]
    rate = float(rises.sum() / max(int(apart_ms[~drops].sum()), 1))
    typical = float(np.median(rises[rises > 0])) if np.any(rises > 0) else 0.0
    resets_ms = None
    # Restarts fall far.
    far = max(0.4 * float(np.ptp(walk.values)), 5 * typical)
    if 0 < share < _MOST_DROPS and np.median(-steps[drops]) > far:
        resets_ms = float(apart_ms.sum()) / int(drops.sum())
    elif share > _STEADY or (walk.values[ends] <= walk.values[starts]).mean() > 0.1:
        return None
    if not rate:
        return None
    interval_ms = float(np.median(apart_ms))
    whole = series.quantum and np.mean(steps == 0) > 0.02
    step = float(rises[rises > 0].min()) if whole else rate * interval_ms
    if resets_ms is None:
        begins = walk.values[starts] - rate * (walk.times_ms[starts] - epoch_ms)
        count = len(begins)
        start = float(begins.min())
        spread = float(np.ptp(begins)) * ((count + 1) / (count - 1) if count > 1 else 1)
        about = "never falls; its rise over the whole time"
    else:
        start, spread = float(np.percentile(walk.values, 1)), 0.0
        about = f"restarts {int(drops.sum()):,} times; its rise in between"
    signal: dict[str, Any] = {"kind": "counter", "start": shorten(start, 6), "step": shorten(step),
                              "every": show_ms(step / rate)}  # fmt: skip
    if spread > 2 * step:
        signal["spread"] = shorten(spread, 3)
    if resets_ms is not None:
        signal["resets"] = show_ms(max(resets_ms, 1000))
    return Found(signal, about, len(signal) - 1)


def is_number(kind: ColumnType) -> bool:
    """Whether a signal of numbers can generate it."""
    return kind not in (ColumnType.BOOL, ColumnType.TEXT, ColumnType.JSON)
