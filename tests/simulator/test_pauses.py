"""A fleet that is cut off for a while: what is due then is held back, and sent late and in order."""

from __future__ import annotations

import math
import time
from typing import Any

import numpy as np
import pytest

from simulator.collector.merge import merge_group
from simulator.collector.status import PhaseTracker
from simulator.contract import (
    Arrivals,
    CatchUp,
    FleetPause,
    Load,
    Offered,
    Phase,
    StageResult,
    find_mean_rate,
    parse_stages,
    sum_durations_s,
)
from simulator.histograms import Histogram
from simulator.worker.feed import Feed
from simulator.worker.loop import InsertLoop
from simulator.worker.measure import Recorder
from simulator.worker.schedule import Schedule, make_schedule
from simulator.workloads.temperature import Temperature

from ..helpers import histogram_of, settings, worker_figures
from .test_open_loop import Notebook, offer

pytestmark = pytest.mark.usefixtures("no_threads_left")


def load_of(*pauses: tuple[float, float], **changes: Any) -> Load:
    """100 events a second for 10 s; `pauses`: when the fleet is cut off, and for how long."""
    values: dict[str, Any] = {
        "rate_per_s": 100.0,
        "duration_s": 10.0,
        "arrivals": Arrivals.EVEN,
        "pauses": [FleetPause(begins_s=at, length_s=length) for at, length in pauses],
    }
    return Load.model_validate(values | changes)


def send_all(schedule: Schedule, recorder: Recorder, takes_s: float) -> list[tuple[float, float]]:
    """Send one request after the other, by a clock that only they advance; when each was due and sent, since
    the start."""
    origin, now, sent = schedule.begins, schedule.begins, []
    while (due := schedule.next_due(now)) < schedule.ends:
        free, now = now, max(now, schedule.find_opening(due, now))
        if now >= schedule.ends:
            recorder.leave_unsent(due, 1)
            break
        sent.append((due - origin, now - origin))
        recorder.record_due(due, free, now, now + takes_s, 1)
        now += takes_s
    return sent


def begin(load: Load, worker: int = 0) -> tuple[Schedule, Recorder]:
    schedule = make_schedule(load, worker, 7)
    recorder = Recorder(schedule)
    # A whole number, or rounding decides on which side of an outage's edge a time lies.
    recorder.begin(float(int(time.perf_counter()) - 3600))
    return schedule, recorder


def longest_ms(histogram: Histogram | None) -> float:
    assert histogram is not None
    return histogram.range_us()[1] / 1000


# --- when requests are sent -----------------------------------------------------------------------


@pytest.mark.parametrize("arrivals", [Arrivals.EVEN, Arrivals.POISSON])
def test_nothing_is_sent_meanwhile_and_the_due_times_stay(arrivals: Arrivals) -> None:
    load = load_of((2.0, 3.0), (7.0, 0.5), arrivals=arrivals)
    sent = send_all(*begin(load), takes_s=0.0)
    untouched = send_all(*begin(load.model_copy(update={"pauses": []})), takes_s=0.0)
    assert [due for due, _ in sent] == pytest.approx([due for due, _ in untouched])
    for due, at in sent:
        back = 5.0 if 2 <= due < 5 else 7.5 if 7 <= due < 7.5 else due
        assert at == pytest.approx(back)


def test_held_events_are_sent_at_once_in_their_order_before_later_ones() -> None:
    """300 are held back; each takes 2 ms, while another is due every 10 ms: a burst of 375."""
    schedule, recorder = begin(load_of((2.0, 3.0)))
    sent = send_all(schedule, recorder, takes_s=0.002)
    assert sent == sorted(sent)
    first = next(place for place, (due, _) in enumerate(sent) if due >= 2 - 1e-9)
    for place, (_, at) in enumerate(sent[first : first + 375]):
        assert at == pytest.approx(5 + 0.002 * place, abs=1e-6)
    [pause] = recorder.result().catch_ups
    assert pause.held == 300
    assert pause.after_s == pytest.approx(0.75, abs=0.003)
    # The first waited for the fleet for 3 s, and for nothing else.
    assert pause.lateness_s == pytest.approx(3.002, abs=1e-3)
    # The last of the held ones waited for all before it: that is the database's time.
    assert longest_ms(pause.burst) == pytest.approx(600, rel=0.01)
    assert longest_ms(pause.later) == pytest.approx(2, rel=0.01)


