"""Makes a signal anonymous: no recorded texts, no listed numbers, no extremes."""

from __future__ import annotations

from typing import Any

import numpy as np

from simulator.workloads.schema import ColumnType

from .samples import Series
from .signals import is_number, shorten

_WIDER = 0.03
"""The share of the width by which ranges exceed the recorded one."""


class Disguise:
    """Hides values. Equal texts stay equal everywhere."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}

    def hide(self, signal: dict[str, Any], series: Series) -> dict[str, Any]:
        """The signal with other values of the same kinds and lengths."""
        hidden = dict(signal)
        if series.type is ColumnType.BOOL:
            return hidden
        if not is_number(series.type):
            for key in hidden.keys() & {"value", "values"}:
                hidden[key] = self._hide_value(hidden[key])
            return hidden
        numbers = series.values[~series.missing]
        if not len(numbers):
            return hidden
        low, high = float(numbers.min()), float(numbers.max())
        margin = max(_WIDER * (high - low), series.quantum, abs(high) * 1e-3) or 1.0
        lowest, highest = (self._round(end, series) for end in (low - margin, high + margin))
        ends = {low: lowest, high: highest, shorten(low, 9): lowest, shorten(high, 9): highest}

        def move(value: float) -> float:
            """Away from the recorded extremes."""
            return ends.get(value, value)

        listed = hidden.get("values")
        if isinstance(listed, list):
            even = np.linspace(lowest, highest, len(listed)).tolist()
            hidden["values"] = [move(self._round(value, series)) for value in even]
        elif isinstance(listed, dict):
            hidden["values"] = {key: move(value) for key, value in listed.items()}
        if "value" in hidden:
            hidden["value"] = highest
        for key in hidden.keys() & {"low", "high", "mean", "start"}:
            hidden[key] = move(hidden[key])
        return hidden

    def _hide_value(self, value: Any) -> Any:
        if isinstance(value, list | tuple):
            return [self._hide_value(part) for part in value]
        if isinstance(value, dict):
            return {self._hide_value(key): self._hide_value(part) for key, part in value.items()}
        if isinstance(value, bool) or value is None:
            return value
        if isinstance(value, int | float):
            return type(value)(1)
        if value not in self._texts:
            number = f"t{len(self._texts) + 1}"
            self._texts[value] = number + "-" * max(0, len(value.encode()) - len(number))
        return self._texts[value]

    @staticmethod
    def _round(value: float, series: Series) -> float:
        if not series.type.startswith("float"):
            return round(value)
        return shorten(value, 6) if series.decimals is None else round(value, series.decimals)
