"""One run's figures and its verdict from what the workers measured."""

from __future__ import annotations

from typing import Any

import pytest

from simulator.collector.merge import merge_group, queryable
from simulator.collector.verdicts import measure_client
from simulator.contract import (
    Client,
    GroupResult,
    Load,
    Offered,
    Queryable,
    Verification,
    WorkerFigures,
)

from ..helpers import histogram_of, worker_figures


def merged(*changes: dict[str, Any], stored: int | None = None, **given: Any) -> GroupResult:
    """Writers that differ from `worker_figures` by `changes`, 100 events each; `stored`: what was counted, if
    it isn't all."""
    measured = {number: worker_figures(**change) for number, change in enumerate(changes)}
    expected = sum(part.count for part in measured.values())
    stored = expected if stored is None else stored
    values: dict[str, Any] = {
        "figures": measured,
        "nodes": {number: f"node-{number}" for number in measured},
        "clock_offsets_s": {},
        "load": Load(workers=len(measured), events=100),
        "verification": Verification(expected=expected, stored=stored, ok=stored == expected),
    }
    return merge_group(**(values | given))


def cost_in_closed_loop(parts: list[WorkerFigures]) -> Client:
    """The client's cost with writers in a closed loop."""
    return measure_client(parts, Load())


def test_throughput_is_events_by_the_common_window() -> None:
    run = merged({"start_s": 1.0, "end_s": 10.0}, {"start_s": 1.5, "end_s": 11.0})
    assert run.window_s == 10.0
    assert run.rate_per_s == 200 / 10
    assert run.rate_per_s_mean_duration == pytest.approx(200 / ((9.0 + 9.5) / 2))
    assert run.overlap == pytest.approx(8.5 / 10)
    assert (run.count, run.valid, run.invalid_reasons) == (200, True, [])


def test_workers_that_fill_tables_to_a_level_neednt_end_together() -> None:
    level = merged({"start_s": 0, "end_s": 5}, {"start_s": 0, "end_s": 10}, is_level=True)
    assert (level.valid, level.overlap) == (True, 0.5)


def test_workers_that_took_turns_are_not_counted_as_if_together() -> None:
    """By the published formula alone this run would show twice what was reached."""
    run = merged({"start_s": 0, "end_s": 5}, {"start_s": 5, "end_s": 10})
    assert run.rate_per_s == 20
    assert run.rate_per_s_mean_duration == 40
    assert run.overlap == 0
    assert not run.valid
    [reason] = run.invalid_reasons
    assert reason.startswith("the workers overlapped in only 0.0% of the window (at least 80% is")
    assert reason.endswith(
        "use --duration, which ends all workers at once, or a higher --num-inserts"
    )


def test_a_gap_is_what_all_workers_have_in_common() -> None:
    run = merged(
        {"gaps": [(1.0, 3.0), (5.0, 6.0), (8.0, 8.6)]},
        {"gaps": [(2.0, 5.5), (8.4, 9.0)]},
    )
    assert run.gaps == [(2.0, 3.0), (5.0, 5.5)]
    assert merged({"gaps": [(1.0, 3.0)]}, {}).gaps == []


def test_the_slowest_worker_keeps_its_timeline() -> None:
    """The one with the lowest rate over its own time, which need not be the last to end."""
    run = merged(
        {"start_s": 0.0, "end_s": 10.0, "timeline": [(0, 50), (9, 50)]},
        {"start_s": 0.5, "end_s": 9.9, "count": 80, "timeline": [(0, 30), (9, 50)]},
    )
    assert run.slowest_worker is not None
    assert run.slowest_worker.worker == 1
    assert run.slowest_worker.timeline == [(0, 30), (9, 50)]
    assert run.timeline == [(0, 80), (9, 100)]


@pytest.mark.parametrize(("end_s", "said"), [(8.0, None), (7.999, "79.9%"), (7.0, "70.0%")])
def test_an_overlap_of_eighty_percent_will_do(end_s: float, said: str | None) -> None:
    """What falls short never reads as if it were enough."""
    reasons = merged({}, {"end_s": end_s}).invalid_reasons
    assert [said in reason for reason in reasons if said] == ([True] if said else [])
    assert len(reasons) == (said is not None)


def test_all_workers_count_in_the_overlap() -> None:
    """A worker that ends early is not averaged away by many that go on."""
    run = merged(*[{}] * 9, {"end_s": 5.0})
    assert run.overlap == 0.5
    assert not run.valid


