"""Extrapolates a figure measured at two fill levels to a larger one. Pure.

By its values v1 on n1 events and v2 on n2, a figure grows by the power b = ln(v2 / v1) / ln(n2 / n1) of the
events: 0 is flat, 1 doubles it with them. On n events it is then v2 (n / n2)^b. Each repetition has its own
exponent and prediction, so both are samples like any figure: their bounds are Student's t (for predictions,
on the logarithms), and the verdict's rule decides whether a prediction keeps a requirement. Nothing is
extrapolated beyond `MOST_TIMES` the events it was measured on. A requirement is met if the
measured figure keeps it and the predicted one does; it is missed if either breaks it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, exp, log, sqrt
from statistics import fmean, stdev

from simulator.units import format_amount, format_digits

from .decision import (
    CERTAINTY,
    MOST_TIMES,
    Cell,
    Interval,
    Requirement,
    Sample,
    Scale,
    Status,
    decide,
)
from .statistics import ALIKE_FACTOR, t_quantile

ALMOST = 0.99
"""Tolerance of a history, which has whole events of each device."""
LEAST_RATIO = 2.0
"""Fill levels closer than this show no exponent."""

ONE_LEVEL = "measured at one fill level: a second one would decide"
"""Why nothing is extrapolated."""


@dataclass(frozen=True)
class Growth:
    """A figure of one repetition at two fill levels."""

    repetition: int
    low_events: int
    low: float
    high_events: int
    high: float
    busy: str | None = None
    """The load of other programs meanwhile, as in `Sample`."""

    @property
    def exponent(self) -> float:
        """The power of the number of events by which the figure grows."""
        return log(self.high / self.low) / log(self.high_events / self.low_events)

    def predict(self, events: float) -> float:
        """The predicted figure for this many events."""
        return float(self.high * (events / self.high_events) ** self.exponent)


def find_growth(
    repetition: int,
    low: tuple[int, float | None],
    high: tuple[int, float | None],
    busy: str | None = None,
) -> Growth | None:
    """The growth between two (events, figure); None if one is unknown, or they are too close."""
    (low_events, low_value), (high_events, high_value) = low, high
    if not low_value or not high_value or low_events <= 0:
        return None
    if high_events < LEAST_RATIO * low_events:
        return None
    return Growth(repetition, low_events, low_value, high_events, high_value, busy)


def find_interval(values: Sequence[float]) -> Interval | None:
    """The mean with its bounds; None for fewer than two values."""
    if len(values) < 2:
        return None
    mean, half = fmean(values), t_quantile(CERTAINTY, len(values) - 1) * stdev(values)
    half /= sqrt(len(values))
    return Interval(mean=mean, low=mean - half, high=mean + half)


def extend(
    row: Requirement,
    cell: Cell,
    scale: Scale,
    growths: Sequence[Growth],
    why: str = ONE_LEVEL,
) -> Cell:
    """The cell of a figure that may grow with the stored events, judged at full retention. `growths`: of the
    repetitions that show one; `why` the others don't."""
    if scale.kept <= scale.events:
        return cell.model_copy(update={"scale": scale})
    scale = project(scale, growths)
    busy = {sample.repetition: sample.busy for sample in cell.samples}
    samples = [
        Sample(
            repetition=growth.repetition,
            keeps=row.find_headroom(value) >= 1,
            value=value,
            busy=busy.get(growth.repetition) or growth.busy,
        )
        for growth in growths
        for value in [growth.predict(scale.reach)]
    ]
    headroom, headrooms = cell.headroom, cell.headrooms
    if scale.extrapolated is not None:
        grown = row.find_headroom(scale.extrapolated.mean)
        if headroom is None or grown < headroom:
            headroom = grown
            headrooms = row.find_headrooms([sample.value for sample in samples if sample.value])
    status, reason = _judge(row, cell, scale, samples, why)
    return cell.model_copy(
        update={
            "scale": scale,
            "status": status,
            "reason": reason,
            "headroom": headroom,
            "headrooms": headrooms,
        }
    )


