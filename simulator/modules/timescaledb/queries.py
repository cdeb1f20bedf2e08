"""Queries that TimescaleDB has a better way for."""

from __future__ import annotations

from ...workloads.tags import Tags

# SkipScan jumps from device to device in the index on device and newest time. Without that index the
# statement sorts all events: slower than the plain query.
# https://www.tigerdata.com/docs/build/data-management/query-data/skipscan
TUNED_QUERIES = {
    "newest-per-device-tuned": {
        Tags.ROW: """
        SELECT DISTINCT ON (device_id) device_id, temperature
        FROM events ORDER BY device_id, "timestamp" DESC""",
        Tags.TABLE: """
        SELECT device_id, temperature FROM events_tags JOIN (
            SELECT DISTINCT ON (tags_id) tags_id, temperature
            FROM events ORDER BY tags_id, "timestamp" DESC) AS newest USING (tags_id)""",
    }
}
