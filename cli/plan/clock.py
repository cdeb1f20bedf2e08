"""How far apart the events of a run with a retention are in time. Pure: no I/O."""

from __future__ import annotations

from simulator.contract import DataSet, Load
from simulator.units import format_span
from simulator.workloads.base import CLOCK_FACTOR, MAX_CLOCK_FACTOR
from simulator.workloads.numbering import MOST_PASSES, count_own, find_clock_factor, find_span_ms

from ..system.errors import ConfigError
from .workloads import make_workload_of

ASKED = 2
"""The prefill must have this many times as many events as are inserted while questions are asked, so that a
part of it stays to be asked about."""


def compress_clock(data: DataSet, load: Load) -> DataSet:
    """The data set with its events so far apart that its retention passes in a run of this load, unless the
    user says how far. ConfigError if that can't be known."""
    assert data.retention_s is not None
    if not data.clean:
        raise ConfigError(
            "--retention deletes from its own tables: leave --no-clean and --steps out"
        )
    if data.has_history:
        raise ConfigError(
            "--retention fills its tables itself, with a compressed clock: leave --prefill-span out, or"
            " give a number of events with --prefill"
        )
    own, is_given = count_own(load), data.workload_options.get(CLOCK_FACTOR, 1) != 1
    if own is None and is_given:
        return data
    if own is None:
        raise ConfigError(
            "the time that passes at full speed is unknown before the run: with --retention give --rate, or"
            f" --num-inserts instead of --duration, or --workload-option {CLOCK_FACTOR}=NUMBER"
        )
    workload = make_workload_of(data)
    passes = find_span_ms(workload, data, load, own) / (1000 * data.retention_s)
    if passes > MOST_PASSES:
        raise ConfigError(
            f"the events would pass --retention {format_span(data.retention_s)} {passes:,.0f} times, and"
            f" {MOST_PASSES} is the most: keep them for longer, or give more devices"
        )
    if is_given:
        return data
    factor = find_clock_factor(workload, data, load, own)
    if factor > MAX_CLOCK_FACTOR:
        raise ConfigError(
            f"--retention {format_span(data.retention_s)} is too long for {own:,} events: give a shorter"
            " one, or insert more"
        )
    return data.model_copy(
        update={"workload_options": data.workload_options | {CLOCK_FACTOR: factor}}
    )


def check_prefill(data: DataSet, load: Load) -> None:
    """ConfigError if no event that is there when readers begin stays until the end of the run."""
    own = count_own(load)
    if own is None:
        raise ConfigError(
            "--retention needs a --rate here: without it, the events that stay for queries are unknown"
        )
    if data.prefill < ASKED * own:
        raise ConfigError(
            f"with --retention, queries need prefilled events that stay until the end: give --prefill"
            f" {ASKED * own} or more"
        )
