"""Comparisons: which figures, which ratio, which conditions differ."""

from __future__ import annotations

from typing import Any

import pytest

from cli.errors import ConfigError
from cli.results.comparison import (
    Compared,
    category_of,
    check_comparable,
    compared,
    differences,
    differing_options,
    failures,
    labels,
    missing,
    samples,
)
from cli.results.model import Result
from cli.results.statistics import common_cv, ratio, runs_needed
from cli.show.comparison import comparison_text, difference_notes, ratio_table
from simulator.contract import QueryRun

from .made import ENVIRONMENT, inserts, queries, steps, stored

SLOW = [100.0, 101.0, 99.0]
FAST = [110.0, 112.0, 111.0]


def one(results: list[Result]) -> Compared:
    (only,) = compared(results)
    return only


# --- figures --------------------------------------------------------------------------------------


def test_inserts_are_compared_by_worker_count() -> None:
    base, other = inserts({1: SLOW, 4: [300.0, 310.0]}), inserts({4: [200.0, 190.0], 1: FAST})
    first, second = compared([base, other])
    assert (first.key, second.key) == (("workers", 1), ("workers", 4))
    assert first.speed == ratio(FAST, SLOW)
    assert first.verdict == "faster"
    assert (first.base_figure, first.figure) == (100.0, 111.0)
    assert first.runs_for_five_percent == runs_needed(common_cv(SLOW, FAST) or 0, 0.05)
    assert second.verdict == "slower"


def test_only_valid_runs_count() -> None:
    base, other = inserts({1: SLOW}), inserts({1: [*FAST, 5.0]})
    other.insert_runs[-1].valid = False
    assert samples(other) == {("workers", 1): FAST}
    assert one([base, other]).speed == ratio(FAST, SLOW)


def test_a_shorter_query_time_is_a_higher_speed() -> None:
    base, other = queries({"count": [2.0, 2.1, 1.9]}), queries({"count": [1.0, 1.05, 0.95]})
    found = one([base, other])
    assert found.speed.value == pytest.approx(2.0)
    assert found.verdict == "faster"
    assert [found.base_figure, found.figure] == pytest.approx([2.0, 1.0])


def test_workers_that_ask_together_count_once_a_run() -> None:
    """Their times are not independent: taken singly they would make the interval too small."""
    runs = [
        QueryRun(query="q", run=run, worker=worker, duration_s=1.0 + run + worker / 10, rows=1)
        for run in (1, 2)
        for worker in range(10)
    ]
    result = queries({}, runs=runs)
    assert samples(result) == {("q", 0): [pytest.approx(2.45), pytest.approx(3.45)]}


def test_a_difference_that_is_not_shown() -> None:
    found = one([inserts({1: [100.0, 130.0]}), inserts({1: [110.0, 140.0]})])
    assert found.verdict == "no difference shown"
    assert found.runs_for_five_percent is not None
    assert found.runs_for_five_percent > 50


def test_single_runs_can_not_tell() -> None:
    found = one([inserts({1: [100.0]}), inserts({1: [200.0]})])
    assert found.verdict == "not known: needs 2 runs"
    assert found.speed.ci95 is None
    assert found.runs_for_five_percent is None


def test_fill_levels_are_compared_by_level() -> None:
    found = compared([steps({0: 100.0, 50: 90.0}), steps({0: 50.0, 50: 30.0, 100: 20.0})])
    assert [(x.key, round(x.speed.value, 3)) for x in found] == [
        (("level", 0), 0.5),
        (("level", 50), 0.333),
    ]


def test_what_one_has_and_another_lacks() -> None:
    assert missing([inserts({1: SLOW, 2: SLOW}), inserts({2: SLOW, 4: SLOW})]) == [
        (("workers", 1), 1),
        (("workers", 4), 0),
    ]


@pytest.mark.parametrize(
    ("results", "reason"),
    [
        ([inserts({1: SLOW})], "two results or more"),
        ([inserts({1: SLOW}), queries({"q": [1.0]})], "inserts and queries can't be compared"),
        ([inserts({1: SLOW}), steps({0: 1.0})], "inserts and fill levels can't be compared"),
    ],
)
def test_what_can_not_be_compared(results: list[Result], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        check_comparable([stored(result) for result in results])


# --- against a limit ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("other", "limit", "fails"),
    [
        ({1: FAST}, 0.95, False),
        ({1: [90.0, 91.0, 89.0]}, 0.95, True),
        ({1: [90.0, 91.0, 89.0]}, 0.85, False),
        # Below by chance, as the interval says.
        ({1: [60.0, 90.0, 120.0]}, 0.95, False),
        # Single runs have no interval that could excuse them.
        ({1: [50.0]}, 0.95, True),
        # What is not there is not as fast.
        ({2: FAST}, 0.95, True),
        # One worker count of several is enough.
        ({1: FAST, 4: [50.0, 51.0, 52.0]}, 0.95, True),
    ],
)
def test_fail_below(other: dict[int, list[float]], limit: float, fails: bool) -> None:
    base = inserts({1: SLOW, 4: SLOW})
    failed = failures(["a", "b"], [base, inserts(other)], limit)
    assert bool(failed) is fails, failed


