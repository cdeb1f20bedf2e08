"""What `compare` prints."""

from __future__ import annotations

from cli.results.comparison import compare
from cli.show.comparison import (
    describe_comparison,
    list_remarks,
    tabulate_asking,
    tabulate_overview,
    tabulate_ratios,
)
from simulator.contract import LatencyMs, Resources

from ..made import client, inserts, open_loop, queries
from ..results.test_comparison import FAST, SLOW


def test_the_ratio_table() -> None:
    comparisons = compare([inserts({4: SLOW}), inserts({4: FAST}), inserts({4: [50.0]})])
    rows = [list(map(str, row)) for row in tabulate_ratios(["a", "b", "c"], comparisons).rows]
    assert rows[0][:5] == ["4 workers", "a", "100", "3", "-"]
    assert rows[1][1:5] == ["b", "111", "3", "1.11× faster"]
    assert rows[1][6] == "faster"
    assert rows[2][1:] == ["c", "50", "1", "2.00× slower", "-", "unknown: needs 2 runs", "3"]


def test_response_times_have_the_digits_that_a_histogram_knows() -> None:
    results = [open_loop({2: [900.0]}), open_loop({2: [900.0]})]
    for result, p99 in zip(results, (12.345, 1234.5), strict=True):
        result.writers[0].group.latency_ms = LatencyMs(
            p50=0.98765, p90=1, p99=p99, p99_9=p99, max=p99
        )
    rows = tabulate_ratios(["a", "b"], compare(results)).rows
    shown = [row[:3] for row in rows if "response" in str(row[0])]
    assert shown == [
        ["2 workers, response p50", "a", "0.988"], ["2 workers, response p50", "b", "0.988"],
        ["2 workers, response p99", "a", "12.3"], ["2 workers, response p99", "b", "1,234"],
    ]  # fmt: skip


def test_the_table_over_several_targets_is_as_published() -> None:
    results = [
        inserts({1: SLOW, 4: FAST}),
        inserts({1: [7.0]}, "beta", {"insert_mode": None, "batch": 0}, environment={}),
    ]
    lines = describe_comparison(["alpha", "beta"], results, markdown=True).splitlines()
    assert lines[0].startswith("- beta: ")
    heads, _, first, second = (
        [c.strip() for c in line.strip("|").split("|")] for line in lines[2:6]
    )
    row = dict(zip(heads, first, strict=True))
    assert row["Database (version)"] == "alpha (PostgreSQL 18.4)"
    assert (row["Inserts/s"], row["Workers"], row["Runs"]) == ("111", "4", "3")
    assert (row["Insert mode"], row["Primary-key mode"]) == ("copy, size 100", "db")
    row = dict(zip(heads, second, strict=True))
    assert (row["Database (version)"], row["Inserts/s"], row["Insert mode"]) == ("beta", "7", "-")


def test_cost_joins_the_table() -> None:
    results = [inserts({1: SLOW}, cost_per_hour=0.5), inserts({1: SLOW}, "beta")]
    text = describe_comparison(["alpha", "beta"], results, markdown=False)
    assert "Cost/million" in text
    assert text.splitlines()[0] == "beta: no difference from alpha shown in inserts."
    assert text.splitlines()[3].split()[-1] == "1.39"
    assert text.splitlines()[4].split()[-1] == "-"


def test_queries_have_a_column_each() -> None:
    results = [
        queries({"count": [0.5, 0.7], "newest": [None]}, cold=None),
        queries({"newest": [2.0]}, "beta", environment={}),
    ]
    text = describe_comparison(["alpha", "beta"], results, markdown=False)
    lines = text.splitlines()
    assert lines[0].split("  ")[0] == "Database / Query"
    assert lines[1].split()[-2:] == ["700", "failure"]
    assert lines[2].split()[-2:] == ["-", "2,000"]
    assert lines[3] == "Mean time in ms."


def test_what_can_not_be_used_is_said() -> None:
    base, other = inserts({1: SLOW, 4: SLOW}), inserts({1: FAST})
    base.writers[0].group.invalid_reasons = ["lost"]
    text = describe_comparison(["a", "b"], [base, other], markdown=False)
    assert "not compared at 4 workers: b has no valid figure there" in text
    assert "warning: a: 1 of 6 runs is invalid and left out" in text


def test_sentences_fit_the_terminal() -> None:
    base, other = inserts({1: SLOW, 4: SLOW}), inserts({1: FAST})
    answer, *_, remarks = describe_comparison(
        ["a", "b"], [base, other], markdown=False, width=40
    ).split("\n\n")
    assert max(map(len, [*answer.splitlines(), *remarks.splitlines()])) <= 40
    assert "not compared at 4 workers: b has no\n  valid figure there" in remarks


def test_latencies_and_what_to_know_stand_beside_the_rates() -> None:
    short = inserts({1: [100.0, 101.0]}, "beta")
    short.writers[0].group.window_s = 2.0
    table = tabulate_overview(["alpha", "beta"], [inserts({1: SLOW}), short])
    alpha, beta = [dict(zip(table.headers, row, strict=True)) for row in table.rows]
    assert (alpha["p50 ms"], alpha["p99 ms"]) == ("1.5", "6")
    assert (alpha["Caveats"], beta["Caveats"]) == ("-", "short")
    assert beta["Inserts/s"] == "100"


def test_two_databases_are_compared_by_what_both_have() -> None:
    other = inserts({1: SLOW}, "beta", {"module": {"consistency_level": "ONE"}}, module="cassandra")
    lines = list_remarks(["alpha", "beta"], [inserts({1: SLOW}), other])
    text = "\n".join(lines)
    assert (
        "note: durability, each in its own terms: alpha: fsync=on; beta: consistency_level=ONE"
    ) in lines
    assert "results show lists them" in lines[-1]
    assert "copy_format" not in text


def test_query_times_are_compared_in_ms() -> None:
    results = [queries({"a": [0.0123456] * 3}), queries({"a": [1.23456] * 3})]
    assert [row[1] for row in tabulate_overview(["x", "y"], results).rows] == ["12.3", "1,235"]
    table = tabulate_ratios(["x", "y"], compare(results))
    assert table.headers[2] == "ms"
    assert [row[2] for row in table.rows] == ["12.3", "1,235"]
    assert "Mean time in ms." in describe_comparison(["x", "y"], results, markdown=False)


def test_what_asking_cost_stands_beside_the_times() -> None:
    results = [queries({"a": [0.5]}, window_s=20.0, rate_per_s=10.0 * n) for n in (1, 2)]
    for result in results:
        result.runs[0].resources = Resources(cpu_s=2.0)
        [group_run] = result.readers
        group_run.group.queries[0].rows = 2
        group_run.group.client = client(0.3, bound=True).model_copy(update={"cpu_s": 0.02})
    table = tabulate_asking(["x", "y"], results)
    assert table.headers == [
        "Readers of", "Queries/s", "Rows/s", "DB µs/query", "Client µs/query", "Bound by"
    ]  # fmt: skip
    first, second = (list(map(str, row)) for row in table.rows)
    assert first[1:] == ["10.0", "0", "10,000", "100", "client CPU"]
    assert second[1:] == ["20.0", "0", "5,000", "50", "client CPU"]
    assert "Client µs/query" in describe_comparison(["x", "y"], results, markdown=False)
    assert tabulate_asking(["a", "b"], [inserts({1: SLOW}), inserts({1: FAST})]).rows == []
