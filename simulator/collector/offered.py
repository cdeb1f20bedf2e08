"""What became of what was due in an open loop. Pure: no I/O, no clock."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from math import inf, sqrt

from ..contract import (
    LatencyMs,
    Lateness,
    Load,
    LongWindows,
    Offered,
    Report,
    Role,
    WorkerInsert,
    WorkerOffer,
)
from ..histograms import latency_ms, merge_histograms
from ..oracle.stored import Stored, StoredPart
from ..workloads.base import Workload
from ..workloads.queries import Query
from .database import Preparation

_CLOCK_S = 1e-6

MIN_ACHIEVED = 0.99
"""Share of what was due that a database acknowledges which isn't saturated."""

NOISE_DEVIATIONS = 3
"""What n independent arrivals vary by is the root of n: up to so many times as much may be chance."""

BOUND_OWN_DELAY_MS, BOUND_OWN_DELAY_SHARE = 1.0, 0.1
"""How late one request in a hundred leaves by the client's own doing for the figure to be the client's: at
least so much, and such a share of the response time (p99) in which it shows."""


def judge_offer(
    offers: Sequence[WorkerOffer],
    load: Load,
    in_flight: int,
    achieved: int,
    acknowledged: Mapping[int, int],
    window: tuple[float, float],
) -> Offered | None:
    """What became of what was due in an open loop; None of a closed one.

    `in_flight`: of each worker; `achieved`: within the window; `acknowledged`: in each second;
    `window`: from and to, since the common start.
    """
    if not offers or load.rate_per_s is None:
        return None
    due = sum(offer.due for offer in offers)
    failed = sum(offer.failed for offer in offers)
    due_seconds: Counter[int] = Counter()
    for offer in offers:
        due_seconds.update(dict(offer.due_timeline))
    # A window's end is a difference of two clock readings: 9.9999999 s are ten.
    end = int(window[1] + _CLOCK_S)
    backlog = _cumulate_backlog(due_seconds, acknowledged, end)
    expected, until = due, end
    if load.duration_s is None:
        # All that was due is done in the end, and the window lasts until then.
        expected = round(load.rate_per_s * (window[1] - window[0]))
        until = min(end, max(due_seconds, default=0))
    in_window = [entry for entry in backlog if window[0] < entry[0] + 1 <= until]
    half = in_window[len(in_window) // 2 :]
    growth = half[-1][1] - half[0][1] if half else 0
    due_in_half = sum(due_seconds[second] for second, _ in half[1:])
    places = load.workers * in_flight * load.events_per_request
    caught_up = not half or min(count for _, count in half) <= 2 * places
    reason = None
    # What failed makes the run invalid; it isn't what the database had no time for.
    if _is_missing(expected - achieved - failed, expected, places, caught_up, load):
        unit = "events" if load.role is Role.WRITE else "queries"
        reason = (
            f"{expected:,} {unit} were due in the window, {achieved:,} were done in it"
            if load.duration_s is not None
            else f"{achieved:,} {unit} took {window[1] - window[0]:.3g} s,"
            f" and at the rate they take {achieved / load.rate_per_s:.3g} s"
        )
    elif _is_missing(growth, due_in_half, places, caught_up, load):
        reason = f"the backlog grew by {growth:,} in the last half of the window"
    own_delay = latency_ms(merge_histograms(offer.own_delay for offer in offers))
    return Offered(
        rate_per_s=load.rate_per_s,
        due=due if load.duration_s is not None else min(due, expected),
        due_s=None if load.duration_s is not None else min(due, expected) / load.rate_per_s,
        achieved=achieved,
        unsent=sum(offer.unsent for offer in offers),
        backlog_max=max((count for second, count in backlog if second + 1 > window[0]), default=0),
        backlog_growth=growth,
        backlog=backlog,
        saturated=reason is not None,
        reason=reason,
        own_delay_p99_ms=own_delay.p99 if own_delay else None,
    )


def extend_offers(parts: Mapping[int, WorkerInsert], load: Load) -> dict[int, WorkerInsert]:
    """Of a run that was given up: the workers' parts with what was due until the last of them ended. One
    whose patience was over before has only told of what was due till then."""
    until_s = max((part.end_s for part in parts.values()), default=0.0)
    return {
        worker: part.model_copy(update={"offer": _extend(part.offer, load, part.end_s, until_s)})
        for worker, part in parts.items()
    }


def _extend(
    offer: WorkerOffer | None, load: Load, from_s: float, until_s: float
) -> WorkerOffer | None:
    """The offer with what the worker's share of the rate comes to meanwhile, and no more than there was."""
    if offer is None or load.rate_per_s is None:
        return offer
    seconds = Counter(dict(offer.due_timeline))
    most = inf if load.duration_s is not None else max(0, load.events - seconds.total())
    added = 0
    for second in range(int(from_s), math.ceil(until_s)):
        passed_s = min(until_s, second + 1) - from_s
        so_far = round(min(most, load.rate_per_s / load.workers * passed_s))
        seconds[second] += so_far - added
        added = so_far
    changes = {"due": offer.due + added, "due_timeline": sorted((+seconds).items())}
    return offer.model_copy(update=changes)


def _is_missing(missing: int, due: int, places: int, caught_up: bool, load: Load) -> bool:
    """Whether so much of what was due was left that the database can't have kept up.

    What is under way at any instant is no sign of that, so a request for each place in flight is allowed
    for. Nor is what has gathered by chance, as it does behind arrivals that are independent of each other:
    as long as it is no more than they vary by, it only counts if the database never `caught_up` in
    the last half of the window.
    """
    if missing <= max((1 - MIN_ACHIEVED) * due, places):
        return False
    # Without a duration it is the workers' last requests that say how long it took, and these vary.
    series = load.workers if load.duration_s is None else 1
    chance = NOISE_DEVIATIONS * math.sqrt(due * load.events_per_request * series)
    return missing > chance or not caught_up


def _cumulate_backlog(
    due: Mapping[int, int], acknowledged: Mapping[int, int], end: int
) -> list[tuple[int, int]]:
    """What was due and not acknowledged at the end of each second before `end`."""
    backlog, waiting = [], 0
    for second in range(end):
        waiting += due.get(second, 0) - acknowledged.get(second, 0)
        # A worker that started late tells its seconds a little early.
        backlog.append((second, max(0, waiting)))
    return backlog


def find_own_delay(offered: Offered, latency: LatencyMs | None) -> str | None:
    """What shows that the client and not the database was late."""
    late_ms = offered.own_delay_p99_ms
    if late_ms is None or latency is None or late_ms < BOUND_OWN_DELAY_MS:
        return None
    if late_ms < BOUND_OWN_DELAY_SHARE * latency.tail:
        return None
    return f"a worker sent requests up to {late_ms:,.0f} ms (p99) late though it had places in flight free"


# What was asked of a run and not given: windows longer than the data, lateness longer than the run.

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
