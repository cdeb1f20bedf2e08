"""Compares recorded events with those that a learnt definition generates for as many devices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from simulator.workloads.defined import Defined, define
from simulator.workloads.schema import ColumnType, EventBlock

from .clock import Clock, read_clock
from .describing import Learnt
from .nearness import Portrait, portray
from .samples import Choices, Sample, Series, Walk

_MOST_DEVICES, _MOST_ROWS = 60, 240_000
"""Limits on generated devices, and on events of all of them."""
_DRAWN = 200


@dataclass(frozen=True)
class Pair:
    """A column, recorded and generated."""

    name: str
    kind: str
    """The kind of its signal."""
    recorded: Portrait
    made: Portrait


@dataclass(frozen=True)
class Line:
    """Some values of a device, from the beginning of the recording."""

    seconds: NDArray[np.float64]
    values: NDArray[np.float64]


@dataclass(frozen=True)
class Comparison:
    """Recorded and generated data."""

    recorded: Clock
    made: Clock
    pairs: Sequence[Pair]
    lines: dict[str, tuple[Line, Line]]
    """Column of numbers -> values of a recorded device, and of a generated one."""


def compare(learnt: Learnt) -> Comparison:
    """Generate events from the definition and compare them with the recorded ones."""
    sample = learnt.sample
    devices = min(sample.device_count, _MOST_DEVICES)
    longest = int(np.diff(sample.starts).max())
    run = min(
        max(2, round(len(sample.order) / sample.device_count)), longest, _MOST_ROWS // devices
    )
    workload = define(learnt.definition)(devices=devices)
    assert isinstance(workload, Defined)
    made = sample_block(workload.block(0, 0, devices * run))
    pairs, lines = [], {}
    columns = learnt.definition.columns[2:]
    for column, series, other in zip(columns, sample.columns, made.columns, strict=True):
        if series.tag:
            continue
        assert column.signal is not None
        own, others = sample.walk(series), made.walk(other)
        if not len(own) or not len(others):
            continue
        both = [
            portray(walk.part(devices, run), series.type, texts.texts)
            for walk, texts in ((own, series), (others, other))
        ]
        pairs.append(Pair(column.name, column.signal.kind, *both))
        if series.choices is None:
            lines[column.name] = _draw(own), _draw(others)
    return Comparison(learnt.clock, read_clock(made), pairs, lines)


def _draw(walk: Walk) -> Line:
    """The values of the middle device, few enough to draw."""
    starts = walk.starts
    place = (len(starts) - 1) // 2
    rows = np.arange(starts[place], starts[place + 1])[: 4 * _DRAWN]
    chosen = rows[np.unique(np.linspace(0, len(rows) - 1, _DRAWN).astype(np.int64))]
    times = walk.times_ms[chosen]
    return Line((times - times[0]) / 1000, walk.values[chosen])


def sample_block(block: EventBlock) -> Sample:
    """Generated events in the form of recorded ones."""
    schema = block.schema
    _, first, devices = np.unique(block.devices, return_index=True, return_inverse=True)
    columns = []
    for column in schema.columns:
        if column.name in (schema.time, schema.device):
            continue
        values, choices = block.columns[column.name], None
        if column.tag:
            values = values[first]
        if column.type is ColumnType.BOOL:
            choices = Choices()
        elif column.type in (ColumnType.TEXT, ColumnType.JSON):
            texts, values = np.unique(values, return_inverse=True)
            choices = Choices(texts, column.type is ColumnType.JSON)
        absent = block.missing.get(column.name, np.zeros(len(values), dtype=np.bool_))
        columns.append(
            Series(
                column.name,
                column.name,
                column.type,
                values.astype(np.float64),
                absent,
                choices,
                column.decimals,
                column.tag,
            )
        )
    widths = (block.devices.itemsize,) * 2
    count = len(first)
    return Sample(
        block.columns[schema.time], devices.astype(np.int64), tuple(columns), schema.time,
        schema.device, widths, count, len(block),
    )  # fmt: skip