def project(scale: Scale, growths: Sequence[Growth]) -> Scale:
    """The scale with exponent and figure that follow from several repetitions' growths."""
    reach = scale.reach
    logs = find_interval([log(growth.predict(reach)) for growth in growths])
    if logs is None:
        return scale
    grown = Interval(mean=exp(logs.mean), low=exp(logs.low), high=exp(logs.high))
    exponent = find_interval([growth.exponent for growth in growths])
    changes = {"exponent": exponent, "extrapolated": grown, "extrapolated_to": reach}
    return scale.model_copy(update=changes)


def _judge(
    row: Requirement, cell: Cell, scale: Scale, samples: Sequence[Sample], why: str
) -> tuple[Status, str | None]:
    prediction = decide(row, samples)
    is_whole = len(samples) >= sum(sample.keeps is not None for sample in cell.samples)
    if cell.status is not Status.MISSED and is_whole and prediction.status is Status.MISSED:
        return Status.MISSED, describe_growth(row, scale)
    if cell.status is Status.MISSED:
        return cell.status, cell.reason
    # Takes precedence over other reasons: an idle machine or more repetitions wouldn't decide it.
    if (too_far := find_too_far(scale)) is not None:
        return Status.UNDECIDED, too_far
    if cell.status is Status.UNDECIDED:
        return cell.status, cell.reason
    if not is_whole:
        return Status.UNDECIDED, f"{describe_share(scale)}, {why}"
    if prediction.status is Status.MET:
        return Status.MET, None
    return Status.UNDECIDED, f"{describe_growth(row, scale)}: {prediction.reason}"


def find_too_far(scale: Scale) -> str | None:
    """Why extrapolating to full retention isn't possible, and what would decide; None if it is."""
    if scale.events >= ALMOST * scale.kept / MOST_TIMES:
        return None
    return (
        f"{describe_share(scale)}, and figures are extrapolated {MOST_TIMES} × at most: a history of"
        f" {format_least(scale.kept)} events would decide"
    )


def format_least(kept: int) -> str:
    """The fewest events that allow extrapolating this far: `104M`."""
    least = ceil(kept / MOST_TIMES)
    step = 10 ** max(0, len(str(least)) - 3)
    return format_amount(ceil(least / step) * step)


def describe_share(scale: Scale) -> str:
    """`on 104M of 3.11G events`."""
    return f"on {format_amount(scale.events)} of {format_amount(scale.kept)} events"


def describe_growth(row: Requirement, scale: Scale) -> str:
    """`1,900 ms (1,700 ms to 2,100 ms) on 3.11G events`."""
    grown, reach = scale.extrapolated, scale.extrapolated_to
    if grown is None or reach is None:
        return describe_share(scale)
    bounds = f"{row.unit.show(grown.low)} to {row.unit.show(grown.high)}"
    return f"{row.unit.show(grown.mean)} ({bounds}) on {format_amount(reach)} events"


def limit_cell(row: Requirement, cell: Cell, scale: Scale) -> Cell:
    """The cell of a total that rises with the stored events: undecided if it depends on more than
    extrapolation allows."""
    reach = min(1.0, MOST_TIMES * scale.share)
    is_missed = cell.lowest is not None and row.find_headroom(reach * cell.lowest) < 1
    if cell.status is not Status.UNDECIDED and (too_far := find_too_far(scale)):
        status = Status.MISSED if is_missed and cell.status is Status.MISSED else Status.UNDECIDED
        why = cell.reason if status is Status.MISSED else too_far
        cell = cell.model_copy(update={"status": status, "reason": why})
    return cell.model_copy(update={"scale": scale})


def is_flat(scale: Scale) -> bool:
    """Whether the interval of the exponent stays within ±0.1."""
    if scale.exponent is None or scale.extrapolated_to is None:
        return False
    times = scale.extrapolated_to / scale.events
    most = log(ALIKE_FACTOR) / log(times)
    return scale.exponent.low >= -most and scale.exponent.high <= most


def format_share(share: float) -> str:
    """`3.2%`, `0.003%`; `all` from 100 %."""
    return "all" if share >= 1 else f"{format_digits(100 * share)}%"
