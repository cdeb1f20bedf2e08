"""Parameters of queries, drawn in blocks: the same whatever the block, and the same as ever."""

from __future__ import annotations

import random
from dataclasses import replace
from hashlib import sha256
from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

from simulator.contract import StoredPart
from simulator.testing.events import Awkward, Sundry
from simulator.workloads import SHIPPED, WORKLOADS, load_workload
from simulator.workloads.base import Workload
from simulator.workloads.cpu import Cpu
from simulator.workloads.drawing import Stored, draw, draw_block, find_row_count
from simulator.workloads.numbering import LateEvents
from simulator.workloads.queries import Query
from simulator.workloads.schema import EventBlock
from simulator.workloads.temperature import Temperature

OPTIONS: dict[str, dict[str, Any]] = {
    "machines": {"devices": 400, "sharing_workers": 4},
    "temperature": {"device_spread": 11},
    "cpu": {"device_spread": 3000},
    "trucks": {"device_spread": 60},
    "wide": {},
}
"""Devices of worker and fleet, few and many."""

TWO = ((0, 0, 200_000), (1, 1_000, 150_000))
FEW = ((0, 3, 40), (7, 300, 2_000), (2, 1_000_000, 9), (7, 0, 300))
ONE = ((3, 262_000, 9_000),)
"""Worker, first event, and how many; `ONE` lies in two windows of late events."""


class Drawn(NamedTuple):
    """What two readers drew in 200 executions of each query, for each workload."""

    seed: int
    parts: tuple[tuple[int, int, int], ...]
    share: float | None
    """The share of the events' time that is asked about; None: all. If it is small, most events are drawn
    again and again."""
    digests: dict[str, str]


# As drawn by numpy's generators, one for each execution, and from a block of one event each.
DRAWN = (
    Drawn(
        0,
        TWO,
        None,
        {
            "machines": "c9503e8724322a3c",
            "temperature": "4177100d930bbc10",
            "cpu": "929261354393e4f1",
            "trucks": "a6f3e2ed3b67857f",
            "wide": "f4f264d9fc77e63b",
        },
    ),
    Drawn(
        2**64 - 1,
        FEW,
        None,
        {
            "machines": "351fa928b756635c",
            "temperature": "580bc98ce6588bae",
            "cpu": "583f5112098d1fd2",
            "trucks": "51a036c1ed163428",
            "wide": "8c0e89c7b21bd120",
        },
    ),
    Drawn(
        7,
        ONE,
        0.4,
        {
            "machines": "10b58ca8869f6587",
            "temperature": "9edd92664f47bfa7",
            "cpu": "9f67a631937299a6",
            "trucks": "579d5dac939f812c",
            "wide": "b0c39d71eca22157",
        },
    ),
    Drawn(
        5_000_000_000,
        TWO,
        0.01,
        {
            "machines": "e0eb75d9d571f98b",
            "temperature": "d846510c2c600e40",
            "cpu": "c7cb044dbe88f486",
            "trucks": "8e12067bfb598f11",
        },
    ),
)


def store(
    workload: Workload, parts: tuple[tuple[int, int, int], ...], share: float | None
) -> Stored:
    stored_parts = [StoredPart(*part) for part in parts]
    stored = Stored(workload, stored_parts)
    if share is None:
        return stored
    begin, end = stored.span_ms
    return Stored(workload, stored_parts, begin + round((end - begin) * share))


@pytest.mark.parametrize("case", DRAWN, ids=lambda case: f"seed {case.seed}")
@pytest.mark.parametrize("name", OPTIONS)
def test_the_same_is_drawn_as_ever(case: Drawn, name: str) -> None:
    if name not in case.digests:
        return
    workload = load_workload(name)(seed=case.seed, **OPTIONS[name])
    stored, digest = store(workload, case.parts, case.share), sha256()
    for query in workload.schema.descriptions:
        for reader in (0, 3):
            for bound in draw_block(query, stored, reader, 0, 200):
                drawn = (query.name, bound.devices, bound.start_ms, bound.end_ms)
                digest.update(repr(drawn).encode())
    assert digest.hexdigest()[:16] == case.digests[name]