def test_the_outage_is_in_no_response_time_and_no_delay_of_the_client() -> None:
    schedule, recorder = begin(load_of((2.0, 3.0)))
    send_all(schedule, recorder, takes_s=0.001)
    recorder.end()
    figures = recorder.result()
    assert figures.offered is not None
    # The 300th of those that come at once; not the 3 s in which the first was held back.
    assert longest_ms(figures.histogram) == pytest.approx(300, rel=0.01)
    assert longest_ms(figures.offered.own_delay) < 0.01
    # What devices did not send was due all the same.
    assert dict(figures.offered.due_timeline)[3] == 100
    assert dict(figures.timeline).get(3) is None


def test_what_was_late_before_the_outage_has_waited_before_and_after_it() -> None:
    """Each takes 20 ms, twice as long as there is: at 1 s, the one that was due at 0.5 s is to be sent.

    The edges lie between two requests: sums of 0.02 are not exact.
    """
    schedule, recorder = begin(load_of((0.99, 4.02)))
    sent = send_all(schedule, recorder, takes_s=0.02)
    due, at = sent[50]
    assert [due, at] == pytest.approx([0.5, 5.01])
    assert schedule.pauses is not None
    held_s = schedule.pauses.measure_held_s(schedule.begins + due, schedule.begins + at)
    assert held_s == pytest.approx(4.02)
    recorder.end()
    [pause] = recorder.result().catch_ups
    assert pause.after_s is None
    assert pause.held == 250


@pytest.mark.parametrize(("pauses", "held"), [([(9.0, 5.0)], 0), ([(2.0, 3.0)], 300)])
def test_what_is_never_sent_has_waited_without_the_outage(
    pauses: list[tuple[float, float]], held: int
) -> None:
    load = load_of(*pauses)
    schedule, recorder = begin(load)
    if held:
        # Nothing comes back after 1 s.
        while schedule.next_due(schedule.begins) < schedule.begins + 1:
            pass
        recorder.leave_unsent(schedule.begins + 1, 1)
    else:
        send_all(schedule, recorder, takes_s=0.0)
    recorder.end()
    waited_ms = longest_ms(recorder.result().histogram)
    # Due at 1 s, it has waited for 9 s, in 3 of which the fleet was cut off.
    assert waited_ms == pytest.approx(6000 if held else 0, abs=70)


def test_an_idle_fleet_catches_up_at_once() -> None:
    schedule, recorder = begin(load_of((2.002, 0.003)))
    send_all(schedule, recorder, takes_s=0.001)
    [pause] = recorder.result().catch_ups
    assert (pause.held, pause.lateness_s) == (0, 0.0)
    assert pause.after_s == pytest.approx(0.0, abs=0.001)


@pytest.mark.parametrize("in_flight", [1, 4])
def test_a_worker_holds_its_requests_back(in_flight: int) -> None:
    load = load_of((0.2, 0.3), duration_s=0.8)
    writer = Notebook(in_flight, lambda number: 0.001)
    done = offer(writer, make_schedule(load, 0, 0))
    figures = done.measured
    assert writer.order == list(range(figures.count))
    # One is due every 10 ms.
    sent = {number: at - done.origin for number, at in writer.times.items()}
    assert min(sent[number] for number in range(21, 50) if number in sent) >= 0.5
    [pause] = figures.catch_ups
    assert pause.held >= 29
    assert figures.count + done.offer.unsent == 80
    assert pause.lateness_s >= 0.29


def test_a_run_that_is_ended_meanwhile_waits_no_longer() -> None:
    schedule = make_schedule(load_of((0.1, 60.0), duration_s=100.0), 0, 0)
    recorder = Recorder(schedule)
    writer = Notebook(1)
    recorder.begin(time.perf_counter())
    recorder.end_early(recorder._origin + 0.3)
    source = Feed(
        lambda first, count: Temperature().block(0, first, count), writer.encoder, 0, None
    )
    InsertLoop(writer, recorder, 0, lambda: None, schedule).run(source)
    recorder.end()
    # The fleet would be away for a minute.
    assert recorder.elapsed_s() < 30
    assert recorder.events <= 11


# --- what becomes of it ---------------------------------------------------------------------------