def test_fail_below_names_what_is_slow() -> None:
    assert failures(["a", "b"], [inserts({4: SLOW}), inserts({4: [50.0, 50.5, 49.5]})], 0.95) == [
        "b at 4 workers: 0.500"
    ]


# --- conditions -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("setting", "category"),
    [
        ("acks", "durability"),
        ("fsync", "durability"),
        ("synchronous_commit", "durability"),
        ("commitlog_sync", "durability"),
        ("index.translog.durability", "durability"),
        ("index.refresh_interval", "durability"),
        ("consistency_level", "durability"),
        ("wal-fsync-delay", "durability"),
        ("synchronous_standby_names", "replication"),
        ("replication_factor", "replication"),
        ("number_of_replicas", "replication"),
        ("shard_count", "replication"),
        ("batch", "batch"),
        ("insert_mode", "batch"),
        ("use_values_lists", "batch"),
        ("primary_key_constraint", "keys"),
        ("tables", "keys"),
        ("max_sync_calls", "client"),
        ("max_in_flight", "client"),
        ("device_spread", "client"),
        ("backend", "otherwise"),
        ("shared_buffers", "otherwise"),
        ("num_inserts", "otherwise"),
    ],
)
def test_settings_are_sorted_by_their_names(setting: str, category: str) -> None:
    assert category_of(setting, "otherwise") == category


def environment(**changes: Any) -> dict[str, Any]:
    """The usual one with parts of it replaced: `client={"cpus": 4}`."""
    return {part: (ENVIRONMENT[part] or {}) | changes.get(part, {}) or None for part in ENVIRONMENT}


@pytest.mark.parametrize(
    ("changes", "category", "name"),
    [
        ({"environment": environment(database={"settings": {"fsync": "off"}})}, "durability", "fsync"),
        ({"options": {"module": {"replication_factor": 3}}}, "replication", "replication_factor"),
        ({"options": {"batch": 1000}}, "batch", "batch"),
        ({"options": {"insert_mode": "values_lists"}}, "batch", "insert_mode"),
        ({"options": {"primary_key": "none"}}, "keys", "primary_key"),
        ({"executor": "kubernetes"}, "client", "executor"),
        ({"environment": environment(client={"python": "3.11.0"})}, "client", "Python"),
        ({"environment": environment(tool={"commit": "other"})}, "client", "tool commit"),
        ({"environment": environment(client={"cpu_model": "Fast CPU"})}, "hardware", "cpu_model"),
        (
            {"environment": environment(
                kubernetes={"nodes": {"n": {"instance_type": "m5.large"}}}
            )},
            "hardware",
            "nodes: instance_type",
        ),
        ({"options": {"num_inserts": 7}}, "workload", "num_inserts"),
        ({"environment": environment(database={"version": "17"})}, "database", "version"),
    ],
)  # fmt: skip
def test_each_condition_that_differs_is_named(
    changes: dict[str, Any], category: str, name: str
) -> None:
    base, other = inserts({1: SLOW}), inserts({1: FAST}, **changes)
    assert (category, name) in [(one.category, one.name) for one in differences([base, other])]
    lines = difference_notes(["a", "b"], differences([base, other]))
    word = "note" if category in ("workload", "database") else "warning"
    assert any(line.startswith(f"{word}: {category} differ") and name in line for line in lines)


def test_the_same_conditions_need_no_word() -> None:
    base, other = inserts({1: SLOW}), inserts({1: FAST, 4: FAST}, "beta")
    assert differences([base, other]) == []
    assert difference_notes(["a", "b"], []) == []


def test_query_times_on_different_data_are_warned_of() -> None:
    results = [queries({"q": [1.0, 1.1]}, fill_level=level) for level in (500, 700)]
    [warning, _] = difference_notes(["a", "b"], differences(results))
    assert warning == "warning: data differs: fill level: 500 / 700"
    same = [queries({"q": [1.0, 1.1]}, fill_level=500) for _ in range(2)]
    assert differences(same) == []


def test_where_a_database_is_makes_no_difference() -> None:
    results = [
        inserts({1: SLOW}, options={"module": {"connection_string": host, "endpoint": host}})
        for host in ("one", "other")
    ]
    assert differences(results) == []


