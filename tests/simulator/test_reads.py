"""One run's figures from what its readers measured, by the clock and by number."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Any

import pytest

from simulator.collector.merge import merge_group
from simulator.contract import (
    Execution,
    GroupResult,
    Load,
    Offered,
    QueryResult,
    Role,
    WorkerFigures,
)

from ..helpers import histogram_of


def asked(**changes: Any) -> WorkerFigures:
    """A reader that asked one query four times in a window of ten seconds."""
    values: dict[str, Any] = {
        "start_s": 0.0, "end_s": 10.0, "count": 4, "measured": 4, "cpu_s": 0.1,
        "histogram": histogram_of(1, 2, 3, 4), "queries": [query()], "timeline": [(0, 2), (9, 2)],
    }  # fmt: skip
    return WorkerFigures.model_validate(values | changes)


def query(**changes: Any) -> QueryResult:
    """What a reader measured of one query."""
    values: dict[str, Any] = {
        "query": "count", "executions": 4, "rows": 4, "bytes": 40, "rows_min": 1, "rows_max": 1,
        "cold_s": 0.4, "warm_s": [0.2], "histogram": histogram_of(1, 2, 3, 4),
    }  # fmt: skip
    return QueryResult.model_validate(values | changes)


def merged(
    *readers: WorkerFigures,
    load: Load | None = None,
    varying: Collection[str] | None = (),
    late_s: Mapping[int, float] = MappingProxyType({}),
) -> GroupResult:
    """The result of these readers, whose run is ended by the clock."""
    load = load or Load(role=Role.READ, workers=len(readers), duration_s=10)
    nodes = dict.fromkeys(range(len(readers)), "n")
    return merge_group(load, dict(enumerate(readers)), nodes, late_s, varying=varying)


def test_the_rate_is_what_was_answered_within_the_window() -> None:
    run = merged(asked(), asked(measured=2))
    assert run.rate_per_s == pytest.approx(0.6)
    assert (run.valid, run.window_s, run.overlap, run.count) == (True, 10.0, 1.0, 8)
    [figures] = run.queries
    assert (figures.executions, figures.rows, figures.bytes, figures.cold_s) == (8, 8, 80, 0.4)
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
    run = merged(asked(queries=[query(rows_max=5)]), varying=None if grow else ())
    assert run.valid is grow
    assert (run.queries[0].rows_min, run.queries[0].rows_max) == (1, 5)


def test_answers_to_drawn_queries_may_differ_in_length() -> None:
    reads = asked(queries=[query(rows_max=5), query(query="drawn", rows_max=5)])
    run = merged(reads, varying=["drawn"])
    assert run.invalid_reasons == [
        "query count returned 1 to 5 rows: the data changed during the run"
    ]


def test_nothing_answered_is_no_rate() -> None:
    run = merged(asked(measured=0, timeline=[(12, 1)]))
    assert run.rate_per_s is None
    [reason] = run.invalid_reasons
    assert reason.startswith("nothing was measured: no answer came within the window of 10 s")


def test_readers_that_fall_behind_their_rate_are_saturated_not_invalid() -> None:
    offer = Offered(
        due=100, unsent=90, due_timeline=[(second, 10) for second in range(10)],
        own_delay=histogram_of(1),
    )  # fmt: skip
    load = Load(role=Role.READ, workers=1, rate_per_s=10, duration_s=10)
    run = merged(asked(offered=offer, service_histogram=histogram_of(1, 2, 3, 4)), load=load)
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


def test_bytes_of_answers_are_not_known_if_a_reader_cannot_tell() -> None:
    """One that got no answer has nothing to tell."""
    assert merged(asked(queries=[query(bytes=0)]), asked()).queries[0].bytes is None
    idle = asked(queries=[query(executions=0, rows=0, bytes=0)])
    assert merged(idle, asked()).queries[0].bytes == 40


def bind(*readers: WorkerFigures, load: Load | None = None) -> str | None:
    """The sign by which these readers were the limit."""
    run = merged(*readers, load=load)
    assert run.client is not None
    assert run.client.bound is (run.client.bound_reason is not None)
    return run.client.bound_reason


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"cpu_s": 8.0}, "a reader's CPU was busy 80% of the time"),
        ({"cpu_s": 7.9, "in_flight": 2}, None),
        (
            {"cpu_s": 5.0},
            "a reader's CPU was busy 50% of the time, while the database waited for its next request",
        ),
        ({"cpu_s": 4.9}, None),
        ({"throttled_share": 0.1}, "a reader was throttled by its CPU limit in 10% of the periods"),
        ({"throttled_share": 0.09}, None),
        (
            {"pause_s": 5.0},
            "between an answer and the next query the database waited 50% of the time",
        ),
        ({"pause_s": 4.9}, None),
        (
            {"pause_s": 10.0, "in_flight": 2},
            "in-flight capacity was idle between an answer and the next query 50% of the time",
        ),
        ({"pause_s": 9.9, "in_flight": 2}, None),
    ],
)
def test_the_signs_of_a_reader_at_its_limit(changes: dict[str, Any], reason: str | None) -> None:
    """By the clock and by number alike."""
    assert bind(asked(**changes)) == reason
    assert bind(asked(**changes), load=BY_NUMBER) == reason


def test_pauses_are_a_share_of_the_time_of_all_places() -> None:
    """Each reader's own time, of which one that is done earlier has less."""
    run = merged(asked(pause_s=1.0), asked(end_s=6.0, pause_s=3.0, in_flight=5), load=BY_NUMBER)
    assert run.client is not None
    assert run.client.pause_share == pytest.approx(4.0 / (10.0 + 5 * 6.0))
    most = merged(asked(pause_s=10.01)).client
    assert most is not None
    assert most.pause_share == 1.0


