"""Recordings that other people made, as packages ship them, are learnt, and events like them are made."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cli.plan.learning.comparing import compare
from cli.plan.learning.describing import Learnt, learn
from cli.plan.learning.samples import take_sample
from cli.plan.learning.writing import write_definition
from simulator.workloads.recording import Recorded, open_recording
from simulator.workloads.yaml_source import parse_definition

from ...simulator.test_public_recordings import find_public


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IOTBENCH_RECORDINGS", str(tmp_path / "cache"))


def read(name: str) -> Learnt:
    """What is learnt of a package's file. The middle of what is made of it is where that of the file is."""
    recording = open_recording(Recorded.model_validate(find_public(name)))
    learnt = learn(take_sample(recording), name="strange")
    assert parse_definition(write_definition(learnt), "strange.yaml") == learnt.definition
    comparison = compare(learnt)
    assert comparison.made.interval_ms == pytest.approx(comparison.recorded.interval_ms, rel=0.01)
    for pair in comparison.pairs:
        if found := pair.recorded.percentiles:
            width = found[-1] - found[0]
            assert pair.made.percentiles[2] == pytest.approx(found[2], abs=width / 5), pair.name
    return learnt


def signal_of(learnt: Learnt, name: str) -> Any:
    return next(column.signal for column in learnt.definition.columns if column.name == name)


def test_the_weather_of_seattle() -> None:
    """By vega_datasets: four years of days."""
    learnt = read("vega_datasets/_data/seattle-weather.csv")
    assert learnt.definition.interval == 86_400_000
    for name in ("temp_max", "temp_min"):
        assert signal_of(learnt, name).kind == "cycle"
        assert signal_of(learnt, name).period == pytest.approx(365.25 * 86_400_000, rel=0.03)
    assert signal_of(learnt, "precipitation").values["p50"] == 0
    assert set(signal_of(learnt, "weather").values) == {"drizzle", "rain", "sun", "snow", "fog"}


def test_the_prices_of_stocks() -> None:
    """By vega_datasets: five devices, one behind the other, a value each month."""
    learnt = read("vega_datasets/_data/stocks.csv")
    assert learnt.definition.devices.in_all == 5
    assert learnt.clock.by_device
    assert learnt.definition.interval == pytest.approx(30.4 * 86_400_000, rel=0.01)


def test_orders_of_electrical_equipment() -> None:
    """By statsmodels: a value each month."""
    learnt = read("statsmodels/datasets/elec_equip/elec_equip.csv")
    assert learnt.definition.interval == pytest.approx(30.4 * 86_400_000, rel=0.01)


def test_water_and_a_room() -> None:
    """By river: hours of a flow, with gaps; a room's sensors, every 16 minutes."""
    water = read("river/datasets/water-flow.csv")
    assert water.definition.interval == 3_600_000
    assert water.clock.gap_share > 0.05
    assert water.definition.gaps is not None
    room = read("river/drift/datasets/occupancy.csv")
    assert room.definition.interval == pytest.approx(960_000, rel=0.001)
    assert signal_of(room, "v4").span[0] > 0
    # Their values are means of a sensor's steps, which no decimals hold.
    assert room.sample.columns[0].decimals is None
    assert room.definition.columns[2].decimals is not None


@pytest.mark.parametrize(
    ("name", "hours"),
    [
        ("statsmodels/datasets/co2/co2.csv", 7 * 24),
        ("vega_datasets/_data/sf-temps.csv", 1),
        ("river/datasets/sp500.csv.gz", 24),
    ],
)
def test_carbon_dioxide_a_city_and_an_index(name: str, hours: int) -> None:
    """Weeks, hours, and days of trade."""
    definition = read(name).definition
    assert definition.interval == 3_600_000 * hours
    if hours == 24:  # but not at weekends
        assert definition.gaps is not None
        assert definition.gaps.every == pytest.approx(7 * 86_400_000, rel=0.02)
        assert definition.gaps.lasts == pytest.approx(2 * 86_400_000, rel=0.05)
