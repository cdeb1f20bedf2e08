"""One figure as a file; also one of a workload, of which nothing is measured: some devices over time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from simulator.workloads.base import Workload
from simulator.workloads.schema import EventBlock

from ..results.naming import name_results
from ..results.store import StoredResult
from ..system.errors import ConfigError
from ..system.output import write_whole
from .chart import Chart, NamedResult
from .charts import KINDS, add_title, name_sources
from .drawing import make_standalone_svg, to_png
from .vega import Row, draw_lines, make_axis, make_spec

ENDINGS = (".svg", ".png")


def write_plot(
    stored: Sequence[StoredResult],
    kind: str | None,
    output: Path | None,
    title: str | None,
    theme: str,
) -> Path:
    """Draw a figure and write it to the file that is returned. ConfigError if there is nothing to draw or the
    file's name is wrong."""
    _check_ending(output)
    named = [
        NamedResult(name, stored_result.result)
        for name, stored_result in zip(name_results(stored), stored, strict=True)
    ]
    figure = _choose_figure(named, kind)
    spec = add_title(figure, title or figure.title, name_sources(figure.kind, named))
    return _write(spec, output or Path(f"{figure.kind}.svg"), theme)


def write_workload_plot(workload: Workload, span_ms: int, output: Path | None) -> Path:
    """Draw a workload's values and write them to the file that is returned. ConfigError as for
    `write_plot`."""
    _check_ending(output)
    figure = draw_values(workload, span_ms)
    return _write(add_title(figure, figure.title), output or Path(f"{figure.kind}.svg"), "auto")


def _check_ending(output: Path | None) -> None:
    if output is not None and output.suffix.lower() not in ENDINGS:
        raise ConfigError(f"--output {output}: name a file that ends in {' or '.join(ENDINGS)}")


def _write(spec: dict[str, Any], output: Path, theme: str) -> Path:
    png = output.suffix.lower() == ".png"
    write_whole(output, to_png(spec, theme) if png else make_standalone_svg(spec, theme))
    return output


def _choose_figure(named: Sequence[NamedResult], kind: str | None) -> Chart:
    for name in KINDS if kind is None else [kind]:
        figure = KINDS[name](named)
        if figure is not None:
            return figure
    possible = [name for name, draw in KINDS.items() if draw(named) is not None]
    if not possible:
        raise ConfigError("these results have no figure to draw")
    raise ConfigError(
        f"these results have no data for --kind {kind}; they have for {', '.join(possible)}"
    )


DEVICES = 3
MOST_FIELDS = 6
MOST_POINTS = 300
"""Points of a line. Of more events, that many at equal distances are drawn."""

_UNITS_MS = {"Seconds": 1000, "Minutes": 60_000, "Hours": 3_600_000, "Days": 86_400_000}
_PANEL_HEIGHT = 110


def draw_values(workload: Workload, span_ms: int) -> Chart:
    """The first fields of the first devices; ConfigError if the workload has no numbers."""
    fields = workload.schema.fields
    if not fields:
        raise ConfigError(f"workload {workload.name} has no numbers to draw")
    blocks = _generate(workload, span_ms)
    start_ms = workload.schema.epoch_ms
    unit = [
        name
        for name, length_ms in _UNITS_MS.items()
        if span_ms >= 2 * length_ms or name == "Seconds"
    ][-1]
    panels = []
    for field in fields[:MOST_FIELDS]:
        rows = [
            row for block in blocks for row in _make_rows(block, field, start_ms, _UNITS_MS[unit])
        ]
        if not any(row["value"] is not None for row in rows):
            continue
        x = make_axis("time", f"{unit} since the first event")
        layers = [draw_lines(x, make_axis("value", field, zero=False), rows)]
        panels.append(make_spec(rows, layers, _PANEL_HEIGHT))
    shown = (
        "" if len(fields) <= MOST_FIELDS else f" The first {MOST_FIELDS} of {len(fields)} fields."
    )
    note = (
        f"Values of the first devices with seed {workload.seed}, {len(blocks):,} of each."
        f" A gap: no value.{shown}"
    )
    return Chart(workload.name, f"Workload {workload.name}", note, {"vconcat": panels})


def _generate(workload: Workload, span_ms: int) -> list[EventBlock]:
    """An event of each drawn device at each drawn time, in the order of time."""
    options = workload.options.model_dump()
    if "late" in options:
        options["late"] = 0.0
    in_order = type(workload)(workload.seed, **options)
    count = len(in_order.devices(0))
    ticks = max(2, round(span_ms / in_order.device_interval_ms))
    drawn = np.unique(np.linspace(0, ticks - 1, min(ticks, MOST_POINTS)).round().astype(int))
    return [in_order.block(0, tick * count, min(DEVICES, count)) for tick in drawn.tolist()]


def _make_rows(block: EventBlock, field: str, start_ms: int, unit_ms: int) -> list[Row]:
    missing = block.missing.get(field)
    times = (block.columns[block.schema.time] - start_ms) / unit_ms
    return [
        {
            "series": bytes(block.devices[row]).decode(),
            "time": times[row].item(),
            "value": None
            if missing is not None and missing[row]
            else block.columns[field][row].item(),
        }
        for row in range(len(block))
    ]