def test_an_open_loop_waits_by_its_schedule() -> None:
    offer = Offered(due=4, unsent=0, due_timeline=[(0, 2), (9, 2)], own_delay=histogram_of(1))
    load = Load(role=Role.READ, workers=1, rate_per_s=0.4, duration_s=10)
    reader = asked(
        offered=offer, service_histogram=histogram_of(1, 2, 3, 4), cpu_s=6.0, pause_s=9.0
    )
    assert bind(reader, load=load) is None
    client = merged(reader, load=load).client
    assert client is not None
    assert client.pause_share is None


def test_a_reader_that_was_late_by_itself_is_the_limit() -> None:
    offer = Offered(
        due=100, unsent=0, due_timeline=[(0, 100)], own_delay=histogram_of(*[20_000] * 100)
    )
    load = Load(role=Role.READ, workers=1, rate_per_s=10, duration_s=10)
    reader = asked(
        offered=offer, count=100, measured=100, timeline=[(0, 100)],
        histogram=histogram_of(*[21_000] * 100), service_histogram=histogram_of(*[1_000] * 100),
    )  # fmt: skip
    assert str(bind(reader, load=load)).startswith(
        "the load generator was late: it sent requests up to 20 ms"
    )


def test_readers_at_work_for_a_moment_are_not_judged() -> None:
    """What it took to ask for the first time is most of that; the figures are there all the same."""
    moment = {"end_s": 0.9, "cpu_s": 0.8, "pause_s": 0.8}
    assert bind(asked(**moment), load=BY_NUMBER) is None
    client = merged(asked(**moment), load=BY_NUMBER).client
    assert client is not None
    assert (client.cpu_share, client.pause_share) == pytest.approx((0.8 / 0.9, 0.8 / 0.9))
    assert bind(asked(**moment | {"end_s": 1.0}), load=BY_NUMBER) is not None


# --- each query so often --------------------------------------------------------------------------

BY_NUMBER = Load(role=Role.READ, runs=2)


def answered(
    worker: int, *runs: tuple[str, int | None, str | None], end_s: float = 1.0
) -> WorkerFigures:
    """What a worker asked: (name, rows, error)."""
    by_query: dict[str, list[Execution]] = {}
    for name, rows, error in runs:
        executions = by_query.setdefault(name, [])
        duration_s = None if error else 0.1
        executions.append(
            Execution(
                run=len(executions) + 1,
                worker=worker,
                rows=rows,
                error=error,
                duration_s=duration_s,
            )
        )
    queries = []
    for name, executions in by_query.items():
        lengths = [execution.rows for execution in executions if execution.rows is not None]
        errors = [execution.error for execution in executions if execution.error]
        queries.append(
            query(
                query=name, executions=len(lengths), errors=len(errors), error=next(iter(errors), None),
                rows=sum(lengths), rows_min=min(lengths, default=None), rows_max=max(lengths, default=None),
                each=executions,
            )
        )  # fmt: skip
    count = sum(result.executions for result in queries)
    return asked(end_s=end_s, count=count, measured=count, cpu_s=end_s, queries=queries)


