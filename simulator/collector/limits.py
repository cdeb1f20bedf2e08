"""Whether a run under way can still keep its limits: what `--abort-on-limit` goes by.

A limit is lost if it would be missed even if all that is still to come were instant and none of it failed:

* A percentile is above its limit if more requests were slower than the rest of the percentage has room for:
  of 10,000 requests, more than 100 for a p99. What counts is what was answered in the window so far, against
  the most requests that the window can have in the end.
* A share of errors is missed if those so far are too many even of all requests that the run can have.

The most requests there can be follows from their number, or from the rate: with `poisson` arrivals five
standard deviations above its mean. In a closed loop with a duration there is no such number: each place in
flight is assumed to have requests until the end, none of which takes less than the fastest so far. That is
generous, so such a run is ended late, but never one that could have kept its limit at the pace it has shown.

Keeping up with a rate is never lost before the end: a database may catch up with what has gathered.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from ..contract import (
    Arrivals,
    Group,
    Load,
    Measure,
    Progress,
    Role,
    RunLimit,
    RunSettings,
)
from ..histograms import LEAST_REQUESTS, Histogram, merge_histograms

_DEVIATIONS = 5
"""Standard deviations of a Poisson process: one run in some millions is this far above the mean."""

LOOK_INTERVAL_S = 1.0
"""How often limits are looked at: as often as workers report."""

NOTICE_S = 1.5
"""How long before the end workers are told of it: each reports meanwhile, and the answer says so."""


class LimitWatch:
    """Looks at the limits of a run under way."""

    def __init__(self, settings: RunSettings) -> None:
        self._settings = settings
        self._looked_at = -math.inf
        self._suspected: RunLimit | None = None

    def find_lost(
        self,
        progress: Callable[[int], Progress | None],
        places: Callable[[Load], int],
        elapsed_s: float,
    ) -> tuple[RunLimit, str] | None:
        """The limit that is lost, and how that shows; None as long as there is none, or if it is too early to
        look again. `progress`: a worker's last message; `places`: requests that each worker of a load may
        have in flight; `elapsed_s`: since the common start.

        What a worker counts while it reports may be there twice, so a limit has to be found lost two times
        in a row.
        """
        if elapsed_s - self._looked_at < LOOK_INTERVAL_S:
            return None
        self._looked_at = elapsed_s
        for limit in self._settings.abort_limits:
            role = Role.WRITE if limit.query is None else Role.READ
            for group in self._settings.groups_of(role):
                messages = list(filter(None, map(progress, range(group.first, group.end))))
                running = [message for message in messages if message.stage == "run"]
                if elapsed_s < group.load.warm_up_s or not running:
                    continue
                if lost := find_loss(limit, group, running, places(group.load)):
                    if self._suspected == limit:
                        return limit, lost
                    self._suspected = limit
                    return None
        self._suspected = None
        return None


def find_loss(
    limit: RunLimit, group: Group, messages: Sequence[Progress], places: int
) -> str | None:
    """How it shows that a limit is lost; None if it isn't. `messages`: the last one of each worker of the
    group; `places`: requests that each may have in flight."""
    load = group.load
    told = [message.latency for message in messages]
    failed = sum(message.retries for message in messages)
    if limit.query is not None:
        queries = [query for message in messages if (query := message.queries.get(limit.query))]
        told = [query.latency for query in queries]
        failed = sum(query.failed for query in queries)
    latency = merge_histograms(filter(None, told))
    share = _find_share(limit, messages, load)
    if limit.measure is Measure.ERROR_SHARE:
        most = _count_most(load, share, messages, latency, places, whole=True)
        # Inserts are tried again: their errors are no requests of their own.
        attempts = most + (failed if limit.query is None else 0)
        if limit.at_most == 0:
            return f"{failed:,} requests failed" if failed else None
        if failed > limit.at_most * attempts:
            return f"{failed:,} of at most {attempts:,.0f} requests failed"
        return None
    if limit.measure is Measure.SERVICE_P99 and load.rate_per_s is not None:
        return None  # workers report response times while the run goes on
    percent = limit.measure.percent or 0.0
    slow = latency.count_slower(limit.at_most)
    most = max(latency.count, _count_most(load, share, messages, latency, places))
    if not slow or most < LEAST_REQUESTS.get(percent, 1):
        return None
    if slow > most - math.ceil(round(percent * most / 100, 6)):
        return f"{slow:,} of at most {most:,.0f} requests took longer"
    return None


def _find_share(limit: RunLimit, messages: Sequence[Progress], load: Load) -> float:
    """Which part of a group's requests the limit is about, by the weights of its queries."""
    names = {name for message in messages for name in message.queries}
    if limit.query is None or not names:
        return 1.0
    weights = {name: load.weights.get(name, 1.0) for name in names}
    return weights.get(limit.query, 0.0) / (sum(weights.values()) or 1.0)


def _count_most(
    load: Load,
    share: float,
    messages: Sequence[Progress],
    latency: Histogram,
    places: int,
    whole: bool = False,
) -> float:
    """The most requests that the window can have in the end, of this share of the group's. `whole`: that the
    whole run can have, with its warm-up."""
    if load.duration_s is None:
        if load.role is Role.READ:
            return load.workers * load.runs
        return load.workers * math.ceil(load.events / load.events_per_request)
    if load.rate_per_s is not None:
        due = load.count_due(0.0 if whole else load.warm_up_s, load.duration_s)
        mean = share * due / load.events_per_request
        chance = _DEVIATIONS * math.sqrt(mean) if load.arrivals is Arrivals.POISSON else 0.0
        # Of each worker's requests, and of its turns, the last may be one more.
        return math.ceil(mean + chance) + 2 * load.workers
    done = latency.count
    if not done:
        return math.inf
    fastest_us, _ = latency.range_us()
    if whole:
        done = max(done, sum(message.done for message in messages) // load.events_per_request)
    left_s = max(0.0, load.duration_s - min(message.elapsed_s for message in messages))
    return done + math.ceil(load.workers * places * left_s * 1e6 / fastest_us)
