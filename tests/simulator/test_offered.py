"""Whether a database kept up with an open loop, and whether the client did."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import takewhile

import numpy as np
import pytest

from simulator.collector.verdicts import extend_offers, find_own_delay, judge_offer
from simulator.contract import Arrivals, GroupResult, LatencyMs, Load, Offered, Role
from simulator.worker.schedule import make_schedule

from ..helpers import histogram_of, worker_figures


def judged(
    due: Sequence[int],
    acknowledged: Sequence[int],
    warm_up_s: int = 0,
    in_flight: int = 1,
    load: Load | None = None,
    unsent: int = 0,
    end_s: float | None = None,
    failed: int = 0,
) -> Offered:
    """The verdict on what was due and acknowledged in each second, by one worker of single requests."""
    seconds = len(due)
    load = load or Load(rate_per_s=100.0, duration_s=seconds, warm_up_s=warm_up_s)
    offer = Offered(
        due=sum(due[warm_up_s:]) + failed,
        unsent=unsent,
        failed=failed,
        due_timeline=[(second, count) for second, count in enumerate(due) if count],
        own_delay=histogram_of(*[5] * 100),
    )
    end_s = float(seconds) if end_s is None else end_s
    group = GroupResult(
        role=load.role,
        workers=1,
        offered=Offered.merge([offer]),
        timeline=list(enumerate(acknowledged)),
    )
    achieved = sum(acknowledged[warm_up_s : int(end_s + 1e-6)])
    judge_offer(group, load, in_flight, achieved, (float(warm_up_s), end_s))
    assert group.offered is not None
    return group.offered


def test_a_closed_loop_offers_nothing() -> None:
    group = GroupResult(role=Role.WRITE, workers=1, timeline=[(0, 100)])
    judge_offer(group, Load(), 1, 100, (0.0, 1.0))
    assert group.offered is None


def test_what_was_done_at_once_is_not_saturated() -> None:
    offered = judged([100] * 10, [100] * 10)
    assert not offered.saturated
    assert offered.reason is None
    assert (offered.rate_per_s, offered.due, offered.achieved, offered.unsent) == (
        100,
        1000,
        1000,
        0,
    )
    assert (offered.backlog_max, offered.backlog_growth) == (0, 0)
    assert offered.backlog == [(second, 0) for second in range(10)]
    assert offered.own_delay_p99_ms == pytest.approx(0.005, rel=0.01)


def test_a_shortfall_is_saturated() -> None:
    offered = judged([100] * 10, [80] * 10, unsent=190)
    assert offered.saturated
    assert offered.reason == "1,000 events were due in the window, but only 800 were done"
    assert (offered.backlog_max, offered.backlog_growth, offered.unsent) == (200, 80, 190)


def test_queries_are_called_so() -> None:
    load = Load(role=Role.READ, rate_per_s=100.0, duration_s=10.0)
    offered = judged([100] * 10, [80] * 10, load=load)
    assert offered.reason == "1,000 queries were due in the window, but only 800 were done"


def test_queries_that_failed_are_not_what_the_database_had_no_time_for() -> None:
    load = Load(role=Role.READ, rate_per_s=100.0, duration_s=10.0)
    offered = judged([80] * 10, [80] * 10, load=load, failed=200)
    assert (offered.due, offered.achieved, offered.reason) == (1000, 800, None)


def test_a_backlog_that_grows_at_the_end_is_saturated() -> None:
    """Though as much was done in the window as was due: what the warm-up left over."""
    load = Load(rate_per_s=100.0, duration_s=20.0, warm_up_s=5.0)
    left_over = [100 - 20] * 5 + [120] * 5 + [100] * 5 + [80] * 5
    offered = judged([100] * 20, left_over, warm_up_s=5, load=load)
    assert (offered.due, offered.achieved) == (1500, 1500)
    assert offered.reason == "the backlog grew by 100 in the last half of the window"


def test_a_stall_that_was_made_up_for_is_not_saturated() -> None:
    offered = judged([100] * 20, [*[100] * 5, 0, 0, 0, *[250] * 2, *[100] * 10])
    assert not offered.saturated
    assert offered.backlog_max == 300


def test_a_stall_at_the_end_is_saturated() -> None:
    """It can't be told from one that never ends."""
    assert judged([100] * 20, [*[100] * 17, 0, 0, 0]).saturated


