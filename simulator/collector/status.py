"""How far a run is: phases and their times, what each group of workers has done, its latencies by the minute,
and whether it can still keep its limits."""

from __future__ import annotations

import logging
import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence

from ..contract import (
    QUIET_S,
    Arrivals,
    Group,
    GroupStatus,
    Load,
    Measure,
    MinuteLatency,
    Phase,
    Progress,
    Role,
    RunLimit,
    RunSettings,
    Status,
)
from ..histograms import COARSE, LEAST_REQUESTS, Histogram, merge_histograms
from .barrier import MAX_NAMED, Barrier

_RATE_REPORTS = 3
"""The rate is computed over this many of a worker's reports, which come once a second."""

_REPORT_LATE_S = 1.5
"""A worker that was silent for longer is not assumed to have continued."""

_REPORT_WINDOW_S = 10.0
"""How long each status shows the last full minute."""

_STAGES = {Phase.PREFILL: "prefill", Phase.RUN: "run"}

_MINUTE_S = 60
MOST_MINUTES = 1_440
"""A day. In longer runs two minutes are merged into one, repeatedly."""

_log = logging.getLogger(__name__)


class PhaseTracker:
    """The phases of a run, and what has been done in the current one."""

    def __init__(self, settings: RunSettings, born: float) -> None:
        self._settings = settings
        self._born = born
        self.phase = Phase.START
        self._phase_began = born
        self.phases_s: dict[str, float] = {}
        """How long each finished phase took."""
        self.prefill = settings.data.prefill
        """Events that workers insert before the start, as far as known."""
        self.queries = 0
        """How many queries each reader runs in turn."""
        self._advanced_at = born
        self._quiet_noted = False
        self._checked: tuple[int, int] | None = None
        """Events generated to compute right answers, so far and in all."""
        self.minutes = {group.load.role: MinuteSeries() for group in settings.groups}
        """The latencies of each group by the minute."""
        self._reports: dict[int, deque[tuple[float, Progress]]] = {}
        """Each worker's last reports of this phase, and when they arrived."""

    def enter(self, phase: Phase) -> None:
        """Begin a phase."""
        now = time.monotonic()
        spent = now - self._phase_began
        self.phases_s[self.phase] = self.phases_s.get(self.phase, 0.0) + spent
        self.phase, self._phase_began, self._advanced_at = phase, now, now
        self._quiet_noted = False
        self._reports.clear()
        _log.info("phase %s", phase)

    def note_check(self, done: int, total: int) -> None:
        """Note how many events have been generated to compute right answers, and of how many."""
        self._checked = done, total

    def take_report(self, message: Progress, advanced: bool) -> None:
        """Take a worker's report of how far it is. `advanced`: whether that is further than before."""
        now = time.monotonic()
        if advanced:
            self._advanced_at = now
            self._quiet_noted = False
        if message.stage == _STAGES.get(self.phase):
            reports = self._reports.get(message.worker)
            if reports is None:
                nothing = Progress(
                    worker=message.worker, stage=message.stage, elapsed_s=0.0, done=0
                )
                reports = deque([(now - message.elapsed_s, nothing)], _RATE_REPORTS + 1)
                self._reports[message.worker] = reports
            reports.append((now, message))
            if self.phase is Phase.RUN:
                role = self._settings.group_of(message.worker).load.role
                self.minutes[role].take(message)

    def status(self, barrier: Barrier, failure: str | None) -> Status:
        """Where the run is, for the executor's display."""
        running = self.phase is Phase.RUN and barrier.start_at is not None
        elapsed_s = time.monotonic() - (barrier.start_at or 0.0)
        loads = [group.load for group in self._settings.groups]
        return Status(
            run_id=self._settings.run_id,
            phase=self.phase,
            age_s=time.monotonic() - self._born,
            groups=self._groups(barrier, elapsed_s),
            elapsed_s=max(0.0, elapsed_s) if running else None,
            warm_up_s=max(load.warm_up_s for load in loads),
            duration_s=max(load.duration_s or 0.0 for load in loads) or None,
            workers_ready=len(barrier.ready),
            waiting_for=barrier.missing[:MAX_NAMED],
            quiet_s=self._quiet_s(elapsed_s) if self.phase in _STAGES else 0.0,
            failure=failure,
        )

    def _quiet_s(self, elapsed_s: float) -> float:
        quiet_s = time.monotonic() - self._advanced_at
        for pause in (pause for group in self._settings.groups for pause in group.load.pauses):
            if self.phase is Phase.RUN and elapsed_s > pause.begins_s:
                # While devices are cut off, nothing is sent.
                quiet_s = max(0.0, min(quiet_s, elapsed_s - pause.ends_s))
        if quiet_s >= QUIET_S and not self._quiet_noted:
            self._quiet_noted = True
            _log.warning("the database has not answered for %.0f s", quiet_s)
        return quiet_s

    def _groups(self, barrier: Barrier, elapsed_s: float) -> list[GroupStatus]:
        if self.phase is Phase.PREFILL:
            return [self._prefill(barrier)]
        if self.phase is Phase.CHECK and self._checked:
            done, total = self._checked
            spent_s = time.monotonic() - self._phase_began
            return [GroupStatus(role=Role.READ, done=done, total=total, rate_per_s=done / spent_s)]
        if self.phase is Phase.RUN:
            return [
                self._group(group, barrier, elapsed_s)
                for group in self._settings.groups_of(Role.WRITE, Role.READ)
            ]
        return []

    def _prefill(self, barrier: Barrier) -> GroupStatus:
        """All workers that prefill, whatever they do afterwards."""
        messages = [m for m in barrier.progress.values() if m.stage == "prefill"]
        prefilled = sum(m.done for m in messages if m.worker not in barrier.ready)
        return GroupStatus(
            role=Role.FILL,
            done=prefilled + barrier.prefilled,
            total=self.prefill,
            rate_per_s=self._rate([m.worker for m in messages if m.worker not in barrier.ready]),
            retries=sum(message.retries for message in messages),
        )

    def _group(self, group: Group, barrier: Barrier, elapsed_s: float) -> GroupStatus:
        workers = range(group.first, group.end)
        messages = [
            message
            for message in map(barrier.progress.get, workers)
            if message is not None and message.stage == "run"
        ]
        active = [message for message in messages if message.worker not in barrier.results]
        done = sum(message.done for message in active)
        done += sum(barrier.results[worker].done for worker in workers if worker in barrier.results)
        backlogs = [message.backlog for message in active if message.backlog is not None]
        own = [message.worker for message in active]
        p50_ms, p99_ms = self._recent_ms(own)
        reads = group.load.role is Role.READ
        minutes = self.minutes[group.load.role]
        return GroupStatus(
            role=group.load.role,
            done=done,
            total=self._total(group),
            rate_per_s=self._rate(own),
            is_open=group.load.rate_per_s is not None,
            recent_p50_ms=p50_ms,
            recent_p99_ms=p99_ms,
            rows_per_s=self._rate(own, lambda report: report.rows) if reads else None,
            bytes_per_s=self._rate(own, lambda report: report.bytes) if reads else None,
            p99_ms=_merge(messages).percentiles_ms([99])[0],
            backlog=sum(backlogs) if backlogs else None,
            retries=sum(message.retries for message in messages),
            failed=sum(message.failed for message in messages),
            minute=minutes.read_latest()
            if elapsed_s % minutes.length_s < _REPORT_WINDOW_S
            else None,
        )

    def _total(self, group: Group) -> int | None:
        load = group.load
        if load.duration_s is not None:
            return None
        if load.role is Role.WRITE:
            return load.total_events
        return load.workers * load.runs * self.queries

    def _rate(
        self, workers: list[int], read: Callable[[Progress], int] = lambda report: report.done
    ) -> float | None:
        """The rate of these workers over the last seconds: events or queries per second, or whatever `read`
        takes from reports."""
        now = time.monotonic()
        rates = []
        for reports in filter(None, map(self._reports.get, workers)):
            (began_s, first), (last_s, last) = reports[0], reports[-1]
            spent_s = max(last_s, now - _REPORT_LATE_S) - began_s
            if spent_s > 0:
                rates.append((read(last) - read(first)) / spent_s)
        return sum(rates) if rates else None

    def _recent_ms(self, workers: list[int]) -> list[float | None]:
        """p50 and p99 of these workers' requests of the last seconds."""
        by_worker = list(filter(None, map(self._reports.get, workers)))
        earlier, latest = (_merge(reports[place][1] for reports in by_worker) for place in (0, -1))
        return (latest - earlier).percentiles_ms([50, 99])


