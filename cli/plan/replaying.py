"""Replaying a recording by its own clock: when its events are due, and how long that takes."""

from __future__ import annotations

from collections.abc import Collection

from simulator.contract import Arrivals, DataSet, Load, share
from simulator.units import format_count, format_in_unit
from simulator.workloads.numbering import WithHistory, add_history

from ..system.errors import ConfigError
from ..system.output import warn_once
from .workloads import make_workload_of

MOST_UNASKED_S = 600.0
"""The longest run without an explicit length."""

AS_FAST_AS_POSSIBLE = 0.0
"""The speed `max`."""

_ROUNDED = 1e-4
"""By such a part of it, a length may differ from another for rates that are rounded."""


def follow_recording(load: Load, data: DataSet, given: Collection[str]) -> Load:
    """The load of writers that replay a recording by its own clock, unless a rate or the speed `max` is
    given: an open loop at the recording's mean rate times the speed, to the recording's end unless a length
    is given. Other loads are unchanged. ConfigError for any other workload, or if it would take long without
    being requested."""
    workload = make_workload_of(data)
    own_per_s, asked = workload.own_rate_per_s, load.speed is not None
    if own_per_s is None:
        if asked or load.arrivals is Arrivals.RECORDED:
            option = "--speed" if asked else "--arrivals recorded"
            raise ConfigError(
                f"{option} is for recordings: workload {data.workload} has no clock of its own; use --rate"
            )
        return load
    if load.rate_per_s is not None:
        if asked:
            raise ConfigError("--rate and --speed both say when events are due: give one of them")
        return load
    speed = workload.own_speed if load.speed is None else load.speed
    if speed == AS_FAST_AS_POSSIBLE:
        return load.model_copy(update={"speed": None})
    rate_per_s = float(f"{own_per_s * speed:.6g}")
    changes: dict[str, object] = {
        "speed": speed, "rate_per_s": rate_per_s, "arrivals": Arrivals.RECORDED,
    }  # fmt: skip
    length_s = workload.own_length_s / speed
    if load.duration_s is not None:
        pass
    elif "events" in given:
        length_s = load.events * load.workers / rate_per_s
    else:
        changes["duration_s"] = length_s
    if load.duration_s is None and not asked and length_s > MOST_UNASKED_S:
        raise ConfigError(
            f"the recording has {rate_per_s:.3g} events/s: a run takes {format_in_unit(length_s)} at"
            f" this speed; give --speed {max(2, round(length_s / 60))} or the like, --duration, --rate, or"
            " --speed max (as fast as the database takes them)"
        )
    return load.model_copy(update=changes)


def end_with_recording(
    load: Load, data: DataSet, given: Collection[str] = (), before: int = 0
) -> Load:
    """The load of writers whose recording isn't repeated: all of it unless somebody says how much. That a run
    ends before its time is told. `before`: events of the runs whose data it goes on with. ConfigError if
    fewer events are left than are asked for. All other loads stay."""
    if "recorded" not in (data.definition or {}):
        return load
    workload = make_workload_of(data)
    if not workload.ends:
        return load
    history = add_history(workload, data)
    left = [
        workload.turn(worker)
        - (history.count_history(worker) if isinstance(history, WithHistory) else 0)
        - share(data.prefill + before, load.workers, worker)
        for worker in range(load.workers)
    ]
    in_all, sentence = sum(left), "the recording isn't repeated"
    if min(left) <= 0:
        raise ConfigError(
            f"{sentence}, and a worker has no events left for the run: give fewer before it or fewer workers,"
            " or set recorded.repeat to true"
        )
    everything = {"duration_s": None, "events": max(left), "events_in_all": in_all}
    if load.duration_s is not None:
        if load.rate_per_s is None:
            warn_once(f"{sentence}: the run ends with its {in_all:,} events, if not before")
            return load
        length_s = in_all / load.rate_per_s
        if load.stages or length_s >= load.duration_s * (1 + _ROUNDED):
            return load
        if length_s < load.duration_s * (1 - _ROUNDED):
            length = format_in_unit(length_s)
            warn_once(f"{sentence}: its {in_all:,} events are sent in {length}, and end the run")
    elif "events" in given:
        if load.events > min(left):
            raise ConfigError(
                f"{sentence}, and has {in_all:,} events for the run: --num-inserts {min(left)} is the most"
                f" for {format_count(load.workers, 'worker')}, or leave it out for all"
            )
        return load
    return load.model_copy(update=everything)


def require_repetition(data: DataSet, command: str) -> None:
    """ConfigError if a command whose runs have any length is to send a recording that isn't repeated."""
    if make_workload_of(data).ends:
        raise ConfigError(f"{command} needs events without an end: set recorded.repeat to true")
