"""Everything that is wrong with a file is said at once: of a workload, a campaign and a config file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from cli.plan.config import load_config
from cli.plan.workloads import choose_workload
from cli.run.campaign.campaign import open_campaign
from cli.run.campaign.running import prepare
from cli.system.errors import ConfigError
from cli.system.processes import Interrupts
from simulator.errors import MOST_PROBLEMS, list_problems

CONFIG = """\
targets:
  one: {module: postgres, executor: local, connection_string: host=127.0.0.1}
  two: {module: questdb, executor: local}
"""


def test_ten_are_told_and_how_many_more() -> None:
    problems = [f"problem {number}" for number in range(MOST_PROBLEMS + 3)]
    told = list_problems([*problems, problems[0]]).splitlines()
    assert told == [*problems[:MOST_PROBLEMS], "and 3 more"]


def test_a_workload(tmp_path: Path) -> None:
    file = tmp_path / "boilers.yaml"
    file.write_text("""\
name: boilers
about: Boilers
table: boilers
time: at
device: boiler
interval: true
devices: {in_al: 5}
columns:
- {name: at, type: timestamp_ms}
- {name: boiler, type: txt}
- {name: heat, type: float32, signal: {kind: uniform, low: 90, high: 80}}
queries:
- {name: warm, events: [heat], wher: {}}
""")
    _check(
        lambda: choose_workload(str(file), None), file,
        "6: interval: write a duration with its unit",
        "7: devices.in_al: unknown key; did you mean in_all? (known: in_all, per_worker)",
        "10: columns[boiler].type: input should be ",
        "11: columns[heat].signal: low (90) must be below high (80)",
        "13: queries[warm].wher: unknown key; did you mean where? (known: ",
    )  # fmt: skip


def test_what_a_workloads_parts_name(tmp_path: Path) -> None:
    file = tmp_path / "boilers.yaml"
    file.write_text("""\
name: boilers
about: Boilers
table: boilers
time: at
device: boiler
interval: 1s
devices: {in_all: 5}
columns:
- {name: at, type: timestamp_ms}
- {name: boiler, type: text}
- {name: heat, type: float32, signal: {kind: uniform, low: 0, high: 80}}
queries:
- {name: warm, events: [het]}
- {name: hot, compute: [{function: avg, column: boiler}]}
- {name: hot, events: [heat]}
""")
    _check(
        lambda: choose_workload(str(file), None), file,
        "13: queries[warm].events[0]: there is no column 'het'; did you mean heat?",
        "14: queries[hot].compute[0].column: avg: boiler is of type text",
        "15: queries[hot]: there are two queries 'hot': rename one",
    )  # fmt: skip


def test_a_config_file(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("targets:\n  1: {}\n  yes: {}\n")
    _check(
        lambda: load_config(file), file,
        "2: YAML doesn't read the key 1 as text", "3: YAML doesn't read the key yes as text",
    )  # fmt: skip
    file.write_text("targts: {}\nnamspace: x\nworkloads: [1]\n")
    _check(
        lambda: load_config(file), file,
        "1: unknown key 'targts'; did you mean targets?",
        "2: unknown key 'namspace'; did you mean namespace?",
        "3: `workloads` needs names below it",
    )  # fmt: skip
    file.write_text("""\
targets:
  x:
    module: postgres
    executor: loca
    price: {cpu_hour: -1}
    cost_per_hour: much
    database_pids: all
    connection_string: host=${NOT_SET_ANYWHERE}
    kubernetes: {imag: x}
""")
    _check(
        lambda: load_config(file).target("x"), file,
        "8: targets.x.connection_string: environment variable NOT_SET_ANYWHERE is not set",
        "4: targets.x.executor: 'loca' isn't an executor",
        "6: targets.x.cost_per_hour: 'much' isn't a cost",
        "5: targets.x.price.cpu_hour: -1 isn't a cost",
        "7: targets.x.database_pids: 'all': write the processes' numbers",
        "9: targets.x.kubernetes.imag: unknown key; did you mean image?",
    )  # fmt: skip


def test_a_campaign(tmp_path: Path) -> None:
    _check_campaign(tmp_path, """\
targets: {one: {nodes: [1]}, two: {install: {sise: small}}}
repeats: 0
options: {workload: machines, btch: 1}
steps:
- insert: {btach: 5, workers: many}
- query: {queries: [a]}
  label: two words
- {insert: {}, query: {}}
""", "1: targets.two.install.sise: unknown key; did you mean size? (known: variant, ",
        "2: repeats: input should be greater than or equal to 1",
        "5: steps[0].insert.btach: no option of insert; did you mean batch?",
        "5: steps[0].insert.workers: 'many': write numbers",
        "7: steps[1].label: 'two words' isn't a label",
        "8: steps[2]: a step is one of insert, ",
        "3: options.btch: no option of insert or query; did you mean batch?",)  # fmt: skip


def test_what_a_campaigns_parts_name(tmp_path: Path) -> None:
    _check_campaign(
        tmp_path, "targets: [one, tow, thre]\nsteps: [insert]\n", "1: targets: ", "1: targets: "
    )
    _check_campaign(tmp_path, """\
targets: {one: {}, two: {}}
options: {runs: 1}
steps:
- insert: {workload: machnes}
- query: {workload: machines, queries: [pint]}
  label: ask
- insert: {warm-up: 9s, duration: 5s}
  label: short
""", "7: steps[2]: --warm-up 9s leaves nothing of --duration 5s")  # fmt: skip
    _check_campaign(tmp_path, """\
targets: [one]
steps:
- insert: {workload: machnes}
- query: {workload: machines, queries: [pint]}
- insert: {extra-option: {create_indexes: before}}
  label: indexed
""", "3: steps[0].insert.workload: there is no workload 'machnes'; did you mean machines?",
        "4: steps[1]: one: ",
        "5: steps[2].insert.extra-option: unknown option 'create_indexes'; did you mean create_indices?",
    )  # fmt: skip


def _check_campaign(folder: Path, text: str, *expected: str) -> None:
    file, config = folder / "c.yaml", folder / "config.yaml"
    file.write_text(text)
    config.write_text(CONFIG)
    _check(
        lambda: prepare(open_campaign(file, config, folder / "out", Interrupts())), file, *expected
    )


def _check(call: Callable[[], object], file: Path, *expected: str) -> None:
    """Such lines are said, as they begin after the file's name, and no others."""
    with pytest.raises(ConfigError) as refused:
        call()
    said = [line.removeprefix(f"{file}:") for line in refused.value.message.splitlines()]
    cut = [line[: len(begin)] for line, begin in zip(said, expected, strict=False)]
    assert (cut, len(said)) == (list(expected), len(expected)), refused.value.message
