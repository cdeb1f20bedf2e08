"""A history: which events it has, that the oracle answers over it and what follows, and that nothing grows
with it."""

from __future__ import annotations

import tracemalloc
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from simulator.contract import DataSet, Load, Role, RunSettings, StoredPart, make_groups
from simulator.errors import OptionError
from simulator.oracle.answers import answer, find_needed
from simulator.oracle.survey import (
    Beginning,
    OtherEvents,
    UnknownEvents,
    find_next,
    find_stored,
    recognize_devices,
)
from simulator.workloads import load_workload
from simulator.workloads.base import Workload
from simulator.workloads.drawing import BoundQuery, Stored, draw_block
from simulator.workloads.numbering import History, WithHistory, add_history
from simulator.workloads.queries import Query
from simulator.workloads.schema import EventBlock

from .collecting import FakeDatabase
from .test_survey import look, told

MAKES: list[tuple[str, dict[str, Any]]] = [
    ("temperature", {"device_spread": 3}),
    ("temperature", {"device_spread": 300}),
    ("cpu", {"device_spread": 2}),
    ("cpu", {"device_spread": 300, "tags": "table"}),
    ("machines", {"devices": 7, "sharing_workers": 2}),
    ("machines", {"device_spread": 40, "late": 0.2}),
    ("trucks", {"device_spread": 2, "tags": "table"}),
]
each_workload = pytest.mark.parametrize(("name", "options"), MAKES, ids=str)


def make(name: str, options: dict[str, Any], every: float = 5.5, steps: int = 20) -> WithHistory:
    """A workload with a history of this many steps; `every`: in intervals of a device."""
    base = load_workload(name)(3, **options)
    history = History(round(every * base.device_interval_ms), steps, base.device_interval_ms)
    return WithHistory(base, history)


def make_punctual(name: str, options: dict[str, Any]) -> Workload:
    """The workload itself, with no event late."""
    kind = load_workload(name)
    own = {"late": 0} if "late" in kind.options_model.model_fields else {}
    return kind(3, **options | own)


def rows_of(block: EventBlock) -> list[tuple[Any, ...]]:
    """Each event with all its values, None where one is missing."""
    columns = []
    for column in block.schema.columns:
        values = block.columns[column.name].tolist()
        missing = block.missing.get(column.name)
        if missing is not None:
            values = [None if absent else v for v, absent in zip(values, missing, strict=True)]
        columns.append(values)
    return list(zip(block.devices.tolist(), *columns, strict=True))


