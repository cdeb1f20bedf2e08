"""What limited a figure: the outcome of what was due in an open loop, and the client's own cost. Pure: no
I/O, no clock."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import accumulate
from math import inf

from ..contract import (
    BOUND_PAUSE_SHARE,
    LEAST_JUDGED_S,
    LEAST_OWN_DELAY_MS,
    MIN_ACHIEVED,
    Arrivals,
    Client,
    GroupResult,
    LatencyMs,
    Load,
    Offered,
    Role,
    StageResult,
    WorkerFigures,
    describe_stalls,
    is_stalled,
)

_CLOCK_S = 1e-6

NOISE_DEVIATIONS = 3
"""n independent arrivals vary by the square root of n; up to this many times that may be chance."""

BOUND_CPU_SHARE = 0.8
BOUND_CPU_SHARE_ONE_IN_FLIGHT = 0.5
BOUND_THROTTLED_SHARE = 0.1
BOUND_CEILING_SHARE = 0.5
"""From these shares on, the figure is the client's, not the database's. With one request in flight the
database waits while the client works, so half of the time is enough. A CPU limit that throttles a tenth of
its periods can have cost a tenth of the time."""

BOUND_OWN_DELAY_SHARE = 0.1
"""How late one request in a hundred must be sent, through the client's fault, for the figure to be the
client's: at least `LEAST_OWN_DELAY_MS`, and at least this share of the response time (p99) that includes
it."""


def judge_offer(
    group: GroupResult, load: Load, in_flight: int, achieved: int, window: tuple[float, float]
) -> None:
    """Judge the outcome of what was due in an open loop, overall and for each stage of its rate.

    `in_flight`: of each worker. `achieved`: within the `window`, given as begin and end since the common
    start.
    """
    offered, places = group.offered, load.workers * in_flight * load.events_per_request
    group.stages = _complete_stages(group.stages, load, places, window[1])
    if offered is None or load.rate_per_s is None:
        group.offered = None
        return
    due_seconds, acknowledged = dict(offered.due_timeline), dict(group.timeline)
    # A window's end is a difference of two clock readings: 9.9999999 s means ten.
    end = int(window[1] + _CLOCK_S)
    backlog, waiting = [], 0
    for second in range(end):
        waiting += due_seconds.get(second, 0) - acknowledged.get(second, 0)
        # A worker that started late reports its seconds slightly early.
        backlog.append((second, max(0, waiting)))
    expected, until = offered.due, end
    if load.duration_s is None:
        # Everything due is done in the end, and the window lasts until then.
        if load.arrivals is not Arrivals.RECORDED:
            expected = round(load.rate_per_s * (window[1] - window[0]))
        until = min(end, max(due_seconds, default=0))
    in_window = [entry for entry in backlog if window[0] < entry[0] + 1 <= until]
    half = in_window[len(in_window) // 2 :]
    growth = half[-1][1] - half[0][1] if half else 0
    due_in_half = sum(due_seconds.get(second, 0) for second, _ in half[1:])
    caught_up = not half or min(count for _, count in half) <= 2 * places
    unit = "events" if load.role is Role.WRITE else "queries"
    # Failures make the run invalid; they don't show that the database lacked time.
    if is_missing(expected - achieved - offered.failed, expected, places, caught_up, load):
        offered.reason = (
            f"{expected:,} {unit} were due in the window, but only {achieved:,} were done"
            if load.duration_s is not None
            else f"{achieved:,} {unit} took {window[1] - window[0]:.3g} s, but at the offered rate"
            f" they take {achieved / load.rate_per_s:.3g} s"
        )
    elif is_missing(growth, due_in_half, places, caught_up, load):
        offered.reason = f"the backlog grew by {growth:,} in the last half of the window"
    else:
        # The database may have caught up in a later stage.
        for number, stage in enumerate(group.stages, 1):
            if stage.saturated:
                offered.reason = (
                    f"in stage {number} ({stage.duration_s:g} s at {stage.rate_per_s:,.10g} {unit}/s)"
                    f" {stage.due:,} {unit} were due, but only {stage.achieved:,} were done"
                )
                break
    offered.saturated = offered.reason is not None
    offered.rate_per_s = load.rate_per_s
    if load.duration_s is None:
        offered.due = min(offered.due, expected)
        offered.due_s = offered.due / load.rate_per_s
    offered.achieved = achieved
    offered.backlog_max = max(
        (count for second, count in backlog if second + 1 > window[0]), default=0
    )
    offered.backlog_growth, offered.backlog, offered.due_timeline = growth, backlog, []


def extend_offers(parts: Mapping[int, WorkerFigures], load: Load) -> dict[int, WorkerFigures]:
    """The workers' parts of a run that was given up, extended by what was due until the last of them ended. A
    worker that lost patience earlier has only reported what was due until then."""
    until_s = max((part.end_s for part in parts.values()), default=0.0)
    extended = dict(parts)
    for worker, part in parts.items():
        offered, from_s = part.offered, part.end_s
        if offered is None or load.rate_per_s is None:
            continue
        seconds = Counter(dict(offered.due_timeline))
        # Never more than there were.
        most = inf if load.duration_s is not None else max(0, load.events - seconds.total())
        added = 0
        for second in range(int(from_s), math.ceil(until_s)):
            passed_s = min(until_s, second + 1) - from_s
            due = load.count_due(from_s, from_s + passed_s) / load.workers
            so_far = round(min(most, due))
            seconds[second] += so_far - added
            added = so_far
        changes = {"due": offered.due + added, "due_timeline": sorted((+seconds).items())}
        offered = offered.model_copy(update=changes)
        extended[worker] = part.model_copy(update={"offered": offered})
    return extended


def is_missing(missing: int, due: int, places: int, caught_up: bool, load: Load) -> bool:
    """Whether so much of what was due was left that the database can't have kept up.

    Requests in flight are no sign of that, so one request for each place in flight is allowed. Neither is a
    backlog that arises by chance, as behind independent arrivals: as long as it is no larger than they vary,
    it only counts if the database never `caught_up` in the last half of the window.
    """
    if missing <= max((1 - MIN_ACHIEVED) * due, places):
        return False
    # Without a duration, the workers' last requests determine how long it took, and these vary.
    series = load.workers if load.duration_s is None else 1
    chance = NOISE_DEVIATIONS * math.sqrt(due * load.events_per_request * series)
    return missing > chance or not caught_up


def find_own_delay(offered: Offered, latency: LatencyMs | None) -> str | None:
    """Evidence that the client, not the database, was late; None if there is none."""
    late_ms = offered.own_delay_p99_ms
    if late_ms is None or latency is None or late_ms < LEAST_OWN_DELAY_MS:
        return None
    if late_ms < BOUND_OWN_DELAY_SHARE * latency.tail:
        return None
    return f"the load generator was late: it sent requests up to {late_ms:,.0f} ms (p99) after they were due"


_SHORTEST_S = 1e-3
"""A shorter part of a stage has no figures."""


def _complete_stages(
    stages: Sequence[StageResult], load: Load, places: int, end_s: float
) -> list[StageResult]:
    """The stages that a run reached, judged. `places`: events that may be in flight at once. `end_s`: the
    window's end since the common start."""
    results = []
    ends = accumulate(stage.duration_s for stage in load.stages)
    before = 0
    for result, stage, ended_s in zip(stages, load.stages, ends, strict=False):
        result.begins_s = max(ended_s - stage.duration_s, load.warm_up_s)
        result.duration_s = min(ended_s, end_s) - result.begins_s
        result.rate_per_s = stage.rate_per_s
        # A backlog that devices hold while they are cut off isn't the database's fault.
        result.backlog = max(0, result.backlog - round(load.count_held(ended_s)))
        result.saturated = is_missing(result.backlog - before, result.due, places, True, load)
        before = result.backlog
        if result.duration_s >= _SHORTEST_S:
            results.append(result)
    return results


