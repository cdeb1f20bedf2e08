"""The times of events, by how many events there are: what a retention goes by. Pure.

Nobody waits ninety days. Events' times follow from their numbers alone, so a run passes as much of event time
as its events are apart; `clock_factor` sets them so far apart that a retention passes.
"""

from __future__ import annotations

from math import ceil

from ..contract import DataSet, Load, Retention, find_step_ms
from .base import Workload

PASSES = 2
"""How many times the events of a run and of its prefill pass a retention: in the first half, or by the
prefill, the database fills up, and from then on as much goes as comes."""

MOST_PASSES = 50
"""How many times at most: with the steps of more passes, databases would do little else."""


def find_time_ms(workload: Workload, worker: int, number: int) -> int:
    """The time of an event."""
    return int(workload.block(worker, number, 1).columns[workload.schema.time][0])


def count_own(load: Load) -> int | None:
    """How many events all writers of a load will have inserted in the end; None if that depends on how fast
    the database is."""
    if load.duration_s is None:
        return load.workers * load.events
    return None if load.rate_per_s is None else round(load.count_due(0.0, load.duration_s))


def find_span_ms(workload: Workload, data: DataSet, load: Load, own: int) -> int:
    """How much of event time a data set passes in a run of `own` events, with its prefill; 1 ms at least."""
    last = max(1, -(-(data.prefill + own) // load.workers) - 1)
    return max(1, find_time_ms(workload, 0, last) - workload.schema.epoch_ms)


def find_clock_factor(workload: Workload, data: DataSet, load: Load, own: int) -> int:
    """The least factor by which a data set with a retention passes it `PASSES` times in a run of `own`
    events. `workload`: without a factor."""
    assert data.retention_s is not None
    span_ms = find_span_ms(workload, data, load, own)
    return max(1, ceil(PASSES * data.retention_s * 1000 / span_ms))


def make_retention(workload: Workload, data: DataSet, load: Load) -> Retention | None:
    """The retention by which a run with this data set and load deletes; None: it deletes nothing."""
    if data.retention_s is None:
        return None
    period_ms, own = round(data.retention_s * 1000), count_own(load)
    until_ms = None
    if own is not None:
        until_ms = find_time_ms(workload, 0, -(-(data.prefill + own) // load.workers))
    return Retention(period_ms=period_ms, step_ms=find_step_ms(period_ms), until_ms=until_ms)
