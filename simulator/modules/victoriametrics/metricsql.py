"""Words of MetricsQL: literals, selectors, windows of time.

https://docs.victoriametrics.com/victoriametrics/metricsql/
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from ...workloads.drawing import BoundQuery
from ...workloads.schema import Schema
from .encoding import ALL_TIME, DB, name_device, name_metric

_IDENTIFIER = re.compile(r"[^A-Za-z0-9_]")


def quote_text(text: str) -> str:
    """A string literal."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def quote_label(name: str) -> str:
    """A label's name where no string can be: what is no letter, digit or _ is escaped."""
    return _IDENTIFIER.sub(lambda match: "\\" + match[0], name)


def any_of(label: str, values: Sequence[str]) -> str:
    """The condition that a label has one of these values."""
    if len(values) == 1:
        return f"{quote_label(label)}={quote_text(values[0])}"
    return f"{quote_label(label)}=~{quote_text('|'.join(map(re.escape, values)))}"


def write_choice(value: str, several: bool) -> str:
    """How a value stands in the literal of `any_of`, alone or as one of several."""
    return quote_text(re.escape(value) if several else value)[1:-1]


def select_series(
    schema: Schema,
    db: str | None,
    tables: Sequence[str],
    columns: Sequence[str],
    devices: Sequence[str] | None = None,
) -> str:
    """The selector of the series of columns, of some devices or all. `db`: those with that value of the
    label, or, if it is None, those without that label: others' are left alone."""
    names = [name_metric(table, column) for table in tables for column in columns]
    conditions = [any_of("__name__", names), any_of(DB, [db or ""])]
    if devices is not None:
        conditions.append(any_of(name_device(schema), devices))
    return f"{{{','.join(conditions)}}}"


def bound_times(bound: BoundQuery) -> tuple[int, int]:
    """The times that a query is about, in ms, the end excluded."""
    if bound.start_ms is None or bound.end_ms is None:
        return ALL_TIME
    return bound.start_ms, bound.end_ms


def write_window(span_ms: int) -> str:
    """A range vector's length. Seen from a time t it has the samples in (t - span, t]."""
    return f"[{span_ms}ms]"


def write_span(first_ms: int, end_ms: int) -> tuple[int, str]:
    """The time at which to ask about a window, its end excluded, and the window as seen from there."""
    return end_ms - 1, write_window(end_ms - first_ms)
