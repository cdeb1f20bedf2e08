"""Stored results as one table."""

from __future__ import annotations

from cli.results.export import list_rows
from cli.results.figures import FIGURES
from cli.results.observations import observe

from ..made import asked_by_the_clock, inserts, queries, stored


def test_each_run_of_a_group_is_a_row() -> None:
    rows = list(observe(inserts({1: [10.0, 11.0], 2: [20.0]}), "pg"))
    assert [(row.candidate, row.group, row.workers, row.run) for row in rows] == [
        ("pg", "writers", 1, 1), ("pg", "writers", 1, 2), ("pg", "writers", 2, 1),
    ]  # fmt: skip
    assert [row.figures["inserts_per_s"] for row in rows] == [10.0, 11.0, 20.0]
    # What isn't known is left out.
    assert "due" not in rows[0].figures


def test_readers_have_a_row_for_all_queries_and_one_for_each() -> None:
    rows = [row for row in observe(asked_by_the_clock()) if row.group == "readers"]
    assert [row.query for row in rows if row.run == 1] == [None, "fast", "slow"]
    asked = list(observe(queries({"a": [0.5, 0.7, None]})))
    executions = [row for row in asked if row.run and row.part]
    assert [(row.query, row.part) for row in executions] == [("a", 1), ("a", 2), ("a", 3), ("a", 4)]
    # Over all runs: what stands for independent measurements.
    samples = [row.figures["query_mean_s"] for row in asked if row.run is None]
    assert samples == [0.5, 0.7]


def test_only_the_figures_that_are_asked_for_are_read() -> None:
    rows = list(observe(asked_by_the_clock(), figures=[FIGURES["latency_p99_ms"]]))
    assert {key for row in rows if row.run for key in row.figures} == {"latency_p99_ms"}


def test_an_export_has_the_figures_of_its_rows() -> None:
    result = inserts({1: [10.0, 11.0]})
    exported = list_rows(stored(result))
    for row, observation in zip(exported, observe(result), strict=True):
        assert observation.figures.items() <= row.items()
