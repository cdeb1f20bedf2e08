"""The workloads' queries in KQL, and what is read from the answers."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from ...workloads.base import FIRST_TIMESTAMP_MS, Schema
from ...workloads.cpu import (
    HIGH_CPU_ABOVE,
    HIGH_CPU_UNTIL_MS,
    MAX_ALL_HOSTS,
    MAX_ALL_UNTIL_MS,
    METRICS,
)


def _write_time(time_ms: int) -> str:
    """A datetime literal."""
    moment = datetime.fromtimestamp(time_ms / 1000, UTC)
    return f"datetime({moment:%Y-%m-%dT%H:%M:%S}Z)"


_BEGIN = _write_time(FIRST_TIMESTAMP_MS)
_METRICS = ", ".join(METRICS)
_HOSTS = ", ".join(f"'{host}'" for host in MAX_ALL_HOSTS)

QUERIES: Mapping[str, str] = {
    "count-events": "events | count",
    "temperature-min-max": "events | summarize min(temperature), max(temperature)",
    "temperature-stats": "events | summarize min(temperature), avg(temperature), max(temperature)",
    "temperature-stats-per-device": "events"
    " | summarize min(temperature), avg(temperature), max(temperature) by device_id",
    # `partition` would end at 64 devices, as it did in the reference.
    "newest-per-device": "events | summarize arg_max(timestamp, temperature) by device_id"
    " | project device_id, temperature",
    "cpu-max-all": f"cpu | where ts >= {_BEGIN} and ts < {_write_time(MAX_ALL_UNTIL_MS)}"
    f" | where tostring(tags.hostname) in ({_HOSTS})"
    f" | summarize {', '.join(f'max({name})' for name in METRICS)} by hour = bin(ts, 1h)",
    "high-cpu": f"cpu | where ts >= {_BEGIN} and ts < {_write_time(HIGH_CPU_UNTIL_MS)}"
    f" | where usage_user > {HIGH_CPU_ABOVE}"
    f" | project hostname = tostring(tags.hostname), ts, {_METRICS}",
    "last-point": f"cpu | summarize arg_max(ts, {_METRICS}) by hostname = tostring(tags.hostname)",
}
"""Name -> query."""


def quote_name(name: str) -> str:
    """The name of a table or column, quoted."""
    escaped = name.replace("\\", "\\\\").replace("'", "\\'")
    return f"['{escaped}']"


def select_newest_times(schema: Schema, table: str) -> str:
    """KQL for the time of each device's newest event."""
    device = quote_name(schema.device)
    if schema.device_path:
        device = f"device = tostring({device}{quote_name(schema.device_path)})"
    return f"{quote_name(table)} | summarize max({quote_name(schema.time)}) by {device}"


def read_value(value: Any) -> Any:
    """A value of an answer; times in ms since 1970."""
    if isinstance(value, str) and value.endswith("Z") and value[4:5] == "-":
        return round(datetime.fromisoformat(value).timestamp() * 1000)
    return value
