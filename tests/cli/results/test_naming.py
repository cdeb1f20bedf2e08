"""Names of results beside each other."""

from __future__ import annotations

from cli.results.naming import (
    find_changed_options,
    find_differing_options,
    format_options,
    name_results,
)

from ..made import inserts, queries, steps, stored

SLOW = [100.0, 101.0, 99.0]


def test_targets_are_names_enough() -> None:
    results = [inserts({1: SLOW}, name) for name in ("alpha", "beta")]
    assert name_results([stored(result) for result in results]) == ["alpha", "beta"]


def test_results_of_one_target_are_told_apart_by_their_options() -> None:
    results = [inserts({1: SLOW}, options={"batch": size}) for size in (10, 1000)]
    assert name_results([stored(result) for result in results]) == [
        "alpha batch=10",
        "alpha batch=1000",
    ]


def test_a_name_holds_a_few_options_only() -> None:
    results = [
        inserts({1: SLOW}, options=dict.fromkeys(("batch", "prefill", "seed", "num_inserts"), value),
                started_at=f"2025-01-02T03:04:0{value}+00:00")
        for value in (1, 2)
    ]  # fmt: skip
    assert name_results([stored(result) for result in results]) == [
        "alpha 2025-01-02 03:04:01",
        "alpha 2025-01-02 03:04:02",
    ]


def test_results_of_one_target_and_options_are_told_apart_by_time() -> None:
    results = [inserts({1: SLOW}, started_at=f"2025-01-02T03:04:0{n}+00:00") for n in (5, 6)]
    assert name_results([stored(result) for result in results]) == [
        "alpha 2025-01-02 03:04:05",
        "alpha 2025-01-02 03:04:06",
    ]


def test_names_are_distinct_whatever_happens() -> None:
    results = [inserts({1: SLOW}), inserts({1: SLOW}), steps({0: 1.0}), queries({"q": [1.0]})]
    names = name_results([stored(result) for result in results])
    assert len(set(names)) == 4
    assert names[2:] == ["alpha, fill levels", "alpha, queries"]


def test_options_that_differ_among_results_of_one_command() -> None:
    results = [
        inserts({1: SLOW}, options={"batch": 10, "module": {"copy_format": "text"}}),
        queries({"q": [1.0]}),
        inserts({1: SLOW}, options={"batch": 20}),
    ]
    assert find_differing_options(results) == [
        {"batch": 10, "copy_format": "text"},
        {},
        {"batch": 20, "copy_format": "binary"},
    ]


def test_what_changes_no_figure_tells_no_results_apart() -> None:
    results = [
        inserts({1: SLOW}, options={"timeout_s": wait, "runs": 3 + wait,
                                    "module": {"database_timeout_s": wait}})
        for wait in (1, 2)
    ]  # fmt: skip
    assert find_differing_options(results) == [{"runs": 4}, {"runs": 5}]


def test_a_label_is_the_name_unless_two_have_it() -> None:
    labels = ("before", "after", "after")
    results = [inserts({1: SLOW}, f"t{n}", label=label) for n, label in enumerate(labels)]
    assert name_results([stored(result) for result in results]) == ["before", "t1", "t2"]


def test_options_that_are_no_defaults() -> None:
    module = {"copy_format": "text", "connection_string": "secret", "prepared_statements": True}
    result = inserts({1: SLOW}, options={"batch": 20, "seed": 0, "module": module})
    assert find_changed_options(result) == {
        "num_inserts": 1000, "batch": 20, "copy_format": "text",
    }  # fmt: skip
    # Of a module that isn't installed here nothing is known.
    uninstalled = inserts({1: SLOW}, options={"batch": 20, "module": module}, module="gone")
    assert find_changed_options(uninstalled) == {"num_inserts": 1000, "batch": 20}


def test_settings_are_written_as_on_a_command_line() -> None:
    options = {
        "queries": {"newest-per-device": 3.0, "temperature-stats": 0.5},
        "batch": 1000, "clean": True, "rate_per_s": None, "workers": [1, 4],
    }  # fmt: skip
    assert format_options(options) == (
        "queries=newest-per-device=3,temperature-stats=0.5 batch=1000 clean=true rate_per_s=- workers=1,4"
    )
