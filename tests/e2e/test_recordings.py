"""A recording of 40 devices, of which 80,000 are asked for."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from .tool import Tool

MAKE = Path(__file__).parents[2] / "examples/recorded/make.py"
FLEET = ("-t", "embedded", "-w", 2, "--batch", 100, "--workload-option", "devices=80000")


@pytest.fixture
def pumps(tool: Tool, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("IOTBENCH_RECORDINGS", str(tool.place / "cache"))
    subprocess.run([sys.executable, MAKE, tool.place], check=True)
    return tool.place / "pumps.csv"


def test_a_search_says_how_many_of_its_devices_a_rate_is(tool: Tool, pumps: Path) -> None:
    tool.run_here(
        "capacity", *FLEET, "--workload", pumps, "--step-duration", "1s", "--max-steps", 1, "--limit",
        "p50=10s", "--json", tool.json,
    )  # fmt: skip
    capacity = tool.result()["capacity"]
    assert len(capacity["steps"]) == 2
    if capacity["events_per_s"] is not None:
        # They send every 30 s, but for what is missing.
        assert capacity["devices"] == pytest.approx(capacity["events_per_s"] * 30.3, rel=0.01)


def test_old_events_of_copies_go_though_some_came_late(tool: Tool, pumps: Path) -> None:
    tool.run_here(
        "insert", *FLEET, "--workload", pumps, "--rate", 2640, "--duration", "5s", "--retention", "1d",
        "--runs", 1, "--json", tool.json,
    ).ok()  # fmt: skip
    (run,) = tool.result()["runs"]
    assert run["valid"], run["invalid_reasons"]
    assert run["retention"]["deletions"]
    assert run["retention"]["deleted"] > 0.3 * run["groups"][0]["count"]
    assert run["retention"]["remaining"] == 0