def test_a_late_start_widens_the_window() -> None:
    """Each worker's clock begins with its own start: two workers of 0.3 s, one of them 0.24 s late,
    were reported at almost twice the rate, and as if they had worked together."""
    span = {"start_s": 0.0, "end_s": 0.3}
    run = merged(span, span, clock_offsets_s={0: 0.0, 1: 0.24})
    assert run.window_s == pytest.approx(0.54)
    assert run.rate_per_s == pytest.approx(200 / 0.54)
    assert run.overlap == pytest.approx(0.06 / 0.54)
    assert not run.valid
    assert [worker.start_s for worker in run.per_worker] == [0.0, 0.24]


def test_lost_events_invalidate() -> None:
    run = merged({}, {"count": 93})
    assert not run.valid
    assert run.invalid_reasons == ["7 of 200 events were not acknowledged"]
    assert run.verification is not None
    assert run.verification.ok


@pytest.mark.parametrize("stored", [199, 201, 0])
def test_a_count_that_does_not_match_invalidates(stored: int) -> None:
    run = merged({}, {}, stored=stored)
    assert run.invalid_reasons == [f"the database holds {stored} events, 200 were expected"]
    assert run.verification is not None
    assert run.verification == Verification(expected=200, stored=stored, ok=False)


def test_a_module_that_stores_nothing_needs_no_count() -> None:
    run = merged({}, verification=Verification(expected=100, stored=None, ok=True))
    assert run.valid


@pytest.mark.parametrize(
    ("window_s", "offset", "late"),
    [(10, 0.49, False), (10, 0.56, True), (4, 0.24, False), (4, 0.26, True)],
)
def test_a_worker_that_started_late_invalidates(window_s: float, offset: float, late: bool) -> None:
    """More than 5 % of the window, but a quarter of a second is always allowed."""
    spans = ({"end_s": window_s}, {"end_s": window_s})
    run = merged(*spans, clock_offsets_s={0: 0.01, 1: offset})
    reasons = [f"worker 1 started up to {offset:.2f} s late"] if late else []
    assert run.invalid_reasons == reasons
    assert [span.clock_offset_s for span in run.per_worker] == [0.01, offset]


def test_no_window_no_figure() -> None:
    run = merged({"end_s": 0.0})
    assert run.rate_per_s is None
    assert run.rate_per_s_mean_duration is None
    assert run.invalid_reasons == ["nothing was measured: no window"]


def test_all_reasons_are_told() -> None:
    run = merged({"end_s": 5}, {"count": 1}, stored=7, clock_offsets_s={0: 9.0})
    assert len(run.invalid_reasons) == 4


def test_what_can_be_queried_later_has_a_rate_of_its_own() -> None:
    run = merged({"start_s": 0, "end_s": 10}, {"start_s": 0, "end_s": 10}, stored=200)
    assert queryable(run, 30.0) == Queryable(lag_s=30.0, events_per_s=5.0)


def test_what_can_not_be_queried_has_no_rate() -> None:
    assert queryable(merged({}, {}, stored=199), 30.0) is None


def test_counts_histograms_and_timelines_add_up() -> None:
    run = merged(
        {
            "histogram": histogram_of(1000, 1000, 2000),
            "timeline": [(0, 60), (1, 40)],
            "errors": {"deadlock_detected": 1},
            "retries": 1,
        },
        {
            "histogram": histogram_of(9000),
            "timeline": [(1, 90), (2, 10)],
            "errors": {"deadlock_detected": 2, "connection_lost": 1},
            "retries": 3,
        },
    )
    assert run.timeline == [(0, 60), (1, 130), (2, 10)]
    assert run.errors == {"connection_lost": 1, "deadlock_detected": 3}
    assert run.retries == 4
    assert run.latency_ms is not None
    assert run.latency_ms.p50 == pytest.approx(1, rel=0.002)
    assert run.latency_ms.max == pytest.approx(9, rel=0.002)
    assert run.histogram is not None
    assert run.histogram.count == 4


def test_each_worker_is_told_of() -> None:
    run = merged({"cpu_s": 1.0}, {"start_s": 0.2, "cpu_s": 2.0})
    assert [span.model_dump() for span in run.per_worker] == [
        {
            "worker": number, "node": f"node-{number}", "start_s": start, "end_s": 10.0,
            "count": 100, "measured": 100, "cpu_s": cpu, "clock_offset_s": 0.0,
        }
        for number, start, cpu in ((0, 0.0, 1.0), (1, 0.2, 2.0))
    ]  # fmt: skip


# --- by the clock, and open loops -----------------------------------------------------------------


