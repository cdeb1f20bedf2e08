"""Recordings made by others: sample data that packages of the development environment bring along."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from simulator.workloads import load_workload
from simulator.workloads.recording.definition import RecordedDefinition

FILES: dict[str, tuple[str, dict[str, Any], int, int]] = {
        "statsmodels/datasets/co2/co2.csv": (
        "statsmodels", {"time_format": "%Y%m%d", "span": "1970-01-01/2002-01-01"}, 1670, 1,
    ),
    "vega_datasets/_data/stocks.csv": (
        "vega_datasets", {"time": "date", "time_format": "%b %d %Y"}, 560, 5,
    ),
    "vega_datasets/_data/sf-temps.csv": (
        "vega_datasets", {"time": "date", "time_format": "%Y/%m/%d %H:%M:%S"}, 8759, 1,
    ),
    "vega_datasets/_data/seattle-weather.csv": (
        "vega_datasets", {"time": "date", "device": "none", "time_format": "%Y/%m/%d"}, 1461, 1,
    ),
    "statsmodels/datasets/elec_equip/elec_equip.csv": (
        "statsmodels", {"time_format": "%b-%d-%Y"}, 257, 1,
    ),
    "river/datasets/water-flow.csv": ("river", {}, 1268, 1),
    "river/datasets/sp500.csv.gz": ("river", {}, 1257, 1),
    "river/drift/datasets/occupancy.csv": ("river", {"device": "none"}, 509, 1),
}  # fmt: skip
"""File -> package, settings, rows, devices."""


def find_public(name: str) -> dict[str, Any]:
    """The key `recorded` for a package's file."""
    package, settings, _, _ = FILES[name]
    found = find_spec(package)
    assert found is not None, f"{package} is not installed: pip install -e .[dev]"
    assert found.origin is not None
    return {"file": str(Path(found.origin).parent.parent / name), **settings}


@pytest.mark.parametrize("name", FILES)
def test_public_sample_data_is_replayed_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    _, _, rows, devices = FILES[name]
    monkeypatch.setenv("IOTBENCH_RECORDINGS", str(tmp_path))
    recorded = find_public(name)
    document: dict[str, Any] = {"name": "public", "recorded": recorded}
    recording = RecordedDefinition.read(document).open()
    assert (len(recording), recording.header.devices) == (rows, devices)
    recorded["store"] = recording.name
    workload = load_workload("public", document)(seed=0)
    block = workload.block(0, 0, rows)
    assert np.array_equal(block.columns[workload.schema.time], recording.times_ms)
    for column in recording.columns:
        values = recording.values(column.name)[:rows]
        if column.distinct is not None:
            values = recording.texts(column.name).take(values)
        assert np.array_equal(block.columns[column.name], values), column
    assert workload.block(0, rows, 1).columns[workload.schema.time][0] > recording.header.last_ms
