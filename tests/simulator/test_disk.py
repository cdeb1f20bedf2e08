"""The size on disk amid a run: when it is asked, and which events are in it."""

from __future__ import annotations

import pytest

from simulator.collector.report import count_acknowledged, is_amid, place_amid
from simulator.contract import Level, Load, Progress, Storage

from ..helpers import insert_run


def report(worker: int, done: int, elapsed_s: float = 1.0) -> Progress:
    return Progress(worker=worker, stage="run", elapsed_s=elapsed_s, done=done)


def test_a_run_of_events_is_amid_by_the_events_of_all_workers() -> None:
    load = Load(workers=2, events=1_000)
    assert not is_amid(load, [])
    assert not is_amid(load, [report(0, 700)])
    assert is_amid(load, [report(0, 700), report(1, 100)])


def test_a_run_by_the_clock_is_amid_by_its_time() -> None:
    load = Load(workers=2, duration_s=10.0)
    assert not is_amid(load, [report(0, 10_000, 3.9), report(1, 10, 3.5)])
    assert is_amid(load, [report(0, 10, 4.1)])


@pytest.mark.parametrize(
    ("at_s", "events"), [(0.0, 0), (0.5, 50), (1.0, 100), (2.25, 150), (9, 300)]
)
def test_events_are_acknowledged_evenly_within_a_second(at_s: float, events: int) -> None:
    assert count_acknowledged([(0, 100), (2, 200)], at_s) == events


def test_the_size_amid_a_run_is_that_of_the_events_by_then() -> None:
    run = insert_run(fill_level=1_000, timeline=[(0, 100)])
    placed = place_amid(run, 0.5, Storage(total_bytes=5_000))
    assert placed.level == Level(size_bytes=5_000, events=1_050)
    # What the database has counted itself stays, and so does why there is nothing.
    for storage in (
        Storage(total_bytes=5_000, level=Level(size_bytes=400, events=7)),
        Storage(reason="it would be flushed"),
    ):
        assert place_amid(run, 0.5, storage) == storage
