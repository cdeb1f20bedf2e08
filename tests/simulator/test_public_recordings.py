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
    # package, settings, rows, devices
    "statsmodels/datasets/co2/co2.csv": (
        "statsmodels", {"time_format": "%Y%m%d", "span": "1970-01-01/2002-01-01"}, 1670, 1,
    ),
    "vega_datasets/_data/stocks.csv": (
        "vega_datasets", {"time": "date", "time_format": "%b %d %Y"}, 560, 5,
    ),
    "vega_datasets/_data/sf-temps.csv": (
        "vega_datasets", {"time": "date", "time_format": "%Y/%m/%d %H:%M:%S"}, 8759, 1,
    ),
    "river/datasets/water-flow.csv": ("river", {}, 1268, 1),
    "river/datasets/sp500.csv.gz": ("river", {}, 1257, 1),
}  # fmt: skip


@pytest.mark.parametrize("name", FILES)
def test_public_sample_data_is_replayed_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    package, settings, rows, devices = FILES[name]
    found = find_spec(package)
    if found is None or found.origin is None:
        pytest.skip(f"{package} is not installed")
    monkeypatch.setenv("IOTBENCH_RECORDINGS", str(tmp_path))
    recorded = {"file": str(Path(found.origin).parent.parent / name), **settings}
    document: dict[str, Any] = {"name": "public", "recorded": recorded}
    recording = RecordedDefinition.read(document).open()
    assert (len(recording), recording.header.devices) == (rows, devices)
    recorded["store"] = recording.name
    workload = load_workload("public", document)(seed=0)
    block = workload.block(0, 0, rows)
    assert np.array_equal(block.columns[workload.schema.time], recording.times_ms)
    for column in recording.columns:
        assert np.array_equal(block.columns[column.name], recording.values(column.name)[:rows]), (
            column
        )
    assert workload.block(0, rows, 1).columns[workload.schema.time][0] > recording.header.last_ms
