"""What definitions generate is learnt: their own parameters come back within a tenth, as far as events show
them."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet
import pytest

from cli.plan.learning.comparing import sample_block
from cli.plan.learning.describing import Learnt, learn
from cli.plan.learning.samples import take_sample
from simulator.workloads import load_workload
from simulator.workloads.cpu import METRICS
from simulator.workloads.defined import Defined
from simulator.workloads.definition import Definition
from simulator.workloads.recording import Recorded, open_recording
from simulator.workloads.signals import (
    Choice,
    Counter,
    Cycle,
    Follows,
    Hold,
    Normal,
    Uniform,
    Wander,
)

ROWS = 1_000_000


@cache
def relearn(name: str, devices: int, clock_factor: int = 1) -> tuple[Definition, Learnt]:
    """The definition of a shipped workload, and what is learnt of its events."""
    workload = load_workload(name)(3, devices=devices, clock_factor=clock_factor)
    assert isinstance(workload, Defined)
    block = workload.block(0, 0, ROWS // devices * devices)
    return workload.definition, learn(sample_block(block), name=name)


def near(value: float, width: float | None = None) -> Any:
    """Within a tenth of the value, or of the width that it is an end of."""
    return pytest.approx(value, rel=0.1) if width is None else pytest.approx(value, abs=width / 10)


def signals(definition: Definition) -> dict[str, Any]:
    return {name: column.signal for name, column in definition.each_column()}


def check_wander(found: Wander, own: Wander) -> None:
    assert found.kind == "wander"
    assert found.period == near(own.period)
    assert (found.low, found.high) == (
        near(own.low, own.high - own.low),
        near(own.high, own.high - own.low),
    )
    # Of smooth drift it is too small for a tenth of it to show in rounded values.
    assert found.roughness == pytest.approx(own.roughness, rel=0.1, abs=0.04)


def check_weights(found: Choice | Hold, own: Choice | Hold, draws: float) -> None:
    """Shares within a tenth, or what chance does to so many draws."""
    assert set(found.values) == set(own.values)
    for value in own.values:
        shares = [
            (one.weights or [1] * len(one.values))[one.values.index(value)]
            / sum(one.weights or [1] * len(one.values))
            for one in (own, found)
        ]
        assert shares[1] == pytest.approx(shares[0], rel=max(0.1, 4 / (draws * shares[0]) ** 0.5))


def test_machines() -> None:
    own, learnt = relearn("machines", 60)
    found = learnt.definition
    assert (found.interval, found.jitter) == (own.interval, near(own.jitter))
    assert found.late and own.late
    assert found.late.share == near(own.late.share)
    assert found.late.delay is own.late.delay
    assert (found.late.mean, found.late.most) == (near(own.late.mean or 0), near(own.late.most))
    assert [column.type for column in found.columns] == [column.type for column in own.columns]
    assert [column.tag for column in found.columns] == [column.tag for column in own.columns]
    for column, other in zip(found.columns, own.columns, strict=True):
        assert column.decimals == other.decimals
        assert column.missing == near(other.missing)
        assert column.missing_lasts is None
    learned, theirs = signals(found), signals(own)
    for name in ("temperature", "pressure"):
        check_wander(learned[name], theirs[name])
        assert learned[name].octaves == theirs[name].octaves
    vibration, power, pieces = (learned[name] for name in ("vibration", "power", "pieces"))
    assert isinstance(vibration, Normal)
    assert (vibration.mean, vibration.deviation) == (near(2.5), near(0.4))
    assert isinstance(power, Cycle)
    assert (power.low, power.high, power.period) == (near(3), near(45), near(86_400_000))
    assert power.noise == near(1.5)
    assert power.shift == pytest.approx(0.1, abs=0.02)  # of 16 devices' phases
    assert isinstance(pieces, Counter)
    assert (pieces.step, pieces.every, pieces.resets) == (1, near(12_000), None)
    assert pieces.spread == near(100_000)
    for name, lasts_ms in (("status", 1_200_000), ("door_open", 120_000)):
        assert isinstance(learned[name], Hold)
        assert learned[name].lasts == near(lasts_ms)
        check_weights(learned[name], theirs[name], 2 * 86_400_000 / lasts_ms * 60)
    assert isinstance(learned["errors"], Choice)
    check_weights(learned["errors"], theirs["errors"], ROWS)
    for name in ("hall", "model"):
        check_weights(learned[name], theirs[name], 60)


def test_trucks_that_move_within_minutes() -> None:
    own, learnt = relearn("trucks", 60)
    found = learnt.definition
    assert found.late and own.late
    assert (found.late.share, found.late.most) == (near(own.late.share), near(own.late.most))
    assert (found.late.delay, found.jitter) == (own.late.delay, 0)
    learned, theirs = signals(found), signals(own)
    for name in ("velocity", "heading", "grade", "fuel_consumption", "elevation"):
        check_wander(learned[name], theirs[name])
        assert found.columns[list(theirs).index(name)].decimals == (name == "fuel_consumption")
    for name, lasts_ms in (("current_load", 21_600_000), ("status", 600_000)):
        assert learned[name].lasts == near(lasts_ms)
        check_weights(learned[name], theirs[name], 2 * 86_400_000 / lasts_ms * 60)


def test_trucks_that_move_within_days() -> None:
    """What takes ten days is seen in half a year: the same trucks, half an hour from event to event."""
    own, learnt = relearn("trucks", 100, 180)
    learned, theirs = signals(learnt.definition), signals(own)
    assert learnt.definition.interval == 1_800_000
    for name in ("latitude", "longitude", "fuel_state"):
        check_wander(learned[name], theirs[name])


def test_cpu_with_its_tags(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Through a file. Its hosts' attributes combine as their numbers say: a datacenter is in one region."""
    monkeypatch.setenv("IOTBENCH_RECORDINGS", str(tmp_path / "cache"))
    block = load_workload("cpu")(0, device_spread=100).block(0, 0, 100_000)
    tags = [orjson.loads(text) for text in block.columns["tags"].tolist()]
    columns: dict[str, Any] = {name: [row[name] for row in tags] for name in tags[0]}
    columns["ts"] = pa.array(block.columns["ts"], pa.timestamp("ms"))
    columns |= {name: block.columns[name] for name in METRICS}
    file = tmp_path / "cpu.parquet"
    pyarrow.parquet.write_table(pa.table(columns), file)
    recording = open_recording(Recorded(file=str(file), device="hostname"))
    few = take_sample(recording, 100_000)
    # Five devices of a hundred, with all their events.
    assert (few.device_count, len(few.times_ms), few.recorded_devices) == (5, 5000, 100)
    definition = learn(take_sample(recording), name="cpu").definition
    learned = signals(definition)
    for name in METRICS:
        assert isinstance(learned[name], Uniform)
        assert learned[name].span == (0, 100)
    assert (definition.interval, definition.jitter, definition.late) == (100_000, 0, None)
    assert {column.name for column in definition.columns if column.tag} == {*tags[0]} - {"hostname"}
    followed = learned["region"]
    assert isinstance(followed, Follows)
    assert followed.column == "datacenter"
    pairs = zip(learned["datacenter"].values, followed.values, strict=True)
    assert all(datacenter.startswith(region) for datacenter, region in pairs)
    assert isinstance(learned["rack"], Choice)