# --- what the client cost -------------------------------------------------------------------------


def measure_client(
    parts: Sequence[WorkerFigures],
    load: Load,
    offered: Offered | None = None,
    latency: LatencyMs | None = None,
) -> Client:
    """What generating load (or queries) cost, and whether that was the bottleneck. `offered`: for an open
    loop.

    The CPU shares are those of the busiest worker: one saturated worker is enough to hold a run back, and an
    average would hide it.
    """
    spans = [part.end_s - part.start_s for part in parts]
    timed = [(part, span) for part, span in zip(parts, spans, strict=True) if span > 0]
    client = Client(
        cpu_s=sum(part.cpu_s for part in parts),
        cpu_share=max((part.cpu_s / span for part, span in timed), default=0.0),
        generate_s=sum(part.generate_s for part in parts),
        encode_s=sum(part.encode_s for part in parts),
        ceiling_share=max(
            (
                part.measured / span / part.ceiling_per_s
                for part, span in timed
                if part.ceiling_per_s > 0
            ),
            default=0.0,
        ),
        throttled_share=max(
            (part.throttled_share for part in parts if part.throttled_share is not None),
            default=None,
        ),
        in_flight=max(part.in_flight for part in parts),
        pause_share=None,
        bound=False,
    )
    places_s = sum(part.in_flight * span for part, span in timed)
    if load.role is Role.READ and load.rate_per_s is None and places_s:
        # Both are differences of clock readings.
        client.pause_share = min(1.0, sum(part.pause_s for part, _ in timed) / places_s)
    if load.role is Role.WRITE or max(spans) >= LEAST_JUDGED_S:
        kind = "worker" if load.role is Role.WRITE else "reader"
        client.bound_reason = _find_clients_limit(client, kind, offered, latency)
    client.bound = client.bound_reason is not None
    return client


