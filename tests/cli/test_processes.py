"""Programs that are run to their end, and the end of those that don't come to one."""

from __future__ import annotations

import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from cli.system.processes import kill_group, kill_tree, list_tree, run_program

FAMILY = (
    "import subprocess, sys, time\n"
    "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'],"
    " start_new_session=bool(int(sys.argv[1])))\n"
    "print(child.pid, flush=True)\n"
    "time.sleep(60)\n"
)
"""A program with a child, in a session of its own or not."""


def begin(own_session: bool) -> tuple[subprocess.Popen[str], psutil.Process]:
    """It and its child, both of them stopped."""
    program = subprocess.Popen(
        [sys.executable, "-c", FAMILY, str(int(own_session))],
        stdout=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    assert program.stdout is not None
    child = psutil.Process(int(program.stdout.readline()))
    child.suspend()
    psutil.Process(program.pid).suspend()
    return program, child


def check_ended(program: subprocess.Popen[str], child: psutil.Process) -> None:
    assert program.wait(60) == -9
    with suppress(psutil.NoSuchProcess):
        deadline = time.monotonic() + 60
        while child.status() != psutil.STATUS_ZOMBIE:
            assert time.monotonic() < deadline, child
            time.sleep(0.01)


def test_a_group_is_killed_though_it_is_stopped() -> None:
    program, child = begin(own_session=False)
    with program:
        kill_group(program.pid)
        check_ended(program, child)


def test_a_tree_is_killed_whatever_its_sessions() -> None:
    program, child = begin(own_session=True)
    with program:
        assert [process.pid for process in list_tree(program.pid)] == [child.pid, program.pid]
        kill_tree(program.pid)
        check_ended(program, child)


def test_what_a_program_reads_and_writes() -> None:
    """However late it begins to read."""
    text = "äöü" * 100_000
    done = run_program(
        [sys.executable, "-c",
         "import sys, time; time.sleep(0.3); print(len(sys.stdin.read())); sys.exit(3)"],
        text, in_a_hurry=lambda: False,
    )  # fmt: skip
    assert (done.returncode, done.stdout.strip(), done.stderr) == (3, str(len(text)), "")


@pytest.mark.parametrize(
    ("hurry", "limits"),
    [(False, {"timeout_s": 0.5}), (True, {}), (True, {"timeout_s": 60, "hurried_timeout_s": 0.5})],
    ids=["too-slow", "in-a-hurry", "in-a-hurry-with-patience"],
)
def test_a_program_that_takes_too_long_is_killed(hurry: bool, limits: dict[str, float]) -> None:
    began = time.monotonic()
    with pytest.raises(subprocess.TimeoutExpired):
        run_program(["sleep", "60"], in_a_hurry=lambda: hurry, **limits)  # type: ignore[arg-type]
    assert time.monotonic() - began < 30


def test_a_program_that_an_exception_ends_can_undo_what_it_did(tmp_path: Path) -> None:
    """As on Ctrl-C, while the main thread waits for it."""
    rule = tmp_path / "rule"

    def interrupt() -> bool:
        if rule.exists():
            raise KeyboardInterrupt
        return False

    # Without a program in the foreground: dash loses a signal that comes while it starts one by vfork.
    command = f"trap 'rm {rule}; exit' TERM; sleep 60 & : > {rule}; wait"
    with pytest.raises(KeyboardInterrupt):
        run_program(["/bin/sh", "-c", command], in_a_hurry=lambda: False, is_over=interrupt)
    assert not rule.exists()


def test_a_program_that_ends_in_time_is_not_hurried() -> None:
    done = run_program(["sleep", "0.5"], in_a_hurry=lambda: True, hurried_timeout_s=10)
    assert done.returncode == 0
