"""The workloads' queries in AQL."""

from __future__ import annotations

from collections.abc import Mapping

from ...workloads.base import FIRST_TIMESTAMP_MS
from ...workloads.cpu import (
    HIGH_CPU_ABOVE,
    HIGH_CPU_UNTIL_MS,
    HOUR_MS,
    MAX_ALL_HOSTS,
    MAX_ALL_UNTIL_MS,
    METRICS,
)

_METRICS = ", ".join(f"e.{name}" for name in METRICS)
_HOSTS = ", ".join(f'"{host}"' for host in MAX_ALL_HOSTS)

# AQL compares arrays element by element, so that the greatest [time, value] is the newest.
QUERIES: Mapping[str, str] = {
    "count-events": "RETURN [LENGTH(events)]",
    "temperature-min-max": """
        FOR e IN events
        COLLECT AGGREGATE low = MIN(e.temperature), high = MAX(e.temperature)
        RETURN [low, high]""",
    "temperature-stats": """
        FOR e IN events
        COLLECT AGGREGATE low = MIN(e.temperature), mean = AVERAGE(e.temperature),
            high = MAX(e.temperature)
        RETURN [low, mean, high]""",
    "temperature-stats-per-device": """
        FOR e IN events
        COLLECT device = e.device_id AGGREGATE low = MIN(e.temperature),
            mean = AVERAGE(e.temperature), high = MAX(e.temperature)
        RETURN [device, low, mean, high]""",
    "newest-per-device": """
        FOR e IN events
        COLLECT device = e.device_id AGGREGATE newest = MAX([e.timestamp, e.temperature])
        RETURN [device, newest[1]]""",
    "cpu-max-all": f"""
        FOR e IN cpu
        FILTER e.tags.hostname IN [{_HOSTS}]
            AND e.ts >= {FIRST_TIMESTAMP_MS} AND e.ts < {MAX_ALL_UNTIL_MS}
        COLLECT hour = e.ts - e.ts % {HOUR_MS}
            AGGREGATE {", ".join(f"max_{name} = MAX(e.{name})" for name in METRICS)}
        RETURN [hour, {", ".join(f"max_{name}" for name in METRICS)}]""",
    "high-cpu": f"""
        FOR e IN cpu
        FILTER e.usage_user > {HIGH_CPU_ABOVE}
            AND e.ts >= {FIRST_TIMESTAMP_MS} AND e.ts < {HIGH_CPU_UNTIL_MS}
        RETURN [e.tags.hostname, e.ts, {_METRICS}]""",
    "last-point": f"""
        FOR e IN cpu
        COLLECT host = e.tags.hostname AGGREGATE newest = MAX([e.ts, {_METRICS}])
        RETURN APPEND([host], newest)""",
}
"""Name -> query. Each returns arrays."""