def _find_clients_limit(
    client: Client, kind: str, offered: Offered | None, latency: LatencyMs | None
) -> str | None:
    """Evidence that a worker was the limit; None if there is none. `kind`: what the text calls the worker."""
    # A worker that is behind schedule sends as soon as it can, as in a closed loop.
    at_leisure = offered is not None and not offered.saturated
    busy = client.cpu_share >= BOUND_CPU_SHARE
    one_at_a_time = client.in_flight == 1 and not at_leisure
    if offered and (late := find_own_delay(offered, latency)):
        made_s = client.generate_s + client.encode_s
        if 2 * made_s <= client.cpu_s:
            return late
        share = min(1.0, made_s / client.cpu_s) if client.cpu_s else 1.0
        return f"{late}; making them took {share:.0%} of its CPU time"
    if client.pause_share is not None and client.pause_share >= BOUND_PAUSE_SHARE:
        return client.describe_pause()
    if busy or (one_at_a_time and client.cpu_share >= BOUND_CPU_SHARE_ONE_IN_FLIGHT):
        reason = f"a {kind}'s CPU was busy {client.cpu_share:.0%} of the time"
        return reason if busy else f"{reason}, while the database waited for its next request"
    throttled = client.throttled_share
    if throttled is not None and throttled >= BOUND_THROTTLED_SHARE:
        return f"a {kind} was throttled by its CPU limit in {throttled:.0%} of the periods"
    if at_leisure or client.ceiling_share < BOUND_CEILING_SHARE:
        # A worker with time to spare isn't the limit, however fast it could be.
        return None
    if client.ceiling_share >= 1:
        # Neither figure of a tiny run is exact, so their ratio can be as much as 430 %.
        return "a worker ran as fast as it can build payloads"
    return f"a worker ran at {client.ceiling_share:.0%} of the rate at which it can build payloads"


COLLECTORS_STALL_S = 1.0
"""The collector sends nothing itself, and hears from each worker once a second. If it stalls for less than
this, as with many workers on a busy machine, it delays nobody."""


def judge_stalls(group: GroupResult, load: Load) -> None:
    """Mark a run in much of whose window a process of the client was stopped. In a closed loop nothing was
    sent meanwhile, and no latency shows it; in an open loop the response times do."""
    window_s = group.window_s or 0.0
    stalls = [
        stall
        for stall in group.stalls
        if stall.worker is not None or stall.length_s >= COLLECTORS_STALL_S
    ]
    if group.client is None or not is_stalled(stalls, window_s):
        return
    reason = describe_stalls(stalls, window_s)
    if load.rate_per_s is None:
        group.invalid_reasons.append(reason)
    else:
        group.client.bound, group.client.bound_reason = True, reason
