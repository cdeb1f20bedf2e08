"""Described queries in CrateDB's SQL."""

from __future__ import annotations

from ...workloads.schema import Schema
from .._base.sql_queries import NewestByFunction, quote_name, quote_text

_UNITS_MS = (("hours", 3_600_000), ("minutes", 60_000), ("seconds", 1000))


class CratedbDialect(NewestByFunction):
    """https://cratedb.com/docs/crate/reference/en/latest/sql/statements/select.html"""

    NEWEST = "max_by"
    """Since CrateDB 5.2."""

    def device(self, schema: Schema) -> str:
        column, path = quote_name(schema.device), schema.device_path
        return f"{column}[{quote_text(path)}]" if path else column

    def bucket(self, time: str, every_ms: int) -> str:
        # The origin 0 is 1970. https://cratedb.com/docs/crate/reference/en/latest/general/builtins/scalar-functions.html#date-bin
        return f"date_bin('{_format_interval(every_ms)}'::INTERVAL, {time}, 0)"


def _format_interval(span_ms: int) -> str:
    """A span of time as CrateDB reads intervals."""
    for unit, unit_ms in _UNITS_MS:
        if span_ms % unit_ms == 0:
            return f"{span_ms // unit_ms} {unit}"
    return f"{span_ms / 1000:.3f} seconds"
