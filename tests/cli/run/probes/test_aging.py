"""What is looked at once a second for a day stays small, and loses nothing of an hour."""

from __future__ import annotations

import pickle
from itertools import pairwise

from cli.run.probes.database import Counters, Use, merge_uses
from cli.run.probes.network import Link, NetworkSnapshot, merge_networks
from cli.run.probes.timeline import AgingSeries, Step, Window, add_up, merge_steps

HOUR, DAY = 3_600, 86_400
CPU = "cpu_s"


def make_steps(count: int) -> list[Step]:
    return [Step(at, at + 1.0, {CPU: at % 7, ("vacuum",): 0.25}) for at in range(count)]


def test_an_hour_comes_back_as_it_was() -> None:
    steps = make_steps(HOUR)
    assert list(AgingSeries(merge_steps, steps)) == steps


def test_a_day_adds_up_to_the_same() -> None:
    steps = make_steps(DAY)
    series = AgingSeries(merge_steps, steps)
    whole, half = Window(0.0, DAY, 0.0), Window(DAY / 2, DAY, 0.0)
    assert add_up(series, whole) == add_up(steps, whole)
    for key, amount in (add_up(steps, half) or {}).items():
        assert abs((add_up(series, half) or {})[key] / amount - 1) < 0.001


def test_a_day_coarsens_with_age_without_a_hole() -> None:
    series = AgingSeries(merge_steps, make_steps(DAY))
    steps = list(series)
    assert len(steps) == len(series) < 5 * HOUR
    assert all(earlier.ended == later.began for earlier, later in pairwise(steps))
    assert (steps[0].began, steps[-1].ended) == (0.0, DAY)
    lengths = [step.length_s for step in steps]
    assert lengths == sorted(lengths, reverse=True)
    assert set(lengths) == {1, 2, 4, 8, 16}


def test_a_day_is_small() -> None:
    series = AgingSeries(merge_steps, make_steps(DAY))
    assert len(pickle.dumps(series._ages)) < 1_000_000


def test_first_and_last() -> None:
    series = AgingSeries(merge_steps, make_steps(2 * HOUR))
    assert series.first.began == 0.0
    assert [step.began for step in series.last(2)] == [2 * HOUR - 2, 2 * HOUR - 1]


def test_a_time_that_nothing_is_known_of_stays_one() -> None:
    assert merge_steps(Step(0, 1, {CPU: 1}), Step(2, 3, {CPU: 1})) is None


def make_use(at: float, roots: dict[tuple[int, float], Counters], memory: int) -> Use:
    return Use(at, roots, ("postgres",), memory, {})


def test_peak_of_memory_stays() -> None:
    own = {(1, 0.0): Counters(1.0, 0, 0)}
    assert merge_uses(make_use(1, own, 5), make_use(2, own, 9)) == make_use(1, own, 9)


def test_restart_stays() -> None:
    before, after = {(1, 0.0): Counters(1.0, 0, 0)}, {(2, 1.5): Counters(0.1, 0, 0)}
    assert merge_uses(make_use(1, before, 5), make_use(2, after, 9)) is None


def test_connection_that_ended_stays() -> None:
    first, second = NetworkSnapshot(1, {1: (0, 0)}), NetworkSnapshot(2, {2: (0, 0)})
    assert merge_networks(first, second) is None
    assert merge_networks(first, NetworkSnapshot(2, {1: (5, 5)})) == first
    assert merge_networks(first, NetworkSnapshot(2, None)) is None


def test_link_that_came_stays() -> None:
    link = {"eth0": Link(8000.0, 1, 1)}
    with_link = NetworkSnapshot(2, links=link)
    assert merge_networks(NetworkSnapshot(1), with_link) is None
    assert merge_networks(with_link, NetworkSnapshot(3, links=link)) == with_link
