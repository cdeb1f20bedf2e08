"""The workloads' queries in SQL."""

from __future__ import annotations

from ...workloads.base import FIRST_TIMESTAMP_MS
from ...workloads.cpu import (
    HIGH_CPU_ABOVE,
    HIGH_CPU_UNTIL_MS,
    HOUR_MS,
    MAX_ALL_HOSTS,
    MAX_ALL_UNTIL_MS,
    METRICS,
)

TUNED = "-tuned"
"""Ends the name of a query that says the same in a way that only pays with `create_indices`."""

_HOST = "tags ->> 'hostname'"
_METRICS = ", ".join(METRICS)

QUERIES = {
    "count-events": "SELECT count(*) FROM events",
    "temperature-min-max": "SELECT min(temperature), max(temperature) FROM events",
    "temperature-stats": "SELECT min(temperature), avg(temperature), max(temperature) FROM events",
    "temperature-stats-per-device": """
        SELECT device_id, min(temperature), avg(temperature), max(temperature)
        FROM events GROUP BY device_id""",
    "newest-per-device": """
        SELECT device_id, temperature
        FROM (SELECT device_id, temperature, "timestamp",
                     max("timestamp") OVER (PARTITION BY device_id) AS newest FROM events) AS e
        WHERE "timestamp" = newest""",
    "cpu-max-all": f"""
        SELECT ts - ts % {HOUR_MS} AS hour, {", ".join(f"max({name})" for name in METRICS)}
        FROM cpu
        WHERE {_HOST} IN ({", ".join(f"'{host}'" for host in MAX_ALL_HOSTS)})
          AND ts >= {FIRST_TIMESTAMP_MS} AND ts < {MAX_ALL_UNTIL_MS}
        GROUP BY hour""",
    "high-cpu": f"""
        SELECT {_HOST}, ts, {_METRICS} FROM cpu
        WHERE usage_user > {HIGH_CPU_ABOVE}
          AND ts >= {FIRST_TIMESTAMP_MS} AND ts < {HIGH_CPU_UNTIL_MS}""",
    "last-point": f"""
        SELECT DISTINCT ON ({_HOST}) {_HOST}, ts, {_METRICS}
        FROM cpu ORDER BY {_HOST}, ts DESC""",
}
