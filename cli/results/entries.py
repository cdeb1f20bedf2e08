"""What figures are read from: a group of a run, one of its queries, executions or stages. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from simulator.contract import Execution, GroupResult, QueryResult, StageResult
from simulator.units import format_digits

from .answers import RunVerdict
from .model import GroupRun, QuerySummary, Result
from .summaries import Count, EventSize, find_mean, weigh


@dataclass(frozen=True)
class Entry:
    """The subject of a row in a table or export: a group of a run or, for readers, one of their queries or
    executions."""

    group_run: GroupRun
    before: GroupRun | None = None
    """The previous run."""
    query: QueryResult | None = None
    each: Execution | None = None
    stage: StageResult | None = None
    """A stage of a rate that changes."""
    number: int | None = None
    """Its number."""
    cost_per_hour: float | None = None
    holds: bool | None = None
    """Whether the run keeps its limits; None: it has none, or it is undecided."""
    verdict: RunVerdict | None = None
    """The outcome of the limits."""

    @property
    def group(self) -> GroupResult:
        """The workers' measurements."""
        return self.group_run.group

    @cached_property
    def size(self) -> EventSize:
        """Bytes per event of the run."""
        return weigh(self.group_run, self.before)


def list_entries(runs: Sequence[GroupRun], result: Result | None = None) -> list[Entry]:
    """An entry for each run of a group; `split_queries` splits readers' entries by query. `result`: the runs'
    result, for costs and whether a rate holds."""
    steps = result.capacity.steps if result and result.capacity else []
    holds = {step.run: step.holds for step in steps}
    judged = {id(run): verdict for run, verdict in result.judged} if result else {}
    cost = result.cost_per_hour if result else None
    entries = []
    before: GroupRun | None = None
    for group_run in runs:
        verdict = judged.get(id(group_run.run))
        held = verdict.holds if verdict else holds.get(group_run.run.run)
        entry = Entry(group_run, before, cost_per_hour=cost, holds=held, verdict=verdict)
        entries.append(entry)
        before = group_run
    return entries


def split_queries(entry: Entry) -> Iterator[Entry]:
    """An entry for each query, or for each execution if these were kept."""
    for query in entry.group.queries:
        own = replace(entry, query=query)
        yield from (replace(own, each=execution) for execution in query.each)
        if not query.each:
            yield own


def split_stages(entry: Entry) -> Iterator[Entry]:
    """An entry for each stage of a rate that changes."""
    for number, stage in enumerate(entry.group.stages, 1):
        yield replace(entry, stage=stage, number=number)


# --- of readers --------------------------------------------------------------------------------------


def of_answer(name: str, count: Count) -> Callable[[Entry], Any]:
    """Reads the mean over a query's answers, or the figure of a single execution."""

    def read(entry: Entry) -> Any:
        if entry.each is not None:
            return getattr(entry.each, name)
        return find_mean([entry.query], count) if entry.query else None

    return read


def of_answers_per_s(count: Count) -> Callable[[Entry], Any]:
    """Reads rows or bytes of a query's answers, or of all answers, per second of the window; None for a
    single execution."""

    def read(entry: Entry) -> float | None:
        window_s = entry.group.window_s
        if entry.each is not None or not window_s:
            return None
        total = count([entry.query] if entry.query else entry.group.queries)
        return None if total is None else total / window_s

    return read


def of_database(name: str, scale: float = 1.0) -> Callable[[Entry], Any]:
    """Reads how much of a resource the database used per query, if only readers were active: with writers, it
    works for both."""

    def read(entry: Entry) -> float | None:
        run = entry.group_run.run
        used = getattr(run.resources, name) if run.resources else None
        answered = _count_answered(entry.group)
        if entry.each is not None or len(run.groups) > 1 or used is None or not answered:
            return None
        return scale * float(used) / answered

    return read


def share_of_client(group: GroupResult) -> float | None:
    """CPU of all readers per query, in µs."""
    answered = _count_answered(group)
    return 1e6 * group.client.cpu_s / answered if group.client and answered else None


def _count_answered(group: GroupResult) -> float:
    """Queries that were answered in the window."""
    return (group.rate_per_s or 0.0) * (group.window_s or 0.0)


# --- a query over all runs --------------------------------------------------------------------------


@dataclass(frozen=True)
class QueryFigure:
    """A column of the table with a row per query, over all runs."""

    heading: str
    about: str
    show: Callable[[QuerySummary], str]
    key: str | None = None
    """Key of the single-run figure that it summarizes, if any."""
    read: Callable[[QuerySummary], float | None] = lambda summary: None
    """In ms, for times."""
    always: bool = True
    """Whether it is always shown, or only if known."""


def _show(value: float | None) -> str:
    """Three digits, never as 1.23e+03; `-` if unknown."""
    return "-" if value is None else format_digits(value)


def _make_time(heading: str, about: str, name: str, key: str | None = None) -> QueryFigure:
    """A time that the summary has in seconds."""

    def read(summary: QuerySummary) -> float | None:
        value = getattr(summary, name)
        return None if value is None else float(1000 * value)

    return QueryFigure(heading, about, lambda summary: _show(read(summary)), key, read)


def _show_interval(summary: QuerySummary) -> str:
    ends = summary.ci95
    return "-" if ends is None else " to ".join(_show(1000 * end) for end in ends)


def _show_rows(summary: QuerySummary) -> str:
    """The mean and the range, or a single number if all are equal."""
    least, most = summary.rows_min, summary.rows
    if least is None or least == most:
        return f"{most:,}"
    ends = f"{least:,} to {most:,}"
    return ends if summary.rows_mean is None else f"{_show(summary.rows_mean)} ({ends})"


QUERY_TABLE = (
    QueryFigure("Query", "name of the query", lambda summary: summary.query, "query"),
    _make_time("Min", "the fastest", "min"),
    _make_time("Max", "the slowest", "max", "latency_max_ms"),
    _make_time("Avg", "the mean, without each reader's first", "avg"),
    QueryFigure("95% interval", "the mean's", _show_interval),
    _make_time("p50", "p50 of the times", "median", "latency_p50_ms"),
    _make_time("p90", "p90 of the times", "p90", "latency_p90_ms"),
    _make_time("p99", "p99 of the times, from 100 on", "p99", "latency_p99_ms"),
    _make_time("p99.9", "p99.9 of the times, from 1,000 on", "p99_9", "latency_p99_9_ms"),
    _make_time("Cold", "mean of each reader's first execution", "cold", "cold_s"),
    QueryFigure("Rows", "per answer: the mean, and the range if they differ", _show_rows, "rows_mean"),
    QueryFigure("Bytes", "per answer as received, the mean",
                lambda summary: _show(summary.bytes_mean), "bytes_mean", always=False),
    QueryFigure("Queries/s", "answered ÷ the length of the windows", lambda summary: _show(summary.per_s),
                always=False),
    QueryFigure("Executions", "executions that the times are from", lambda summary: f"{summary.runs:,}",
                "executions"),
    QueryFigure("Failed", "executions without an answer", lambda summary: f"{summary.errors:,}", "failed"),
)  # fmt: skip
"""The columns of the table of queries; times in ms."""

QUERY_TIMES = {
    figure.key: figure.read for figure in QUERY_TABLE if figure.key and figure.key.endswith("_ms")
}
"""Key of a single-run time -> the same over all runs, in ms."""
