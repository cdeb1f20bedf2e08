"""What others took of a machine's CPU: arithmetic over snapshots of its processes."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import pytest

from cli.run.probes.timeline import (
    KERNEL,
    MACHINE,
    OWN,
    Process,
    Snapshot,
    Step,
    Window,
    compare,
    find_family,
    share_of_others,
)

TOOL, LAUNCHER, WORKER, SERVER, BACKEND = 100, 101, 102, 200, 201


def process(
    pid: int, parent: int = 1, cpu_s: float = 0.0, ended: float = 0.0, **more: object
) -> Process:
    values: dict[str, object] = {"name": f"p{pid}", "created": 1.0}
    return Process(pid, parent, cpu_s=cpu_s, ended_children_s=ended, **(values | more))  # type: ignore[arg-type]


def snapshot(at: float, used_s: float, *processes: Process) -> Snapshot:
    return Snapshot(at, used_s, {entry.pid: entry for entry in processes})


def step(before: Snapshot, after: Snapshot, cpus: int = 2) -> Step:
    difference = compare(before, after, {TOOL, SERVER}, cpus)
    assert difference is not None
    return difference


def named(step: Step) -> dict[str, float]:
    """What others took, by their names."""
    return {key[0]: amount for key, amount in step.amounts.items() if isinstance(key, tuple)}


def test_a_family_is_the_roots_and_what_descends_from_them() -> None:
    processes = {
        entry.pid: entry
        for entry in (process(1, 0), process(TOOL), process(LAUNCHER, TOOL),
                      process(WORKER, LAUNCHER), process(300))
    }  # fmt: skip
    assert find_family(processes, [TOOL, 999]) == {TOOL, LAUNCHER, WORKER}


def test_what_the_run_and_its_server_did_is_not_the_others() -> None:
    before = snapshot(0.0, 50.0, process(TOOL, cpu_s=1.0), process(LAUNCHER, TOOL),
                      process(SERVER, cpu_s=7.0), process(300, cpu_s=30.0))  # fmt: skip
    after = snapshot(
        1.0, 51.8,
        process(TOOL, cpu_s=1.1), process(LAUNCHER, TOOL), process(WORKER, LAUNCHER, cpu_s=0.5),
        process(SERVER, cpu_s=7.1), process(BACKEND, SERVER, cpu_s=0.6),
        process(300, cpu_s=30.3, name="compiler"), process(301, cpu_s=0.2, name="browser"),
    )  # fmt: skip
    use = step(before, after)
    assert use.amounts[MACHINE] == pytest.approx(1.8)
    assert use.amounts[OWN] == pytest.approx(1.3)
    assert named(use) == {"compiler": pytest.approx(0.3), "browser": pytest.approx(0.2)}


def test_a_worker_that_has_ended_is_in_its_parents_account() -> None:
    before = snapshot(0.0, 0.0, process(TOOL), process(LAUNCHER, TOOL),
                      process(WORKER, LAUNCHER, cpu_s=40.0))  # fmt: skip
    after = snapshot(1.0, 1.0, process(TOOL), process(LAUNCHER, TOOL, ended=40.9))
    assert step(before, after).amounts[OWN] == pytest.approx(0.9)


@pytest.mark.parametrize("ended", [0.0, 43.0])
def test_a_worker_that_got_lost_or_was_counted_twice_spoils_the_step(ended: float) -> None:
    """macOS keeps no account of ended children; a worker may end while processes are listed."""
    lost = [process(WORKER, LAUNCHER, cpu_s=40.0)]
    before = snapshot(0.0, 0.0, process(TOOL), process(LAUNCHER, TOOL), *lost)
    after = snapshot(1.0, 1.0, process(TOOL), process(LAUNCHER, TOOL, ended=ended))
    assert compare(before, after, {TOOL}, cpus=2) is None


def test_a_number_given_to_another_process_counts_from_its_begin() -> None:
    before = snapshot(0.0, 0.0, process(TOOL), process(300, cpu_s=500.0))
    after = snapshot(1.0, 1.0, process(TOOL), process(300, cpu_s=0.4, created=0.5))
    assert sum(named(step(before, after)).values()) == pytest.approx(0.4)


@pytest.mark.parametrize(("name", "kernel_s"), [("kthreadd", 0.3), ("init-of-a-container", 0.0)])
def test_threads_of_the_kernel_are_nobodys(name: str, kernel_s: float) -> None:
    before = snapshot(0.0, 0.0, process(TOOL), process(2, 0, name=name), process(9, 2))
    after = snapshot(1.0, 1.0, process(TOOL), process(2, 0, name=name), process(9, 2, cpu_s=0.3))
    use = step(before, after)
    assert use.amounts[KERNEL] == kernel_s
    assert sum(named(use).values()) == pytest.approx(0.3 - kernel_s)


def others(steps: Sequence[Step], began: float, ended: float, cpus: int) -> Any:
    return share_of_others(steps, Window(began, ended, began), cpus)


def a_step(began: float, ended: float, used_s: float = 0.0, own_s: float = 0.0,
           kernel_s: float = 0.0, **names: float) -> Step:  # fmt: skip
    """`names`: who took how many CPU seconds."""
    taken: dict[Hashable, float] = {(name,): took_s for name, took_s in names.items()}
    return Step(began, ended, {MACHINE: used_s, OWN: own_s, KERNEL: kernel_s, **taken})


def test_a_window_has_its_part_of_each_step() -> None:
    """Half of the first step, all of the second, nothing of the third; of two CPUs."""
    steps = [
        a_step(0.0, 2.0, used_s=3.0, own_s=1.0, x=2.0),
        a_step(2.0, 3.0, used_s=1.5, own_s=1.0, x=0.5),
        a_step(3.0, 4.0, used_s=2.0, x=2.0),
    ]
    assert others(steps, 1.0, 3.0, cpus=2) == (
        pytest.approx(1.5 / 4),
        {"x": pytest.approx(1.5 / 4)},
    )


def test_processes_that_could_not_be_seen_show_in_what_the_machine_did() -> None:
    """In a container others aren't listed; nor are those that begin and end between two looks."""
    steps = [a_step(0.0, 10.0, used_s=9.0, own_s=4.0, kernel_s=1.0, x=0.1)]
    taken = others(steps, 0.0, 10.0, cpus=2)
    assert taken == (pytest.approx(4.0 / 20), {})


def test_processes_that_were_seen_count_whatever_the_ticks_say() -> None:
    """Where the time of interrupts is charged to processes, what the run took seems more than it was."""
    steps = [a_step(0.0, 10.0, used_s=9.0, own_s=9.5, x=3.0)]
    assert others(steps, 0.0, 10.0, cpus=2) == (pytest.approx(0.15), {"x": 0.15})


def test_those_that_took_most_are_named() -> None:
    names = {"a": 0.3, "b": 3.0, "c": 1.0, "d": 2.0, "e": 4.0, "f": 0.4}
    much = a_step(0.0, 10.0, **names)
    assert list(others([much], 0.0, 10.0, cpus=2)[1]) == ["e", "b", "d", "c", "f"]
    little = a_step(0.0, 10.0, a=0.06, b=0.04)
    assert others([little], 0.0, 10.0, cpus=1) == (pytest.approx(0.01), {})


@pytest.mark.parametrize(("began", "known"), [(0.0, False), (5.0, True), (20.0, False)])
def test_less_than_half_of_a_window_says_nothing(began: float, known: bool) -> None:
    taken = others([a_step(7.5, 12.0, used_s=9.0)], began, began + 5.0, cpus=2)
    assert (taken is not None) is known
