"""Events of a recording: each row once in a repetition, whoever sends it, and copies at other times."""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from simulator.contract import Arrivals, DataSet, Load, StoredPart
from simulator.errors import OptionError, SimulatorError
from simulator.oracle.answers import answer_blocks
from simulator.worker.writing import count_left, make_recorded
from simulator.workloads import load_workload
from simulator.workloads.base import Workload
from simulator.workloads.drawing import Stored, bind
from simulator.workloads.numbering import (
    PASSES,
    WithHistory,
    add_history,
    find_clock_factor,
    make_retention,
)
from simulator.workloads.queries import Aggregate, Function, Query
from simulator.workloads.schema import EventBlock

Event = tuple[int, str, int | None, str, str]

ROWS = (
    # seconds, device, value, mode, site; the third row is late, a pump of its own is silent for long
    (0, "p1", 1, "on", "Köln"), (10, "p2", 2, "on", "Ulm"), (5, "p3", None, "off", "Ulm"),
    (12, "p1", 3, "", "Köln"), (12, "p2", 4, "on", "Ulm"), (400, "p1", 5, "off", "Köln"),
    (401, "p3", 6, "on", "Ulm"), (900, "p2", 7, "on", "Ulm"), (901, "p1", 8, "off", "Köln"),
)  # fmt: skip
BEGIN_S = 1_704_067_200


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IOTBENCH_RECORDINGS", str(tmp_path / "cache"))


def _make(folder: Path, recorded: dict[str, Any] | None = None, **options: Any) -> Workload:
    from simulator.workloads.recording.definition import RecordedDefinition

    file = folder / "pumps.csv.gz"
    lines = ["ts,pump,value,mode,site"]
    for second, device, value, mode, site in ROWS:
        lines.append(
            f'{BEGIN_S + second},{device},{"" if value is None else value},"{mode}",{site}'
        )
    file.write_bytes(gzip.compress("\n".join(lines).encode(), mtime=0))
    document: dict[str, Any] = {
        "name": "pumps",
        "recorded": {"file": str(file), **(recorded or {})},
    }
    document["recorded"]["store"] = RecordedDefinition.read(document).open().name
    return load_workload("pumps", document)(**options)


def _list(block: EventBlock) -> list[Event]:
    columns, missing = block.columns, block.missing["value"]
    return [
        (
            int(columns["ts"][row]) - 1000 * BEGIN_S,
            block.devices[row].decode(),
            None if missing[row] else int(columns["value"][row]),
            columns["mode"][row].decode(),
            columns["site"][row].decode(),
        )
        for row in range(len(block))
    ]


def _list_all(workload: Workload, workers: int) -> list[Event]:
    """A repetition of all workers."""
    return [
        event
        for worker in range(workers)
        for event in _list(workload.block(worker, 0, workload.turn(worker)))
    ]


RECORDED = [(1000 * second, *row) for second, *row in ROWS]


def test_one_worker_sends_the_rows_as_they_are_and_then_again_a_period_later(
    tmp_path: Path,
) -> None:
    workload = _make(tmp_path)
    twice = _list(workload.block(0, 0, 18))
    assert twice[:9] == RECORDED
    [period] = {after[0] - before[0] for before, after in zip(twice[:9], twice[9:], strict=True)}
    assert period > 901_000
    assert [event[1:] for event in twice[9:]] == [event[1:] for event in RECORDED]
    assert workload.schema.column("site").tag
    assert not workload.schema.column("mode").tag


@pytest.mark.parametrize("workers", [2, 3])
def test_workers_have_whole_devices_and_together_each_row_once(
    tmp_path: Path, workers: int
) -> None:
    workload = _make(tmp_path, sharing_workers=workers)
    assert sorted(_list_all(workload, workers), key=str) == sorted(RECORDED, key=str)
    owners = [set(workload.devices(worker).tolist()) for worker in range(workers)]
    assert sum(map(len, owners)) == len(set.union(*owners)) == 3


