"""Rows for charts of single runs: by second, by percentile, by phase; and of a workload's values. Decides
nothing."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from simulator.contract import GroupResult, LatencyMs
from simulator.histograms import Histogram, merge_histograms
from simulator.workloads.base import Workload
from simulator.workloads.schema import EventBlock

from ..results.faults import describe_outages
from ..results.figures import PERCENTILES
from ..results.matrix import Measured
from ..results.model import GroupRun, Result
from ..results.naming import describe_run
from ..results.summaries import find_slowest, list_queries, list_valid
from .tables import format_ms
from .templates import Gap, Panel
from .vega import HEIGHT, PHASES, Row

Examples = Sequence[tuple[str, GroupRun]]
"""Runs under the names of their series."""

_Entry = TypeVar("_Entry")

# --- which runs -----------------------------------------------------------------------------------


def choose_examples(subjects: Measured) -> Examples:
    """The slowest valid run of each worker count (in a series over fill levels: the first and the last run);
    with several results, only the best worker count's."""
    examples: list[tuple[str, GroupRun]] = []
    for name, (result,) in subjects.items():
        runs = [
            run for run in list_runs(result)
            if run.group.timeline and run.group.rate_per_s
        ]  # fmt: skip
        if result.by_fill_level:
            runs = [run for run in runs if run.group.valid]
            ends = runs[:1] + runs[-1:] if len(subjects) == 1 else runs[:1]
            examples += [(_name_run(name, result, run, subjects), run) for run in ends]
        else:
            examples += _choose_each(
                name, result, subjects, runs, lambda group: -(group.rate_per_s or 0)
            )
    return examples


def choose_slowest(subjects: Measured) -> Examples:
    """The run with the highest p99 of each worker count; with several results, only the best worker
    count's."""
    return [
        example
        for name, (result,) in subjects.items()
        for example in _choose_each(
            name, result, subjects, [run for run in list_runs(result) if run.group.latency_ms],
            lambda group: group.latency_ms.tail if group.latency_ms else 0.0,
        )
    ]  # fmt: skip


def _choose_each(
    name: str,
    result: Result,
    subjects: Measured,
    runs: Sequence[GroupRun],
    weight: Callable[[GroupResult], float],
) -> Iterator[tuple[str, GroupRun]]:
    """The valid run with the highest weight at each worker count, or only at the best one; the first if
    equal."""
    best = None if result.by_fill_level or len(subjects) == 1 else result.best
    counted = [
        run
        for run in runs
        if run.group.valid and (best is None or run.group.workers == best.workers)
    ]
    for workers in dict.fromkeys(run.group.workers for run in counted):
        own = [run for run in counted if run.group.workers == workers]
        chosen = max(own, key=lambda run: weight(run.group))
        yield _name_run(name, result, chosen, subjects), chosen


def list_runs(result: Result) -> list[GroupRun]:
    """All runs; for a search, only those its answer rests on."""
    if result.tuning is not None:
        best = result.tuning.rank_finalists()[:1]
        numbers = {
            number
            for trial in result.tuning.trials
            if [trial.candidate] == best
            for number in trial.runs
        }
        return [group_run for group_run in result.writers if group_run.run.run in numbers]
    if result.capacity is None:
        return result.writers
    holding = {step.run for step in result.capacity.steps_at_answer}
    return [group_run for group_run in result.writers if group_run.run.run in holding]


def list_best_runs(results: Sequence[Result]) -> list[GroupRun]:
    """The valid insert runs at the fastest worker count; none for a search, whose runs differ in rate, or for
    steps on growing data."""
    runs = [
        run
        for result in results
        if result.command in ("insert", "mixed") and not result.by_fill_level
        for run in result.writers
        if run.group.valid and run.group.rate_per_s
    ]
    rates: dict[int, list[float]] = {}
    for run in runs:
        rates.setdefault(run.group.workers, []).append(run.group.rate_per_s or 0.0)
    best = max(rates, key=lambda workers: np.mean(rates[workers]), default=None)
    return [run for run in runs if run.group.workers == best]


