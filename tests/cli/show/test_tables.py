"""Tables and notes, made from stored results."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import pytest

from cli.results.model import GroupRun, InsertSummary, QuerySummary, list_groups
from cli.results.store import read_result
from cli.results.summaries import find_unanswered, summarize_inserts
from cli.show.stored import tabulate_readers
from cli.show.tables import (
    INSERT_COLUMNS,
    Table,
    describe_durations,
    describe_load,
    format_ms,
    strike,
    tabulate_inserts,
    tabulate_queries,
    tabulate_reads_by_query,
    tabulate_steps,
    tabulate_writers,
)
from simulator.contract import GroupResult, Queryable, Role, RunResult

from ...helpers import insert_run
from ..made import STORED, asked_by_the_clock, client, inserts, open_loop, queries


def stored_inserts(name: str) -> tuple[list[GroupRun], list[InsertSummary]]:
    result = read_result(STORED / f"{name}.json")
    assert result.writers
    assert result.insert_summary
    return result.writers, result.insert_summary


def tabulate(runs: Sequence[RunResult]) -> Table:
    """The table of inserts of runs that are summed up."""
    summary = summarize_inserts(runs, by_fill_level=False)
    return tabulate_inserts(list_groups(runs, Role.WRITE), summary, terminal=False)


def cells(table: str) -> list[list[str]]:
    """Lines and cells; columns are two or more spaces apart."""
    return [re.split(r" {2,}", line.strip()) for line in table.splitlines()]


def test_insert_table() -> None:
    runs, summary = stored_inserts("insert")
    assert cells(tabulate_inserts(runs, summary, terminal=False).text()) == [
        [
            "Workers", "Min", "Max", "Avg", "Median", "95% interval", "CV",
            "p50 ms", "p99 ms", "Client CPU",
        ],
        ["1", "10,000", "11,000", "10,500", "10,500", "4,150 to 16,851", "6.7%", "0.1", "2.5",
         "12%"],
        ["4", "20,000", "40,000", "30,000", "30,000", "0 to 157,062", "47.1%", "1,234", "56,789",
         "90% bound"],
        ["8", "~~50,000~~", "~~50,000~~", "~~50,000~~", "-", "-", "-", "-", "-", "-"],
        ["12", "-", "-", "-", "-", "-", "-", "-", "-", "-"],
    ]  # fmt: skip


def test_a_table_wider_than_the_terminal_goes_on_below() -> None:
    """Each part begins with what the row is of, and no line is wider; nothing is left out."""
    runs, summary = stored_inserts("insert")
    table = tabulate_inserts(runs, summary, terminal=True)
    whole = table.text()
    assert table.text(width=200) == whole
    parts = table.text(width=60).split("\n\n")
    assert len(parts) == 2
    shown = [[re.sub(r"\x1b\[\d+m", "", line) for line in part.splitlines()] for part in parts]
    assert max(len(line) for lines in shown for line in lines) <= 60
    assert [line.split()[0] for line in shown[1]] == ["Workers", "1", "4", "8", "12"]
    again = [a + b[1:] for a, b in zip(*map(cells, parts), strict=True)]
    assert again == cells(whole)


def test_an_open_loop_shows_what_was_offered_and_that_its_times_are_response_times() -> None:
    result = open_loop({1: [990.0, 1010.0], 2: [800.0]})
    for group_run in result.writers[2:]:
        assert group_run.group.offered is not None
        group_run.group.offered.saturated = True
    table = tabulate_inserts(result.writers, result.insert_summary, terminal=False)
    assert cells(table.text()) == [
        ["Workers", "Offered/s", "Achieved/s", "Response p50 ms", "p99 ms", "Service p99", "Client CPU"],
        ["1", "1,000", "1,000", "1.5", "5", "1.25", "20%"],
        ["2", "1,000", "800 saturated", "1.5", "4", "1.25", "10%"],
    ]  # fmt: skip
    assert describe_load(result.settings.load) == (
        "Open loop: response times count from when a request was due, service times from when it was sent,"
        " in ms, of the slowest run. No figure includes the first 1 s (warm-up)."
    )
    assert describe_load(inserts({1: [1.0]}).settings.load) is None


def test_what_was_offered_is_by_the_time_in_which_it_was_due() -> None:
    """By a number of events, of which the database did half as many per second as were due."""
    result = open_loop({1: [500.0]}, saturated=True, due=10_000, due_s=10.0)
    table = tabulate_inserts(result.writers, result.insert_summary, terminal=False)
    assert cells(table.text())[1][1:3] == ["1,000", "500 saturated"]


@pytest.mark.parametrize(
    ("value", "shown"), [(0.1234, "0.123"), (99.96, "100"), (999.4, "999"), (999.6, "1,000")]
)
def test_milliseconds_have_three_digits_and_no_exponent(value: float, shown: str) -> None:
    assert format_ms(value) == shown


def test_an_open_loops_table_fits_a_hundred_columns() -> None:
    result = open_loop({16: [412_345.0, 1_000.0]}, rate_per_s=500_000.0, saturated=True)
    table = tabulate_inserts(result.writers, result.insert_summary, terminal=False)
    assert max(map(len, table.text().splitlines())) <= 100


def test_an_open_loops_invalid_runs_and_steps() -> None:
    result = open_loop({1: [990.0]}, saturated=True)
    (group_run,) = result.writers
    steps = tabulate_steps([group_run], terminal=False)
    assert cells(steps.text())[1][:3] == ["0", "1,000", "990 saturated"]
    group_run.group.invalid_reasons = ["lost"]
    table = tabulate_inserts([group_run], [], terminal=False)
    assert cells(table.text())[1] == ["1", "1,000", "~~990~~", "-", "-", "-", "-"]


def test_what_can_be_queried_later_is_shown_where_there_is_such_a_thing() -> None:
    runs = [
        insert_run(workers=workers, run=run, queryable=queryable)
        for workers, run, queryable in (
            (1, 1, Queryable(lag_s=3.0, events_per_s=200.0)),
            (1, 2, Queryable(lag_s=298.04, events_per_s=3.3)),
            (4, 1, None),
        )
    ]
    for table in (
        tabulate(runs),
        tabulate_steps(list_groups(runs[1:], Role.WRITE), terminal=False),
    ):
        lines = cells(table.text())
        head = next(line for line in lines if "Lag s" in line)
        assert head[-2:] == ["Queryable/s", "Lag s"]
        assert [line[-2:] for line in lines[lines.index(head) + 1 :]] == [
            ["3", "298.0"],
            ["-", "-"],
        ]


def test_metrics_are_shown_where_an_event_has_several() -> None:
    runs = [
        insert_run(run=1, metrics_per_s=5000.0),
        insert_run(run=2, rate_per_s=700.0, metrics_per_s=7000.0),
        insert_run(run=3, rate_per_s=900.0, metrics_per_s=9000.0, invalid_reasons=["lost"]),
        insert_run(
            run=1, workers=8, rate_per_s=900.0, metrics_per_s=9000.0, invalid_reasons=["lost"]
        ),
    ]
    table = tabulate(runs)
    assert [line[-1] for line in cells(table.text())] == ["Metrics/s", "6,000", "-"]
    single = [insert_run(metrics_per_s=500.0)]
    table = tabulate(single)
    assert "Metrics/s" not in table.text()


def test_invalid_figures_are_struck_through() -> None:
    """By the terminal where there is one, else as in Markdown."""
    runs, summary = stored_inserts("insert")
    shown = tabulate_inserts(runs, summary, terminal=True).text()
    assert "\x1b[9m50,000\x1b[29m" in shown
    assert "~~" not in shown
    # Valid ones are not.
    assert "\x1b[9m10,000" not in shown
    assert strike("5", terminal=True) == "\x1b[9m5\x1b[29m"
    assert strike("5", terminal=False) == "~~5~~"


def test_steps_table() -> None:
    runs, _ = stored_inserts("steps")
    shown = tabulate_steps(runs, terminal=False).text().splitlines()
    assert [line[:2] for line in cells("\n".join(shown))] == [
        ["Level", "Inserts/s"],
        # To tens, as published.
        ["0", "182,620"],
        ["2,000", "~~181,920~~"],
        ["4,000", "10"],
    ]
    terminal = tabulate_steps(runs, terminal=True).text()
    assert "\x1b[9m181,920\x1b[29m" in terminal


def test_a_step_without_a_figure() -> None:
    group = GroupResult(role=Role.WRITE, workers=1, invalid_reasons=["x"])
    failed = GroupRun(RunResult(fill_level=5, groups=[group]), group)
    assert cells(tabulate_steps([failed], terminal=False).text())[1][:2] == ["5", "-"]


def test_query_table() -> None:
    result = read_result(STORED / "query.json")
    failed, unasked = find_unanswered(result.asked)
    assert (failed, unasked) == (["temperature-stats"], [])
    table = tabulate_queries(result.query_summary, dict.fromkeys(failed, 3), unasked=["unasked"])
    assert cells(table.text()) == [
        [
            "Query", "Min", "Max", "Avg", "95% interval", "p50", "p90", "p99", "p99.9", "Cold", "Rows",
            "Executions", "Failed",
        ],
        ["count-events", "250", "750", "500", "-", "500", "700", "-", "-", "500", "1", "2", "0"],
        ["newest-per-device", *["2,000"] * 3, "-", "2,000", "2,000", "-", "-", "2,000", "16", "1", "1"],
        ["temperature-stats", "failed", *["-"] * 10, "3"],
        ["unasked", *["-"] * 12],
    ]  # fmt: skip


def summary_of(**changes: Any) -> QuerySummary:
    """A query of 2,000 executions, in seconds."""
    values: dict[str, Any] = {
        "query": "a", "runs": 2000, "min": 0.000123456, "max": 12.3456, "avg": 0.0023456, "median": 0.002,
        "ci95": (0.0021, 0.0025), "p95": 0.01, "rows": 30, "cold": 0.0345, "p90": 0.005,
        "p99": 0.0567, "p99_9": 0.5, "rows_min": 1, "rows_mean": 12.3456, "bytes_mean": 1234.5,
        "per_s": 98.76, "errors": 1,
    }  # fmt: skip
    return QuerySummary.model_validate(values | changes)


def test_query_times_are_in_ms_with_three_digits() -> None:
    _, row = cells(tabulate_queries([summary_of()], {}).text())
    assert row == [
        "a", "0.123", "12,346", "2.35", "2.1 to 2.5", "2", "5", "56.7", "500", "34.5", "12.3 (1 to 30)",
        "1,234", "98.8", "2,000", "1",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "shown"),
    [
        ({"rows_min": 30, "rows_mean": 30.0}, "30"),
        ({"rows_min": 0, "rows": 0, "rows_mean": 0.0}, "0"),
        # Of an older version.
        ({"rows_min": None, "rows_mean": None}, "30"),
        ({"rows_mean": None}, "1 to 30"),
    ],
)
def test_rows_of_an_answer(changes: dict[str, Any], shown: str) -> None:
    _, row = cells(tabulate_queries([summary_of(**changes)], {}).text())
    assert row[10] == shown


def test_queries_by_number_and_by_the_clock_have_the_same_columns() -> None:
    by_number = tabulate_reads_by_query(queries({"a": [0.5] * 100}, window_s=50.0))
    by_the_clock = tabulate_reads_by_query(asked_by_the_clock())
    assert by_number.headers == by_the_clock.headers
    assert "Queries/s" in by_number.headers
    assert [str(cell) for cell in by_number.rows[0]][5:10] == ["500", "500", "500", "-", "8,000"]
    fast, slow = by_the_clock.rows
    assert [str(row[7]) for row in (fast, slow)] == ["20", "2,001"]


def test_readers_by_number_have_a_table_of_their_group_too() -> None:
    """But not in results of a version that didn't look at the client's part."""
    result = queries({"a": [0.5]}, window_s=20.0, rate_per_s=5.0)
    assert tabulate_readers(result, terminal=False) == {}
    assert "5 queries per second" in describe_durations(result)
    [group_run] = result.readers
    group_run.group.client = client(0.3).model_copy(update={"pause_share": 0.2, "in_flight": 2})
    group_run.group.queries[0].rows, group_run.group.queries[0].bytes = 40, 4_000
    [(title, table)] = tabulate_readers(result, terminal=False).items()
    row = dict(zip(table.headers, table.rows[0], strict=True))
    assert title == "Queries per second"
    assert (row["Readers"], row["Avg"], row["Client CPU"]) == ("1", "5.0", "30% (≤ 1.25×)")
    assert (row["Rows/s"], row["Bytes/s"], row["Client µs/query"]) == ("2", "200 bytes", "10,000")
    assert row["Pause"] == "20.0%"
    group_run.group.client.bound = True
    [table] = tabulate_readers(result, terminal=False).values()
    assert dict(zip(table.headers, table.rows[0], strict=True))["Client CPU"] == "30% bound"


def test_cost_is_shown_where_it_is_known() -> None:
    runs, summary = stored_inserts("insert")
    rows = cells(tabulate_inserts(runs, summary, terminal=False, cost_per_hour=0.5).text())
    assert rows[0][-1] == "Cost/million"
    # Of 10,500.2 inserts/s for an hour, by half a unit of money.
    assert rows[1][-1] == "0.013"
    assert rows[3][-1] == "-"
    steps, _ = stored_inserts("steps")
    rows = cells(tabulate_steps(steps, terminal=False, cost_per_hour=2.0).text())
    # 2 ÷ (182,624.9 inserts/s × 3,600 s).
    assert rows[1][-1] == "0.0030"
    assert rows[2][-1] == "-"


def test_markdown() -> None:
    table = Table(["Query", "A"], [["a|b", 1], ["c", 22]])
    lines = table.text(markdown=True).splitlines()
    assert [[cell.strip() for cell in line.strip("|").split(" |")] for line in lines[2:]] == [
        ["a\\|b", "1"],
        ["c", "22"],
    ]


def test_an_empty_table_says_what_there_is_none_of() -> None:
    assert tabulate_inserts([], [], terminal=False).text() == "no runs"
    assert tabulate_queries([], {}).text() == "no queries"
    assert Table(["Database"], []).text() == "nothing to show"


@pytest.mark.parametrize(
    ("milliseconds", "shown"),
    [(0.012345, "0.0123"), (1.0, "1"), (99.96, "100"), (1500.4, "1,500"), (123_456.0, "123,456")],
)
def test_latencies_have_three_digits_and_no_exponent(milliseconds: float, shown: str) -> None:
    [group_run] = list_groups([insert_run()], Role.WRITE)
    assert group_run.group.latency_ms is not None
    group_run.group.latency_ms.p50 = group_run.group.latency_ms.p99 = milliseconds
    row = cells(tabulate_steps([group_run], terminal=False).text())[1]
    assert row[2:4] == [shown, shown]


def test_details_are_those_of_the_slowest_run() -> None:
    """An average over runs would hide it."""
    runs = [insert_run(), insert_run(), insert_run()]
    slow = runs[1].groups[0]
    assert slow.latency_ms is not None
    assert slow.client is not None
    slow.latency_ms.p50, slow.latency_ms.p99, slow.client.cpu_share = 7.0, 70.0, 0.01
    row = cells(tabulate(runs).text())[1]
    assert row[-3:] == ["7", "70", "12%"]


def test_invalid_runs_enter_no_figure() -> None:
    """Neither rates nor percentiles, nor what was queryable: an invalid run may be slow or fast for a
    reason that is not the database's."""
    runs = [insert_run(run=1), insert_run(run=2, invalid_reasons=["lost"])]
    good, bad = (run.groups[0] for run in runs)
    bad.queryable = Queryable(lag_s=99.0, events_per_s=1.0)
    good.queryable = Queryable(lag_s=1.0, events_per_s=400.0)
    assert bad.latency_ms is not None
    assert bad.client is not None
    bad.latency_ms.p99, bad.client.cpu_share, bad.client.bound = 9999.0, 1.0, True
    alone, both = (tabulate(some).rows for some in (runs[:1], runs))
    assert alone == both
    (step,) = tabulate_steps(list_groups(runs[1:], Role.WRITE), terminal=False).rows
    assert list(step)[2:] == ["-"] * 5