def test_all_executions_are_kept_in_order() -> None:
    run = merged(
        answered(0, ("a", 5, None), ("b", 1, None), ("a", 5, None)),
        answered(1, ("a", 5, None)),
        load=BY_NUMBER,
    )
    a, b = run.queries
    assert [(execution.worker, execution.run) for execution in a.each] == [(0, 1), (0, 2), (1, 1)]
    assert [(execution.worker, execution.run) for execution in b.each] == [(0, 1)]
    assert (run.valid, run.count, a.rows) == (True, 4, 15)


def test_a_query_that_failed_invalidates() -> None:
    run = merged(
        answered(0, ("a", 5, None), ("b", None, "out of memory")),
        answered(1, ("b", 3, None)),
        load=BY_NUMBER,
    )
    assert [len(result.each) for result in run.queries] == [1, 2]
    assert run.invalid_reasons == ["query b failed: out of memory"]


def test_answers_of_different_length_invalidate() -> None:
    run = merged(answered(0, ("a", 5, None), ("b", 1, None), ("a", 7, None)), load=BY_NUMBER)
    assert run.invalid_reasons == ["query a returned 5 to 7 rows: the data changed during the run"]


def test_but_not_if_each_execution_asks_for_something_else() -> None:
    reads = answered(0, ("a", 5, None), ("b", 1, None), ("a", 7, None), ("b", 2, None))
    run = merged(reads, load=BY_NUMBER, varying=["a"])
    assert run.invalid_reasons == ["query b returned 1 to 2 rows: the data changed during the run"]


def test_how_long_readers_asked_at_the_same_time() -> None:
    reads = answered(0, ("a", 5, None)), answered(1, ("a", 5, None), end_s=0.7)
    assert merged(*reads, load=BY_NUMBER).overlap == pytest.approx(0.7)
    late = merged(*reads, load=BY_NUMBER, late_s={1: 0.2})
    assert late.overlap == pytest.approx(0.7)
    assert late.valid
    assert merged(reads[0], load=BY_NUMBER).overlap is None


def test_queries_per_second_are_those_answered_from_the_first_start_to_the_last_end() -> None:
    reads = (
        answered(0, ("a", 5, None), ("b", None, "out of memory")),
        answered(1, ("a", 5, None), end_s=0.7),
    )
    assert merged(*reads, load=BY_NUMBER).rate_per_s == pytest.approx(2 / 1.0)
    assert merged(*reads, load=BY_NUMBER, late_s={1: 0.9}).rate_per_s == pytest.approx(2 / 1.6)


def test_who_was_late_makes_a_run_of_some_length_invalid() -> None:
    """In a shorter one nobody can tell."""
    reads = answered(0, ("a", 5, None)), answered(1, ("a", 5, None), end_s=0.7)
    late = merged(*reads, load=BY_NUMBER, late_s={1: 0.5})
    assert late.invalid_reasons == ["worker 1 started up to 0.50 s late"]
    assert late.overlap == pytest.approx(0.5 / 1.2)
    short = answered(0, ("a", 5, None), end_s=0.4), answered(1, ("a", 5, None), end_s=0.4)
    assert merged(*short, load=BY_NUMBER, late_s={1: 0.5}).valid


def test_without_an_answer_there_is_no_rate() -> None:
    assert merged(answered(0, ("b", None, "x")), load=BY_NUMBER).rate_per_s is None


def test_of_a_moment_nobody_can_say_who_asked_together() -> None:
    reads = (
        answered(0, ("a", 5, None), end_s=0.01),
        answered(1, ("a", 5, None), end_s=0.2),
    )
    assert merged(*reads, load=BY_NUMBER, late_s={0: 0.03}).overlap is None