@each_workload
def test_it_has_events_of_the_workload_one_of_each_device_at_each_step(
    name: str, options: dict[str, Any]
) -> None:
    with_history, plain = make(name, options), make_punctual(name, options)
    for worker in range(2):
        own = plain.device_count(worker)
        assert with_history.count_history(worker) == 20 * own
        events = rows_of(with_history.block(worker, 0, 20 * own))
        # Every 5.5 intervals: ticks 0, 5, 11, 16, …
        ticks = [step * 11 // 2 for step in range(20)]
        assert ticks[:4] == [0, 5, 11, 16]
        right = [row for tick in ticks for row in rows_of(plain.block(worker, tick * own, own))]
        assert events == right


@each_workload
def test_what_follows_are_all_events_from_its_end_on(name: str, options: dict[str, Any]) -> None:
    with_history, plain = make(name, options), make_punctual(name, options)
    own = plain.device_count(1)
    # Late events are sent within windows: of whole windows, none is missing.
    count = with_history.disorder if with_history.late_share else 6 * own
    actual = with_history.block(1, with_history.count_history(1), count)
    right = plain.block(1, 110 * own, count)
    if not with_history.late_share:
        assert rows_of(actual) == rows_of(right)
        return
    instants, expected = (
        list(
            zip(
                block.devices.tolist(),
                block.columns[with_history.schema.time].tolist(),
                strict=True,
            )
        )
        for block in (actual, right)
    )
    assert instants != expected
    assert sorted(instants) == sorted(expected)


@each_workload
def test_blocks_of_any_cut_are_the_same(name: str, options: dict[str, Any]) -> None:
    workload = make(name, options)
    border = workload.count_history(0)
    first = max(0, border - 50)
    whole = workload.block(0, first, 100)
    assert whole.first == first
    for start, stop in ((0, 1), (0, 50), (49, 51), (13, 87), (50, 100), (99, 100)):
        part = workload.block(0, first + start, stop - start)
        assert rows_of(part) == rows_of(whole)[start:stop]
        assert part.first == first + start
    numbers = np.arange(first, first + 100, dtype=np.int64)
    devices, times = workload.locate(np.zeros(100, dtype=np.int64), numbers)
    assert devices.tolist() == whole.devices.tolist()
    assert times.tolist() == whole.columns[workload.schema.time].tolist()


@each_workload
def test_single_events_are_picked_as_blocks_have_them(name: str, options: dict[str, Any]) -> None:
    plain = make_punctual(name, options)
    numbers = np.array([0, 1, 2, 7, 700, 701, 100_000, 100_001], dtype=np.int64)
    picked = rows_of(plain.pick(1, numbers))
    assert picked == rows_of(Workload.pick(plain, 1, numbers))


def test_ticks_are_exact_after_billions_of_events() -> None:
    history = History(600_000, 10**9, 450)
    steps = np.array([10**9 - 1, 10**9, 10**9 + 5], dtype=np.int64)
    last = 10**9 * 600_000 // 450
    assert history.find_ticks(steps).tolist() == [(10**9 - 1) * 600_000 // 450, last, last + 5]
    assert history.ticks == last
    # An interval that is no whole number of milliseconds.
    assert History(1000, 4, 0.5).find_ticks(np.arange(6)).tolist() == [
        0,
        2000,
        4000,
        6000,
        8000,
        8001,
    ]


@pytest.mark.parametrize(
    ("span_s", "every_s", "said"),
    [
        (3600, 5, "--prefill-every 5s is shorter than the 10s from one event of a device"),
        (600, 3600, "--prefill-span 10m is shorter than --prefill-every 1h"),
        (0.4, 600, "--prefill-span 400ms is shorter than"),
    ],
)
def test_a_history_without_events_is_refused(span_s: float, every_s: float, said: str) -> None:
    data = DataSet(prefill_span_s=span_s, prefill_every_s=every_s)
    with pytest.raises(OptionError) as refused:
        add_history(load_workload("machines")(), data)
    assert said in str(refused.value)
    assert ": use a " in str(refused.value)


def test_a_span_that_is_no_multiple_has_as_many_steps_as_there_is_room_for() -> None:
    base = load_workload("machines")(device_spread=1, late=0)
    workload = add_history(base, DataSet(prefill_span_s=1500, prefill_every_s=600))
    assert isinstance(workload, WithHistory)
    times = workload.block(0, 0, 4).columns[workload.schema.time] - workload.schema.epoch_ms
    assert (times // 10_000).tolist() == [0, 60, 120, 121]


# --- the oracle -----------------------------------------------------------------------------------


class Enumerated(Stored):
    """The same events, all of which are looked at for each answer."""

    def find_between(self, start_ms: int | None, end_ms: int | None) -> Any:
        return super().find_between(None, None)


QUERIES = [
    Query.model_validate(description)
    for description in (
        {"name": "count", "compute": [{"function": "count"}], "window": {"span": "1h"}},
        {
            "name": "buckets",
            "compute": [{"function": "count"}, {"function": "avg", "column": "FIELD"}],
            "per": ["DEVICE", {"every": "7m"}],
            "window": {"span": "1h"},
            "devices": 2,
        },
        {"name": "events", "events": ["FIELD"], "devices": 1, "window": {"span": "20m"}},
        {"name": "newest", "newest": True, "events": ["FIELD"]},
    )
]


def fit(query: Query, workload: Workload) -> Query:
    schema = workload.schema
    text = query.model_dump_json()
    text = text.replace('"FIELD"', f'"{schema.fields[0]}"').replace(
        '"DEVICE"', f'"{schema.device}"'
    )
    return Query.model_validate_json(text)


@pytest.mark.parametrize(("name", "options"), [MAKES[0], MAKES[4], MAKES[5]], ids=str)
def test_answers_over_both_are_those_of_all_events(name: str, options: dict[str, Any]) -> None:
    workload = make(name, options, every=30, steps=60)
    parts = [
        StoredPart(worker, 0, workload.count_history(worker) + later)
        for worker, later in ((0, 900), (1, 0), (2, 37))
        if worker < 2 or name == "temperature"
    ]
    stored, enumerated = Stored(workload, parts), Enumerated(workload, parts)
    border_ms = int(
        workload.block(0, workload.count_history(0), 1).columns[workload.schema.time][0]
    )
    for query in (fit(template, workload) for template in QUERIES):
        bounds = list(draw_block(query, stored, 0, 0, 20))
        if query.window is not None:
            # Across the border, and right at it.
            half = query.window.span // 2
            bounds += [
                BoundQuery(query, bounds[0].devices, border_ms + at, border_ms + at + 2 * half)
                for at in (-half, -2 * half, 0)
            ]
        for bound in bounds:
            assert answer(bound, stored).all_rows == answer(bound, enumerated).all_rows


def count_brute(workload: Workload, parts: Sequence[StoredPart], start: int, end: int) -> int:
    times = [
        workload.block(p.worker, p.first, p.count).columns[workload.schema.time] for p in parts
    ]
    return sum(int(np.sum((instants >= start) & (instants < end))) for instants in times)


def test_counts_of_windows_are_those_of_a_plain_enumeration() -> None:
    workload = make("machines", {"device_spread": 40, "late": 0.2}, every=30, steps=60)
    parts = [StoredPart(0, 0, workload.count_history(0) + 3000)]
    stored = Stored(workload, parts)
    first, end = stored.span_ms
    for start in range(first - 50_000, end, 611_111):
        bound = BoundQuery(QUERIES[0], None, start, start + 1_234_567)
        [[count]] = answer(bound, stored).all_rows
        assert count == count_brute(workload, parts, start, start + 1_234_567)


BILLION = {"device_spread": 8000}


def test_nothing_grows_with_a_billion_events() -> None:
    """Neither time nor memory: a week is looked for among 1.04 billion events, and asked about."""
    base = load_workload("machines")(1, **BILLION)
    workload = add_history(base, DataSet(prefill_span_s=30 * 86_400, prefill_every_s=20.0))
    assert isinstance(workload, WithHistory)
    assert workload.count_history(0) == 1_036_800_000
    workload.block(0, 0, 10)
    tracemalloc.start()
    stored = Stored(workload, [StoredPart(0, 0, workload.count_history(0) + 50_000)])
    week = Query.model_validate(
        {"name": "w", "compute": [{"function": "count"}], "devices": 3, "window": {"span": "7d"}}
    )
    [bound] = list(draw_block(week, stored, 0, 5, 1))
    assert bound.start_ms is not None and bound.end_ms is not None
    assert bound.end_ms - bound.start_ms == 7 * 86_400_000
    # The week has this many events, and few more are looked at.
    [needed] = find_needed([bound], stored)
    assert needed.stop - needed.start == pytest.approx(8000 * 7 * 4320, abs=3 * workload.disorder)
    short = BoundQuery(QUERIES[0], None, bound.start_ms, bound.start_ms + 60_000)
    assert answer(short, stored).all_rows == [(3 * 8000,)]
    last = workload.block(0, workload.count_history(0) - 30_000, 60_000)
    assert len(last) == 60_000
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 60_000_000


# --- where a run on such tables begins ------------------------------------------------------------


def begin(workload: WithHistory, workers: int, prefill: int = 0, **more: Any) -> Beginning:
    settings = RunSettings(
        run_id="r", token="t", target="t", module="m", options={},
        groups=make_groups(Load(workers=workers), Load(role=Role.READ)),
        data=DataSet(prefill=prefill, prefill_span_s=1, prefill_every_s=1),
    )  # fmt: skip
    return Beginning(settings, workload, **more)


def test_a_first_run_loads_it_by_all_writers() -> None:
    workload = make("machines", {"devices": 7, "sharing_workers": 2})
    first = begin(workload, 2)
    assert [first.prefill_of(worker) for worker in range(3)] == [60, 80, 0]
    assert first.prefill == 140
    assert first.list_prefilled() == [StoredPart(0, 0, 60), StoredPart(1, 0, 80)]
    border_ms = workload.schema.epoch_ms + 110 * 10_000
    assert border_ms <= (first.find_frontier() or 0) < border_ms + 10_000


def test_a_later_run_goes_on_where_each_worker_ended_and_loads_what_is_not_there() -> None:
    workload = make("temperature", {"device_spread": 3})
    later = begin(workload, 3, next_events={0: 65, 1: 60, 7: 99})
    assert [later.first_of(worker) for worker in range(3)] == [65, 60, 0]
    assert [later.prefill_of(worker) for worker in range(3)] == [0, 0, 60]
    # What others have stored before is asked about, too.
    assert later.list_prefilled() == [
        StoredPart(0, 0, 65), StoredPart(1, 0, 60), StoredPart(2, 0, 60), StoredPart(7, 0, 99),
    ]  # fmt: skip


def test_before_what_has_gaps_the_history_is_known() -> None:
    workload = make("temperature", {"device_spread": 3})
    gaps = begin(workload, 2, next_events={0: 99, 1: 99}, is_certain=False)
    known = find_stored(gaps, FakeDatabase())
    assert known.parts == [StoredPart(0, 0, 60), StoredPart(1, 0, 60)]


def test_a_prefill_comes_behind_it_and_behind_what_is_there() -> None:
    workload = make("temperature", {"device_spread": 3})
    first = begin(workload, 2, prefill=11)
    assert [first.prefill_of(worker) for worker in range(2)] == [66, 65]
    later = begin(workload, 2, prefill=11, next_events={0: 70, 1: 65})
    assert [later.prefill_of(worker) for worker in range(2)] == [6, 5]
    assert later.list_prefilled() == [StoredPart(0, 0, 76), StoredPart(1, 0, 70)]


@each_workload
def test_stored_events_are_recognized_with_it_alone(name: str, options: dict[str, Any]) -> None:
    workload = make(name, options)
    workers = 2 if options.get("sharing_workers") else 3
    parts = [
        StoredPart(worker, 0, workload.count_history(worker) + 17 * worker)
        for worker in range(workers)
    ]
    inventory = told(look(workload, *parts))
    assert recognize_devices(workload, inventory).parts == parts
    with pytest.raises(UnknownEvents):
        recognize_devices(load_workload(name)(3, **options), inventory)
    with pytest.raises(UnknownEvents):
        recognize_devices(make(name, options, every=6), inventory)


def test_behind_gaps_nothing_is_sent_twice() -> None:
    workload = make("machines", {"device_spread": 40})
    border = workload.count_history(0)
    # A worker failed after 50 events, and the next run went on behind a gap.
    parts = [StoredPart(0, 0, border + 50), StoredPart(0, border + 500, 100)]
    inventory = told(look(workload, *parts))
    with pytest.raises(UnknownEvents):
        recognize_devices(workload, inventory)
    next_event = find_next(workload, inventory)[0]
    assert border + 600 <= next_event < border + 600 + 2 * 40 + workload.disorder + 1


@pytest.mark.parametrize("first", [1, 40, 800])
def test_tables_without_the_whole_history_are_refused(first: int) -> None:
    workload = make("machines", {"device_spread": 40})
    inventory = told(look(workload, StoredPart(0, first, 300)))
    with pytest.raises(OtherEvents, match="not the history's"):
        find_next(workload, inventory)
