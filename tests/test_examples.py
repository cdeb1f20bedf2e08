"""What teams build around the tool: servers by Compose, Prometheus and Grafana, GitHub's workflows."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import yaml

from cli.plan.config import load_config
from cli.plan.target import ExecutorName
from cli.run.live.server import _PREFIX, _list_metrics
from simulator.modules import load_module
from simulator.modules.options import parse_options

from .cli.run.live.test_metrics import FIGURES

ROOT = Path(__file__).resolve().parents[1]
COMPOSE = ROOT / "examples" / "compose"
MONITORING = ROOT / "examples" / "monitoring"


def _read(file: Path) -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load(file.read_text())
    return document


# --- Compose --------------------------------------------------------------------------------------


def test_compose_starts_the_targets_of_its_config_file() -> None:
    services = _read(COMPOSE / "compose.yaml")["services"]
    config = load_config(COMPOSE / "config.yaml")
    assert set(services) == set(config.target_names)
    for name, service in services.items():
        target = config.target(name)
        assert target.executor is ExecutorName.LOCAL
        options = parse_options(load_module(target.module).options_model, target.options, str)
        published = {port.rpartition(":")[0] for port in service["ports"]}
        assert {f"127.0.0.1:{port.rpartition(':')[2]}" for port in service["ports"]} == published
        named = re.findall(r"127\.0\.0\.1(?::| port=)(\d+)", str(target.options))
        assert {f"127.0.0.1:{port}" for port in named} == published
        for key, value in service.get("environment", {}).items():
            if key in ("POSTGRES_PASSWORD", "DOCKER_INFLUXDB_INIT_ADMIN_TOKEN"):
                assert value in options.secrets()
            if key == "DOCKER_INFLUXDB_INIT_ORG":
                assert value == target.options["org"]


def test_images_are_those_that_the_contract_suite_is_for() -> None:
    tested = {
        service["image"] for service in _read(ROOT / "tests/compose.yaml")["services"].values()
    }
    images = {service["image"] for service in _read(COMPOSE / "compose.yaml")["services"].values()}
    assert len(images) == 3
    assert images <= tested
    assert any(image in (ROOT / "action.yml").read_text() for image in images)


# --- Prometheus and Grafana -----------------------------------------------------------------------


def test_dashboard_and_rules_have_every_metric_that_there_is_and_no_other() -> None:
    there = {_PREFIX + name for name, _, _ in _list_metrics(FIGURES)}
    dashboard, rules = (
        (MONITORING / name).read_text() for name in ("dashboard.json", "rules.yaml")
    )
    shown = set(re.findall(rf"{_PREFIX}\w+", dashboard))
    assert shown == there
    assert set(re.findall(rf"{_PREFIX}\w+", rules)) <= there


def test_the_dashboard_can_be_imported() -> None:
    dashboard = json.loads((MONITORING / "dashboard.json").read_text())
    assert [item["name"] for item in dashboard["templating"]["list"]] == [
        "datasource", "job", "instance",
    ]  # fmt: skip
    panels = dashboard["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    for panel in panels:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        assert panel["title"] and panel["description"] and panel["fieldConfig"]["defaults"]["unit"]
        for target in panel["targets"]:
            assert 'job="$job",instance=~"$instance"' in target["expr"]
            assert target["datasource"]["uid"] == "${datasource}"
    for one, other in combinations((panel["gridPos"] for panel in panels), 2):
        beside = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        assert beside or one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]


def test_prometheus_reads_the_rules_and_the_file_that_the_command_writes() -> None:
    config = _read(MONITORING / "prometheus.yaml")
    assert [(MONITORING / name).is_file() for name in config["rule_files"]] == [True]
    (job,) = config["scrape_configs"]
    (found,) = job["file_sd_configs"]
    (file,) = found["files"]
    page = (ROOT / "docs/how-to/inserts.md").read_text()
    assert f"--prometheus {file}\n" in page


# --- GitHub ---------------------------------------------------------------------------------------


def _find_steps() -> list[dict[str, Any]]:
    steps: list[dict[str, Any]] = _read(ROOT / "action.yml")["runs"]["steps"]
    return steps


@pytest.mark.parametrize("step", _find_steps(), ids=lambda step: step["name"])
def test_shellcheck_has_nothing_against_the_action(step: dict[str, Any]) -> None:
    checked = subprocess.run(
        [Path(sys.executable).with_name("shellcheck"), "--shell", "bash", "-"],
        input=step["run"], capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert checked.stdout == ""
    # What a workflow passes is never part of a script.
    assert "${{" not in step["run"]


def _act(folder: Path, arguments: str) -> tuple[int, str, dict[str, str], str]:
    """Run the action's second step as GitHub does: status, what it printed, outputs, summary."""
    tool = folder / "bin" / "iotbench"
    tool.parent.mkdir()
    tool.write_text(f'#!/bin/sh\nexec {sys.executable} {ROOT / "run.py"} "$@"\n')
    tool.chmod(0o755)
    files = {name: folder / name for name in ("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY")}
    environment = {
        **os.environ, **{name: str(file) for name, file in files.items()},
        "RUNNER_TEMP": str(folder), "ARGUMENTS": arguments, "PATH": f"{tool.parent}:{os.environ['PATH']}",
    }  # fmt: skip
    done = subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", _find_steps()[1]["run"]],
        cwd=folder, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    outputs = dict(line.split("=", 1) for line in files["GITHUB_OUTPUT"].read_text().splitlines())
    return done.returncode, done.stdout, outputs, files["GITHUB_STEP_SUMMARY"].read_text()


def test_the_action_annotates_each_run_that_misses_a_limit(tmp_path: Path) -> None:
    status, printed, outputs, summary = _act(
        tmp_path,
        "insert --target blackhole --workers 1 --runs 2 --duration 0.2s --batch 10"
        " --limit p99=0.0001ms --label 'a  label; exit 0'",
    )
    assert (status, outputs["status"]) == (3, "3")
    assert re.findall(r"^::error title=([\w ]+)::(.*)$", printed, re.MULTILINE) == [
        ("Limit missed or not decided", f"blackhole, workers: 1, run {run}: p99=0.0001ms missed")
        for run in (1, 2)
    ]
    assert summary.startswith("| target") and summary.count("\n| blackhole") == 2
    (result,) = Path(outputs["results"]).glob("*/result.json")
    assert json.loads(result.read_text())["label"] == "a  label; exit 0"


def test_the_action_annotates_wrong_usage(tmp_path: Path) -> None:
    status, printed, outputs, _ = _act(tmp_path, "insert --target gone")
    assert (status, outputs["status"]) == (2, "2")
    (error,) = re.findall(r"^::error (.*)$", printed, re.MULTILINE)
    assert error.startswith("title=iotbench ended with status 2::error: there is no config file")
