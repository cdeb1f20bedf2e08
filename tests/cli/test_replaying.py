"""When the events of a recording are due, and how long that takes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cli.plan.replaying import end_with_recording, follow_recording, require_repetition
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


@pytest.fixture
def once(recorded: DataSet) -> DataSet:
    """The same, not repeated, shared by two workers."""
    assert recorded.definition is not None
    own = recorded.definition["recorded"] | {"repeat": False}
    return recorded.model_copy(
        update={
            "definition": recorded.definition | {"recorded": own},
            "workload_options": {"sharing_workers": 2},
        }
    )


@pytest.mark.parametrize(
    ("load", "given", "left", "told"),
    [
        # Nobody says how much: all of it.
        ({"speed": 0.0}, (), (None, 100, 200), ""),
        ({"speed": 1e4}, (), (None, 100, 200), ""),
        ({"speed": 1e4, "duration_s": 1.0}, (), (None, 100, 200), "in 0.1 s, and end the run"),
        ({"speed": 1e4, "duration_s": 0.05}, (), (0.05, 10_000, None), ""),
        ({"rate_per_s": 50.0, "duration_s": 60.0}, (), (None, 100, 200), "200 events are sent in 4 s"),
        ({"rate_per_s": 50.0, "duration_s": 3.0}, (), (3.0, 10_000, None), ""),
        ({"speed": 0.0, "duration_s": 9.0}, (), (9.0, 10_000, None), "ends with its 200 events"),
        ({"speed": 0.0, "events": 60}, ("events",), (None, 60, None), ""),
    ],
)  # fmt: skip
def test_a_run_ends_with_a_recording_that_is_not_repeated(
    once: DataSet, load: dict[str, Any], given: tuple[str, ...],
    left: tuple[float | None, int, int | None], told: str, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    followed = follow_recording(Load(workers=2, **load), once, given)
    planned = end_with_recording(followed, once, given)
    assert (planned.duration_s, planned.events, planned.events_in_all) == left
    error = capsys.readouterr().err
    assert told in error
    assert bool(told) == bool(error)


def test_more_events_than_a_recording_has_are_refused(once: DataSet) -> None:
    load = Load(workers=2, events=101, speed=0.0)
    with pytest.raises(
        ConfigError, match="200 events for the run: --num-inserts 100 is the most for 2"
    ):
        end_with_recording(load, once, {"events"})
    with pytest.raises(ConfigError, match="60 events for the run: --num-inserts 30 is"):
        end_with_recording(load, once, {"events"}, before=140)
    with pytest.raises(ConfigError, match="no events left for the run: give fewer before it"):
        end_with_recording(load, once.model_copy(update={"prefill": 200}))
    with pytest.raises(ConfigError, match="capacity needs events without an end"):
        require_repetition(once, "capacity")
    history = once.model_copy(update={"prefill_span_s": 900.0})
    assert end_with_recording(load, history).events_in_all == 20


def test_only_a_recording_has_a_speed() -> None:
    with pytest.raises(ConfigError, match="--speed is for recordings: workload temperature"):
        follow_recording(Load(speed=2.0), DataSet(), ())
    assert follow_recording(Load(), DataSet(), ()) == Load()
