"""Described queries in CrateDB's SQL."""

from __future__ import annotations

from collections.abc import Sequence

from ...workloads.queries import Aggregate, Function
from ...workloads.schema import Schema
from .._base.sql_queries import SqlDialect, list_aliased, quote_name, quote_text

_UNITS_MS = (("hours", 3_600_000), ("minutes", 60_000), ("seconds", 1000))


class CratedbDialect(SqlDialect):
    """https://cratedb.com/docs/crate/reference/en/latest/sql/statements/select.html"""

    def device(self, schema: Schema) -> str:
        column, path = quote_name(schema.device), schema.device_path
        return f"{column}[{quote_text(path)}]" if path else column

    def bucket(self, time: str, every_ms: int) -> str:
        # The origin 0 is 1970. https://cratedb.com/docs/crate/reference/en/latest/general/builtins/scalar-functions.html#date-bin
        return f"date_bin('{_format_interval(every_ms)}'::INTERVAL, {time}, 0)"

    def aggregate(self, one: Aggregate, schema: Schema) -> str:
        if one.function is Function.LAST:
            return _last(quote_name(one.column or ""), quote_name(schema.time))
        return super().aggregate(one, schema)

    def select_newest(self, values: Sequence[str], time: str, source: str) -> str:
        # There is no DISTINCT ON. `max_by` finds the newest event's values in one pass, without sorting.
        device, *others = values
        found = [
            value if value == device else f"max({time})" if value == time else _last(value, time)
            for value in others
        ]
        return f"SELECT {list_aliased([device, *found])} FROM {source} GROUP BY 1"


def _last(value: str, time: str) -> str:
    """Of the newest event; NULL if that has no value. Since CrateDB 5.2."""
    return f"max_by({value}, {time})"


def _format_interval(span_ms: int) -> str:
    """A span of time as CrateDB reads intervals."""
    for unit, unit_ms in _UNITS_MS:
        if span_ms % unit_ms == 0:
            return f"{span_ms // unit_ms} {unit}"
    return f"{span_ms / 1000:.3f} seconds"
