"""Durations as people write them."""

from __future__ import annotations

import re

_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_DURATION = re.compile(r"(-?\d+(?:\.\d+)?) ?(ms|s|m|h|d)")


def parse_duration_ms(value: object) -> float:
    """Milliseconds of a text such as 450ms, 10s or 1.5h; ValueError for anything else."""
    found = _DURATION.fullmatch(value.strip()) if isinstance(value, str) else None
    if found is None:
        raise ValueError("write a duration with its unit: 450ms, 10s, 5m, 1h or 1d")
    return float(found[1]) * _UNITS_MS[found[2]]
