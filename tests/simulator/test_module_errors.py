"""Errors that every database has."""

from __future__ import annotations

import pytest

from simulator.contract import DataSet, Load, RunSettings, make_groups
from simulator.modules.base import Job
from simulator.modules.kit.module import connection_lost, missing_table, nothing_to_query
from simulator.workloads.cpu import Cpu


@pytest.mark.parametrize("program", ["python run.py", "iotbench"])
def test_a_missing_table_is_answered_by_the_whole_command(program: str) -> None:
    """As the user calls the tool, which a worker can't see."""
    settings = RunSettings(
        run_id="r", token="t", target="local", program=program, module="postgres",
        options={},
        data=DataSet(workload="cpu"), groups=make_groups(Load()),
    )  # fmt: skip
    job = Job.of(settings, Cpu.schema)
    command = f"{program} insert --target local --workload cpu"
    assert str(nothing_to_query("cpu", job)) == (
        f"there is no table cpu to query: run insert first, with --tables single ({command})"
    )
    assert str(missing_table("no such thing", job)) == (
        f"no such thing; run insert first ({command})"
    )


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (DataSet(workload="cpu"), "cpu"),
        (
            DataSet(workload="cpu", workload_options={"tags": "table", "device_spread": 1}, seed=7),
            "cpu --workload-option tags=table --seed 7",
        ),
        (
            DataSet(
                workload="machines",
                workload_file="my machines.yaml",
                workload_options={"devices": 40, "sharing_workers": 3, "late": 0.5},
            ),
            "'my machines.yaml' --workload-option devices=40 --workload-option late=0.5",
        ),
    ],
)
def test_advised_commands_are_about_the_same_events(data: DataSet, said: str) -> None:
    settings = RunSettings(
        run_id="r", token="t", target="local", module="postgres", options={}, data=data,
        groups=make_groups(Load()),
    )  # fmt: skip
    job = Job.of(settings, Cpu.schema)
    command = f"(python run.py insert --target local --workload {said})"
    assert str(missing_table("gone", job)) == f"gone; run insert first {command}"


def test_a_lost_connection_is_counted_under_one_name() -> None:
    error = connection_lost(OSError("reset\nby peer"))
    assert (error.kind, str(error)) == ("connection_lost", "reset by peer")
