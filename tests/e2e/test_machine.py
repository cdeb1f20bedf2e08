"""A busy machine is noticed: who took how much of it, while a run was measured. Or one with few files."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path

import pytest

from .server import Server
from .tool import RUN, Tool


@pytest.fixture
def busy_loop(tmp_path: Path) -> Iterator[str]:
    """A program that takes a CPU, by the name under which it runs: four times, each in a session of its own,
    to which Linux gives as much as to any other, so that its part is large beside other work, too."""
    program = tmp_path / "busybee"
    program.write_text("#!/bin/sh\nwhile :; do :; done\n")
    program.chmod(0o755)
    with ExitStack() as stack:
        for _ in range(4):
            busy = subprocess.Popen([program], start_new_session=True)
            stack.callback(stack.enter_context(busy).kill)
        yield program.name


def test_what_others_took_is_named(tool: Tool, server: Server, busy_loop: str) -> None:
    tool.add_target("users", **server.target())
    done = tool.run(
        "insert", "-t", "users", "-w", 1, "-r", 1, "--batch", 500, "--duration", "1200ms"
    ).ok()  # fmt: skip
    (run,) = tool.runs()
    (machine,) = run["machines"]
    assert busy_loop in machine["others"]
    assert machine["others_share"] >= machine["others"][busy_loop] >= 0.1 / machine["cpus"]
    assert f"busy: 1 worker: others took {machine['others_share']:.0%} of the CPU" in done.out
    assert f"{busy_loop} {machine['others'][busy_loop]:.0%}" in done.out
    assert 0 < machine["busy_share"] <= 1
    assert machine["load_average_1m"] >= 0
    began, ended = (datetime.fromisoformat(run[key]) for key in ("began_at", "ended_at"))
    assert (ended - began).total_seconds() == pytest.approx(run["window_s"], abs=0.002)
    assert datetime.fromisoformat(tool.result()["started_at"]) <= began


def test_too_few_files_are_refused_before_the_first_run(tool: Tool) -> None:
    limited = ("bash", "-c", 'ulimit -n 64; exec "$@"', "bash", sys.executable, RUN)
    done = tool.start(
        "insert", "-t", "blackhole", "-w", "1,40", "-r", 1, "--num-inserts", 100, program=limited
    ).wait()
    assert done.error(2) == (
        "error: the collector of 40 workers needs 112 open files, and may have 64: raise the limit by"
        " `ulimit -n 112`, or use 16 workers at most"
    )
    assert tool.folders() == []