def open_loop(**changes: Any) -> dict[str, Any]:
    """What a worker says of an open loop with 10 events a second; `changes`: of the offer."""
    offer = {
        "due": 100,
        "unsent": 0,
        "due_timeline": [(second, 10) for second in range(10)],
        "own_delay": histogram_of(5),
    }
    return {
        "measured": 100,
        "service_histogram": histogram_of(500),
        "timeline": [(second, 10) for second in range(10)],
        "offered": Offered(**(offer | changes)),
    }


def offering(workers: int, **changes: Any) -> Load:
    """Ten events a second from each worker, for ten seconds."""
    return Load(
        **({"workers": workers, "rate_per_s": 10.0 * workers, "duration_s": 10.0} | changes)
    )


def test_only_what_the_window_saw_counts_for_the_rate() -> None:
    """All that was acknowledged is looked for, though."""
    change = {"start_s": 2.0, "end_s": 10.0, "count": 130, "measured": 80}
    load = Load(workers=2, duration_s=10.0, warm_up_s=2.0)
    run = merged(change, change, load=load)
    assert run.valid
    assert (run.count, run.window_s, run.warm_up_s) == (260, 8.0, 2.0)
    assert run.rate_per_s == run.rate_per_s_mean_duration == 20
    assert run.verification is not None
    assert run.verification.expected == 260
    assert [(span.count, span.measured) for span in run.per_worker] == [(130, 80)] * 2
    assert queryable(run, 2.0) == Queryable(lag_s=2.0, events_per_s=16.0)


def test_a_run_by_the_clock_plans_no_number_of_events() -> None:
    assert merged({"count": 7, "measured": 7}, load=Load(duration_s=10.0)).valid


def test_workers_that_were_apart_need_longer() -> None:
    group = merged(
        {},
        {},
        load=Load(duration_s=10.0),
        clock_offsets_s={1: 9.0},
        duration_option="--run-duration",
    )
    assert group.invalid_reasons[0].endswith("use a longer --run-duration")


@pytest.mark.parametrize(
    ("load", "end_s", "reason"),
    [
        (
            {"warm_up_s": 5.0, "events": 100},
            0.0,
            "nothing was measured: the run ended within its warm-up of 5 s: use a longer run",
        ),
        (
            {"duration_s": 0.01},
            0.01,
            "nothing was measured: no answer came within the window of 0.01 s: use a longer run",
        ),
        (
            # One worker was a little later than the other, so there is a window.
            {"warm_up_s": 5.0, "events": 100},
            0.01,
            "nothing was measured: the run ended within its warm-up of 5 s: use a longer run",
        ),
    ],
)
def test_a_run_too_short_to_measure_says_how_to_mend_it(
    load: dict[str, Any], end_s: float, reason: str
) -> None:
    run = merged({"end_s": end_s, "measured": 0}, load=Load(**load))
    assert (run.rate_per_s, run.invalid_reasons) == (None, [reason])


def test_a_rate_below_one_request_in_the_window_says_so() -> None:
    """No answer came, since none was asked for."""
    load = Load(rate_per_s=50, batch=100, duration_s=2.0)
    run = merged({**open_loop(due=0), "measured": 0, "end_s": 2.0}, load=load)
    (reason,) = run.invalid_reasons
    assert reason == (
        "nothing was measured: no request was due in the window of 2 s, since there is one"
        " every 2 s at 50 events per second: use a longer --duration, a smaller --batch or a higher rate"
    )
    load = Load(rate_per_s=1, batch=100, duration_s=2.0)
    run = merged({**open_loop(due=0), "measured": 0, "end_s": 2.0}, load=load)
    assert "since there is one every 100 s at 1 event per second" in run.invalid_reasons[0]
    late = merged({**open_loop(due=100), "measured": 0, "end_s": 2.0}, load=load)
    assert late.invalid_reasons[0].startswith("nothing was measured: no answer came")


def test_offers_of_all_workers_add_up() -> None:
    run = merged(open_loop(), open_loop(due=90, unsent=5), load=offering(2))
    assert run.offered is not None
    assert (run.offered.rate_per_s, run.offered.due, run.offered.unsent) == (20, 190, 5)
    assert run.offered.achieved == 200
    assert not run.offered.saturated
    assert run.service_ms is not None
    assert run.service_ms.max == pytest.approx(0.5, rel=0.002)
    assert run.service_histogram is not None
    assert run.service_histogram.count == 2


def test_a_closed_loop_has_neither_offer_nor_service_times() -> None:
    run = merged({}, {})
    assert (run.offered, run.service_ms, run.service_histogram) == (None, None, None)


def test_saturation_is_a_true_result() -> None:
    run = merged(open_loop() | {"measured": 60, "count": 60, "in_flight": 1}, load=offering(1))
    assert run.valid
    assert run.rate_per_s == 6
    assert run.offered is not None
    assert run.offered.saturated


