"""Workloads of one's own: from a file or the config file to what collector and workers build."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from cli.main import commands
from cli.plan.config import Config, load_config
from cli.plan.planning import plan_inserts
from cli.plan.request import Request, public_data
from cli.plan.requests import InsertRequest
from cli.plan.workloads import choose_workload, complete_data, make_workload, read_options
from cli.results.conditions import flatten_definition
from cli.run.experiments.context import make_settings
from cli.run.experiments.session import open_session
from cli.system.errors import ConfigError
from simulator.contract import DataSet, Load, RunSettings
from simulator.errors import OptionError
from simulator.modules import build
from simulator.workloads import load_workload

from ..helpers import begin_definition, configure_definition
from .made import ask_for

BOILERS = (
    begin_definition(
        "boilers",
        "boiler",
        "Boilers of a house",
        devices=10,
        interval="10s",
        more="epoch: 2026-01-01\n",
    )
    + """\
  - {name: heat, type: float32, missing: 9%, signal: {kind: wander, low: 20, high: 80, period: 1h}}
  - {name: litres, type: int64, signal: {kind: counter, every: 1s}}
queries:
  - {name: hottest, window: {span: 1h}, compute: [{function: max, column: heat}], per: [boiler]}
"""
)
NOW = BOILERS.replace("2026-01-01", "now")
TARGETS = "targets: {hole: {module: blackhole, executor: local, encoder: postgres}}\n"


def write(folder: Path, name: str, text: str) -> str:
    (folder / name).write_text(text)
    return str(folder / name)


def config_of(folder: Path, workloads: str) -> Config:
    write(folder, "config.yaml", TARGETS + workloads)
    return load_config(folder / "config.yaml")


def configure_boilers(name: str) -> str:
    """Boilers under another name, below `workloads` in a config file."""
    return configure_definition(BOILERS.replace("name: boilers", f"name: {name}"))


def test_processes_build_it_without_the_file(tmp_path: Path) -> None:
    file = write(tmp_path, "boilers.yaml", BOILERS)
    chosen = choose_workload(file, None)
    options = read_options(chosen.kind, {"devices": 5}, ["late=0.5"])
    data = complete_data(DataSet(workload=file), chosen, options, existing=False)
    assert (data.workload, data.workload_argument) == ("boilers", file)
    sent = make_settings("x", "blackhole", {"encoder": "postgres"}, data, Load()).model_dump_json()
    Path(file).unlink()
    workload, module = build(RunSettings.model_validate_json(sent))
    here = chosen.kind(devices=5, late=0.5)
    assert workload.schema == here.schema == module.job.schema
    assert workload.schema.queries[0] == "hottest"
    options_said = "--workload-option devices=5 --workload-option late=0.5"
    assert module.job.workload == f"{file} {options_said}"
    first, second = workload.block(0, 7, 100), here.block(0, 7, 100)
    assert {name: values.tobytes() for name, values in first.columns.items()} == {
        name: values.tobytes() for name, values in second.columns.items()
    }
    public = json.loads(json.dumps(public_data(data)))
    assert public["definition"]["epoch"] == "2026-01-01"
    assert load_workload(public["workload"], public["definition"]).schema == chosen.kind.schema
    assert "definition" not in public_data(DataSet())


def test_the_config_file_names_files_and_definitions(tmp_path: Path) -> None:
    write(tmp_path, "own.yaml", BOILERS)
    text = configure_boilers("street").replace("devices: 10", "devices: ${FEW:-3}")
    config = config_of(tmp_path, f"workloads:\n  house: own.yaml\n{text}")
    assert config.workload_names == ["house", "street"]
    house, street = (choose_workload(name, config) for name in config.workload_names)
    assert (house.kind.name, street.kind.name) == ("house", "street")
    assert house.kind.schema.table == "boilers"
    assert len(street.kind().devices(0)) == 3
    assert len(make_workload("street", config, ["devices=4"], 0).devices(0)) == 4
    listed = CliRunner().invoke(commands, ["workloads", "-c", str(config.path)]).stdout
    assert "\nstreet" in listed and listed.count("Boilers of a house") == 2


@pytest.mark.parametrize(
    ("workloads", "problem"),
    [
        ("  own: none.yaml\n", r"config.yaml:3: workloads.own: .*none.yaml can't be read"),
        ("  own: 5\n", r"config.yaml:3: workloads.own: a definition must be keys with values"),
        ("  Own: {}\n", r"config.yaml:3: workloads.Own: 'Own' is not a valid name in all databases"),
        ("  cpu: {}\n", r"config.yaml:3: workloads.cpu: cpu is a workload of this tool"),
        ("  own: {name: other}\n", r"config.yaml:3: workloads.own: the key above is its name"),
        ("  own2:\n", r"config.yaml:4: workloads.own2.abuot: unknown key; did you mean about"),
        ("  own:\n", r"config.yaml:8: workloads.own.devices: .*greater than"),
        (" 5\n", r"config.yaml:2: `workloads` needs names below it"),
    ],
)  # fmt: skip
def test_what_is_wrong_in_the_config_file_is_named(
    tmp_path: Path, workloads: str, problem: str
) -> None:
    if workloads == "  own:\n":
        workloads = configure_boilers("own").replace("devices: 10", "devices: 0")
    elif workloads == "  own2:\n":
        workloads = configure_boilers("own2").replace("about", "abuot")
    with pytest.raises(ConfigError, match=problem):
        choose_all(tmp_path, workloads)


def choose_all(folder: Path, workloads: str) -> None:
    config = config_of(folder, f"workloads:\n{workloads}")
    for name in config.workload_names:
        choose_workload(name, config)


def test_a_name_that_is_none_is_refused(tmp_path: Path) -> None:
    config = config_of(tmp_path, f"workloads:\n{configure_boilers('house')}")
    with pytest.raises(ConfigError, match=r"no workload 'hose'; did you mean house.*ends in .yaml"):
        choose_workload("hose", config)
    taken = write(tmp_path, "mine.yml", f"# Mine\n{BOILERS.replace('boilers', 'machines', 1)}")
    with pytest.raises(ConfigError, match=r"mine.yml:2: name: machines is a built-in workload"):
        choose_workload(taken, config)


# --- options --------------------------------------------------------------------------------------


def session_of(folder: Path, *pairs: str, keys: str = "", extra: tuple[str, ...] = ()) -> Any:
    write(folder, "config.yaml", TARGETS.replace("}}", f"{keys}}}}}"))
    file = write(folder, "boilers.yaml", NOW)
    return open_session(
        Request(
            target="hole", config_file=folder / "config.yaml", extra_options=extra, output=folder,
            workload=str(file), workload_pairs=pairs,
        )
    )  # fmt: skip


def test_the_command_line_goes_over_the_target(tmp_path: Path) -> None:
    keys = ", devices: 3, late: 0.25"
    session = session_of(tmp_path, "devices=4", keys=keys, extra=("devices=5",))
    assert (session.workload_options.devices, session.workload_options.late) == (4, 0.25)
    assert session_of(tmp_path, keys=keys, extra=("devices=5",)).workload_options.devices == 5


@pytest.mark.parametrize(
    ("pair", "problem"),
    [
        ("devcies=3", r"--workload-option: unknown option 'devcies'; did you mean devices\? .known: "),
        ("encoder=3", r"--workload-option: unknown option 'encoder'"),
        ("devices", r"--workload-option 'devices': write it as key=value"),
        ("devices=-1", r"--workload-option: option devices: .*greater than or equal to 1"),
        ("devices=0", r"--workload-option: option devices: .*greater than or equal to 1"),
        ("late=nan", r"--workload-option: option late: "),
        ("epoch=soon", r"--workload-option: option epoch: write a time as 2024-01-01T00:00:00Z"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_an_option_is_named(tmp_path: Path, pair: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        session_of(tmp_path, pair)


# --- one that begins now --------------------------------------------------------------------------


def test_now_is_the_commands_time_and_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    session = session_of(tmp_path)
    with pytest.raises(OptionError, match="begins now"):
        session.workload.kind()
    data = session.complete(DataSet())
    epoch = data.workload_options["epoch"]
    assert f"--workload-option epoch={epoch}" in capsys.readouterr().err
    assert session.public_options()["epoch"] == epoch
    # Another process, at another time, and a later query that is told.
    later = session_of(tmp_path, f"epoch={epoch}").complete(DataSet(), existing=True)
    blocks = [
        load_workload(data_set.workload, data_set.definition)(**data_set.workload_options).block(
            0, 0, 50
        )
        for data_set in (data, later)
    ]
    assert blocks[0].columns["at"].tolist() == blocks[1].columns["at"].tolist()
    assert blocks[0].schema.epoch_ms == blocks[0].columns["at"][0]
    # A counter counts from then on.
    assert blocks[0].columns["litres"][0] == 0
    fixed = choose_workload(write(tmp_path, "fixed.yaml", BOILERS), None).kind()
    assert fixed.block(0, 0, 50).columns["litres"].tolist() == blocks[0].columns["litres"].tolist()
    assert fixed.block(0, 0, 50).columns["heat"].tolist() != blocks[0].columns["heat"].tolist()


def test_of_events_that_are_there_the_time_must_be_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"give the time that the insert printed .* epoch="):
        session_of(tmp_path).complete(DataSet(), existing=True)
    for command in ("query", "insert --no-clean", "mixed --no-clean"):
        config, file = str(tmp_path / "config.yaml"), str(tmp_path / "boilers.yaml")
        done = invoke(*command.split(), "-t", "hole", "-c", config, "--workload", file)
        assert done.exit_code == 2 and "begins when it is inserted" in done.stderr


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(commands, arguments)


# --- series and results ---------------------------------------------------------------------------


def test_large_definitions_make_series_shorter(tmp_path: Path) -> None:
    definition = choose_workload(write(tmp_path, "boilers.yaml", BOILERS), None).definition or {}
    about = {"about": "x" * (90_000 - len(json.dumps(definition)))}
    data = DataSet(workload="boilers", definition=definition | about)
    plan = plan_inserts(ask_for(InsertRequest, Load(), data, workers=(1,), runs=20))
    assert [len(series.runs) for series in plan] == [7, 7, 6]


def test_a_definition_is_compared_part_by_part() -> None:
    flat = flatten_definition({"name": "x", "devices": {"in_all": 3}, "columns": [
        {"name": "at", "type": "timestamp_ms"}, {"name": "n", "signal": {"kind": "constant", "value": 1}},
    ]})  # fmt: skip
    assert flat == {
        "definition.name": "x",
        "definition.devices": "{in_all: 3}",
        "definition.columns.at": "{type: timestamp_ms}",
        "definition.columns.n": "{signal: {kind: constant, value: 1}}",
    }


# --- pictures -------------------------------------------------------------------------------------


def test_values_are_drawn(tmp_path: Path) -> None:
    file, output = write(tmp_path, "boilers.yaml", NOW), tmp_path / "values.png"
    assert invoke("workloads", file, "--plot", "--output", str(output)).exit_code == 0
    picture = output.read_bytes()
    assert picture.startswith(b"\x89PNG")
    width, height = struct.unpack_from(">II", picture, 16)
    assert width > 1200 and height > 400
    svg = tmp_path / "values.svg"
    assert invoke("workloads", file, "--plot", "--span", "10s", "--output", str(svg)).exit_code == 0
    text = svg.read_text()
    for words in ("heat", "litres", "w00000d000002", "Seconds since the first event"):
        assert words in text


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--plot"], "need a WORKLOAD"),
        (["machines", "--span", "1h"], "go with --plot"),
        (["machines", "--plot", "--output", "x.pdf"], "ends in .svg or .png"),
        (["machines", "--plot", "--span", "0s"], "must be longer than 0 s"),
    ],
)
def test_what_does_not_go_together(arguments: list[str], problem: str) -> None:
    done = invoke("workloads", *arguments)
    assert done.exit_code == 2 and problem in done.stderr


def test_every_command_takes_the_options() -> None:
    for name in ("insert", "query", "mixed", "doctor", "ceiling"):
        command = commands.get_command(click.Context(commands), name)
        assert command is not None
        names = {parameter.name for parameter in command.params}
        assert {"workload", "workload_pairs", "config_file"} <= names
