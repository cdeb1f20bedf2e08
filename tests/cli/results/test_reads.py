"""Figures of readers whose runs were ended by the clock, and what groups cost each other."""

from __future__ import annotations

from typing import Any

import pytest

from cli.results.comparison import compare_with_alone
from cli.results.export import COLUMNS, list_rows
from cli.results.summaries import collect_query_samples, find_unanswered, summarize_queries
from simulator.contract import (
    Execution,
    GroupResult,
    LatencyMs,
    QueryResult,
    Role,
    RunResult,
)
from simulator.histograms import Histogram

from ...helpers import insert_run
from ..made import ask, inserts, stored


def figures(
    query: str, warm_s: list[float], times_ms: list[float], rows: int | None = 1
) -> QueryResult:
    """A query with these readers' means and these executions."""
    return QueryResult(
        query=query,
        executions=len(times_ms),
        rows_min=rows,
        rows_max=rows,
        cold_s=0.5,
        warm_s=warm_s,
        histogram=Histogram.of([ms / 1000 for ms in times_ms]),
    )


def readers(*queries: QueryResult, **changes: Any) -> GroupResult:
    """A valid group of two readers."""
    return GroupResult(role=Role.READ, workers=2, queries=list(queries), **changes)


def runs_of(*groups: GroupResult) -> list[RunResult]:
    """A run of each group."""
    return [RunResult(run=number, groups=[group]) for number, group in enumerate(groups, 1)]


def test_of_one_run_each_reader_is_a_sample_of_several_each_run() -> None:
    first, second = figures("a", [0.1, 0.3], [100, 300]), figures("a", [0.5, 0.7], [500, 700])
    assert collect_query_samples([first], "a") == [0.1, 0.3]
    assert collect_query_samples([first, second], "a") == pytest.approx([0.2, 0.6])


def test_a_summary_is_over_all_executions_and_its_interval_over_the_samples() -> None:
    groups = [
        readers(figures("a", [0.1, 0.3], [100, 300]), figures("b", [], [], None)),
        readers(figures("a", [0.5, 0.7], [500, 700])),
    ]
    [summary] = summarize_queries(runs_of(*groups))
    assert (summary.query, summary.runs, summary.rows, summary.cold) == ("a", 4, 1, 0.5)
    assert summary.min == pytest.approx(0.1, rel=1e-3)
    assert summary.max == pytest.approx(0.7, rel=1e-3)
    assert summary.avg == pytest.approx(0.4)
    assert summary.ci95 is None  # of two samples
    all_queries = [query for group in groups for query in group.queries]
    assert find_unanswered(all_queries) == ([], ["b"])


@pytest.mark.parametrize(
    ("count", "known"), [(99, [90.0]), (100, [90.0, 99.0]), (1_000, [90.0, 99.0, 99.9])]
)
def test_percentiles_need_as_many_executions_by_number_as_by_the_clock(
    count: int, known: list[float]
) -> None:
    by_the_clock = figures("clock", [0.1, 0.1], [100 * (1 + n / count) for n in range(count)])
    each = [
        Execution(run=run, worker=0, duration_s=0.1 * (1 + run / count), rows=1)
        for run in range(count + 1)  # the first is cold
    ]
    by_number = ask("number", each)
    for summary in summarize_queries(runs_of(readers(by_the_clock), readers(by_number))):
        percentiles = {90.0: summary.p90, 99.0: summary.p99, 99.9: summary.p99_9}
        assert [percent for percent, value in percentiles.items() if value is not None] == known
        for percent in known:
            assert percentiles[percent] == pytest.approx(0.1 + percent / 1_000, rel=0.01)
            assert (percentiles[percent] or 0) <= summary.max


def test_a_summary_counts_the_answers_of_all_runs() -> None:
    first, second = figures("a", [0.1, 0.3], [100, 300]), figures("a", [0.5], [500], rows=3)
    first.rows, first.bytes, second.rows, second.bytes, second.errors = 4, 100, 5, 50, 2
    groups = [readers(first, window_s=2.0), readers(second, window_s=1.0)]
    [summary] = summarize_queries(runs_of(*groups))
    assert (summary.rows_min, summary.rows, summary.rows_mean) == (1, 3, 3.0)
    assert (summary.bytes_mean, summary.per_s, summary.errors) == (50.0, 1.0, 2)
    groups[1].window_s, second.bytes = None, None
    [summary] = summarize_queries(runs_of(*groups))
    assert (summary.bytes_mean, summary.per_s) == (None, None)


def test_a_query_for_which_there_was_no_time_did_not_fail() -> None:
    failed = figures("failed", [], [], None).model_copy(update={"errors": 1})
    assert find_unanswered([figures("late", [], [], None), failed]) == (["failed"], ["late"])


def test_what_groups_cost_each_other_is_the_figure_beside_by_that_alone() -> None:
    def latency(ms: float) -> LatencyMs:
        return LatencyMs(p50=ms, p90=ms, p99=ms * 3, p99_9=ms, max=ms)

    beside = [insert_run(run=n, rate_per_s=80.0, latency_ms=latency(4)) for n in (1, 2)]
    alone = [insert_run(run=n, rate_per_s=100.0, latency_ms=latency(2)) for n in (1, 2)]
    invalid = insert_run(run=3, rate_per_s=1.0, latency_ms=latency(9), invalid_reasons=["lost"])
    beside[0].groups.append(readers(rate_per_s=3.0, latency_ms=latency(10)))
    result = inserts({}, command="mixed", runs=[*beside, invalid])
    assert compare_with_alone(result) == []
    by_themselves = runs_of(readers(rate_per_s=6.0, latency_ms=latency(5)))
    costs = compare_with_alone(result.model_copy(update={"baseline": [*alone, *by_themselves]}))
    by_figure = {(cost.group, cost.figure): cost for cost in costs}
    assert by_figure["writers", "rate"].ratio.value == pytest.approx(0.8)
    assert by_figure["writers", "rate"].unit == "events/s"
    assert by_figure["writers", "p99"].ratio.value == pytest.approx(2)
    assert (by_figure["writers", "p99"].alone, by_figure["writers", "p99"].beside) == (6, 12)
    assert by_figure["readers", "rate"].ratio.value == pytest.approx(0.5)
    # Single runs show no interval.
    assert by_figure["readers", "rate"].ratio.interval is None


def test_an_export_has_a_row_for_each_query_of_each_run() -> None:
    result = inserts({4: [10.0, 11.0]})
    result.command = "mixed"
    result.runs[0].fill_level = 7
    query = figures("a", [0.1, 0.3], [100, 300])
    result.baseline = [result.runs[0].model_copy(deep=True), *runs_of(readers(query))]
    result.runs[0].groups.append(readers(query, figures("b", [], [], None), rate_per_s=3.0))
    rows = list_rows(stored(result))
    assert [(row["group"], row.get("query")) for row in rows] == [
        ("writers", None), ("writers", None), ("writers alone", None),
        ("readers", "a"), ("readers", "b"), ("readers alone", "a"),
    ]  # fmt: skip
    row = rows[3]
    assert (row["queries_per_s"], row["executions"], row["failed"], row["rows"]) == (3.0, 2, 0, 1)
    assert (row["workers"], row["fill_level"], row["cold_s"]) == (2, 7, 0.5)
    assert set(row) <= set(COLUMNS)
