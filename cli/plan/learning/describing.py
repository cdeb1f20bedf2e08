"""Turns a recording into a definition: its clock, tags and columns, each with the evidence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

import numpy as np
from pydantic import ValidationError
from pydantic_core import to_json

from simulator.errors import OptionError, one_line
from simulator.units import format_count
from simulator.workloads.definition import Definition
from simulator.workloads.schema import ColumnType
from simulator.workloads.yaml_source import MOST_BYTES

from .anonymous import Disguise
from .clock import Clock, read_clock
from .samples import Mask, Sample, Series, Walk
from .signals import (
    MOST_CHOICES,
    Found,
    find_choice,
    find_signal,
    find_tag,
    is_number,
    show_ms,
    show_share,
)

_LEAST_ROWS = 20
_COARSER = "with these, values repeat as often as recorded"
_IN_RUNS = 1.5
"""If gaps last this many intervals, values aren't missing independently."""
_FEWER_CHOICES = (1000, MOST_CHOICES, 20, 5)
"""The most values to list; fewer if the definition gets too large."""
_ALWAYS_TOGETHER = 0.9999
"""The share of events in which a column's value must match another's to follow it: all but a few written
during a change."""

Line = tuple[str, Any, str]
"""A key, its value, and the evidence."""


@dataclass(frozen=True)
class Learnt:
    """What was learnt from a recording."""

    definition: Definition
    head: Sequence[str]
    """The origin of the definition, in lines."""
    lines: Sequence[Line]
    """Its keys except the columns."""
    columns: Sequence[Sequence[Line]]
    clock: Clock
    sample: Sample


@dataclass
class _Column:
    series: Series
    found: Found
    missing: tuple[float, float | None] = (0.0, None)
    tag: bool = False


def learn(sample: Sample, *, name: str, anonymous: bool = False) -> Learnt:
    """The definition that generates events like the recorded ones. `name`: of the workload, unless anonymous.
    OptionError if there are too few events."""
    if len(sample.times_ms) < _LEAST_ROWS:
        raise OptionError(
            f"{len(sample.times_ms)} events are too few to learn from: {_LEAST_ROWS} at least"
        )
    clock = read_clock(sample)
    columns = [_learn_column(sample, series, clock) for series in sample.columns]
    _let_follow(sample, columns)
    disguise = Disguise() if anonymous else None
    for most in _FEWER_CHOICES:
        learnt = _assemble(sample, clock, columns, name, disguise, most)
        if learnt is not None:
            return learnt
    raise OptionError(
        f"a definition of {len(columns):,} columns is too large, {MOST_BYTES:,} bytes are the most: skip some"
        " of them"
    )


