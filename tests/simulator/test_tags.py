"""Tags in a table of their own: ids, rows of devices, and which modules can."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from simulator.collector.database import Preparation
from simulator.errors import OptionError, Retryable, SimulatorError
from simulator.modules import load_module, module_names
from simulator.modules.base import Job, Support
from simulator.modules.blackhole import Blackhole, BlackholeOptions
from simulator.modules.sending import Rows
from simulator.testing.events import Sundry, rows_of
from simulator.worker.writing import store_devices
from simulator.workloads.base import Workload, device_ids
from simulator.workloads.cpu import Cpu
from simulator.workloads.defined import define
from simulator.workloads.drawing import BoundQuery
from simulator.workloads.schema import LazyColumns, number_devices
from simulator.workloads.temperature import Temperature
from simulator.workloads.yaml_source import parse_definition

from ..helpers import begin_definition, settings

KINDS = (Temperature, Cpu, Sundry)


@pytest.mark.parametrize("worker", [0, 7, 90210, 99999])
def test_an_id_is_the_number_in_the_name(worker: int) -> None:
    numbers = np.array([0, 1, 9, 10, 42, 123_456, 999_999], dtype=np.int64)
    names = device_ids(worker, numbers)
    assert number_devices(names).tolist() == [
        worker * 1_000_000 + number for number in numbers.tolist()
    ]
    # Some of them, as several tables are dealt events.
    assert number_devices(names[1::2]).tolist() == number_devices(names).tolist()[1::2]
    assert number_devices(names[:0]).tolist() == []


def test_names_of_another_kind_have_no_id() -> None:
    for name in (b"truck-12", b"truck-0000012"):
        with pytest.raises(OptionError, match=f"not '{name.decode()}'"):
            number_devices(np.array([name]))

    class Own(Temperature):
        def devices(self, worker: int) -> NDArray[np.bytes_]:
            return np.array([b"w0000%dd000001" % worker, b"w0000%dc000002" % worker])

    with pytest.raises(OptionError, match=r"has device names unlike .* use tags=row"):
        list(Own(device_spread=2, tags="table").device_rows(3))


@pytest.mark.parametrize("kind", KINDS)
def test_events_are_those_with_tags_in_rows(kind: type[Workload]) -> None:
    own, apart = (kind(seed=3, device_spread=5, tags=tags) for tags in ("row", "table"))
    assert rows_of(apart.block(2, 7, 40)) == rows_of(own.block(2, 7, 40))
    # A part of what isn't made yet.
    parts = (workload.block(2, 7, 40).part(3, 30, 4) for workload in (apart, own))
    rows, expected = (rows_of(part) for part in parts)
    assert rows == expected


@pytest.mark.parametrize("kind", KINDS)
def test_a_row_has_the_id_and_no_tags(kind: type[Workload]) -> None:
    workload = kind(device_spread=5, tags="table")
    schema = workload.schema
    block = workload.block(2, 0, 9)
    names = [column.name for column in schema.row]
    assert set(block.row_columns) == set(names)
    assert names.count("tags_id") == 1
    apart = [column.name for column in schema.tags_row[1:]]
    assert sorted([*names, *apart]) == sorted(["tags_id", *(c.name for c in schema.columns)])
    assert schema.device in apart
    assert block.key_of(6)["tags_id"] == number_devices(block.devices)[6]
    assert tuple(block.key_of(6)) == schema.row_key
    if isinstance(block.columns, LazyColumns):
        assert not set(apart) - {schema.device} & set(block.columns._made), "made for nothing"


@pytest.mark.parametrize(
    ("workload", "workers"),
    [
        (Temperature(tags="table"), [0, 4]),
        (Cpu(device_spread=10_003, extra_tags=1, tags="table"), [1]),
        (Sundry(devices=11, sharing_workers=3, tags="table"), [0, 1, 2, 3]),
    ],
)
def test_each_device_has_one_row(workload: Workload, workers: list[int]) -> None:
    """With the tags that its events have."""
    seen: dict[int, tuple[object, ...]] = {}
    for worker in workers:
        parts = list(workload.device_rows(worker))
        columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        assert list(columns) == [column.name for column in workload.schema.tags_row]
        rows = list(zip(*(values.tolist() for values in columns.values()), strict=True))
        assert len(rows) == workload.device_count(worker) == len(workload.devices(worker))
        seen |= {row[0]: row[1:] for row in rows}
        block = workload.block(worker, 5, 50)
        ids = number_devices(block.devices).tolist()
        names = [column.name for column in workload.schema.tags_row[1:]]
        tags = zip(*(block.columns[name].tolist() for name in names), strict=True)
        for device_id, row in zip(ids, tags, strict=True):
            assert seen[device_id] == row
    assert len(seen) == sum(workload.device_count(worker) for worker in workers)


def test_a_column_of_that_name_is_refused() -> None:
    column = "  - {name: tags_id, type: int32, signal: {kind: uniform, low: 0, high: 9}}\n"
    kind = define(parse_definition(begin_definition("mine", "thing") + column, "mine.yaml"))
    kind()
    with pytest.raises(OptionError, match="has a column tags_id, which tags=table creates"):
        kind(tags="table")


@pytest.mark.parametrize(
    ("stored", "clean", "problem"),
    [
        (None, True, []),
        (5, True, []),
        (4, True, ["table events_tags has 4 devices instead of 5"]),
        (6, True, ["table events_tags has 6 devices instead of 5"]),
        (4, False, ["table events_tags has 4 devices instead of 5"]),
        (6, False, ["3 events have no row in table events_tags"]),
    ],
)
def test_devices_are_counted_after_the_run(
    stored: int | None, clean: bool, problem: list[str]
) -> None:
    class Counting(Blackhole):
        def count_devices(self) -> int | None:
            return stored

        def count(self) -> int:  # type: ignore[override]
            return 10

        def compile(self, bound: BoundQuery) -> BoundQuery:
            return bound

        def fetch(self, statement: BoundQuery) -> Rows:
            return [("w00000d000000", 4), ("w00001d000000", 3)]

    workload = Temperature(device_spread=1, tags="table")
    run = settings(clean=clean, workers=5)
    module = Counting(BlackholeOptions(), Job.of(run, workload.schema))
    assert Preparation(run, module, workload).find_lost_devices(range(5)) == problem


class Failing(Blackhole):
    """Its first tries to store devices fail, after some are stored."""

    fails = 0

    def store_devices(self, rows: Iterable[Mapping[str, NDArray[Any]]]) -> None:
        self.stored = 0
        for columns in rows:
            self.stored += len(columns["tags_id"])
            if self.fails:
                self.fails -= 1
                raise Retryable("connection_lost", "gone", backoff_s=0.0)


def test_devices_are_stored_whatever_passes() -> None:
    workload = Temperature(device_spread=10_001, tags="table")
    module = Failing(BlackholeOptions(max_retries=2), Job(workload.schema))
    module.fails = 2
    aborted: list[int] = []
    store_devices(module, workload, 3, lambda: aborted.append(module.fails))
    assert module.stored == 10_001
    assert aborted == [1, 0]
    module.fails = 3
    with pytest.raises(SimulatorError, match=r"gave up after 2 retries \(connection_lost\): gone"):
        store_devices(module, workload, 3)


def test_modules_say_who_can() -> None:
    supports = {name: load_module(name).CAPABILITIES.tags_table for name in module_names()}
    no_joins = {"cassandra", "elasticsearch", "influxdb", "victoriametrics"}
    for name, support in supports.items():
        assert support is (Support.UNSUPPORTED if name in no_joins else Support.FULL), name
    schema = Cpu(tags="table").schema
    for support, text in {
        Support.UNSUPPORTED: "module cassandra: the database has no joins, for tags=table",
        Support.MISSING: "module cassandra can't do joins, for tags=table yet",
    }.items():
        can = replace(load_module("cassandra").CAPABILITIES, tags_table=support)
        can.require_workload(Cpu.schema, "cpu", "cassandra")
        assert can.workload(Cpu.schema) is Support.FULL
        assert can.workload(schema) is support
        with pytest.raises(OptionError) as refused:
            can.require_workload(schema, "cpu", "cassandra")
        assert str(refused.value) == text
