"""`import iotbench`: results as tables and beside each other, and what packages of their own build on."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import iotbench
import iotbench.database
from cli.results.export import COLUMNS
from cli.system.errors import ConfigError
from simulator.workloads.temperature import Temperature

from .made import inserts, open_loop, queries

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder `results` here, with three inserts and a query."""
    made = {
        "a": inserts({2: [10.0, 11.0]}),
        "b": inserts({2: [40.0, 44.0]}),
        "c": inserts({2: [11.0]}),
    }
    made["b"].target = "beta"
    made["d"] = queries({"newest": [0.5]})
    for name, result in made.items():
        folder = tmp_path / "results" / name
        folder.mkdir(parents=True)
        (folder / "result.json").write_text(result.model_dump_json())
    monkeypatch.chdir(tmp_path)
    return tmp_path / "results"


def test_a_folder_a_result_and_no_path_are_tables(results: Path) -> None:
    table = iotbench.load()
    assert table.column_names == list(COLUMNS)
    assert table["inserts_per_s"].to_pylist() == [10.0, 11.0, 40.0, 44.0, 11.0, None, None]
    assert iotbench.load(results) == table
    assert iotbench.load(results / "b", str(results / "c" / "result.json"))["result_id"].to_pylist() == [
        "b", "b", "c",
    ]  # fmt: skip
    with pytest.raises(ConfigError, match="no result 'gone'"):
        iotbench.load("gone")


def test_candidates_stand_beside_each_other(results: Path) -> None:
    speeds = iotbench.matrix(results, step="insert")
    assert list(speeds.rows) == ["alpha", "beta"]
    assert speeds.rows["alpha"].repetitions == 2
    (average,) = speeds.rows["beta"].average().values()
    assert average.mean == 42.0
    assert [
        place.key for place in iotbench.matrix(results, step="query").rows["alpha"].average()
    ] == ["query_mean_s"]
    with pytest.raises(ConfigError, match="no step 'inserts'"):
        iotbench.matrix(results, step="inserts")


def test_a_rate_that_was_given_is_no_speed(tmp_path: Path) -> None:
    for target, rate in (("alpha", 800.0), ("beta", 900.0)):
        result = open_loop({2: [rate, rate]})
        result.target, result.settings.load.rate_per_s = target, rate
        (tmp_path / target).mkdir()
        (tmp_path / target / "result.json").write_text(result.model_dump_json())
    for row in iotbench.matrix(tmp_path).rows.values():
        assert row.samples and "inserts_per_s" not in {place.key for place in row.samples[0]}
    (row, _) = iotbench.matrix(tmp_path, figures=["inserts_per_s"]).rows.values()
    assert {place.key for place in row.samples[0]} == {"inserts_per_s"}


def test_workloads_can_be_made_and_extended() -> None:
    assert iotbench.load_workload("temperature") is Temperature
    assert issubclass(Temperature, iotbench.Workload)


def test_packages_of_databases_need_nothing_else_of_the_tool() -> None:
    for file in (ROOT / "examples").glob("*/*/*.py"):
        names = re.findall(
            r"^(?:from|import) ((?:cli|simulator|iotbench)\S*)", file.read_text(), re.MULTILINE
        )
        assert set(names) <= {"iotbench.database", "iotbench.testing"}, file
    page = (ROOT / "docs/how-to/own-database.md").read_text()
    (table,) = re.findall(r"\n\| for \|.*\n((?:\|.*\n)+)", page)
    named = set(re.findall(r"`(\w+)`", table))
    assert named and named <= set(iotbench.database.__all__)