def test_a_warning_shows_all_values() -> None:
    results = [inserts({1: SLOW}, options={"batch": size}) for size in (10, 100, None)]
    (warning, order) = difference_notes(["a", "b", "c"], differences(results))
    assert warning == "warning: batch differs: batch: 10 / 100 / -"
    assert order == "(in the order a / b / c; -: not set or not known)"


# --- names ----------------------------------------------------------------------------------------


def test_targets_are_names_enough() -> None:
    results = [inserts({1: SLOW}, name) for name in ("alpha", "beta")]
    assert labels([stored(result) for result in results]) == ["alpha", "beta"]


def test_results_of_one_target_are_told_apart_by_their_options() -> None:
    results = [inserts({1: SLOW}, options={"batch": size}) for size in (10, 1000)]
    assert labels([stored(result) for result in results]) == ["alpha batch=10", "alpha batch=1000"]


def test_a_name_holds_a_few_options_only() -> None:
    results = [
        inserts({1: SLOW}, options=dict.fromkeys(("batch", "prefill", "seed", "clean"), value),
                started_at=f"2025-01-02T03:04:0{value}+00:00")
        for value in (1, 2)
    ]  # fmt: skip
    assert labels([stored(result) for result in results]) == [
        "alpha 2025-01-02 03:04:01",
        "alpha 2025-01-02 03:04:02",
    ]


def test_results_of_one_target_and_options_are_told_apart_by_time() -> None:
    results = [inserts({1: SLOW}, started_at=f"2025-01-02T03:04:0{n}+00:00") for n in (5, 6)]
    assert labels([stored(result) for result in results]) == [
        "alpha 2025-01-02 03:04:05",
        "alpha 2025-01-02 03:04:06",
    ]


def test_names_are_distinct_whatever_happens() -> None:
    results = [inserts({1: SLOW}), inserts({1: SLOW}), steps({0: 1.0}), queries({"q": [1.0]})]
    found = labels([stored(result) for result in results])
    assert len(set(found)) == 4
    assert found[2:] == ["alpha, fill levels", "alpha, queries"]


def test_options_that_differ_among_results_of_one_command() -> None:
    results = [
        inserts({1: SLOW}, options={"batch": 10, "module": {"copy_format": "text"}}),
        queries({"q": [1.0]}),
        inserts({1: SLOW}, options={"batch": 20}),
    ]
    assert differing_options(results) == [
        {"batch": 10, "copy_format": "text"},
        {},
        {"batch": 20, "copy_format": "binary"},
    ]


# --- what is printed ------------------------------------------------------------------------------


def test_the_ratio_table() -> None:
    found = compared([inserts({4: SLOW}), inserts({4: FAST}), inserts({4: [50.0]})])
    rows = [list(map(str, row)) for row in ratio_table(["a", "b", "c"], "insert", found).rows]
    assert rows[0][:5] == ["4 workers", "a", "100", "3", "1"]
    assert rows[1][1:5] == ["b", "111", "3", "1.110"]
    assert rows[1][6] == "faster"
    assert rows[2][1:] == ["c", "50", "1", "0.500", "-", "not known: needs 2 runs", "3"]


def test_the_table_over_several_targets_is_as_published() -> None:
    results = [
        inserts({1: SLOW, 4: FAST}),
        inserts({1: [7.0]}, "beta", {"insert_mode": None, "batch": 0}, environment={}),
    ]
    lines = comparison_text(["alpha", "beta"], results, markdown=True).splitlines()
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
    text = comparison_text(["alpha", "beta"], results, markdown=False)
    assert "Events/money" in text
    assert text.splitlines()[1].split()[-1] == "7.2e+05"
    assert text.splitlines()[2].split()[-1] == "-"


def test_queries_have_a_column_each() -> None:
    results = [
        queries({"count": [0.5, 0.7], "newest": [None]}),
        queries({"newest": [2.0]}, "beta", environment={}),
    ]
    text = comparison_text(["alpha", "beta"], results, markdown=False)
    lines = text.splitlines()
    assert lines[0].split("  ")[0] == "Database / Query"
    assert lines[1].split()[-2:] == ["0.6", "failure"]
    assert lines[2].split()[-2:] == ["-", "2"]
    assert lines[3] == "Mean duration in seconds."


def test_what_can_not_be_used_is_said() -> None:
    base, other = inserts({1: SLOW, 4: SLOW}), inserts({1: FAST})
    base.insert_runs[0].valid = False
    text = comparison_text(["a", "b"], [base, other], markdown=False)
    assert "not compared at 4 workers: b has no valid figure there" in text
    assert "warning: a: 1 of 6 runs are invalid and left out" in text
