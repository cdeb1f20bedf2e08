"""What was asked of a run and not given: windows longer than the data, lateness longer than the run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import sqrt

from ..contract import Lateness, LongWindows, Report
from ..workloads.base import Workload
from ..workloads.queries import Query
from ..workloads.stored import Stored, StoredPart
from .database import Preparation

_MOST_WORKERS = 8
"""So many workers stand for all: the order in which events are sent takes 20 ms for each."""


def add_shortfalls(report: Report, prepared: Preparation) -> None:
    """Put into a report what its readers' windows lack."""
    if isinstance(prepared.known, str):
        return
    stored = Stored(prepared.known.workload, prepared.known.parts, prepared.certain_until_ms)
    describe = prepared.module.describe_query
    if report.read is None:
        asked = dict.fromkeys(run.query for run in report.queries or [])
        report.long_windows = find_long_windows(map(describe, asked), stored)
    else:
        names = [figures.query for figures in report.read.queries]
        report.read.long_windows = find_long_windows(map(describe, names), stored)


def find_long_windows(asked: Iterable[Query | None], stored: Stored) -> LongWindows | None:
    """The queries that have longer windows than there are events for; None if there are none."""
    first, end = stored.span_ms
    # From the last event to the next there is an interval that counts, too.
    span_ms = end - first + int(stored.workload.device_interval_ms)
    queries = {
        query.name: int(query.window.span)
        for query in asked
        if query is not None and query.window is not None and query.window.span > span_ms
    }
    return LongWindows(stored_ms=end - first, queries=queries) if queries else None


def find_lateness(workload: Workload, parts: Sequence[StoredPart]) -> Lateness | None:
    """How many of the events that were sent came late; None if that are about as many as were to, or if none
    were to."""
    asked, sent, late = workload.late_share, 0, 0.0
    for part in parts[:_MOST_WORKERS] if asked else ():
        sent += part.count
        late += part.count * workload.find_late_share(part.worker, part.first, part.count)
    # Three standard deviations: a few events may have fewer late ones by chance.
    if not sent or late >= asked * sent - max(0.1 * asked * sent, 3 * sqrt(asked * sent)):
        return None
    return Lateness(asked=asked, came=late / sent)