def _merge(messages: Iterable[Progress]) -> Histogram:
    """Latencies of everything that these workers have reported."""
    told = [message.latency for message in messages if message.latency is not None]
    return merge_histograms([Histogram(digits=COARSE), *told])


_NOTHING = Histogram(digits=COARSE)


class MinuteSeries:
    """The latencies of a group's requests by the minute in which workers reported them, at most a second
    late. The minutes add up to the whole window."""

    def __init__(self) -> None:
        self._told: dict[int, tuple[int, Histogram]] = {}
        """Worker -> minute of its last report, and everything that it had reported in earlier minutes."""
        self._latest: dict[int, Histogram] = {}
        self._minutes: dict[int, Histogram] = {}
        self.length_s = _MINUTE_S

    def take(self, message: Progress) -> None:
        """Take a worker's report, which has all latencies of the window so far."""
        if message.latency is None:
            return
        minute = int(message.elapsed_s // self.length_s)
        before = self._told.get(message.worker)
        if before is None:
            self._told[message.worker] = minute, _NOTHING
        elif minute > before[0]:
            # What was counted while the report was made is in the next minute.
            latest = self._latest[message.worker]
            self._add(before[0], latest - before[1])
            self._told[message.worker] = minute, latest
        self._latest[message.worker] = message.latency

    def _add(self, minute: int, latency: Histogram) -> None:
        self._minutes[minute] = (self._minutes.get(minute, _NOTHING) + latency).packed()
        if len(self._minutes) > MOST_MINUTES:
            self._halve()

    def _halve(self) -> None:
        minutes, self._minutes = self._minutes, {}
        self.length_s *= 2
        for minute, latency in minutes.items():
            self._add(minute // 2, latency)
        self._told = {worker: (at // 2, reported) for worker, (at, reported) in self._told.items()}

    def read_latest(self) -> MinuteLatency | None:
        """The last minute that is over for all workers; None if there is none yet."""
        over = min((minute for minute, _ in self._told.values()), default=0) - 1
        if over not in self._minutes:
            return None
        return self._describe(over, self._minutes[over])

    def result(self) -> list[MinuteLatency]:
        """All minutes, including the one that the end cut off; none if there is only one."""
        rest = dict(self._minutes)
        for worker, (minute, reported) in self._told.items():
            rest[minute] = rest.get(minute, _NOTHING) + (self._latest[worker] - reported)
        if len(rest) < 2:
            return []
        return [self._describe(minute, latency) for minute, latency in sorted(rest.items())]

    def _describe(self, minute: int, latency: Histogram) -> MinuteLatency:
        p50, p99 = latency.percentiles_ms([50, 99])
        return MinuteLatency(
            begins_s=minute * self.length_s,
            length_s=self.length_s,
            requests=latency.count,
            p50_ms=p50,
            p99_ms=p99,
            histogram=latency.packed(),
        )


# --- whether it can still keep its limits ------------------------------------------------------------


_DEVIATIONS = 5
"""Standard deviations of a Poisson process: one run in some millions exceeds the mean by this much."""

LOOK_INTERVAL_S = 1.0
"""How often limits are checked: as often as workers report."""

NOTICE_S = 1.5
"""How long before the end workers are told: each reports within that time, and is told in the answer."""


class LimitWatch:
    """Checks whether a limit is lost, for `--abort-on-limit`: whether it would be missed even if all further
    requests were instant and none of them failed.

    * A percentile is above its limit if more requests were slower than the remaining percentage allows: of
      10,000 requests, more than 100 for a p99. Requests answered in the window so far are compared with the
      most requests that the window can have.

    * A share of errors is missed if the errors so far are too many even for all requests that the run can
      have.

    The most possible requests follow from their number, or from the rate: with `poisson` arrivals, five
    standard deviations above its mean. A closed loop with a duration has no such number: each place in flight
    is assumed to have requests until the end, none faster than the fastest so far. That is generous: such a
    run is ended late, but never if it could have kept its limit at the pace it has shown.

    A rate is never lost before the end: a database may catch up with its backlog.
    """

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
        """The limit that is lost, with evidence; None if there is none, or if it is too early to check again.
        `progress`: a worker's last message. `places`: how many requests each worker of a load may have in
        flight. `elapsed_s`: since the common start.

        What a worker counts while it reports may be counted twice, so a limit must be found lost twice in a
        row.
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
    """Evidence that a limit is lost; None if it isn't. `messages`: the last one of each worker of the group.
    `places`: how many requests each may have in flight."""
    load = group.load
    told = [message.latency for message in messages]
    failed = sum(message.retries for message in messages)
    if limit.query is not None:
        queries = [query for message in messages if (query := message.queries.get(limit.query))]
        told = [query.latency for query in queries]
        failed = sum(query.failed for query in queries)
    latency = merge_histograms(filter(None, told))
    # The share of the group's requests that the limit covers, by the weights of its queries.
    share = 1.0
    names = {name for message in messages for name in message.queries}
    if limit.query is not None and names:
        weights = {name: load.weights.get(name, 1.0) for name in names}
        share = weights.get(limit.query, 0.0) / (sum(weights.values()) or 1.0)
    if limit.measure is Measure.ERROR_SHARE:
        most = _count_most(load, share, messages, latency, places, whole=True)
        # Inserts are retried: their errors are not separate requests.
        attempts = most + (failed if limit.query is None else 0)
        if limit.at_most == 0:
            return f"{failed:,} requests failed" if failed else None
        if failed > limit.at_most * attempts:
            return f"{failed:,} of at most {attempts:,.0f} requests failed"
        return None
    if limit.measure is Measure.SERVICE_P99 and load.rate_per_s is not None:
        return None  # workers report response times while the run continues
    percent = limit.measure.percent or 0.0
    slow = latency.count_slower(limit.at_most)
    most = max(latency.count, _count_most(load, share, messages, latency, places))
    if not slow or most < LEAST_REQUESTS.get(percent, 1):
        return None
    if slow > most - math.ceil(round(percent * most / 100, 6)):
        return f"{slow:,} of at most {most:,.0f} requests took longer"
    return None


def _count_most(
    load: Load,
    share: float,
    messages: Sequence[Progress],
    latency: Histogram,
    places: int,
    whole: bool = False,
) -> float:
    """The most requests that the window can have, for this share of the group's. `whole`: for the whole run,
    warm-up included."""
    if load.duration_s is None:
        if load.role is Role.READ:
            return load.workers * load.runs
        return load.workers * math.ceil(load.events / load.events_per_request)
    # A recording's events may all be due at once, at any time.
    if load.rate_per_s is not None and load.arrivals is not Arrivals.RECORDED:
        due = load.count_due(0.0 if whole else load.warm_up_s, load.duration_s)
        mean = share * due / load.events_per_request
        chance = _DEVIATIONS * math.sqrt(mean) if load.arrivals is Arrivals.POISSON else 0.0
        # Each worker may have one more request, and one more turn.
        return math.ceil(mean + chance) + 2 * load.workers
    done = latency.count
    if not done:
        return math.inf
    fastest_us, _ = latency.range_us()
    if whole:
        done = max(done, sum(message.done for message in messages) // load.events_per_request)
    left_s = max(0.0, load.duration_s - min(message.elapsed_s for message in messages))
    return done + math.ceil(load.workers * places * left_s * 1e6 / fastest_us)
