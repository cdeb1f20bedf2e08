"""Tables and notes, made from stored results."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cli.results.model import InsertSummary, QuerySummary
from cli.results.statistics import summarize_inserts
from cli.results.store import read_result
from cli.show.tables import (
    Table,
    failed_queries,
    insert_notes,
    insert_table,
    query_notes,
    query_table,
    steps_table,
    struck,
)
from simulator.contract import Client, InsertRun, Queryable, QueryRun

from ..helpers import insert_run

STORED = Path(__file__).parent / "stored"


def stored_inserts(name: str) -> tuple[list[InsertRun], list[InsertSummary]]:
    result = read_result(STORED / f"{name}.json")
    runs = [run for run in result.runs if isinstance(run, InsertRun)]
    summary = [entry for entry in result.summary if isinstance(entry, InsertSummary)]
    assert runs
    assert summary
    return runs, summary


def cells(table: str) -> list[list[str]]:
    """Lines and cells; columns are two or more spaces apart."""
    return [re.split(r" {2,}", line.strip()) for line in table.splitlines()]


def test_insert_table() -> None:
    runs, summary = stored_inserts("insert")
    assert cells(insert_table(runs, summary, terminal=False).text()) == [
        [
            "Workers", "Min", "Max", "Avg", "Median", "95% interval", "CV",
            "p50 ms", "p99 ms", "Client CPU",
        ],
        ["1", "10000", "11000", "10500", "10500", "4150 to 16851", "6.7%", "0.1", "2.5", "12%"],
        ["4", "20000", "40000", "30000", "30000", "0 to 157062", "47.1%", "1234", "56789",
         "90% bound"],
        ["8", "~~50000~~", "~~50000~~", "~~50000~~", "-", "-", "-", "1", "3", "12%"],
        ["12", "-", "-", "-", "-", "-", "-", "-", "-", "-"],
    ]  # fmt: skip


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
        insert_table(runs, summarize_inserts(runs, by_fill_level=False), terminal=False),
        steps_table([runs[1], runs[2]], terminal=False),
    ):
        found = cells(table.text())
        head = next(line for line in found if "Lag s" in line)
        assert head[-2:] == ["Queryable/s", "Lag s"]
        assert [line[-2:] for line in found[found.index(head) + 1 :]] == [
            ["3", "298.0"],
            ["-", "-"],
        ]


def test_metrics_are_shown_where_an_event_has_several() -> None:
    runs = [
        insert_run(run=1, metrics_per_s=5000.0),
        insert_run(run=2, inserts_per_s=700.0, metrics_per_s=7000.0),
        insert_run(run=3, inserts_per_s=900.0, metrics_per_s=9000.0, valid=False),
        insert_run(run=1, workers=8, inserts_per_s=900.0, metrics_per_s=9000.0, valid=False),
    ]
    table = insert_table(runs, summarize_inserts(runs, by_fill_level=False), terminal=False)
    assert [line[-1] for line in cells(table.text())] == ["Metrics/s", "6000", "-"]
    one = [insert_run(metrics_per_s=500.0)]
    table = insert_table(one, summarize_inserts(one, by_fill_level=False), terminal=False)
    assert "Metrics/s" not in table.text()


def test_invalid_figures_are_struck_through() -> None:
    """By the terminal where there is one, else as in Markdown."""
    runs, summary = stored_inserts("insert")
    shown = insert_table(runs, summary, terminal=True).text()
    assert "\x1b[9m50000\x1b[29m" in shown
    assert "~~" not in shown
    # Valid ones are not.
    assert "\x1b[9m10000" not in shown
    assert struck("5", terminal=True) == "\x1b[9m5\x1b[29m"
    assert struck("5", terminal=False) == "~~5~~"


def test_insert_notes_tell_what_weakens_the_figures() -> None:
    runs, summary = stored_inserts("insert")
    notes = insert_notes(runs, summary, by_fill_level=False, terminal=False)
    lost = (
        "7 of 1000 events were not acknowledged; the database holds 993 events, 1000 were expected"
    )
    apart = "the workers overlapped only 50% (at least 90% is needed): use more --num-inserts"
    busy = "a worker's CPU was busy 90% of the time"
    assert notes[:6] == [
        f"invalid: 1 worker, run 3: ~~12000~~ {lost}",
        f"invalid: 8 workers, run 1: ~~50000~~ {apart}",
        "invalid: 8 workers, run 2: worker 3 was killed by SIGKILL in mid-run",
        "invalid: 12 workers, run 1: no word from worker 0 for 60 s",
        f"client-bound: 4 workers, run 1: {busy}: this is your client's speed, not your database's",
        "retries: 1 worker, run 2: 2 (2 deadlock_detected)",
    ]
    assert any(note.startswith("short: runs of 0.1 s") for note in notes)
    assert any(note.startswith("unstable: 4 workers: the runs differ by 47%") for note in notes)
    # Two runs that vary by 47 % can't show anything.
    assert any(note.startswith("few runs: 2 runs that vary like these show no") for note in notes)


def test_steps_table() -> None:
    runs, _ = stored_inserts("steps")
    shown = steps_table(runs, terminal=False).text().splitlines()
    assert [line[:2] for line in cells("\n".join(shown))] == [
        ["Level", "Inserts/s"],
        # To tens, as published.
        ["0", "182620"],
        ["2000", "~~181920~~"],
        ["4000", "10"],
    ]
    terminal = steps_table(runs, terminal=True).text()
    assert "\x1b[9m181920\x1b[29m" in terminal


def test_a_step_without_a_figure() -> None:
    failed = InsertRun(workers=1, run=1, fill_level=5, valid=False, invalid_reasons=["x"])
    assert cells(steps_table([failed], terminal=False).text())[1][:2] == ["5", "~~-~~"]


def test_notes_of_steps_name_the_level() -> None:
    runs, summary = stored_inserts("steps")
    runs[0].client = _bound()
    notes = insert_notes(runs, summary, by_fill_level=True, terminal=True)
    assert notes[0] == (
        "invalid: level 2000: \x1b[9m181915\x1b[29m worker 1 started up to 0.70 s late"
    )
    assert notes[1].startswith("client-bound: level 0: much to do:")


def test_query_table() -> None:
    result = read_result(STORED / "query.json")
    summary = [entry for entry in result.summary if isinstance(entry, QuerySummary)]
    runs = [run for run in result.runs if isinstance(run, QueryRun)]
    failed = failed_queries(runs)
    assert failed == ["temperature-stats"]
    assert cells(query_table(summary, failed).text()) == [
        ["Query", "Min", "Max", "Avg", "Median", "95% interval", "p95", "Rows", "Runs"],
        ["count-events", "0.2500", "0.7500", "0.5000", "0.5000", "0.0000 to 1.1210", "0.7250",
         "1", "3"],
        ["newest-per-device", "2.0000", "2.0000", "2.0000", "2.0000", "-", "2.0000", "16", "1"],
        ["temperature-stats", "failed", "-", "-", "-", "-", "-", "-", "-"],
    ]  # fmt: skip


def test_cost_is_shown_where_it_is_known() -> None:
    runs, summary = stored_inserts("insert")
    rows = cells(insert_table(runs, summary, terminal=False, cost_per_hour=0.5).text())
    assert rows[0][-1] == "Events/money"
    # 10,500.2 inserts/s for an hour, by half a unit of money.
    assert rows[1][-1] == "7.56e+07"
    assert rows[3][-1] == "-"
    steps, _ = stored_inserts("steps")
    rows = cells(steps_table(steps, terminal=False, cost_per_hour=2.0).text())
    # 182,624.9 inserts/s × 3,600 s ÷ 2.
    assert rows[1][-1] == "3.29e+08"
    assert rows[2][-1] == "-"


def test_markdown() -> None:
    table = Table(["Query", "A"], [["a|b", 1], ["c", 22]])
    lines = table.text(markdown=True).splitlines()
    assert [[cell.strip() for cell in line.strip("|").split(" |")] for line in lines[2:]] == [
        ["a\\|b", "1"],
        ["c", "22"],
    ]


def test_query_notes_tell_what_weakens_the_times() -> None:
    notes = query_notes(read_result(STORED / "query.json"))
    assert notes == [
        "invalid: query newest-per-device failed: temporary file size exceeds temp_file_limit",
        "invalid: query temperature-stats failed: canceled",
        "unstable: count-events: the runs differ by 50% (CV; 10% is much)",
        "few runs: a query was asked once; six or more show smaller differences",
    ]


def test_no_runs() -> None:
    assert insert_table([], [], terminal=False).text() == "no runs"


def test_figures_without_anything_to_note() -> None:
    runs = [insert_run(run=n, window_s=20.0, inserts_per_s=100.0 + n) for n in range(6)]
    assert insert_notes(runs, summarize_inserts(runs, False), False, False) == []


@pytest.mark.parametrize(("runs", "noted"), [(1, False), (2, True), (5, True), (6, False)])
def test_few_runs_are_noted(runs: int, noted: bool) -> None:
    made = [insert_run(window_s=20.0, inserts_per_s=100.0 + n / 10) for n in range(runs)]
    notes = insert_notes(made, summarize_inserts(made, False), False, False)
    assert [note.startswith(f"few runs: {runs} runs") for note in notes] == [True] * noted


@pytest.mark.parametrize(("window_s", "noted"), [(9.9, True), (10.0, False)])
def test_short_runs_are_noted(window_s: float, noted: bool) -> None:
    notes = insert_notes([insert_run(window_s=window_s)], [], False, False)
    assert [note.startswith("short: runs of 9.9 s") for note in notes] == [True] * noted


@pytest.mark.parametrize(
    ("milliseconds", "shown"),
    [(0.012345, "0.0123"), (1.0, "1"), (99.96, "100"), (1500.4, "1500"), (123_456.0, "123456")],
)
def test_latencies_have_three_digits_and_no_exponent(milliseconds: float, shown: str) -> None:
    run = insert_run()
    assert run.latency_ms is not None
    run.latency_ms.p50 = run.latency_ms.p99 = milliseconds
    row = cells(steps_table([run], terminal=False).text())[1]
    assert row[2:4] == [shown, shown]


def test_details_are_those_of_the_slowest_run() -> None:
    """An average over runs would hide it."""
    slow, quick = insert_run(), insert_run()
    assert slow.latency_ms is not None
    assert slow.client is not None
    slow.latency_ms.p50, slow.latency_ms.p99, slow.client.cpu_share = 7.0, 70.0, 0.01
    runs = [quick, slow, insert_run()]
    row = cells(insert_table(runs, summarize_inserts(runs, False), terminal=False).text())[1]
    assert row[-3:] == ["7", "70", "12%"]


def _bound() -> Client:
    return Client(
        cpu_s=1, cpu_share=0.9, generate_s=0, encode_s=0, ceiling_share=0, throttled_share=None,
        bound=True, bound_reason="much to do",
    )  # fmt: skip
