"""What `compare` prints."""

from __future__ import annotations

from cli.results.comparison import compare
from cli.show.comparison import describe_comparison, tabulate_ratios

from ..made import inserts, queries
from ..results.test_comparison import FAST, SLOW


def test_the_ratio_table() -> None:
    found = compare([inserts({4: SLOW}), inserts({4: FAST}), inserts({4: [50.0]})])
    rows = [list(map(str, row)) for row in tabulate_ratios(["a", "b", "c"], found).rows]
    assert rows[0][:5] == ["4 workers", "a", "100", "3", "1"]
    assert rows[1][1:5] == ["b", "111", "3", "1.110"]
    assert rows[1][6] == "faster"
    assert rows[2][1:] == ["c", "50", "1", "0.500", "-", "not known: needs 2 runs", "3"]


def test_the_table_over_several_targets_is_as_published() -> None:
    results = [
        inserts({1: SLOW, 4: FAST}),
        inserts({1: [7.0]}, "beta", {"insert_mode": None, "batch": 0}, environment={}),
    ]
    lines = describe_comparison(["alpha", "beta"], results, markdown=True).splitlines()
    heads, _, first, second = (
        [c.strip() for c in line.strip("|").split("|")] for line in lines[:4]
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
    assert "Events/money" in text
    assert text.splitlines()[1].split()[-1] == "720,000"
    assert text.splitlines()[2].split()[-1] == "-"


def test_queries_have_a_column_each() -> None:
    results = [
        queries({"count": [0.5, 0.7], "newest": [None]}, cold=None),
        queries({"newest": [2.0]}, "beta", environment={}),
    ]
    text = describe_comparison(["alpha", "beta"], results, markdown=False)
    lines = text.splitlines()
    assert lines[0].split("  ")[0] == "Database / Query"
    assert lines[1].split()[-2:] == ["0.7", "failure"]
    assert lines[2].split()[-2:] == ["-", "2"]
    assert lines[3] == "Mean duration in seconds."


def test_what_can_not_be_used_is_said() -> None:
    base, other = inserts({1: SLOW, 4: SLOW}), inserts({1: FAST})
    base.insert_runs[0].valid = False
    text = describe_comparison(["a", "b"], [base, other], markdown=False)
    assert "not compared at 4 workers: b has no valid figure there" in text
    assert "warning: a: 1 of 6 runs is invalid and left out" in text
