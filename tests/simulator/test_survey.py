"""Which events are in the database, recognised by their number and times."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import pytest

from simulator.contract import StoredPart
from simulator.errors import SimulatorError
from simulator.oracle.survey import Beginning, DeviceInventory, recognize_devices
from simulator.workloads import load_workload
from simulator.workloads.base import Workload
from simulator.workloads.cpu import Cpu
from simulator.workloads.defined import define
from simulator.workloads.temperature import Temperature
from simulator.workloads.yaml_source import parse_definition

from ..helpers import begin_definition, settings


def _with_gaps() -> Workload:
    text = begin_definition("pumps", "pump", devices=5, interval="10s")
    text = text.replace("interval: 10s", "interval: 10s\ngaps: {every: 10m, lasts: 2m}")
    signal = "{kind: uniform, low: 0, high: 9}"
    return define(
        parse_definition(f"{text}  - {{name: x, type: int32, signal: {signal}}}\n", "test")
    )()


def look(
    workload: Workload, *parts: StoredPart, time_origin: int = 0
) -> dict[bytes, tuple[int, int, int]]:
    """What a database with these events says of each device: number of events, first and last time."""
    devices: dict[bytes, tuple[int, int, int]] = {}
    for part in parts:
        block = workload.block(part.worker, part.first, part.count, time_origin)
        for device in np.unique(block.devices).tolist():
            times = block.columns[workload.schema.time][block.devices == device].tolist()
            count, first, last = devices.get(device, (0, min(times), max(times)))
            devices[device] = (count + len(times), min(first, *times), max(last, *times))
    return devices


def told(found: dict[bytes, tuple[int, int, int]]) -> DeviceInventory:
    return DeviceInventory.of((name.decode(), *numbers) for name, numbers in found.items())


each_workload = pytest.mark.parametrize(
    "workload",
    [
        Temperature(5, device_spread=7),
        Cpu(device_spread=3),
        load_workload("machines")(device_spread=5, late=0.1),
        _with_gaps(),
    ],
    ids=["temperature", "cpu", "machines", "gaps"],
)


@each_workload
@pytest.mark.parametrize(
    "parts",
    [
        [StoredPart(0, 0, 20)],
        [StoredPart(0, 0, 1)],
        # More events than the workload's edges hold, fewer than it has devices, and a later beginning.
        [StoredPart(0, 0, 9000), StoredPart(1, 0, 2), StoredPart(2, 3000, 5000)],
    ],
)
def test_events_of_the_workload_are_recognised(
    workload: Workload, parts: Sequence[StoredPart]
) -> None:
    assert recognize_devices(workload, told(look(workload, *parts))).parts == parts


@pytest.mark.parametrize(
    ("found", "said"),
    [
        ({}, "run insert first"),
        ({b"sensor-7": (3, 1, 2)}, "events of device 'sensor-7'"),
        (look(Temperature(5), StoredPart(0, 0, 9), StoredPart(2, 0, 9)), "device 'w00002d000000'"),
        (look(Temperature(6), StoredPart(0, 0, 9)), "9 consecutive events of seed 5"),
        (
            look(Temperature(5), StoredPart(0, 0, 9), StoredPart(0, 20, 9)),
            "18 consecutive events of seed 5",
        ),
        (
            look(Temperature(5), StoredPart(0, 9, 9), time_origin=9),
            "9 consecutive events of seed 5",
        ),
    ],
)
def test_others_are_not(found: dict[bytes, tuple[int, int, int]], said: str) -> None:
    with pytest.raises(SimulatorError, match=re.escape(said)):
        recognize_devices(Temperature(5), told(found))


@each_workload
@pytest.mark.parametrize("sent", [401, 1000])
def test_a_beginning_behind_sorted_events_is_later_than_all_of_them(
    workload: Workload, sent: int
) -> None:
    """Of 1,000 numbers, 400 are stored, up to the number `sent`."""
    time, edge = workload.schema.time, workload.disorder + 1

    def find_earliest_ms(first: int) -> int:
        blocks = (workload.block(worker, first, edge) for worker in range(2))
        return min(int(block.columns[time].min()) for block in blocks)

    newest_ms = int(workload.block(0, 0, sent).columns[time].max())
    begin = Beginning(settings(workers=2), workload, 400)
    skipped = begin.skip_to(newest_ms)
    assert find_earliest_ms(skipped.first_event) > newest_ms
    devices = workload.device_count(0)
    assert skipped.first_event < sent + (sent - 400) + 3 * devices + edge
    # Where no later number is stored, none is left out.
    assert begin.skip_to(find_earliest_ms(400) - 1) == begin