@pytest.mark.parametrize("name", OPTIONS)
def test_blocks_of_any_size_have_the_same_executions(name: str) -> None:
    workload = load_workload(name)(seed=5, **OPTIONS[name])
    stored = store(workload, ONE, 0.5)
    for query in workload.schema.descriptions:
        whole = list(draw_block(query, stored, 1, 50, 60))
        parts = [
            draw_block(query, stored, 1, first, count) for first, count in ((50, 51), (101, 9))
        ]
        assert [len(part) for part in parts] == [51, 9]
        assert [bound for part in parts for bound in part] == whole
        assert [draw(query, stored, 1, execution) for execution in (50, 77)] == [
            whole[0],
            whole[27],
        ]


def test_executions_are_counted_from_both_ends() -> None:
    query = Query.model_validate({"name": "asked", "events": ["temperature"]})
    block = draw_block(query, Stored(Temperature(), [StoredPart(0, 0, 9)]), 0, 4, 3)
    assert block[-1] == block[2]
    for number in (3, -4):
        with pytest.raises(IndexError):
            block[number]


# --- single events ------------------------------------------------------------------------------------


def check_single_events(workload: Workload, firsts: list[int], workers: list[int]) -> None:
    """Check the events from each of these numbers on, in any order."""
    pick = random.Random(8)
    events = []
    for worker in workers:
        for first in firsts:
            block = workload.block(worker, first, 70)
            times = block.columns[workload.schema.time].tolist()
            events += list(
                zip(
                    [worker] * 70,
                    range(first, first + 70),
                    block.devices.tolist(),
                    times,
                    strict=True,
                )
            )
    for count in (1, 40, len(events)):
        sample = pick.sample(events, count)
        columns: list[NDArray[np.int64]] = [
            np.array(column) for column in list(zip(*sample, strict=True))[:2]
        ]
        copies = [column.copy() for column in columns]
        devices, instants = workload.locate(*columns)
        assert list(zip(devices.tolist(), instants.tolist(), strict=True)) == [
            event[2:] for event in sample
        ]
        assert all(map(np.array_equal, columns, copies))


@pytest.mark.parametrize("options", [{}, {"device_spread": 1}, {"device_spread": 37}])
@pytest.mark.parametrize("name", [*WORKLOADS, *SHIPPED])
def test_single_events_are_those_of_blocks(name: str, options: dict[str, int]) -> None:
    check_single_events(
        load_workload(name)(seed=2**64 - 9, **options), [0, 262_100, 10**9], [0, 6, 99_999]
    )


@pytest.mark.parametrize("late", [0.0, 0.02, 0.5, 1.0])
@pytest.mark.parametrize("options", [{"device_spread": 5}, {"devices": 11, "sharing_workers": 3}])
def test_single_late_events_are_those_of_blocks(late: float, options: dict[str, int]) -> None:
    window = Sundry.window
    workload = Sundry(9, late=late, **options)
    check_single_events(workload, [0, window - 30, 2 * window - 70, 10**9], [0, 1, 2, 5])
    # And once more, when all windows are known.
    check_single_events(workload, [7 * window, 2 * window - 70, 0], [5, 0])


def test_windows_are_forgotten_when_they_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("simulator.workloads.numbering._KEPT_LATE", 100)
    window = Sundry.window
    workload = Sundry(9, late=0.1, device_spread=5)
    for _ in range(2):
        check_single_events(workload, [0, 3 * window], [0])
        check_single_events(workload, [window, 3 * window], [0])


def test_what_is_prepared_is_not_looked_for_when_events_are_drawn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    workload, window = Sundry(late=0.1, device_spread=5), Sundry.window
    assert workload._order is not None
    find, searched = workload._order._find_late, []

    def watch(worker: int, first: int, count: int) -> LateEvents:
        searched.append((worker, first))
        return find(worker, first, count)

    monkeypatch.setattr(workload._order, "_find_late", watch)
    parts = StoredPart(0, 30, window - 20), StoredPart(2, 8 * window - 9, 2 * window + 20)
    stored = Stored(workload, parts)
    searched.clear()
    stored.prepare_events()
    windows = [(0, 0), (0, window), *((2, number * window) for number in (7, 8, 9, 10))]
    assert sorted(searched) == windows
    stored.events(np.arange(stored.event_count))
    assert sorted(searched) == windows