def test_a_client_that_was_late_binds_the_run() -> None:
    late = open_loop(own_delay=histogram_of(*[50_000] * 100)) | {"cpu_s": 4.0}
    run = merged(late, load=offering(1))
    assert run.client is not None
    assert run.client.bound_reason == (
        "the load generator was late: it sent requests up to 50 ms (p99) after they were due"
    )


def test_a_client_that_could_not_make_requests_in_time_says_so() -> None:
    changes = {"cpu_s": 4.0, "generate_s": 1.0, "encode_s": 2.0}
    late = open_loop(own_delay=histogram_of(*[50_000] * 100)) | changes
    run = merged(late, load=offering(1))
    assert run.client is not None
    assert run.client.bound_reason == (
        "the load generator was late: it sent requests up to 50 ms (p99) after they were due;"
        " making them took 75% of its CPU time"
    )


def cost_of(measured: int, **changes: Any) -> str | None:
    """What bound the client of an open loop with one request in flight."""
    part = WorkerFigures.model_validate(worker_figures(**open_loop(), **changes).model_dump())
    run = merged(part.model_dump() | {"measured": measured, "count": measured}, load=offering(1))
    assert run.client is not None
    return run.client.bound_reason


def test_what_an_open_loop_sends_is_given_however_fast_it_could_be() -> None:
    """Unless it falls behind: then it sends as soon as it can, as a closed loop does."""
    assert cost_of(100, cpu_s=6.0) is None
    assert cost_of(60, cpu_s=6.0) == (
        "a worker's CPU was busy 60% of the time, while the database waited for its next request"
    )
    assert cost_of(100, ceiling_per_s=15.0) is None
    assert cost_of(60, ceiling_per_s=10.0) == (
        "a worker ran at 60% of the rate at which it can build payloads"
    )
    assert cost_of(100, cpu_s=8.0) == "a worker's CPU was busy 80% of the time"


# --- whose limit it was ---------------------------------------------------------------------------


def test_client_cost_is_summed_and_shared() -> None:
    cost = cost_in_closed_loop([worker_figures(cpu_s=1.0), worker_figures(cpu_s=3.0)])
    assert cost.cpu_s == 4.0
    assert cost.cpu_share == 0.3
    assert (cost.generate_s, cost.encode_s) == (0.2, 0.4)
    assert cost.ceiling_share == pytest.approx(1e-5)
    assert (cost.bound, cost.bound_reason, cost.throttled_share) == (False, None, None)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"cpu_s": 8.0}, "a worker's CPU was busy 80% of the time"),
        (
            {"throttled_share": 0.1},
            "a worker was throttled by its CPU limit in 10% of the periods",
        ),
        ({"ceiling_per_s": 20.0}, "a worker ran at 50% of the rate at which it can build payloads"),
        ({"ceiling_per_s": 2.3}, "a worker ran as fast as it can build payloads"),
    ],
    ids=["cpu", "throttled", "ceiling", "above the ceiling"],
)
def test_one_worker_at_its_limit_binds_the_run(changes: dict[str, Any], reason: str) -> None:
    """An average over workers would hide it."""
    idle = [worker_figures() for _ in range(9)]
    cost = cost_in_closed_loop([*idle, worker_figures(in_flight=2, **changes)])
    assert cost.bound
    assert cost.bound_reason == reason


@pytest.mark.parametrize(
    "changes", [{"cpu_s": 7.9}, {"throttled_share": 0.09}, {"ceiling_per_s": 20.5}]
)
def test_below_the_limits_the_figure_is_the_databases(changes: dict[str, Any]) -> None:
    cost = cost_in_closed_loop([worker_figures(in_flight=2, **changes)])
    assert not cost.bound
    assert cost.bound_reason is None


@pytest.mark.parametrize(("in_flight", "bound"), [(1, True), (2, False)])
def test_the_database_waits_for_a_client_with_one_request_in_flight(
    in_flight: int, bound: bool
) -> None:
    cost = cost_in_closed_loop([worker_figures(cpu_s=5.0, in_flight=in_flight)])
    assert (cost.bound, cost.in_flight) == (bound, in_flight)
    assert not bound or cost.bound_reason == (
        "a worker's CPU was busy 50% of the time, while the database waited for its next request"
    )


def test_the_worst_throttling_is_shown() -> None:
    parts = [worker_figures(throttled_share=share) for share in (0.001, None, 0.3)]
    assert cost_in_closed_loop(parts).throttled_share == 0.3


def test_a_client_bound_run_is_valid_all_the_same() -> None:
    run = merged({"cpu_s": 9.9})
    assert run.valid
    assert run.client is not None
    assert run.client.bound