@pytest.mark.parametrize("recorded", [{}, {"fleet": 4}, {"devices": 2}, {"devices": 2, "fleet": 3}])
def test_a_worker_has_as_many_events_as_its_devices_have_rows(
    tmp_path: Path, recorded: dict[str, Any]
) -> None:
    for workers in (1, 2):
        workload = _make(tmp_path, recorded | {"repeat": False}, sharing_workers=workers)
        assert workload.ends
        for worker in range(workers + 2):
            twice = _list(workload.block(worker, 0, 2 * workload.turn(worker)))
            begin, again = twice[: len(twice) // 2], twice[len(twice) // 2 :]
            assert [event[1:] for event in begin] == [event[1:] for event in again]
            [later] = {b[0] - a[0] for a, b in zip(begin, again, strict=True)}
            assert later == 1000 * workload.own_length_s


def test_the_last_request_of_a_recording_is_due_with_its_last_event_and_none_after_it(
    tmp_path: Path,
) -> None:
    load = Load(batch=4, rate_per_s=1.0, arrivals=Arrivals.RECORDED)
    for repeat in (True, False):
        workload = _make(tmp_path, {"repeat": repeat})
        assert workload.own_rate_per_s is not None
        due_s = make_recorded(workload, 0, load, 0)(0, 5) / workload.own_rate_per_s
        expected = [12, 900, 901, np.inf, np.inf]
        if repeat:
            length_s = workload.own_length_s
            expected[2:] = [length_s + 10, length_s + 401, 2 * length_s + 10]
        assert due_s == pytest.approx(expected)
        assert count_left(workload, 0, 7) == (None if repeat else 2)
    with pytest.raises(SimulatorError, match="the recording is over: all 9 events"):
        count_left(workload, 0, 9)


def test_copies_have_the_same_events_at_other_times_however_many_workers_send_them(
    tmp_path: Path,
) -> None:
    alone = sorted(_list_all(_make(tmp_path, {"fleet": 4}), 1), key=str)
    assert len(alone) == 4 * len(ROWS)
    for workers in (2, 3, 5, 12):
        shared = _make(tmp_path, {"fleet": 4}, sharing_workers=workers)
        assert sorted(_list_all(shared, workers), key=str) == alone
    shifts = set()
    for copy in range(4):
        ending = f"~{copy}" if copy else ""
        names = [f"p{number}{ending}" for number in (1, 2, 3)]
        own = sorted(event for event in alone if event[1] in names)
        # As recorded, cut somewhere: what comes before the cut follows a period later.
        values = [event[2] for event in own if event[2] is not None]
        smallest = values.index(1)
        assert sorted(values) == list(range(1, 9))
        first = next(event for event in own if event[2] == 1)
        shifts.add(first[0])
        assert smallest == 0 or own[0][0] < first[0]
    assert len(shifts) == 4


def test_events_are_sent_in_the_order_in_which_they_are_due(tmp_path: Path) -> None:
    workload = _make(tmp_path, {"fleet": 6, "order": "time"}, sharing_workers=2)
    for worker in range(2):
        times = [event[0] for event in _list(workload.block(worker, 0, 60))]
        assert times == sorted(times)


@pytest.mark.parametrize(("fleet", "workers"), [(1, 1), (1, 2), (5, 1), (5, 4)])
def test_an_event_is_the_same_in_any_block_and_by_itself(
    tmp_path: Path, fleet: int, workers: int
) -> None:
    workload = _make(tmp_path, {"fleet": fleet}, sharing_workers=workers)
    for worker in range(workers + 1):
        whole = _list(workload.block(worker, 0, 100))
        pieces: list[Event] = []
        for first, count in ((0, 1), (1, 30), (31, 2), (33, 67)):
            pieces += _list(workload.block(worker, first, count))
        assert pieces == whole
        numbers = np.array([99, 3, 50, 51])
        devices, times = workload.locate(np.full(4, worker), numbers)
        expected = [whole[number] for number in numbers]
        assert [name.decode() for name in devices.tolist()] == [event[1] for event in expected]
        assert (times - 1000 * BEGIN_S).tolist() == [event[0] for event in expected]
        assert _list(workload.pick(worker, np.sort(numbers))) == [whole[n] for n in (3, 50, 51, 99)]


def test_disorder_bounds_how_far_a_late_event_lies_behind_later_ones(tmp_path: Path) -> None:
    for recorded in ({}, {"fleet": 7}):
        workload = _make(tmp_path, recorded)
        times = np.array([event[0] for event in _list(workload.block(0, 0, 200))])
        farthest = max(
            row - int(np.argmax(times > times[row]))
            for row in range(1, 200)
            if times[row] < times[:row].max(initial=0)
        )
        assert 1 <= farthest <= workload.disorder


def test_fewer_devices_are_a_sample_and_more_are_copies(tmp_path: Path) -> None:
    few = _make(tmp_path, devices=2)
    names = set(few.devices(0).tolist())
    assert len(names) == 2
    assert _list_all(few, 1) == [event for event in RECORDED if event[1].encode() in names]
    many = _make(tmp_path, devices=8, sharing_workers=3)
    all_names = [name.decode() for worker in range(3) for name in many.devices(worker).tolist()]
    assert len(set(all_names)) == 8
    assert sum("~" in name for name in all_names) == 5
    with pytest.raises(OptionError, match="too few for 4 workers"):
        _make(tmp_path, sharing_workers=4)


def _count(blocks: Sequence[EventBlock], workload: Workload) -> dict[str, int]:
    query = Query(
        name="count", compute=(Aggregate(function=Function.COUNT),), per=(workload.schema.device,)
    )
    return dict(answer_blocks(bind(query, 0), workload.schema, blocks).rows)


def test_stored_events_are_known_by_device_and_time(tmp_path: Path) -> None:
    workload = _make(tmp_path, {"fleet": 3})
    stored = Stored(workload, [StoredPart(0, 0, 40)])
    blocks = list(stored.blocks())
    counts = _count(blocks, workload)
    assert sum(counts.values()) == 40
    assert stored.device_count == len(counts)
    events = [event for block in blocks for event in _list(block)]
    start, end = stored.span_ms
    assert start == min(event[0] for event in events) + 1000 * BEGIN_S
    middle = (start + end) // 2
    newer = sum(event[0] + 1000 * BEGIN_S >= middle for event in events)
    assert stored.count_since(middle) == newer


def test_a_clock_factor_and_an_epoch_move_all_times(tmp_path: Path) -> None:
    plain = [event[0] for event in _list(_make(tmp_path).block(0, 0, 12))]
    moved = _make(tmp_path, clock_factor=3, epoch="2024-01-01T00:00:07Z")
    # The third row is late, and stays as late as it is.
    late = [5000 if number % len(ROWS) == 2 else 0 for number in range(12)]
    assert [event[0] for event in _list(moved.block(0, 0, 12))] == [
        7000 + 3 * (time + by) - by for time, by in zip(plain, late, strict=True)
    ]


def test_the_time_of_a_recording_in_order_is_known(tmp_path: Path) -> None:
    workload = _make(tmp_path, {"order": "time"})
    assert workload.disorder == 0
    stored = Stored(workload, [StoredPart(0, 1, 4)])
    assert stored.span_ms == (1000 * BEGIN_S + 5000, 1000 * BEGIN_S + 12_001)


@pytest.mark.parametrize("fleet", [1, 3])
def test_a_history_is_the_recording_played_before(tmp_path: Path, fleet: int) -> None:
    workload = _make(tmp_path, {"fleet": fleet}, sharing_workers=2, clock_factor=2)
    span_s = 5 * workload.own_length_s  # by the doubled clock two repetitions and a half
    history = add_history(workload, DataSet(prefill_span_s=span_s))
    assert isinstance(history, WithHistory)
    for worker in range(2):
        before = history.count_history(worker)
        due_ms = workload.find_due_ms(worker, np.array([before - 1, before]))
        assert due_ms[0] < 500 * span_s <= due_ms[1]
        assert _list(history.block(worker, before - 2, 4)) == _list(
            workload.block(worker, before - 2, 4)
        )
    with pytest.raises(OptionError, match="has its own: leave it out"):
        add_history(workload, DataSet(prefill_span_s=3600, prefill_every_s=60))


def test_a_retention_passes_in_a_short_run_of_copies_of_which_some_are_late(tmp_path: Path) -> None:
    """That a late event is older than the first says nothing of how far the run comes."""
    data, load = DataSet(retention_s=3600), Load(events=10)
    factor = find_clock_factor(_make(tmp_path, devices=300), data, load, own=10)
    workload = _make(tmp_path, devices=300, clock_factor=factor)
    assert workload.schema.epoch_ms < workload.begin_ms
    retention = make_retention(workload, data, load)
    assert retention is not None and retention.until_ms is not None
    passed_ms = retention.until_ms - workload.begin_ms
    assert passed_ms == pytest.approx(PASSES * retention.period_ms, rel=0.2)


def test_tags_can_have_a_table_of_their_own(tmp_path: Path) -> None:
    workload = _make(tmp_path, {"fleet": 2}, tags="table", sharing_workers=2)
    for worker in range(2):
        block = workload.block(worker, 0, 30)
        [rows] = workload.device_rows(worker)
        known = dict(zip(rows["tags_id"].tolist(), rows["pump"].tolist(), strict=True))
        assert [
            known[number] for number in block.row_columns["tags_id"].tolist()
        ] == block.devices.tolist()
