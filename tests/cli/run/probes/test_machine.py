"""What others take of this machine, as the local executor looks at it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path

import psutil
import pytest

from cli.run import probes
from cli.run.probes import BackgroundLoadSampler
from cli.run.probes.database import Counters, Use, merge_uses
from cli.run.probes.timeline import AgingSeries, read_families, take_snapshot
from cli.system.processes import Interrupted
from simulator.contract import Machine
from simulator.machine import read_clock_s

from ....e2e.tool import eventually
from ....helpers import insert_run, make_report
from .connected import connected

_BUSY = f"""#!{sys.executable}
import socket
listener = socket.create_server(("127.0.0.1", 0))
print("port", listener.getsockname()[1], flush=True)
while True:
    pass
"""


@contextmanager
def busy_orphan(program: Path) -> Iterator[int]:
    """A program that takes CPU, has a name of its own, and is no child of this process; the port at
    which it listens."""
    program.write_text(_BUSY)
    program.chmod(0o755)
    command = ["/bin/sh", "-c", '"$1" & echo pid $!', "sh", str(program)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as shell:
        assert shell.stdout is not None
        printed = dict(shell.stdout.readline().split() for _ in range(2))
        try:
            yield int(printed["port"])
        finally:
            os.kill(int(printed["pid"]), signal.SIGKILL)


def test_a_server_that_the_run_is_connected_to_is_not_among_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # On a busy machine some five programs take more than the two here, and are named instead.
    monkeypatch.setattr("cli.run.probes.timeline.NAMED", 1000)
    monkeypatch.setattr("cli.run.probes.timeline.NAMED_SHARE", 0.0)
    # As if looks at all processes took so long that there can be but two.
    monkeypatch.setattr(probes, "_MOST_SHARE", 1e-9)
    monkeypatch.setattr(probes, "_INTERVAL_S", 0.1)
    monkeypatch.setattr(probes, "_MOST_DATABASE_SHARE", 1.0)
    with ExitStack() as stack:
        port = stack.enter_context(busy_orphan(tmp_path / "busy-server"))
        stack.enter_context(busy_orphan(tmp_path / "busy-bee"))
        own = stack.enter_context(connected(("127.0.0.1", port)))
        watch = BackgroundLoadSampler([], lambda: [own])
        began, began_s = datetime.now(UTC), read_clock_s()
        watch.start()
        eventually(lambda: len(watch._uses) >= 2, "looks at the database's processes")
        # The machine's clock is set, as by NTP: nothing of what was used depends on it.
        monkeypatch.setattr("time.time", lambda: datetime.now(UTC).timestamp() - 3600.0)
        eventually(lambda: len(watch._uses) >= 4, "more looks at the database's processes")
        watch.stop()
        run = insert_run(
            began_at=began.isoformat(), ended_at=datetime.now(UTC).isoformat(),
            machines=[Machine(node="n", cpus=2, busy_share=0.5)],
        )  # fmt: skip
        watch.complete(make_report(run, window_s=(began_s, read_clock_s())))
    (machine,) = run.machines
    assert machine.others_share is not None
    assert machine.others_share >= machine.others["busy-bee"] > 0
    assert "busy-server" not in machine.others
    # And what it used is the database's.
    assert run.resources is not None
    assert run.resources.names == ["busy-server"]
    assert (run.resources.cpu_s or 0) > 0
    assert (run.resources.memory_peak_bytes or 0) > 1_000_000
    assert len(run.resources.timeline) >= 3
    assert (machine.node, machine.busy_share) == ("n", 0.5)


def test_looks_that_fail_unforeseen_are_told_of(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(probes, "take_snapshot", {}.__getitem__)
    watch = BackgroundLoadSampler([], list)
    watch.start()
    watch.stop()
    assert capsys.readouterr().err.startswith(
        "warning: what else uses this machine can no longer be observed: unexpected TypeError("
    )


def test_what_a_server_used_until_it_ended_is_told() -> None:
    """As with one whose disk was full: there is none to be found at the end of the run."""
    watch = BackgroundLoadSampler([], list)
    watch._uses = AgingSeries(
        merge_uses,
        [
            Use(
                100.0 + second,
                {(7, 50.0): Counters(float(second), 0, 0)} if second < 3 else {},
                ("busy-server",) if second < 3 else (),
                1_000_000,
                {},
            )
            for second in range(5)
        ],
    )
    began, ended = (datetime.fromtimestamp(at, UTC).isoformat() for at in (100.0, 104.0))
    run = insert_run(began_at=began, ended_at=ended)
    watch.complete(make_report(run, window_s=(100.0, 104.0)))
    assert run.resources is not None
    assert (run.resources.reason, run.resources.names) == (None, ["busy-server"])
    assert run.resources.cpu_s == pytest.approx(2.0)


def test_a_snapshot_has_this_process_and_its_parent() -> None:
    own = take_snapshot().processes[os.getpid()]
    assert own.parent == os.getppid()
    assert 0 < own.cpu_s < 24 * 3600


def test_what_a_process_has_started_is_found_by_it() -> None:
    script = "sleep 60 & echo $!; wait"
    with subprocess.Popen(["/bin/sh", "-c", script], stdout=subprocess.PIPE, text=True) as shell:
        assert shell.stdout is not None
        started = int(shell.stdout.readline())
        parents = {process.pid: process.parent for process in read_families([shell.pid, 2**22 + 1])}
        os.kill(started, signal.SIGKILL)
    assert parents == {shell.pid: os.getpid(), started: shell.pid}


def test_a_process_is_read_as_psutil_has_it(tmp_path: Path) -> None:
    """Whatever its name is."""
    program = tmp_path / "a (long) name) of 1 2"
    program.symlink_to("/bin/sleep")
    with subprocess.Popen([program, "60"]) as process:
        try:
            eventually(lambda: psutil.Process(process.pid).name() == program.name, "its name")
            processes = take_snapshot().processes
        finally:
            process.kill()
        assert (processes[process.pid].name, processes[process.pid].parent) == (
            program.name,
            os.getpid(),
        )
    own, expected = processes[os.getpid()], psutil.Process()
    created_s = own.created + time.time() - read_clock_s()
    assert created_s == pytest.approx(expected.create_time(), abs=1.1)
    assert own.cpu_s == pytest.approx(sum(expected.cpu_times()[:2]), abs=1.0)
    assert own.ended_children_s == pytest.approx(sum(expected.cpu_times()[2:4]), abs=1.0)


def test_a_signal_may_come_before_it_has_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever cleans up then stops what was never started."""

    def interrupted(_: threading.Thread) -> None:
        raise Interrupted(signal.SIGTERM)

    watch = BackgroundLoadSampler([], list)
    monkeypatch.setattr(threading.Thread, "start", interrupted)
    try:
        with pytest.raises(Interrupted):
            watch.start()
    finally:
        watch.stop()
