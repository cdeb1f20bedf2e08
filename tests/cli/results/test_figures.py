"""The registry of figures, and the page that is made of it."""

from __future__ import annotations

from pathlib import Path

from cli.render.reads import tabulate_reads
from cli.results.export import COLUMNS, list_rows
from cli.results.figures import (
    EXPORTED,
    FIGURES,
    LIMITED,
    TABLES,
    list_entries,
    read_all,
    split_queries,
)
from cli.results.reference import make_figures_page
from cli.results.thresholds import METRICS
from simulator.contract import Resources

from ..made import asked_by_the_clock, inserts, open_loop, queries, stored

KEPT = Path(__file__).parents[3] / "docs" / "figures.md"


def test_the_page_is_that_of_the_registry() -> None:
    assert KEPT.read_text() == make_figures_page(), (
        "make it anew: .venv/bin/python -m cli.results.reference figures > docs/figures.md"
    )


def test_each_figure_is_declared_once_and_shown_somewhere() -> None:
    shown = {key for keys in TABLES.values() for key in keys}
    assert shown <= set(FIGURES)
    assert {one.key for one in EXPORTED} <= set(COLUMNS)
    assert all(one.exported or one.key in shown for one in FIGURES.values())
    assert tuple(METRICS) == tuple(LIMITED)


def test_a_figure_that_is_not_known_is_a_dash() -> None:
    [entry] = list_entries(inserts({2: [10.0]}).writers)
    assert FIGURES["inserts_per_s"].show(entry) == "10"
    assert FIGURES["due"].show(entry) == FIGURES["cpu_s"].show(entry) == "-"
    assert "due" not in read_all(entry, EXPORTED)
    [offered] = list_entries(open_loop({2: [900.0]}).writers)
    assert FIGURES["backlog_growth"].show(offered) == "+7"


def test_readers_have_an_entry_for_each_query_or_execution() -> None:
    [entry] = list_entries(queries({"a": [0.5, None]}).readers)
    executions = list(split_queries(entry))
    assert [FIGURES["duration_s"].read(one) for one in executions] == [8.0, 0.5, None]
    assert [FIGURES["error"].read(one) for one in executions] == [None, None, "no"]
    first, _ = list_entries(asked_by_the_clock().readers)
    assert [FIGURES["executions"].read(one) for one in split_queries(first)] == [100, 100]
    # The times of a query, not those of all of them.
    fast, slow = (FIGURES["latency_p50_ms"].read(one) for one in split_queries(first))
    assert slow > 50 * fast


def test_rows_per_second_are_known_where_all_answers_have_as_many() -> None:
    result = asked_by_the_clock()
    figure, (first, _) = FIGURES["rows_per_s"], list_entries(result.readers)
    # A hundred answers of one row to each of two queries, in 20 s.
    assert figure.read(first) == 10.0
    assert [figure.read(one) for one in split_queries(first)] == [5.0, 5.0]
    first.group.queries[0].rows_min = 0
    assert figure.read(first) is None
    [by_number] = list_entries(queries({"a": [0.5, 1.5]}, window_s=2.0).readers)
    assert figure.read(by_number) == 1.5
    assert "Rows/s" in tabulate_reads(result.readers[1:], terminal=False).headers


def test_the_databases_cpu_per_query_is_that_of_readers_alone() -> None:
    result, figure = asked_by_the_clock(), FIGURES["database_cpu_us_per_query"]
    beside, alone = list_entries(result.readers)
    for run in result.runs:
        run.resources = Resources(cpu_s=3.0)
    result.runs[1].groups = [alone.group]
    assert figure.read(beside) is None
    # Ten queries a second for 20 s.
    assert figure.read(alone) == 15_000.0
    assert figure.show(alone) == "15,000"


def test_a_row_of_an_execution_has_no_figures_of_the_whole_query() -> None:
    row, *_ = list_rows(stored(queries({"a": [0.5]})))
    assert row["duration_s"] == 8.0
    assert all(row[n] is None for n in ("executions", "failed", "queries_per_s", "latency_p50_ms"))