def test_all_places_of_a_window_have_their_event() -> None:
    window = Sundry.window
    workload = Sundry(4, late=0.3, device_spread=9)
    devices, times = workload.locate(np.full(window, 2), np.arange(window, 2 * window))
    block = workload.block(2, window, window)
    assert np.array_equal(devices, block.devices)
    assert np.array_equal(times, block.columns["timestamp"])


def test_who_makes_blocks_of_another_kind_has_their_events_located() -> None:
    class Restarting(Temperature):
        def block(self, worker: int, first: int, count: int, time_origin: int = 0) -> EventBlock:
            return super().block(worker, first, count, 50)

    check_single_events(Restarting(device_spread=4), [3], [0, 1])
    check_single_events(Awkward(device_spread=4), [0, 50], [0, 1])


# --- how many rows an answer has ----------------------------------------------------------------------

NEWEST = {"newest": True, "events": ["temperature"]}
POINT = {"instant": True, "devices": 1, "events": ["temperature"]}
BY_DEVICE = {"order": {"by": 0}}


def count_rows(
    workload: Workload, asked: dict[str, Any], *parts: StoredPart, until: int | None = None
) -> int | None:
    query = Query.model_validate({"name": "asked", **asked})
    return find_row_count(query, Stored(workload, parts or [StoredPart(0, 0, 90)], until))


@pytest.mark.parametrize(
    ("asked", "rows"),
    [
        (POINT, 1),
        (POINT | {"where": {"column": "temperature", "above": 0}}, None),
        (POINT | BY_DEVICE | {"limit": 1}, 1),
        (NEWEST, 7),
        (NEWEST | {"devices": 1}, 1),
        (NEWEST | {"devices": 3}, 3),
        (NEWEST | {"devices": 10}, 7),
        (NEWEST | {"devices": ["w00000d000001"]}, None),
        (NEWEST | BY_DEVICE | {"limit": 7}, 7),
        (NEWEST | BY_DEVICE | {"limit": 6}, None),
        ({"events": ["temperature"]}, None),
        ({"compute": [{"function": "count"}]}, None),
    ],
)
def test_rows_are_known_where_they_follow_from_the_question(
    asked: dict[str, Any], rows: int | None
) -> None:
    assert count_rows(Temperature(device_spread=7), asked) == rows


def test_rows_are_known_only_of_what_is_certain() -> None:
    workload = Temperature(device_spread=7)
    # Writers may add devices, and events: not for the time of the point, nor to the newest of a device.
    until = workload.schema.epoch_ms + 9_000
    assert count_rows(workload, NEWEST, until=until) is None
    assert count_rows(workload, NEWEST | {"devices": 2}, until=until) == 2
    assert count_rows(workload, POINT, until=until) == 1
    # Not all devices have events; one is counted twice.
    assert count_rows(workload, NEWEST, StoredPart(0, 5, 3), StoredPart(1, 0, 7)) == 10
    twice = StoredPart(0, 0, 9), StoredPart(0, 20, 9)
    assert count_rows(workload, NEWEST, *twice) is None
    assert count_rows(workload, NEWEST | {"devices": 1}, *twice) is None
    # Late events of some devices may not have come.
    late = Sundry(late=0.1, device_spread=5)
    newest, window = {"newest": True, "events": ["select"]}, Sundry.window
    assert count_rows(late, newest, StoredPart(0, 0, 2 * window)) is None
    assert count_rows(late, newest, StoredPart(0, 0, 2 * window + 5)) == 5
    assert count_rows(Cpu(), POINT | {"events": ["ts"]}) == 1


def test_a_device_with_two_events_of_a_time_has_more_than_one_row() -> None:
    workload = Awkward()
    point = POINT | {"events": ["measure"]}
    assert count_rows(workload, point) == 1
    workload.schema = replace(workload.schema, key=("device", "noted_at", "order"))
    assert count_rows(workload, point) is None