@pytest.mark.parametrize(("in_flight", "saturated"), [(40, False), (4, True)])
def test_what_is_under_way_is_no_backlog(in_flight: int, saturated: bool) -> None:
    """Four workers of 40 places each, with batches of 10: 1,600 events may be under way, which is more
    than what could be chance."""
    load = Load(workers=4, batch=10, rate_per_s=1000.0, duration_s=10.0)
    offered = judged([1000] * 10, [0, 500, *[1000] * 8], in_flight=in_flight, load=load)
    assert offered.due - offered.achieved == 1500
    assert offered.saturated is saturated


def test_the_last_second_of_a_window_is_not_lost() -> None:
    """Its end is a difference of two readings of a clock."""
    assert judged([100] * 10, [100] * 10, end_s=9.9999999).backlog[-1] == (9, 0)
    assert judged([100] * 2, [100, 0], end_s=1.9999999).saturated


def test_a_worker_that_tells_its_seconds_early_makes_no_negative_backlog() -> None:
    offered = judged([100] * 5, [110, 90, 110, 90, 100])
    assert min(count for _, count in offered.backlog) == 0


# --- a run that is ended by its number of events --------------------------------------------------


def test_without_a_duration_all_is_done_in_the_end_but_not_at_the_rate() -> None:
    """1,000 events at 100 a second, of which the database does 50: the window is twice as long."""
    load = Load(rate_per_s=100.0, events=1000)
    offered = judged([100] * 10 + [0] * 10, [50] * 20, load=load)
    assert offered.saturated
    assert offered.reason == "1,000 events took 20 s, but at the offered rate they take 10 s"
    assert (offered.due, offered.due_s, offered.achieved) == (1000, 10.0, 1000)
    assert offered.backlog_max == 500
    assert offered.backlog_growth == 200  # From the end of second 5 to that of second 9.


def test_without_a_duration_a_database_that_keeps_up_is_not_saturated() -> None:
    load = Load(rate_per_s=100.0, events=1000)
    offered = judged([100] * 10, [100] * 10, load=load, end_s=10.02)
    assert not offered.saturated
    assert offered.due == 1000


