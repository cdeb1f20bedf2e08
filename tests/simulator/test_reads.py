"""One run's figures from what its readers measured by the clock."""

from __future__ import annotations

from typing import Any

import pytest

from simulator.collector.reads import merge_reads
from simulator.contract import Load, ReadRun, Role, WorkerOffer, WorkerQuery, WorkerReads

from ..helpers import histogram_of


def asked(**changes: Any) -> WorkerReads:
    """A reader that asked one query four times in a window of ten seconds."""
    values: dict[str, Any] = {
        "start_s": 0.0, "end_s": 10.0, "measured": 4, "cpu_s": 0.1, "histogram": histogram_of(1, 2, 3, 4),
        "queries": [query()], "timeline": [(0, 2), (9, 2)],
    }  # fmt: skip
    return WorkerReads.model_validate(values | changes)


def query(**changes: Any) -> WorkerQuery:
    """What a reader measured of one query."""
    values: dict[str, Any] = {
        "query": "count", "executions": 4, "rows_min": 1, "rows_max": 1, "cold_s": 0.4, "warm_s": 0.6,
        "warm": 3, "histogram": histogram_of(1, 2, 3, 4),
    }  # fmt: skip
    return WorkerQuery.model_validate(values | changes)


def merged(*readers: WorkerReads, load: Load | None = None, grow: bool = False) -> ReadRun:
    """The run of these readers."""
    load = load or Load(role=Role.READ, workers=len(readers), duration_s=10)
    return merge_reads(dict(enumerate(readers)), {}, load, 7, grow)


def test_the_rate_is_what_was_answered_within_the_window() -> None:
    run = merged(asked(), asked(measured=2))
    assert run.queries_per_s == pytest.approx(0.6)
    assert (run.valid, run.window_s, run.overlap, run.fill_level) == (True, 10.0, 1.0, 7)
    [figures] = run.queries
    assert (figures.executions, figures.cold_s) == (8, 0.4)
    assert figures.warm_s == pytest.approx([0.2, 0.2])
    assert run.timeline == [(0, 4), (9, 4)]
    assert run.offered is None


def test_a_query_that_failed_makes_the_run_invalid_and_is_named() -> None:
    failed = query(errors=2, error="no such column")
    run = merged(asked(queries=[failed]), asked())
    assert run.invalid_reasons == ["query count failed 2 times: no such column"]
    assert run.queries[0].errors == 2


def test_what_failed_for_the_same_reason_is_told_once() -> None:
    failed = [
        query(errors=2, error="gone"),
        query(query="other", errors=1, error="no such column"),
        query(query="last", errors=1, error="gone"),
    ]
    assert merged(asked(queries=failed)).invalid_reasons == [
        "queries count (2 times), last (once) failed: gone",
        "query other failed once: no such column",
    ]


@pytest.mark.parametrize("grow", [True, False])
def test_answers_may_grow_only_while_data_are_written(grow: bool) -> None:
    run = merged(asked(queries=[query(rows_max=5)]), grow=grow)
    assert run.valid is grow
    assert (run.queries[0].rows_min, run.queries[0].rows_max) == (1, 5)


def test_answers_to_drawn_queries_may_differ_in_length() -> None:
    reads = asked(queries=[query(rows_max=5), query(query="drawn", rows_max=5)])
    load = Load(role=Role.READ, duration_s=10)
    run = merge_reads({0: reads}, {}, load, 7, False, ["drawn"])
    assert run.invalid_reasons == ["query count gave 1 to 5 rows: the data changed meanwhile"]


def test_nothing_answered_is_no_rate() -> None:
    run = merged(asked(measured=0, timeline=[(12, 1)]))
    assert run.queries_per_s is None
    [reason] = run.invalid_reasons
    assert reason.startswith("nothing was measured: no answer came within the window of 10 s")


def test_readers_that_fall_behind_their_rate_are_saturated_not_invalid() -> None:
    offer = WorkerOffer(
        due=100, unsent=90, due_timeline=[(second, 10) for second in range(10)],
        own_delay=histogram_of(1),
    )  # fmt: skip
    load = Load(role=Role.READ, workers=1, rate_per_s=10, duration_s=10)
    run = merged(asked(offer=offer, service=histogram_of(1, 2, 3, 4)), load=load)
    assert run.valid
    assert run.offered is not None
    assert (run.offered.due, run.offered.achieved, run.offered.unsent) == (100, 4, 90)
    assert run.offered.saturated
    assert "queries" in str(run.offered.reason)


def test_a_reader_without_cpu_to_spare_is_the_bottleneck() -> None:
    run = merged(asked(cpu_s=9.0), asked())
    assert run.client is not None
    assert run.client.bound
    assert run.client.bound_reason == "a reader's CPU was busy 90% of the time"