def _learn_column(sample: Sample, series: Series, clock: Clock) -> _Column:
    if series.tag:
        return _Column(series, find_tag(series), tag=True)
    walk, interval_ms = sample.walk(series), clock.interval_ms
    if not len(walk):
        # Only missing values: any value, always missing.
        value: Any = 0 if is_number(series.type) else False
        if series.type in (ColumnType.TEXT, ColumnType.JSON):
            value = "" if series.type is ColumnType.TEXT else {}
        found = Found({"kind": "constant", "value": value}, "no event has a value")
    elif is_number(series.type):
        found = find_signal(series, walk, interval_ms, clock.first_ms // 1000 * 1000)
    else:
        chosen = find_choice(series, walk, interval_ms)
        assert chosen is not None
        found = chosen
    missing = _find_missing(sample, series.missing, interval_ms)
    return _Column(series, found, missing)


def _find_missing(sample: Sample, missing: Mask, interval_ms: int) -> tuple[float, float | None]:
    """The share of missing values, and how long they are missing, unless independently."""
    share = float(missing.mean())
    if not 0 < share < 1:
        return share, None
    walk = Walk(
        missing[sample.order].astype(np.float64), sample.sorted_times_ms, sample.sorted_devices
    )
    first, second = walk.pairs(1)
    absent = walk.values[first] > 0
    if np.count_nonzero(absent) < 10:
        return share, None
    # Within the same time the next is certainly missing, otherwise by chance.
    again = float(walk.values[second][absent].mean())
    lasts_ms = interval_ms * (1 - share) / max(1 - again, 1e-6)
    return share, max(lasts_ms, 1000) if lasts_ms > _IN_RUNS * interval_ms else None


# --- columns that follow others --------------------------------------------------------------------


def _let_follow(sample: Sample, columns: Sequence[_Column]) -> None:
    """Let columns of few values follow another one if each of its values determines theirs."""
    listed = [column for column in columns if column.found.signal["kind"] in ("choice", "hold")]
    leaders: list[_Column] = []
    for column in sorted(listed, key=lambda one: -len(one.found.signal["values"])):
        for leader in reversed(leaders):
            if leader.tag is column.tag and (values := _find_mapping(leader, column)):
                signal = {"kind": "follows", "column": leader.series.name, "values": values}
                column.found = Found(
                    signal, f"each value of {leader.series.name} goes with one of these"
                )
                break
        else:
            # A nearly unique value per device would determine everything.
            if not column.tag or len(column.found.signal["values"]) <= sample.device_count / 2:
                leaders.append(column)


def _find_mapping(leader: _Column, column: _Column) -> list[Any] | None:
    """The column's value for each value of its leader; None if it doesn't follow it."""
    theirs, own = leader.series, column.series
    both = ~theirs.missing & ~own.missing
    first, second = theirs.values[both], own.values[both]
    if len(first) > 20_000 and not _is_mapped(first[:10_000], second[:10_000]):
        return None
    if not len(first) or not _is_mapped(first, second):
        return None
    pairs, counts = np.unique(np.stack([first, second]), axis=1, return_counts=True)
    common: dict[Any, Any] = {}
    for place in np.argsort(-counts, kind="stable").tolist():
        common.setdefault(theirs.read(pairs[0, place]), own.read(pairs[1, place]))
    keys = leader.found.signal["values"]
    values = [common.get(key) for key in keys]
    return None if any(value is None for value in values) else values


def _is_mapped(first: Any, second: Any) -> bool:
    """Whether equal values of one imply equal values of the other."""
    _, left = np.unique(first, return_inverse=True)
    kinds, right = np.unique(second, return_inverse=True)
    together = np.bincount(left * len(kinds) + right)
    table = np.resize(together, (int(left.max()) + 1, len(kinds)))
    table.flat[len(together) :] = 0
    return float(table.max(axis=1).sum()) / len(first) >= _ALWAYS_TOGETHER


# --- the definition ---------------------------------------------------------------------------------


def _assemble(
    sample: Sample,
    clock: Clock,
    columns: Sequence[_Column],
    name: str,
    disguise: Disguise | None,
    most: int,
) -> Learnt | None:
    """All keys, with at most this many values per choice; None if the definition is too large."""
    names = _name_columns(sample, columns, disguise)
    title = "recording" if disguise else name
    rows, devices = sample.recorded_rows, sample.recorded_devices
    span = show_ms(max(clock.last_ms - clock.first_ms, 1))
    events = f"{format_count(rows, 'event')} of {format_count(devices, 'device')}"
    head = [f"Learnt from {events} in {span}."]
    if len(sample.times_ms) < rows:
        head.append(f"Read: those of {format_count(sample.device_count, 'device')}.")
    head += _describe_what_is_not_made(sample, clock)
    lines: list[Line] = [
        ("name", title, ""),
        ("about", f"As {events}, recorded", ""),
        ("table", title, ""),
        ("time", names[sample.time], ""),
        ("device", names[sample.device], ""),
        ("devices", devices, "as recorded"),
        ("interval", show_exact_ms(clock.interval_ms), "the usual time to a device's next event"),
    ]
    if clock.jitter_ms:
        about = "how far times are from a steady clock"
        lines.append(("jitter", show_exact_ms(clock.jitter_ms), about))
    if clock.pauses:
        gaps = {"every": clock.pauses.every_ms, "lasts": clock.pauses.lasts_ms}
        shown = {key: show_exact_ms(length_ms) for key, length_ms in gaps.items()}
        about = f"{format_count(clock.pauses.count, 'time')} without an event of any device"
        lines.append(("gaps", shown, about))
    if clock.late:
        late: dict[str, Any] = {"share": show_share(clock.late.share)}
        if clock.late.mean_ms is not None:
            late |= {"delay": "exponential", "mean": show_ms(clock.late.mean_ms)}
        late["most"] = show_ms(clock.late.most_ms)
        lines.append(("late", late, "events that come after newer ones in the file"))
    if disguise is None:
        second = np.datetime64(clock.first_ms // 1000, "s")
        lines.append(("epoch", f"{second}Z", "the first event's time"))
    blocks = [
        _describe_key(names[sample.time], "timestamp_ms", "the time"),
        _describe_key(names[sample.device], "text", "the device's name"),
        *(_describe_column(column, names, disguise, most) for column in columns),
    ]
    document: dict[str, Any] = {key: value for key, value, _ in lines}
    document["columns"] = [{key: value for key, value, _ in block} for block in blocks]
    if len(to_json(document)) > MOST_BYTES:
        return None
    try:
        definition = Definition.read(document)
    except ValidationError as error:  # a defect: a written definition must be readable
        raise OptionError(f"no definition can describe it: {one_line(error, 300)}") from error
    return Learnt(definition, head, lines, blocks, clock, sample)


def show_exact_ms(duration_ms: int) -> str:
    """A duration in whole milliseconds."""
    for unit, length_ms in (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000)):
        if duration_ms % length_ms == 0:
            return f"{duration_ms // length_ms}{unit}"
    return f"{duration_ms}ms"


def _describe_what_is_not_made(sample: Sample, clock: Clock) -> list[str]:
    """What a definition can't express."""
    lines = []
    together = clock.pauses.count * sample.device_count if clock.pauses else 0
    if clock.gap_share > 0.001 and clock.gaps > together:
        share = show_share(clock.gap_share)
        lines.append(
            f"Gaps are {share} of the time. Not made: {clock.gaps - together:,} of single devices."
        )
    if clock.duplicates:
        lines.append(f"Not made: {clock.duplicates:,} events that repeat a device and time.")
    if clock.by_device:
        lines.append("The file lists one device after the other: generated events come by time.")
    lengths = sample.name_lengths
    if lengths and (lengths[0] != 13 or lengths[1] != 13):
        shown = f"{lengths[0]}" if lengths[0] == lengths[1] else f"{lengths[0]} to {lengths[1]}"
        lines.append(f"Device names have {shown} bytes, generated ones 13.")
    return lines


def _describe_key(name: str, kind: str, about: str) -> list[Line]:
    return [("name", name, about), ("type", kind, "")]


def _describe_column(
    column: _Column, names: dict[str, str], disguise: Disguise | None, most: int
) -> list[Line]:
    series, signal = column.series, dict(column.found.signal)
    if "column" in signal:
        signal["column"] = names[signal["column"]]
    if len(signal.get("values", ())) > most and isinstance(signal["values"], list):
        signal["values"] = signal["values"][:most]
        if "weights" in signal:
            signal["weights"] = signal["weights"][:most]
    if disguise:
        signal = disguise.hide(signal, series)
    name = names[series.name]
    about = "" if disguise or series.source == name else series.source
    lines: list[Line] = [("name", name, about), ("type", str(series.type), "as in the file")]
    if column.tag:
        lines.append(("tag", True, "the same in all of a device's events"))
    decimals = column.found.decimals
    if decimals is not None:
        about = "no value has more" if decimals == series.decimals else _COARSER
        lines.append(("decimals", decimals, about))
    share, lasts_ms = column.missing
    if share:
        counted = int(np.count_nonzero(series.missing))
        lines.append(("missing", show_share(share), f"{counted:,} of {len(series.missing):,}"))
    if lasts_ms is not None:
        about = "if a value is missing, the next usually is, too"
        lines.append(("missing_lasts", show_ms(lasts_ms), about))
    lines.append(("signal", signal, column.found.about))
    return lines


def _name_columns(
    sample: Sample, columns: Sequence[_Column], disguise: Disguise | None
) -> dict[str, str]:
    """Name in the recording -> name in the definition, which all databases accept."""
    if disguise is None:
        own = [column.series.name for column in columns]
        return {name: name for name in (sample.time, sample.device, *own)}
    tags, values = count(1), count(1)
    names = {sample.time: "at", sample.device: "device"}
    return names | {
        column.series.name: f"tag_{next(tags)}" if column.tag else f"value_{next(values)}"
        for column in columns
    }
