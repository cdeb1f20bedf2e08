"""Statistics over readers whose runs were ended by the clock, and over what they cost the writers. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from simulator.contract import InsertRun, LatencyMs, QueryFigures, ReadRun
from simulator.histograms import merge_histograms, value_at

from .model import Baseline, QuerySummary
from .statistics import Ratio, estimate_ratio, summarize_times

Run = TypeVar("Run", InsertRun, ReadRun)


def list_queries(reads: Sequence[ReadRun]) -> list[str]:
    """The queries that were asked, in order of appearance."""
    return list(dict.fromkeys(one.query for read in reads for one in read.queries))


def collect_query_samples(reads: Sequence[ReadRun], query: str) -> list[float]:
    """The mean times of one query in seconds that stand for independent measurements: one of each run, or
    of a single run one of each reader. Executions of one reader, and readers that ask at once,
    disturb each other."""
    found = [_find(read, query).warm_s for read in reads if _has(read, query)]
    means = [each for each in found if each]
    if len(means) == 1:
        return means[0]
    return [sum(each) / len(each) for each in means]


def summarize_reads(reads: Sequence[ReadRun]) -> list[QuerySummary]:
    """One entry per query that was answered, over all runs. In an open loop times are response times:
    from when a query was due."""
    summaries = []
    for query in list_queries(reads):
        own = [_find(read, query) for read in reads if _has(read, query)]
        histogram = merge_histograms(one.histogram for one in own if one.histogram)
        executions = histogram.get_total_count()
        samples = collect_query_samples(reads, query)
        if not executions:
            continue
        cold = [one.cold_s for one in own if one.cold_s is not None]
        means = summarize_times(samples or cold)
        rows = [one.rows_max for one in own if one.rows_max is not None]
        summaries.append(
            QuerySummary(
                query=query,
                runs=executions,
                min=histogram.get_min_value() / 1e6,
                max=histogram.get_max_value() / 1e6,
                avg=means.avg,
                median=value_at(histogram, 50) / 1e6,
                ci95=means.ci95,
                p95=value_at(histogram, 95) / 1e6,
                rows=max(rows, default=0),
                cold=sum(cold) / len(cold) if cold else None,
            )
        )
    return summaries


def find_unanswered_reads(reads: Sequence[ReadRun]) -> tuple[list[str], list[str]]:
    """Queries that were never answered: those that failed, and those for which there was no time."""
    answered = {one.query for read in reads for one in read.queries if one.rows_max is not None}
    failed = {one.query for read in reads for one in read.queries if one.errors}
    left = [query for query in list_queries(reads) if query not in answered]
    return [one for one in left if one in failed], [one for one in left if one not in failed]


def _has(read: ReadRun, query: str) -> bool:
    return any(one.query == query for one in read.queries)


def _find(read: ReadRun, query: str) -> QueryFigures:
    return next(one for one in read.queries if one.query == query)


@dataclass(frozen=True)
class Cost:
    """What a figure of one group becomes beside the other group, as a share of what it is alone."""

    group: str
    """`writers` or `readers`."""
    figure: str
    """`rate`, `p50` or `p99`."""
    alone: float
    beside: float
    """Means over the runs: per second, or in ms."""
    ratio: Ratio
    """Beside ÷ alone."""

    @property
    def unit(self) -> str:
        """Of `alone` and `beside`."""
        if self.figure != "rate":
            return "ms"
        return "events/s" if self.group == "writers" else "queries/s"


def compare_with_alone(
    runs: Sequence[InsertRun], reads: Sequence[ReadRun], baseline: Baseline
) -> list[Cost]:
    """What writers and readers cost each other, as far as valid runs show it."""
    return [
        *_compare_group("writers", runs, baseline.runs, lambda run: run.inserts_per_s),
        *_compare_group("readers", reads, baseline.reads, lambda run: run.queries_per_s),
    ]


def _compare_group(
    group: str,
    beside: Sequence[Run],
    alone: Sequence[Run],
    rate_of: Callable[[Run], float | None],
) -> list[Cost]:
    figures: dict[str, Callable[[Run], float | None]] = {
        "rate": rate_of,
        "p50": lambda run: _percentile(run.latency_ms, "p50"),
        "p99": lambda run: _percentile(run.latency_ms, "p99"),
    }
    costs = []
    for name, figure in figures.items():
        with_others = [value for run in beside if run.valid and (value := figure(run))]
        by_itself = [value for run in alone if run.valid and (value := figure(run))]
        if with_others and by_itself:
            costs.append(
                Cost(
                    group,
                    name,
                    sum(by_itself) / len(by_itself),
                    sum(with_others) / len(with_others),
                    estimate_ratio(with_others, by_itself),
                )
            )
    return costs


def _percentile(latency: LatencyMs | None, name: str) -> float | None:
    found: float | None = getattr(latency, name, None)
    return found