def pause(**changes: Any) -> CatchUp:
    values: dict[str, Any] = {
        "begins_s": 2.0, "ends_s": 5.0, "held": 300, "after_s": 0.5, "lateness_s": 3.1,
        "burst": histogram_of(*[5000] * 200), "later": histogram_of(*[1000] * 200),
    }  # fmt: skip
    return CatchUp(**(values | changes))


def merge(load: Load, *parts: Any, **changes: Any) -> list[CatchUp]:
    offer = Offered(due=0, unsent=0, due_timeline=[], own_delay=histogram_of(10))
    figures = {
        worker: worker_figures(offered=offer, catch_ups=own, **changes)
        for worker, own in enumerate(parts)
    }
    return merge_group(load, figures, dict.fromkeys(figures, "n"), {}).catch_ups


def test_workers_have_caught_up_when_the_last_of_them_has() -> None:
    load = load_of((2.0, 3.0), workers=2)
    [catch_up] = merge(load, [pause()], [pause(held=10, after_s=1.25, lateness_s=4.0)])
    assert (catch_up.begins_s, catch_up.ends_s, catch_up.held) == (2.0, 5.0, 310)
    assert (catch_up.after_s, catch_up.lateness_s) == (1.25, 4.0)
    assert catch_up.burst_ms is not None
    assert catch_up.burst_ms.p99 == pytest.approx(5.0, rel=1e-3)
    assert catch_up.later_ms is not None
    assert catch_up.later_ms.p99 == pytest.approx(1.0, rel=1e-3)
    [unknown] = merge(load, [pause()], [pause(after_s=None)])
    assert unknown.after_s is None


def test_a_time_that_the_run_did_not_come_to_is_left_out() -> None:
    load = load_of((2.0, 3.0), (8.0, 1.0))
    catch_ups = merge(load, [pause(), pause(begins_s=8.0, ends_s=9.0, held=0)], end_s=7.0)
    assert [catch_up.begins_s for catch_up in catch_ups] == [2.0]


def test_a_stage_is_not_blamed_for_what_devices_hold_back() -> None:
    """At the end of the first stage, 200 of 400 events are held back; the second catches up, or doesn't."""
    stages = parse_stages("4s:100,4s:100")
    load = load_of(
        (2.0, 3.0),
        stages=stages,
        rate_per_s=find_mean_rate(stages),
        duration_s=sum_durations_s(stages),
    )
    offer = Offered(due=800, unsent=0, due_timeline=[(0, 800)], own_delay=histogram_of(10))

    def judge(*backlogs: int) -> list[bool]:
        own = [
            StageResult(due=400, achieved=400, backlog=backlog, histogram=histogram_of(10))
            for backlog in backlogs
        ]
        part = worker_figures(
            end_s=8.0,
            offered=offer,
            stages=own,
            catch_ups=[pause()],
            measured=800,
            timeline=[(0, 800)],
        )
        return [stage.saturated for stage in merge_group(load, {0: part}, {0: "n"}, {}).stages]

    assert judge(200, 0) == [False, False]
    assert judge(200, 150) == [False, True]
    # 300 are more than the devices held back.
    assert judge(300, 0) == [True, False]


def test_while_the_fleet_is_cut_off_no_answer_is_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    tracker = PhaseTracker(settings(pauses=[FleetPause(begins_s=10, length_s=30)]), 1000.0)
    tracker.enter(Phase.RUN)

    def quiet_s(elapsed_s: float) -> float:
        clock[0] = 1000.0 + elapsed_s
        return tracker._quiet_s(elapsed_s)

    assert list(map(quiet_s, (9, 11, 39, 42, 60))) == [9, 0, 0, 2, 20]


def test_held_requests_are_those_of_the_schedule() -> None:
    load = load_of((2.0, 3.0))
    assert [load.count_held(at) for at in (1.9, 3.0, 4.99, 5.0)] == pytest.approx([0, 100, 299, 0])
    pauses = make_schedule(load, 0, 0).pauses
    assert pauses is not None
    pauses.begin(0.0)
    waited = pauses.measure_waiting_s(np.array([0.0, 2.5, 4.9, 6.0]), 7.0)
    assert waited.tolist() == pytest.approx([4.0, 2.0, 2.0, 1.0])
    assert pauses.find_opening(4.9) == 5.0
    assert pauses.find_opening(5.5) == 5.5
    assert math.isclose(pauses.measure_held_s(1.0, 6.0), 3.0)
