"""When the events of a recording are due, and how long that takes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cli.plan.replaying import follow_recording
from cli.plan.workloads import choose_workload
from cli.system.errors import ConfigError
from simulator.contract import Arrivals, DataSet, Load


@pytest.fixture
def recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DataSet:
    """Two pumps, an event of each every 10 s for 1,000 s."""
    monkeypatch.setenv("IOTBENCH_RECORDINGS", str(tmp_path / "cache"))
    file = tmp_path / "pumps.csv"
    rows = [f"{1_704_067_200 + 10 * row},{pump},{row}" for row in range(100) for pump in "ab"]
    file.write_text("\n".join(["ts,pump,value", *rows]))
    chosen = choose_workload(str(file), None)
    return DataSet(workload=chosen.kind.name, definition=chosen.definition)


@pytest.mark.parametrize(
    ("load", "given", "rate_per_s", "duration_s"),
    [
        ({"speed": 10.0}, (), 2.0, 100.0),
        ({"speed": 10.0, "duration_s": 7.0}, (), 2.0, 7.0),
        ({"speed": 10.0, "events": 50}, ("events",), 2.0, None),
        ({"duration_s": 5000.0}, (), 0.2, 5000.0),
        ({"speed": 0.0}, (), None, None),
        ({"rate_per_s": 5.0}, (), 5.0, None),
    ],
)
def test_a_recording_is_due_by_its_own_clock_unless_a_rate_or_none_is_asked_for(
    recorded: DataSet, load: dict[str, Any], given: tuple[str, ...],
    rate_per_s: float | None, duration_s: float | None,
) -> None:  # fmt: skip
    followed = follow_recording(Load(**load), recorded, given)
    assert followed.rate_per_s == (rate_per_s and pytest.approx(rate_per_s))
    assert followed.duration_s == (duration_s and pytest.approx(duration_s))
    is_recorded = rate_per_s is not None and "rate_per_s" not in load
    assert (followed.arrivals is Arrivals.RECORDED) == is_recorded


@pytest.mark.parametrize(
    ("load", "problem"),
    [
        ({}, "a run takes 16.7 min at this speed; give --speed 17"),
        ({"speed": 2.0, "rate_per_s": 5.0}, "--rate and --speed both say"),
    ],
)
def test_what_takes_long_or_is_said_twice_is_refused(
    recorded: DataSet, load: dict[str, Any], problem: str
) -> None:
    with pytest.raises(ConfigError, match=problem):
        follow_recording(Load(**load), recorded, ())


def test_only_a_recording_has_a_speed() -> None:
    with pytest.raises(ConfigError, match="--speed is for recordings: workload temperature"):
        follow_recording(Load(speed=2.0), DataSet(), ())
    assert follow_recording(Load(), DataSet(), ()) == Load()
