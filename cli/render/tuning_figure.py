"""The two settings of a tuning that matter most, as a heat map."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..results.naming import format_value
from ..results.tuning import TunedSetting, Tuning
from .figure import Figure, NamedResult
from .theme import INK, SERIES
from .vega import WIDTH, Row

CELL_PX = 46
FAINTEST, DARKEST = 0.06, 0.6
"""Opacity of the lowest and of the highest rate; a text must be legible on both, on any page."""


def draw_tuning(results: Sequence[NamedResult]) -> Figure | None:
    """The highest rate with each pair of values, whatever the other settings are. Of one tuning only."""
    own = [tuning for named in results if (tuning := named.result.tuning)]
    tuning = own[0] if len(own) == 1 else None
    if tuning is None or not any(trial.rate_per_s for trial in tuning.trials):
        return None
    names = list(tuning.weigh_settings())[:2]
    chosen = {setting.name: setting for setting in tuning.over}
    across = chosen[names[0]]
    down = chosen[names[1]] if len(names) > 1 else None
    rows = _list_cells(tuning, across, down)
    unit = "capacity, events/s" if tuning.limits else "inserts/s"
    others = [setting.name for setting in tuning.over if setting.name not in names]
    whatever = f", with the best of {', '.join(others)}" if others else ""
    return Figure(
        "tuning",
        "What settings bring",
        f"The highest {unit} that was reached with each pair of values{whatever}; of combinations that went"
        " out early from a short run. The two settings that matter most.",
        {
            "width": WIDTH,
            "height": CELL_PX * (len(down.values) if down else 1),
            "data": {"values": rows},
            "encoding": {
                "x": _make_axis("x", across),
                "y": _make_axis("y", down)
                if down
                else {"field": "y", "type": "ordinal", "axis": None},
            },
            "layer": [_draw_cells(rows), _draw_texts()],
        },
    )


def _list_cells(tuning: Tuning, across: TunedSetting, down: TunedSetting | None) -> list[Row]:
    rows: list[Row] = []
    for x in across.values:
        for y in down.values if down else [None]:
            wanted = {across.name: x} | ({down.name: y} if down else {})
            own = [
                trial.rate_per_s
                for trial in tuning.trials
                if trial.rate_per_s and wanted.items() <= tuning.candidates[trial.candidate].items()
            ]
            if own:
                place = ", ".join(f"{name}={format_value(value)}" for name, value in wanted.items())
                rows.append(
                    {
                        "x": format_value(x), "y": format_value(y), "rate": max(own),
                        "label": _format(max(own)), "text": f"{place}\n{max(own):,.0f}",
                    }
                )  # fmt: skip
    return rows


def _format(rate: float) -> str:
    """Short enough for a cell: `1.23M`, `456k`, `78`."""
    for unit, size in (("M", 1e6), ("k", 1e3)):
        if rate >= size:
            return f"{rate / size:.3g}{unit}"
    return f"{rate:.3g}"


def _make_axis(field: str, setting: TunedSetting) -> dict[str, Any]:
    return {
        "field": field,
        "type": "ordinal",
        "title": setting.name,
        "sort": [format_value(value) for value in setting.values],
        "axis": {"labelAngle": 0, "grid": False},
    }


def _draw_cells(rows: Sequence[Row]) -> Row:
    rates = [row["rate"] for row in rows]
    return {
        "mark": {"type": "rect", "fill": SERIES[0], "stroke": None, "aria": True},
        "encoding": {
            "fillOpacity": {
                "field": "rate",
                "type": "quantitative",
                "scale": {"domain": [min(rates), max(rates)], "range": [FAINTEST, DARKEST]},
                "legend": None,
            },
            "description": {"field": "text"},
        },
    }


def _draw_texts() -> Row:
    return {
        "mark": {"type": "text", "fill": INK, "fontSize": 12, "aria": False},
        "encoding": {"text": {"field": "label"}},
    }
