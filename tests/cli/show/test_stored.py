"""One result in full, and the export of all runs."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pyarrow
import pytest
from pyarrow import parquet

from cli.results.export import COLUMNS, Format, choose_format, export_runs, list_rows
from cli.results.store import read_result
from cli.show.stored import describe_result, tabulate_result
from cli.system.errors import ConfigError
from simulator.contract import GroupResult, Machine, Role, RunResult

from ..made import STORED, inserts, open_loop, queries, steps, stored


def test_one_result_has_everything() -> None:
    result = inserts({2: [10.0]})
    group = result.writers[0].group
    group.retries, group.errors = 3, {"deadlock": 2}
    tables = tabulate_result(result, terminal=False)
    assert [list(map(str, row)) for row in tables["Runs"].rows] == [
        ["2", "1", "0", "yes", "10", "510", "20.00", "98.0%", "1,000", "1,000", "10.0%"]
    ]
    assert [list(map(str, row)) for row in tables["Latencies of a request, ms"].rows] == [
        ["2", "1", "0", "1.5", "2.5", "4", "40.2", "500"]
    ]
    # 1,000 events in 20 s and 999 in 19.999 s.
    (spread,) = tables["Spread of the workers"].rows
    assert list(map(str, spread)) == ["2", "1", "0", "50", "50", "0.1%", "0.001", "1 on node-1"]
    assert [list(row) for row in tables["Retries and errors"].rows] == [
        ["2", "1", "0", "3", "deadlock", "2"]
    ]
    assert list(tables["Phases, seconds"].headers)[3:] == [
        "start", "prepare", "barrier", "run", "verify", "clean-up",
    ]  # fmt: skip
    assert ["database.settings.fsync", "on"] in [list(row) for row in tables["Environment"].rows]
    assert ["module.copy_format", "binary"] in [list(row) for row in tables["Options"].rows]
    text = describe_result(stored(result), terminal=False)
    assert text.startswith("Result one\nInserts into alpha")
    assert [title for title in tables if f"\n{title}\n" not in text] == []
    assert text.endswith("File: results/one/result.json")


def test_what_was_to_be_done_to_the_database_is_among_the_options() -> None:
    extra = {"disturbances": ["2s kill-server", "9s run true"]}
    options = tabulate_result(inserts({2: [10.0]}, options=extra), terminal=False)["Options"].rows
    assert ["disturbances", "2s kill-server,9s run true"] in [list(row) for row in options]


def test_an_open_loop_with_all_that_was_due() -> None:
    result = open_loop({2: [800.0]}, saturated=True, unsent=3)
    result.writers[0].group.per_worker[0].measured = 500
    text = describe_result(stored(result), terminal=False)
    assert "No figure includes the first 1 s (warm-up)." in text
    tables = tabulate_result(result, terminal=False)
    assert "Latencies of a request, ms" not in tables
    assert tables["Response times of a request, ms"].rows[0][3:] == [
        "1.5", "2.5", "4", "40.2", "500",
    ]  # fmt: skip
    assert tables["Service times of a request, ms"].rows[0][5] == "1.25"
    due = tables["What was due"]
    assert dict(zip(due.headers[3:], due.rows[0][3:], strict=True)) == {
        "Saturated": "yes", "Due": "20,000", "Achieved": "16,000", "Unsent": "3", "Most waiting": "50",
        "Growth": "+7", "Client late p99 ms": "0.25",
    }  # fmt: skip
    # 500 events within the window of 20 s; the other worker says nothing of a window.
    assert tables["Spread of the workers"].rows[0][3:5] == ["25", "50"]
    (row,) = list_rows(stored(result))
    assert (row["rate_per_s"], row["arrivals"], row["duration_s"]) == (1000.0, "poisson", 21.0)
    assert (row["due"], row["achieved"], row["saturated"]) == (20_000, 16_000, True)
    assert (row["latency_p99_ms"], row["service_p99_ms"]) == (4.0, 1.25)
    assert COLUMNS["rate_per_s"] == COLUMNS["duration_s"] == "DOUBLE"
    assert COLUMNS["in_flight"] == "BIGINT"


def test_when_a_run_was_and_on_how_busy_a_machine() -> None:
    result = inserts({2: [10.0, 11.0]})
    run = result.runs[0]
    run.began_at, run.ended_at = "2025-01-02T03:04:05.678+00:00", "2025-01-02T03:14:06.000+00:00"
    run.machines = [
        Machine(node="a", cpus=4, busy_share=0.9, steal_share=0.02, others_share=0.1),
        Machine(node="b", cpus=1000, load_average_1m=1.25, busy_share=0.5, steal_share=0.3),
    ]
    (row,) = tabulate_result(result, terminal=False)["Time and machine"].rows
    assert list(row) == ["2", "1", "0", "2025-01-02 03:04:05", "03:14:06", "b", "1,000", "1.2", "50%",
                         "30%", "-"]  # fmt: skip
    exported, older = list_rows(stored(result))
    assert exported["began_at"] == run.began_at
    shares = ("busy_share", "steal_share", "others_share")
    assert [exported[name] for name in shares] == [0.9, 0.3, 0.1]
    assert [older[name] for name in shares] == [None] * 3


def test_when_queries_were_asked() -> None:
    result = queries({"q": [1.0]})
    assert "Time and machine" not in tabulate_result(result, terminal=False)
    [run] = result.runs
    run.began_at, run.ended_at = "2025-01-02T23:59:59.000+00:00", "2025-01-03T00:00:01+00:00"
    run.machines = [Machine(node="a", others_share=0.25)]
    (row,) = tabulate_result(result, terminal=False)["Time and machine"].rows
    assert list(row) == ["2025-01-02 23:59:59", "00:00:01", "a", "-", "-", "-", "-", "25%"]


@pytest.mark.parametrize("name", ["insert", "steps", "query"])
def test_every_stored_result_can_be_shown(name: str) -> None:
    result = read_result(STORED / f"{name}.json")
    text = describe_result(stored(result), terminal=True)
    kind = "Queries to" if name == "query" else "Inserts into"
    assert text.startswith(f"Result one\n{kind} {result.target} (PostgreSQL 18.4) by ")
    strike = "\x1b[9m"
    assert (strike in text) is any(not group_run.group.valid for group_run in result.writers)


def test_sentences_fit_the_terminal() -> None:
    result = inserts({2: [10.0, 11.0]}, complete=False)
    head, notes, *_ = describe_result(stored(result), terminal=False, width=50).split("\n\n")
    lines = [*head.splitlines(), *notes.splitlines()]
    assert max(map(len, lines)) <= 50
    assert "incomplete: not all runs were made: the command" in lines


def test_figures_of_an_invalid_run_are_struck_through() -> None:
    result = inserts({2: [10.0]})
    result.writers[0].group.invalid_reasons = ["lost"]
    tables = tabulate_result(result, terminal=False)
    (run,) = tables["Runs"].rows
    assert [cell for cell in run if "~~" in str(cell)] == ["~~10~~", "~~510~~", "~~10.0%~~"]
    (latency,) = tables["Latencies of a request, ms"].rows
    assert list(latency)[3:] == [f"~~{ms}~~" for ms in
                                 ("1.5", "2.5", "4", "40.2", "500")]  # fmt: skip


def test_failed_runs_have_no_figures() -> None:
    group = GroupResult(role=Role.WRITE, workers=1, invalid_reasons=["x"])
    failed = RunResult(fill_level=0, groups=[group])
    tables = tabulate_result(inserts({}, runs=[failed]), terminal=False)
    assert list(tables["Runs"].rows[0])[3:] == ["no", *["-"] * 7]
    assert "Spread of the workers" not in tables


# --- export ---------------------------------------------------------------------------------------

EXPORTED = [
    stored(inserts({2: [10.5, 11.25]}, cost_per_hour=2.0), "first"),
    stored(steps({0: 5.0, 7: 4.0}), "second"),
    stored(queries({"a, \"b\"\nc": [0.5, None]}), "third"),
]  # fmt: skip


def test_csv_has_a_line_for_each_run() -> None:
    content = export_runs(EXPORTED, Format.CSV).decode()
    rows = list(csv.DictReader(io.StringIO(content)))
    assert list(rows[0]) == list(COLUMNS)
    assert [row["result_id"] for row in rows] == ["first"] * 2 + ["second"] * 2 + ["third"] * 3
    assert [row["inserts_per_s"] for row in rows] == ["10.5", "11.25", "5.0", "4.0", "", "", ""]
    assert [row["query"] for row in rows] == [""] * 4 + ['a, "b"\nc'] * 3
    assert [row["error"] for row in rows][-2:] == ["", "no"]
    assert json.loads(rows[0]["options"])["module"] == {"copy_format": "binary"}


def test_no_cell_of_csv_is_a_formula() -> None:
    result = inserts({2: [10.5]})
    result.label = "=cmd()"
    result.writers[0].group.count = 2**70
    for form, label in ((Format.CSV, "'=cmd()"), (Format.PARQUET, "=cmd()")):
        content = export_runs([stored(result)], form)
        if form == Format.CSV:
            (row,) = csv.DictReader(io.StringIO(content.decode()))
            assert (row["label"], row["events"]) == (label, "")
        else:
            assert label.encode() in content and b"'=cmd()" not in content


def test_parquet_has_the_same_with_types(tmp_path: Path) -> None:
    file = tmp_path / "runs.parquet"
    file.write_bytes(export_runs(EXPORTED, Format.PARQUET))
    table = parquet.read_table(file)
    assert table.column_names == list(COLUMNS)
    assert table.schema.field("inserts_per_s").type == pyarrow.float64()
    assert table.schema.field("events").type == pyarrow.int64()
    assert table.schema.field("valid").type == pyarrow.bool_()
    assert table.to_pylist() == [
        {name: row.get(name) for name in COLUMNS}
        for stored_result in EXPORTED
        for row in list_rows(stored_result)
    ]


def test_json_has_the_same_with_what_csv_has_as_text() -> None:
    rows = json.loads(export_runs(EXPORTED, Format.JSON))
    assert [list(row) for row in rows] == [list(COLUMNS)] * len(rows)
    assert [row["inserts_per_s"] for row in rows] == [10.5, 11.25, 5.0, 4.0, None, None, None]
    assert rows[0]["options"]["module"] == {"copy_format": "binary"}
    assert rows[0]["errors"] == {} and rows[0]["tags"] is None


def test_markdown_is_a_table_of_the_main_columns_that_have_a_value() -> None:
    result = inserts({2: [10_000.5]})
    result.target = "a|b"
    head, rule, row = export_runs([stored(result)], Format.MARKDOWN).decode().splitlines()
    names = [cell.strip() for cell in head.strip("|").split("|")]
    assert {"target", "workers", "inserts_per_s", "latency_p99_ms"} <= set(names)
    assert not {"query", "stage", "options"} & set(names)
    assert set(rule) <= set("|-:")
    cells = [cell.strip() for cell in row[1:-1].split(" | ")]
    assert dict(zip(names, cells, strict=True))["inserts_per_s"] == "10,000"
    assert cells[0] == "a\\|b"


def test_what_a_row_holds() -> None:
    (row, _) = list_rows(EXPORTED[0])
    group = EXPORTED[0].result.writers[0].group
    assert group.latency_ms is not None
    assert row["latency_p99_9_ms"] == group.latency_ms.p99_9
    assert row["events_per_cost"] == 10.5 * 3600 / 2
    assert row["database_version"] == "PostgreSQL 18.4 on x86_64, compiled"
    # Nothing is measured that can't be exported.
    assert set(row) <= set(COLUMNS)
    assert set(list_rows(EXPORTED[2])[0]) <= set(COLUMNS)


def test_no_runs_are_a_table_without_rows() -> None:
    content = export_runs([], Format.CSV).decode()
    assert content.strip() == ",".join(COLUMNS)


@pytest.mark.parametrize("name", ["runs.txt", "runs", "runs.csv.gz"])
def test_a_file_of_another_kind_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=r"ends in \.csv, .*\.parquet, or give --format"):
        choose_format(Path(name))
