"""A module in a package of its own (examples/sqlite): one folder, and the suite and the tool run on it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from simulator.testing.__main__ import main as run_suite

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "sqlite"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that the package is installed in."""
    source = tmp_path_factory.mktemp("source") / "sqlite"
    shutil.copytree(EXAMPLE, source, ignore=shutil.ignore_patterns("__pycache__"))
    folder = tmp_path_factory.mktemp("installed")
    subprocess.run(
        [
            sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index",
            "--no-build-isolation", "--target", str(folder), str(source),
        ],
        check=True, capture_output=True,
    )  # fmt: skip
    return folder


def run(packages: Path, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Python with the package and this checkout, from another folder."""
    paths = os.pathsep.join([str(packages), str(ROOT)])
    environment = os.environ | {"PYTHONPATH": paths, "SQLITE_FILE": str(folder / "iot.sqlite")}
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip


def suite(packages: Path, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    options = ("-q", "-p", "no:cacheprovider", *arguments)
    return run(packages, folder, "-m", "simulator.testing", *options)


def test_the_suite_runs_on_it(installed: Path, tmp_path: Path) -> None:
    done = suite(installed, tmp_path, "--module", "sqlite")
    assert done.returncode == 0, done.stdout + done.stderr
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed is not None
    assert int(passed[1]) >= 60


def test_the_suite_finds_what_is_wrong(installed: Path, tmp_path: Path) -> None:
    """Here: an event that is acknowledged, but not stored."""
    broken = tmp_path / "broken"
    shutil.copytree(installed, broken)
    module = broken / "iot_sqlite" / "__init__.py"
    kit = "simulator.modules.kit.sql_module"
    lost = f"from {kit} import DbapiWriter\nDbapiWriter.send = lambda _, p: p.events\n"
    module.write_text(f"{module.read_text()}\n{lost}")
    done = suite(broken, tmp_path, "--module", "sqlite", "-x", "-k", "every_way")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "1 failed" in done.stdout


def test_the_tool_runs_with_it(installed: Path, tmp_path: Path) -> None:
    config = ("--config", str(EXAMPLE / "config.yaml"))
    small = ("--workers", "1", "--runs", "1", "--num-inserts", "500", "--batch", "50")
    done = run(
        installed, tmp_path, str(ROOT / "run.py"), "insert", "--target", "sqlite", *config, *small
    )
    assert done.returncode == 0, done.stderr
    done = run(installed, tmp_path, str(ROOT / "run.py"), "query", "--target", "sqlite", *config)
    assert done.returncode == 0, done.stderr
    assert "newest-per-device" in done.stdout


@pytest.mark.parametrize(
    ("module", "told"),
    [
        (
            "blackhole",
            "an entry point 'blackhole' of the group iot_database_benchmark.contract",
        ),
        ("postgress", "did you mean postgres?"),
    ],
)
def test_a_module_without_a_server_for_the_suite_is_told_what_to_name(
    module: str, told: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["simulator.testing", "--module", module])
    with pytest.raises(SystemExit) as ended:
        run_suite()
    assert ended.value.code == 2
    assert told in capsys.readouterr().err