def test_a_text_that_is_too_wide_ends_between_words() -> None:
    table = Table(
        ["Name", "Value"], [["options", "shared_buffers and work_mem " * 8]], ("Name", "Value")
    )
    for width in (60, 100):
        shown = table.text(width=width).splitlines()
        assert max(map(len, shown)) <= width
        assert len(shown) > 3
        words = " ".join(shown[1:]).replace("options", "").split()
        assert words == ["shared_buffers", "and", "work_mem"] * 8
    assert len(table.text().splitlines()) == 2


def test_a_table_stays_in_one_piece_where_its_text_has_room() -> None:
    table = Table(["Name", "N", "About"], [["pumps", 5, "words " * 20]], ("Name", "About"))
    assert table.text(width=60).startswith("Name      N  About\npumps     5  words ")
    assert table.text(width=40).count("Name") == 2


@pytest.mark.parametrize("width", [60, 80, 100])
def test_the_table_of_inserts_fits_the_terminal(width: int) -> None:
    result = read_result(STORED.parents[2] / "img" / "results" / "demo-insert.json")
    table = tabulate_inserts(result.writers, result.insert_summary, terminal=True)
    lines = table.text(width=width).splitlines()
    assert max(map(len, lines)) <= width
    assert all(line.split()[0] == "Workers" for line in lines if "Workers" in line)


