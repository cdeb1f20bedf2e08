"""Files of strangers, damaged in 300 ways: two lines at most, status 0 or 2, 500 MB, 10 s of CPU."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner

from cli import main
from simulator.errors import MOST_PROBLEMS

from ..helpers import begin_definition, configure_definition

ROOT = Path(__file__).parents[2]
RESULT = Path(__file__).parent / "stored" / "query.json"

CONFIG = (
    """\
namespace: default
kubernetes:
  keepAwayPolicy: preferred
targets:
  embedded:
    module: postgres
    executor: local
    start_server: postgresql
    data_dir: "${EMBEDDED_DATA_DIR:-/nowhere}"
    cost_per_hour: 1.25
    disturbances: ['30s restart-server', '40s run echo hello']
  hole: &hole
    module: blackhole
    executor: local
    encoder: postgres
    database_pids: [4711, 4712]
  other:
    <<: *hole
    max_retries: 3
workloads:
"""
    + configure_definition(
        begin_definition("boilers", "boiler", "Boilers of a house", devices=10, interval="1.5s")
    )
    + """\
      - {name: heat, type: float32, decimals: 1, signal: {kind: wander, low: 20, high: 80, period: 1h}}
"""
)

CAMPAIGN = """\
title: Two candidates
targets:
  hole:
  small: {target: other, seed: 2}
variants:
  plain: {batch: 100}
  large: {batch: 1000, tables: multiple}
options:
  workers: 2
  duration: 1s
steps:
  - insert:
  - insert: {rate: 1000}
    label: paced
repeats: 1
seed: 7
settle: 1s
"""


REQUIRED = """\
targets:
  hole: {target: hole}
options: {workload: boilers, workers: 2}
requirements:
  devices: 800
  insert: {p99: 250ms, batch: 50, error_share: 1%}
  history: {events: 20k}
  retention: 90d
  disk: 2TB
  cost_per_month: 800
  faults: {'run true': 60s}
price: {cpu_hour: 0.05, gb_month: 0.1}
repeats: 2
settle: 1s
"""


def workload() -> str:
    """One of the tool's own, with queries, under another name."""
    text = (ROOT / "simulator" / "workloads" / "machines.yaml").read_text()
    return text.replace("name: machines", "name: plants", 1)


def check_commands(
    folder: Path, source: str, file: Path, seeds: range, commands: Sequence[Sequence[str]]
) -> None:
    """What the commands make of a file, damaged by each of these seeds."""
    (folder / "source").write_text(source)
    file.parent.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(
        [
            sys.executable, "-m", "tests.cli.mutations", str(folder / "source"), str(file),
            str(seeds.start), str(seeds.stop), json.dumps(commands),
        ],
        cwd=ROOT, capture_output=True, text=True, timeout=230, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2_000:]
    outcomes = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(outcomes) == len(seeds) * len(commands)
    for outcome in outcomes:
        printed = outcome["out"] + outcome["err"]
        assert outcome["status"] in (0, 2), outcome
        assert "Traceback" not in printed, outcome
        assert "defect" not in outcome["err"], outcome
        assert outcome["status"] == 0 or len(outcome["err"].splitlines()) <= MOST_PROBLEMS + 1, (
            outcome
        )
        assert all(each.isprintable() or each in "\n\t" for each in printed), outcome
        assert outcome["cpu_s"] < 10, outcome
        assert outcome["peak_mb"] < 500, outcome
    assert {outcome["status"] for outcome in outcomes} == {0, 2}


def test_damaged_configs(tmp_path: Path) -> None:
    file, campaign = tmp_path / "config.yaml", tmp_path / "campaign.yaml"
    campaign.write_text(CAMPAIGN)
    dry_run = ["campaign", str(campaign), "--dry-run", "--output", str(tmp_path / "out")]
    commands = [["targets", "hole"], ["workloads", "boilers"], dry_run]
    named = [[*words, "-c", str(file)] for words in commands]
    check_commands(tmp_path, CONFIG, file, range(50), named)


def test_damaged_workloads(tmp_path: Path) -> None:
    file = tmp_path / "plants.yaml"
    check_commands(tmp_path, workload(), file, range(50, 100), [["workloads", str(file)]])


@pytest.mark.parametrize(
    ("source", "seeds"),
    [
        pytest.param(CAMPAIGN, range(100, 150), id="steps"),
        pytest.param(REQUIRED, range(224, 324), id="requirements"),
    ],
)
def test_damaged_campaigns(tmp_path: Path, source: str, seeds: range) -> None:
    file, config = tmp_path / "campaign.yaml", tmp_path / "config.yaml"
    config.write_text(CONFIG)
    output = ["--output", str(tmp_path / "out")]
    dry_run = ["campaign", str(file), "-c", str(config), "--dry-run", *output]
    check_commands(tmp_path, source, file, seeds, [dry_run])


def test_damaged_results(tmp_path: Path) -> None:
    """A folder's list names what it leaves out, and goes on."""
    store = tmp_path / "results"
    file = store / "one" / "result.json"
    table = ["results", "export", "--results", str(store), "--output", str(tmp_path / "runs.csv")]
    listed = ["results", "--results", str(store)]
    compared = ["compare", str(file), str(RESULT)]
    commands = [["results", "show", str(file)], listed, table, compared]
    check_commands(tmp_path, RESULT.read_text(), file, range(150, 200), commands)


@pytest.mark.parametrize("command", ["plot", "report"])
def test_damaged_results_in_figures(tmp_path: Path, command: str) -> None:
    file = tmp_path / "result.json"
    output = tmp_path / ("out.svg" if command == "plot" else "out.html")
    shown = [command, str(file), "--output", str(output)]
    check_commands(tmp_path, RESULT.read_text(), file, range(214, 224), [shown])


def test_a_label_may_have_any_character(tmp_path: Path) -> None:
    """ESC, NUL and U+FFFF ended `plot`: XML has none of them."""
    result = json.loads(RESULT.read_text())
    result["label"] = "a\x1b[2J\x00\uffff\u202eb"
    result["tags"] = {"key\x07": "\x9b1m\nnext line"}
    file, figure, page = tmp_path / "r.json", tmp_path / "f.svg", tmp_path / "p.html"
    file.write_text(json.dumps(result))
    commands = [
        ["plot", str(file), "--output", str(figure)],
        ["report", str(file), "--output", str(page)],
    ]
    for words in commands:
        done = CliRunner().invoke(main.commands, words, catch_exceptions=False)
        assert done.exit_code == 0, done.output
        assert "\x1b" not in done.output
    assert r"a\x1b[2J\x00\uffff\u202eb" in page.read_text()
    assert not set("\x1b\x00\uffff\u202e") & set(page.read_text() + figure.read_text())