def choose_middle(subjects: Measured) -> Examples:
    """For each candidate, the median of its valid runs at its best worker count."""
    examples = []
    for name, results in subjects.items():
        runs = [run for run in list_best_runs(results) if run.group.timeline]
        runs.sort(key=lambda run: run.group.rate_per_s or 0.0)
        if runs:
            examples.append((name, runs[(len(runs) - 1) // 2]))
    return examples


def describe_places(subjects: Measured) -> str:
    """The places that `choose_examples` and `choose_slowest` consider."""
    return "at each worker count" if len(subjects) == 1 else "of each result's best worker count"


def _name_run(name: str, result: Result, run: GroupRun, subjects: Measured) -> str:
    text = describe_run(result, run)
    return text if len(subjects) == 1 else f"{name}, {text}"


# --- by the second --------------------------------------------------------------------------------

MOST_POINTS = 300
"""The most points in a line over time; longer runs are drawn in steps of several seconds."""

_MISSING_S = 0.02
"""A step that lacks no more than this counts as complete."""

PANELS = {
    "all": "All workers: events/s",
    "slowest": "Slowest worker: events/s",
    "p99": "p99 by the minute: ms",
    "backlog": "Backlog: events",
    "database": "Database: CPUs in use",
}
_NOTES = {
    "database": "The database's CPU is the mean between two samples of its processes or pods.",
    "p99": "p99 covers the requests answered in each minute, or in several minutes of a long run.",
    "backlog": "The backlog is what was due but not acknowledged at the end of a second.",
}


def list_panels(examples: Examples) -> tuple[list[Panel], list[str]]:
    """Events acknowledged per second by all workers and by the slowest, and whatever else is known per
    second; and remarks on them."""
    rows: dict[str, list[Row]] = {part: [] for part in PANELS}
    for name, run in examples:
        group, step_s = run.group, run.run.step_s
        timelines: dict[str, tuple[int | None, Sequence[tuple[int, int]]]] = {
            "all": (None, group.timeline)
        }
        if slowest := group.slowest_worker:
            timelines["slowest"] = (slowest.worker, slowest.timeline)
        for part, (worker, timeline) in timelines.items():
            # An incomplete last step would look like a drop.
            ends = [span.end_s for span in group.per_worker if worker in (None, span.worker)]
            used_s = max(ends) - timeline[-1][0] if ends and timeline else step_s
            cut = len(timeline) > 1 and 0 <= used_s < step_s - _MISSING_S
            of = f"{name}, {'all workers' if worker is None else f'worker {worker}'}"
            rows[part] += _make_timeline(of, name, timeline[:-1] if cut else timeline, step_s)
        rows["p99"] += _list_minutes(name, group)
        rows["backlog"] += _list_backlog(name, group)
        rows["database"] += _list_use(name, run)
    drawn = {
        part: title
        for part, title in PANELS.items()
        if _is_line(rows[part]) or (part == "all" and rows[part])
    }
    panels = [
        Panel(title, rows[part], height=HEIGHT if part == "all" else HEIGHT // 2, log=False)
        for part, title in drawn.items()
    ]
    return panels, [note for part, note in _NOTES.items() if part in drawn]


def _is_line(rows: Sequence[Row]) -> bool:
    """Whether a series has two points: a line of one can't be seen."""
    return any(count > 1 for count in Counter(row["series"] for row in rows).values())


def _make_row(name: str, x: float, value: float, text: str) -> Row:
    return {"series": name, "x": x, "value": value, "text": text}


def _make_timeline(
    of: str, name: str, timeline: Sequence[tuple[int, int]], own_s: int
) -> Iterator[Row]:
    """A row for each step of one or several of the timeline's `own_s`. The timeline leaves out steps in which
    nothing was acknowledged."""
    events = dict(timeline)
    first, last = min(events, default=0), max(events, default=-own_s) + own_s - 1
    step = max(1, math.ceil((last - first + 1) / own_s / MOST_POINTS)) * own_s
    for begin in range(first, last + 1, step):
        seconds = range(begin, min(begin + step, last + 1))
        stored = sum(events.get(second, 0) for second in seconds)
        span = f"second {begin}" if len(seconds) == 1 else f"seconds {begin} to {seconds[-1]}"
        yield _make_row(name, begin, stored / len(seconds), f"{of}\n{span}: {stored:,} events")


def _split(entries: Sequence[_Entry]) -> Iterator[Sequence[_Entry]]:
    """The entries that each point of a long line represents."""
    step = max(1, math.ceil(len(entries) / MOST_POINTS))
    return (entries[begin : begin + step] for begin in range(0, len(entries), step))


def _list_minutes(name: str, group: GroupResult) -> Iterator[Row]:
    """For each minute, or for several in a long run: histograms add up."""
    for part in _split(group.minutes):
        (p99_ms,) = merge_histograms([minute.histogram for minute in part]).percentiles_ms([99])
        if p99_ms is not None:
            at_s, end_s = part[0].begins_s, part[-1].begins_s + part[-1].length_s
            requests = sum(minute.requests for minute in part)
            text = f"{name}\nseconds {at_s} to {end_s - 1}: p99 {format_ms(p99_ms)} ms"
            text += f" of {requests:,} requests"
            yield _make_row(name, at_s, p99_ms, text)


def _list_backlog(name: str, group: GroupResult) -> Iterator[Row]:
    """The largest backlog at the end of any of the seconds."""
    for part in _split(group.offered.backlog if group.offered else []):
        second, waiting = max(part, key=lambda entry: entry[1])
        text = f"{name}\nend of second {second}: {waiting:,} events due and not acknowledged"
        yield _make_row(name, second, waiting, text)


def _list_use(name: str, run: GroupRun) -> Iterator[Row]:
    for part in _split(run.run.resources.timeline if run.run.resources else []):
        second = part[0][0]
        cpus = sum(cpus for _, cpus, _ in part) / len(part)
        memory = max(memory for _, _, memory in part) / 1e6
        text = f"{name}\nfrom second {second}: {cpus:,.2f} CPUs, {memory:,.0f} MB of memory"
        yield _make_row(name, second, cpus, text)


def list_gaps(examples: Examples) -> list[Gap]:
    """Each outage once, even if several marks share it."""
    return [
        Gap(name, outage.gap_began_s, outage.gap_began_s + outage.gap_s)
        for name, run in examples
        if run.run.marks
        for outage in run.group.outages
        if outage.gap_s and outage.shared_with is None
    ]


def describe_disturbances(examples: Examples) -> list[str]:
    """A sentence for each disturbance; of several runs each begins with the run's name."""
    alone = len(examples) == 1
    return [
        text if alone else f"{name}: {text[0].lower()}{text[1:]}"
        for name, run in examples
        for text in (describe_outages(run) if run.run.marks else [])
    ]


# --- by percentile --------------------------------------------------------------------------------

_PERCENTS = {"p50": 50.0, "p90": 90.0, "p99": 99.0, "p99_9": 99.9}

_STEPS = 8
"""Points of the curve per halving of the share of slower requests."""


@dataclass(frozen=True)
class Timed:
    """What a curve is about."""

    name: str
    latency_ms: LatencyMs
    histograms: Sequence[Histogram]
    """Merged; None if only percentiles are known."""

    def list_points(self) -> Iterator[Row]:
        """A row for each percentile in the tables."""
        for key, percentile in PERCENTILES.items():
            value = getattr(self.latency_ms, key)
            if value is not None:
                yield {"series": self.name, "percentile": percentile, "value": value,
                       "rank": 1 / (1 - _PERCENTS.get(key, 0) / 100),
                       "text": f"{self.name}\n{percentile}: {format_ms(value)} ms"}  # fmt: skip

    def list_curve(self) -> list[Row]:
        """The curve from the fastest request to the slowest; nothing without a histogram."""
        if not self.histograms:
            return []
        histogram = merge_histograms(self.histograms)
        count = histogram.count
        ranks, rank = [], 1.0
        while rank < count:
            ranks.append(rank)
            rank *= 2 ** (1 / _STEPS)
        # The last point is the slowest; the tail is no longer than the number of requests.
        ranks.append(float(max(1, count)))
        percents = [100 - 100 / rank for rank in ranks[:-1]] + [100.0]
        return [
            {"series": self.name, "rank": rank, "value": us / 1000}
            for rank, us in zip(ranks, histogram.values_us(percents), strict=True)
        ]


def time_groups(name: str, groups: Sequence[GroupResult]) -> Timed | None:
    """All requests of several groups, or those of the slowest one if there are no histograms."""
    slowest = find_slowest(groups)
    if slowest is None or slowest.latency_ms is None:
        return None
    histograms = [group.histogram for group in groups if group.histogram and group.latency_ms]
    merged = LatencyMs.of(merge_histograms(histograms))
    if merged is None or len(groups) == 1:
        return Timed(name, slowest.latency_ms, histograms)
    return Timed(name, merged, histograms)


def time_queries(subjects: Measured) -> list[Timed]:
    """Each query of readers whose runs had a duration, slowest first."""
    timed = []
    for name, (result,) in subjects.items():
        if result.by_number:
            continue
        queries = [query for group in list_valid(result.readers) for query in group.queries]
        for asked in list_queries(queries):
            histograms = [
                query.histogram for query in queries if query.query == asked and query.histogram
            ]
            latency = LatencyMs.of(merge_histograms(histograms))
            if latency is not None:
                series = asked if len(subjects) == 1 else f"{asked}, {name}"
                timed.append(Timed(series, latency, histograms))
    return sorted(timed, key=lambda subject: -subject.latency_ms.tail)


# --- by phase -------------------------------------------------------------------------------------

MOST_SPANS = 30


def list_phases(subjects: Measured) -> tuple[list[Row], list[str]]:
    """How long each phase of each run took, and the names of phases. With many runs, only the first of each
    worker count."""
    runs: list[tuple[str, dict[str, float]]] = []
    for name, (result,) in subjects.items():
        prefix = "" if len(subjects) == 1 else f"{name}, "
        if result.command == "query":
            runs += [(f"{prefix}all queries", run.phases_s) for run in result.runs]
            continue
        shown = [run for run in result.writers if run.run.phases_s]
        if len(shown) * len(subjects) > MOST_SPANS:
            firsts = {run.group.workers: run for run in reversed(shown) if run.run.run == 1}
            shown = sorted(firsts.values(), key=lambda run: run.group.workers)
        runs += [(f"{prefix}{describe_run(result, run)}", run.run.phases_s) for run in shown]
    rows: list[Row] = []
    for name, taken in runs:
        begin = 0.0
        for phase in PHASES:
            if phase in taken:
                said = phase.replace("_", " ")
                rows.append(
                    {"row": name, "series": said, "begin": begin, "end": begin + taken[phase],
                     "text": f"{name}\n{said}: {taken[phase]:,.3f} s"}
                )  # fmt: skip
                begin += taken[phase]
    return rows, [phase for phase in PHASES if any(phase in taken for _, taken in runs)]


# --- a workload's values --------------------------------------------------------------------------

DEVICES = 3
MOST_VALUES = 300
"""The most values in a line. Of more events, this many are drawn at equal distances."""


def list_values(
    workload: Workload, names: Sequence[str], span_ms: int, unit_ms: int
) -> tuple[dict[str, list[Row]], int]:
    """Field -> a row for each drawn value of the first devices, without fields that have none; and the number
    of values per device."""
    options = workload.options.model_dump()
    if "late" in options:
        options["late"] = 0.0
    in_order = type(workload)(workload.seed, **options)
    count = len(in_order.devices(0))
    ticks = max(2, round(span_ms / in_order.device_interval_ms))
    drawn = np.unique(np.linspace(0, ticks - 1, min(ticks, MOST_VALUES)).round().astype(int))
    blocks = [in_order.block(0, tick * count, min(DEVICES, count)) for tick in drawn.tolist()]
    start_ms = workload.schema.epoch_ms

    def read(block: EventBlock, name: str) -> Iterator[Row]:
        missing = block.missing.get(name)
        times = (block.columns[block.schema.time] - start_ms) / unit_ms
        for row in range(len(block)):
            value = (
                None if missing is not None and missing[row] else block.columns[name][row].item()
            )
            device = bytes(block.devices[row]).decode()
            yield {"series": device, "x": times[row].item(), "value": value}

    fields = {name: [row for block in blocks for row in read(block, name)] for name in names}
    return {
        name: rows for name, rows in fields.items() if any(row["value"] is not None for row in rows)
    }, len(blocks)


def list_bound(subjects: Measured) -> list[str]:
    """The client-bound runs, with the reason."""
    return [
        f"{_name_run(name, result, run, subjects)}: client-bound: {client.bound_reason}."
        for name, (result,) in subjects.items()
        for run in result.writers
        if run.group.valid and (client := run.group.client) and client.bound
    ]