def test_a_terminal_has_one_table_of_the_columns_that_matter_most() -> None:
    result = read_result(STORED.parents[2] / "img" / "results" / "demo-insert.json")
    table = tabulate_inserts(result.writers, result.insert_summary, terminal=True)
    *lines, more = table.shrink(80).splitlines()
    assert max(map(len, lines)) <= 80
    assert len(lines) == 1 + len(table.rows)
    assert cells(lines[0])[0] == [
        "Workers", "Avg", "95% interval", "p50 ms", "p99 ms", "Client CPU",
    ]  # fmt: skip
    assert more == "4 more columns: --columns all, or results show"
    assert table.shrink(None) == table.text()
    # The cost is what somebody asked for.
    paid = tabulate_inserts(result.writers, result.insert_summary, True, cost_per_hour=1.0)
    assert "Cost/million" in paid.shrink(60)


def test_chosen_columns_stand_behind_what_names_the_row() -> None:
    runs, summary = stored_inserts("insert")
    table = tabulate_inserts(runs, summary, terminal=False).choose(["p99 ms", "Avg"])
    assert cells(table.text())[:2] == [["Workers", "Avg", "p99 ms"], ["1", "10,500", "2.5"]]


def test_every_column_of_the_table_of_inserts_can_be_chosen() -> None:
    for name in ("insert", "steps"):
        result = read_result(STORED / f"{name}.json")
        table = tabulate_writers(result, terminal=False)
        assert set(table.headers[1:]) <= set(INSERT_COLUMNS)