@pytest.mark.parametrize("workers", [1, 4])
def test_without_a_duration_chance_is_not_saturated(workers: int) -> None:
    """The last of few requests may be due late by chance; an idle database answers at once."""
    saturated = 0
    for seed in range(30):
        load = Load(workers=workers, rate_per_s=100.0, events=400 // workers)
        due = [_draw(load, worker, seed)[: load.events] for worker in range(workers)]
        saturated += _judge_answers(due, due, load, max(float(own[-1]) for own in due)).saturated
    assert saturated <= 1


# --- chance ---------------------------------------------------------------------------------------


def _draw(load: Load, worker: int, seed: int) -> list[float]:
    """A worker's due times: those within the duration, or more than are needed."""
    schedule = make_schedule(load, worker, seed)
    schedule.begin(0.0)
    if load.duration_s is None:
        return [schedule.next_due(0.0) for _ in range(load.events)]
    return list(takewhile(lambda due: due < schedule.ends, iter(lambda: schedule.next_due(0), -1)))


def _judge_answers(
    due: Sequence[Sequence[float]], answered: Sequence[Sequence[float]], load: Load, end: float
) -> Offered:
    size, start = load.events_per_request, load.warm_up_s
    offers = [
        Offered(
            due=size * sum(time >= start for time in own),
            unsent=0,
            due_timeline=sorted((s, n * size) for s, n in Counter(map(int, own)).items()),
            own_delay=histogram_of(1),
        )
        for own in due
    ]
    every = [time for own in answered for time in own]
    seconds = {second: n * size for second, n in Counter(map(int, every)).items()}
    achieved = size * sum(start <= time <= end for time in every)
    group = GroupResult(
        role=load.role,
        workers=len(offers),
        offered=Offered.merge(offers),
        timeline=list(seconds.items()),
    )
    judge_offer(group, load, 1, achieved, (start, end))
    assert group.offered is not None
    return group.offered


def share_saturated(
    busy: float, per_s: float = 50.0, workers: int = 1, seconds: float = 30.0
) -> float:
    """Share of 20 runs that are called saturated, of a database that answers one request of each worker
    at a time, in times that vary exponentially, and is `busy` for such a share of the time if it
    keeps up."""
    saturated = 0
    for seed in range(20):
        generator = np.random.default_rng(seed)
        load = Load(
            workers=workers, batch=10, rate_per_s=10 * per_s, duration_s=seconds, warm_up_s=5.0
        )
        all_due = [_draw(load, worker, seed) for worker in range(workers)]
        all_answered = []
        for due in all_due:
            free, answered = 0.0, []
            for time, service in zip(
                due, generator.exponential(busy * workers / per_s, len(due)).tolist(), strict=True
            ):
                free = max(time, free) + service
                answered.append(free)
            all_answered.append(answered)
        saturated += _judge_answers(all_due, all_answered, load, seconds).saturated
    return saturated / 20


@pytest.mark.parametrize("workers", [1, 4])
def test_what_gathers_by_chance_is_not_saturated(workers: int) -> None:
    """Behind Poisson arrivals there is always a queue; at 50 requests a second one percent of what is due
    in 25 s is but 12 requests."""
    assert share_saturated(0.5, workers=workers) == 0
    assert share_saturated(0.7, workers=workers) <= 0.05


@pytest.mark.parametrize("workers", [1, 4])
def test_what_is_above_capacity_is_saturated(workers: int) -> None:
    assert share_saturated(1.25, workers=workers) == 1
    assert share_saturated(1.1, per_s=200.0, workers=workers) >= 0.95


# --- the client's own delay -----------------------------------------------------------------------


def delayed(own_ms: float | None, p99_ms: float) -> str | None:
    """What shows that the client was late."""
    offered = judged([100] * 10, [100] * 10).model_copy(update={"own_delay_p99_ms": own_ms})
    latency = LatencyMs(p50=0.1, p90=0.2, p99=p99_ms, p99_9=p99_ms, max=p99_ms)
    return find_own_delay(offered, latency)


@pytest.mark.parametrize(
    ("own_ms", "p99_ms", "bound"),
    [
        (0.99, 1.5, False),
        (1.0, 9.9, True),
        (1.0, 10.1, False),
        (900.0, 1000.0, True),
        # A database that stalls is what is felt, not the client.
        (5.0, 20_000.0, False),
        (None, 5.0, False),
    ],
)
def test_a_client_is_bound_by_a_delay_that_shows(
    own_ms: float | None, p99_ms: float, bound: bool
) -> None:
    reason = delayed(own_ms, p99_ms)
    assert (reason is not None) is bound
    assert reason is None or reason.endswith(" (p99) after they were due")


def test_arrivals_make_no_difference_to_a_verdict() -> None:
    even = Load(rate_per_s=100.0, arrivals=Arrivals.EVEN, duration_s=10.0)
    assert judged([100] * 10, [80] * 10, load=even).saturated
    assert not judged([100] * 10, [99] + [100] * 9, load=even).saturated


# --- a run that was given up ----------------------------------------------------------------------


def given_up(load: Load, ended_s: float) -> list[Offered]:
    """What was due for two workers, of which the first ended then and the second after 10 s."""
    offer = Offered(
        due=200, unsent=20, due_timeline=[(second, 50) for second in range(4)],
        own_delay=histogram_of(*[5] * 100),
    )  # fmt: skip
    parts = {
        n: worker_figures(end_s=end_s, offered=offer) for n, end_s in ((0, ended_s), (1, 10.0))
    }
    offers = [part.offered for part in extend_offers(parts, load).values()]
    assert offers[1] == offer
    return [worker_offer for worker_offer in offers if worker_offer is not None]


def test_until_the_last_worker_gives_up_all_workers_requests_are_due() -> None:
    first, _ = given_up(Load(workers=2, rate_per_s=100.0, duration_s=60.0), ended_s=8.5)
    assert (first.due, first.unsent) == (275, 20)
    assert first.due_timeline[4:] == [(8, 25), (9, 50)]


def test_no_more_is_due_than_a_worker_was_to_insert() -> None:
    first, _ = given_up(Load(workers=2, rate_per_s=100.0, events=240), ended_s=4.0)
    assert first.due == 240
    assert first.due_timeline[4:] == [(4, 40)]


def test_a_closed_loop_offers_nothing_when_it_is_given_up() -> None:
    parts = {0: worker_figures(), 1: worker_figures(end_s=20.0)}
    assert extend_offers(parts, Load(workers=2)) == parts
