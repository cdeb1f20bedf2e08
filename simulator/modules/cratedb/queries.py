"""The workloads' queries in CrateDB's SQL."""

from __future__ import annotations

from ...workloads.base import FIRST_TIMESTAMP_MS
from ...workloads.cpu import (
    HIGH_CPU_ABOVE,
    HIGH_CPU_UNTIL_MS,
    MAX_ALL_HOSTS,
    MAX_ALL_UNTIL_MS,
    METRICS,
)

_HOST = "tags['hostname']"
_HOSTS = ", ".join(f"'{host}'" for host in MAX_ALL_HOSTS)

# `max_by` (CrateDB 5.2 and later) finds the newest row's value in one pass.
QUERIES = {
    "count-events": "SELECT count(*) FROM events",
    "temperature-min-max": "SELECT min(temperature), max(temperature) FROM events",
    "temperature-stats": "SELECT min(temperature), avg(temperature), max(temperature) FROM events",
    "temperature-stats-per-device": "SELECT device_id, min(temperature), avg(temperature),"
    " max(temperature) FROM events GROUP BY device_id",
    "newest-per-device": 'SELECT device_id, max_by(temperature, "timestamp") FROM events'
    " GROUP BY device_id",
    "cpu-max-all": f"SELECT date_trunc('hour', ts), {', '.join(f'max({m})' for m in METRICS)}"
    f" FROM cpu WHERE {_HOST} IN ({_HOSTS})"
    f" AND ts >= {FIRST_TIMESTAMP_MS} AND ts < {MAX_ALL_UNTIL_MS} GROUP BY date_trunc('hour', ts)",
    "high-cpu": f"SELECT {_HOST}, ts, {', '.join(METRICS)} FROM cpu"
    f" WHERE usage_user > {HIGH_CPU_ABOVE}"
    f" AND ts >= {FIRST_TIMESTAMP_MS} AND ts < {HIGH_CPU_UNTIL_MS}",
    "last-point": f"SELECT {_HOST}, max(ts), {', '.join(f'max_by({m}, ts)' for m in METRICS)}"
    f" FROM cpu GROUP BY {_HOST}",
}
