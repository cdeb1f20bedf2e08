"""The registry of figures, and the page that is made of it."""

from __future__ import annotations

import pytest

from cli.results.comparison import METRICS
from cli.results.entries import QUERY_TABLE, list_entries, split_queries
from cli.results.export import COLUMNS, list_rows
from cli.results.figures import EXPORTED, FIGURES, LIMITED, TABLES, read_all
from cli.show.tables import tabulate_reads
from simulator.contract import Resources

from ..made import asked_by_the_clock, client, inserts, open_loop, queries, stored


def test_each_figure_is_declared_once_and_shown_somewhere() -> None:
    tables = {key for keys in TABLES.values() for key in keys}
    drawn = {"storage_events", "storage_during_bytes", "storage_during_events"}
    shown = tables | drawn
    assert shown <= set(FIGURES)
    assert {figure.key for figure in EXPORTED} <= set(COLUMNS)
    assert all(figure.exported or figure.key in shown for figure in FIGURES.values())
    assert tuple(METRICS) == tuple(LIMITED)
    assert {figure.key for figure in QUERY_TABLE if figure.key} <= set(FIGURES)


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
    assert [FIGURES["duration_s"].read(execution) for execution in executions] == [8.0, 0.5, None]
    assert [FIGURES["error"].read(execution) for execution in executions] == [None, None, "no"]
    first, _ = list_entries(asked_by_the_clock().readers)
    assert [FIGURES["executions"].read(entry) for entry in split_queries(first)] == [100, 100]
    # The times of a query, not those of all of them.
    fast, slow = (FIGURES["latency_p50_ms"].read(entry) for entry in split_queries(first))
    assert slow > 50 * fast


def test_rows_and_bytes_per_second_are_those_of_all_answers() -> None:
    result = asked_by_the_clock()
    first, _ = list_entries(result.readers)
    fast, slow = first.group.queries
    fast.rows, fast.bytes, fast.rows_max = 1_000, 20_000, 19
    slow.rows, slow.bytes, slow.rows_min = 50, 0, 0
    # Together, and of each query, in 20 s.
    for key, together, each in (
        ("rows_per_s", 52.5, [50.0, 2.5]),
        ("bytes_per_s", 1_000.0, [1_000.0, 0.0]),
    ):
        assert FIGURES[key].read(first) == together
        assert [FIGURES[key].read(entry) for entry in split_queries(first)] == each
    # A hundred answers to each.
    means = [
        [FIGURES[k].read(entry) for entry in split_queries(first)]
        for k in ("rows_mean", "bytes_mean")
    ]
    assert means == [[10.0, 0.5], [200.0, 0.0]]
    assert FIGURES["rows_mean"].read(first) is None
    fast.bytes = None
    assert FIGURES["bytes_per_s"].read(first) is None
    fast.executions = 0
    assert FIGURES["bytes_per_s"].read(first) == 0.0


def test_in_older_results_rows_are_known_where_all_answers_have_as_many() -> None:
    result = asked_by_the_clock()
    figure, (first, _) = FIGURES["rows_per_s"], list_entries(result.readers)
    # A hundred answers of one row to each of two queries, in 20 s.
    assert figure.read(first) == 10.0
    assert [figure.read(entry) for entry in split_queries(first)] == [5.0, 5.0]
    assert FIGURES["bytes_per_s"].read(first) is None
    first.group.queries[0].rows_min = 0
    assert figure.read(first) is None
    [by_number] = list_entries(queries({"a": [0.5, 1.5]}, window_s=2.0).readers)
    assert figure.read(by_number) == 1.5
    assert "Rows/s" in tabulate_reads(result.readers[1:], terminal=False).headers


def test_an_execution_has_its_own_rows_and_bytes() -> None:
    [entry] = list_entries(queries({"a": [0.5]}).readers)
    entry.group.queries[0].each[1].bytes = 77
    _, second = split_queries(entry)
    assert [FIGURES[key].read(second) for key in ("rows", "rows_mean", "bytes_mean")] == [1, 1, 77]
    assert all(
        FIGURES[key].read(second) is None for key in ("rows_per_s", "client_cpu_us_per_query")
    )


def test_what_a_question_costs_the_client() -> None:
    [entry] = list_entries(queries({"a": [0.5]}, window_s=20.0, rate_per_s=10.0).readers)
    assert FIGURES["client_cpu_us_per_query"].read(entry) is None
    entry.group.client = client(0.3).model_copy(update={"cpu_s": 0.02, "pause_share": 0.123})
    # Of two hundred.
    assert FIGURES["client_cpu_us_per_query"].read(entry) == pytest.approx(100.0)
    assert FIGURES["pause_share"].show(entry) == "12.3%"


def test_by_whom_readers_are_bound() -> None:
    [entry] = list_entries(queries({"a": [0.5]}, window_s=20.0, rate_per_s=10.0).readers)
    entry.group.queries[0].rows = 2
    entry.group.client = client(0.3, bound=True)
    assert FIGURES["bottleneck"].read(entry) is None
    entry.group_run.run.resources = Resources(cpu_s=3.0)
    assert FIGURES["bottleneck"].show(entry) == "client CPU"


def test_what_the_database_uses_for_a_query_is_known_of_readers_alone() -> None:
    result, figure = asked_by_the_clock(), FIGURES["database_cpu_us_per_query"]
    read = FIGURES["disk_read_bytes_per_query"]
    beside, alone = list_entries(result.readers)
    for run in result.runs:
        run.resources = Resources(cpu_s=3.0, disk_read_bytes=1_000_000)
    result.runs[1].groups = [alone.group]
    assert figure.read(beside) is read.read(beside) is None
    # Ten queries a second for 20 s.
    assert figure.read(alone) == 15_000.0
    assert figure.show(alone) == "15,000"
    assert (read.read(alone), read.show(alone)) == (5_000.0, "5 kB")


def test_a_row_of_an_execution_has_no_figures_of_the_whole_query() -> None:
    row, *_ = list_rows(stored(queries({"a": [0.5]})))
    assert row["duration_s"] == 8.0
    assert all(row[n] is None for n in ("executions", "failed", "queries_per_s", "latency_p50_ms"))
