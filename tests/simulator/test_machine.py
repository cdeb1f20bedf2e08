"""How busy a machine was between two readings of the kernel's counters."""

from __future__ import annotations

from pathlib import Path

import pytest

from simulator.contract import Machine
from simulator.machine import CpuTimes, Reading, measure_machine, merge_machines, read_machine

#      user nice system idle iowait irq softirq steal guest guest_nice
BEGIN = "cpu  100 10 50 800 20 5 5 10 70 7"


def reading(line: str, load: float | None = 0.5) -> Reading:
    return Reading(4, load, CpuTimes.parse(line))


def test_shares_are_of_what_passed_between_the_readings() -> None:
    """10 of 100 ticks were stolen; 30 were worked by programs, 5 for interrupts, 55 idle or waiting."""
    end = "cpu  115 15 60 850 25 8 7 20 80 9"
    machine = measure_machine("n", reading(BEGIN, 1.5), reading(end, 9.0))
    assert machine == Machine(
        node="n", cpus=4, load_average_1m=1.5, busy_share=0.35, steal_share=0.1
    )


def test_time_of_waiting_that_goes_back_makes_no_share_above_one() -> None:
    end = "cpu  150 10 50 800 15 5 5 10 0 0"
    assert measure_machine("n", reading(BEGIN), reading(end)).busy_share == 1.0


@pytest.mark.parametrize(
    "line",
    [
        "",
        "intr 1 2 3",
        "cpu  100 10 50 800",  # before Linux 2.6
        "cpu  0 0 0 0 0 0 0 0 0 0",  # gVisor
        "cpu  a b c d e f g h",
    ],
)
def test_what_counts_nothing_tells_nothing(line: str) -> None:
    machine = measure_machine("n", reading(line), reading(line))
    assert (machine.busy_share, machine.steal_share, machine.cpus) == (None, None, 4)


def test_no_time_between_readings_is_no_share() -> None:
    machine = measure_machine("n", reading(BEGIN), reading(BEGIN))
    assert (machine.busy_share, machine.steal_share) == (None, None)


def test_the_counters_are_read(tmp_path: Path) -> None:
    stat = tmp_path / "stat"
    stat.write_text(f"{BEGIN}\ncpu0 1 2 3 4 5 6 7 8 9 10\n")
    counters = read_machine(stat)
    assert counters.times == CpuTimes(idle=820, steal=10, total=1000)
    assert counters.cpus
    assert read_machine(tmp_path / "none").times is None


def test_workers_on_one_node_saw_one_machine() -> None:
    first, second = Machine(node="b", cpus=2), Machine(node="a", cpus=8)
    machines = [first, None, Machine(node="b", cpus=2, busy_share=0.5), second]
    assert merge_machines(machines) == [second, first]
