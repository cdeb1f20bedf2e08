"""Queries that TimescaleDB has a better way for."""

from __future__ import annotations

# SkipScan jumps from device to device in the index on device and newest time. Without that index the
# statement sorts all events: slower than the plain query.
# https://www.tigerdata.com/docs/build/data-management/query-data/skipscan
TUNED_QUERIES = {
    "newest-per-device-tuned": """
        SELECT DISTINCT ON (device_id) device_id, temperature
        FROM events ORDER BY device_id, "timestamp" DESC""",
}
