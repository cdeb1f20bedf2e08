"""Processes killed at any moment, Ctrl-C, time limits: all that was started ends, what is done is kept."""

from __future__ import annotations

import signal
import sys
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from .server import Server
from .test_runs import check_run
from .tool import ROOT, Done, Running, Tool, eventually

QUICK = ("insert", "-t", "blackhole", "-w", "2", "-r", "1", "--batch", "10", "--num-inserts", "100")
SLOW = (*QUICK, "--extra-option", "delay_ms=40")
ENDLESS = (*SLOW, "--num-inserts", "10000000")
EMBEDDED = ("insert", "-t", "embedded", "-w", "1", "-r", "1", "--batch", "10")


_PATIENT = (
    "import cli.run.executors.local as local;"
    " local._SILENCE_S = local._END_PATIENCE_S = 60.0;"
    " import cli.main; cli.main.main()"
)
"""The command with more patience with processes that hang than a test has with the command, however busy the
machine is: what ends soon was hurried."""


def start_patient(tool: Tool, *arguments: object) -> Running:
    """Start it so."""
    return tool.start(
        *arguments, program=(sys.executable, "-c", _PATIENT), env={"PYTHONPATH": str(ROOT)}
    )


def await_work(running: Running) -> Running:
    """The run, once its workers are at work."""
    running.await_err(": running")
    return running


def under_way(tool: Tool, *arguments: object) -> Running:
    """A run whose workers are at work."""
    return await_work(tool.start(*arguments))


def hurry(running: Running, number: signal.Signals) -> Done:
    """Its end by a second signal. While a busy machine keeps the command waiting, two are one: so they are
    sent until it ends."""

    def ended() -> bool:
        running.send_group(number)
        return running.process.poll() is not None

    eventually(ended, "the end", 30, 0.3)
    return running.wait(1)


@pytest.mark.parametrize("name", ["worker-1", "collector"])
def test_part_of_a_run_killed(tool: Tool, name: str) -> None:
    running = under_way(tool, *ENDLESS)
    running.part(name).kill()
    done = running.wait()
    error = done.error(1)
    assert f"{name.replace('-', ' ')} was killed by SIGKILL during the run" in error
    assert f"{name}.log" in error
    (run,) = tool.runs()
    assert run["valid"] is False
    assert tool.result()["complete"] is False


def test_later_runs_do_not_begin_after_a_failure_but_earlier_are_kept(tool: Tool) -> None:
    running = tool.start(*SLOW, "-w", "1,2", "-r", 2, "--num-inserts", 500)
    running.await_end_of(2)
    running.part("worker-1")  # only those who are two have it
    running.part("worker-0").kill()
    done = running.wait()
    assert "worker 0 was killed by SIGKILL" in done.error(1)
    result = tool.result()
    assert [(run["workers"], run["run"], run["valid"]) for run in tool.runs()] == [
        (1, 1, True), (1, 2, True), (2, 1, False),
    ]  # fmt: skip
    assert [entry["workers"] for entry in result["insert_summary"]] == [1]
    assert result["complete"] is False
    assert f"Result: results/{tool.folder().name}" in done.out


def test_launcher_killed(tool: Tool) -> None:
    running = under_way(tool, *ENDLESS)
    running.launcher().kill()
    done = running.wait()
    assert "launcher has ended unexpectedly" in done.error(1)
    (run,) = tool.runs()
    assert run["valid"] is False


def test_command_killed(tool: Tool) -> None:
    tool.may_lack_results = True
    running = under_way(tool, *ENDLESS)
    assert len(tool.processes()) == 5  # command, launcher, collector, two workers
    running.send(signal.SIGKILL)
    tool.check_nothing_runs(within_s=60)
    assert not (tool.folder() / "result.json").exists()


def test_command_killed_after_a_run(tool: Tool) -> None:
    """What was made before is kept, and can be read as any result."""
    running = tool.start(*SLOW, "--num-inserts", 1000, "--runs", 50)
    running.await_end_of(1)
    running.send(signal.SIGKILL)
    tool.check_nothing_runs(within_s=60)
    result = tool.result()
    assert result["complete"] is False
    assert [run["run"] for run in result["runs"]][:1] == [1]
    assert all(run["valid"] for run in tool.runs())
    listed = tool.run_here("results").ok().out
    assert "incomplete" in listed


@pytest.mark.parametrize("at_once", [False, True])
def test_command_with_embedded_server_killed(tool: Tool, at_once: bool) -> None:
    tool.may_lack_results = True
    running = under_way(tool, *EMBEDDED, "--num-inserts", 10_000_000)
    assert (tool.embedded_home / "data" / "postmaster.pid").exists()
    running.send(signal.SIGKILL)
    assert running.wait().status == -signal.SIGKILL
    if not at_once:
        tool.check_nothing_runs(within_s=60)
    # The next command need not wait for the end of what the last one left.
    done = tool.run_here(*EMBEDDED, "--num-inserts", 100, "--output", tool.place / "next").ok()
    assert done.seconds < 80
    tool.check_nothing_runs(within_s=0.5)


def test_command_killed_while_it_makes_the_embedded_data(tool: Tool) -> None:
    tool.may_lack_results = True
    home = tool.place / "pg"
    running = tool.start(*EMBEDDED, env={"EMBEDDED_DATA_DIR": str(home)})
    eventually((home / "data.part" / "base").exists, "the beginning of initdb")
    running.send(signal.SIGKILL)
    tool.check_nothing_runs(within_s=60)
    assert not (home / "data").exists()
    tool.run_here(
        *EMBEDDED, "--num-inserts", 100, "--output", tool.place / "next",
        env={"EMBEDDED_DATA_DIR": str(home)},
    ).ok()  # fmt: skip


def test_timeout(tool: Tool) -> None:
    done = tool.run(*EMBEDDED, "--num-inserts", 10_000_000, "--timeout", 2.5)
    error = done.error(1)
    assert "--timeout was reached" in error
    # Where it was then, as far as that has become known.
    assert "phase run" in error or ": running" not in done.err
    assert done.seconds < 80
    (run,) = tool.runs()
    assert run["valid"] is False
    assert run["rate_per_s"] is None


def test_timeout_with_a_collector_that_hangs(tool: Tool) -> None:
    running = tool.start(*ENDLESS, "--timeout", 10)
    # Once all are started, however long they then take until they work: the time-out is of both.
    running.part("worker-1")
    running.part("collector").suspend()
    assert "--timeout was reached" in running.wait().error(1)
    # It doesn't end by itself, however long that is waited for.
    tool.check_nothing_runs()


def test_timeout_of_queries(tool: Tool, server: Server) -> None:
    tool.add_target("server", **server.target())
    tool.run(
        "insert", "-t", "server", "-w", 1, "-r", 1, "--batch", 100, "--num-inserts", 1000,
        "--output", tool.place / "first",
    ).ok()  # fmt: skip
    with server.connection() as connection, connection.cursor() as cursor:
        cursor.execute("BEGIN")
        cursor.execute("LOCK TABLE events IN ACCESS EXCLUSIVE MODE")
        done = tool.run("query", "-t", "server", "-r", 1, "--timeout", 1)
    assert "--timeout was reached" in done.error(1)
    assert done.seconds < 80


@pytest.mark.parametrize(
    ("number", "status", "group"),
    [
        (signal.SIGINT, 130, True),  # as a terminal does
        (signal.SIGTERM, 143, False),
    ],
)
def test_signal_during_a_run_keeps_those_before(
    tool: Tool, number: signal.Signals, status: int, group: bool
) -> None:
    running = tool.start(*SLOW, "-r", 3, "--num-inserts", 300)
    running.await_end_of(1)
    (running.send_group if group else running.send)(number)
    done = running.wait()
    assert done.status == status
    assert done.err.splitlines()[-1] == f"ended by {number.name}: nothing is left running"
    assert "Traceback" not in done.err, done.err
    # They get no time to end by themselves: the message says it is over.
    tool.check_nothing_runs(within_s=0.5)
    result = tool.result()
    assert (result["complete"], result["ended_by"]) == (False, number.name)
    (run,) = tool.runs()
    check_run(run, 300, 10)
    # None of a run whose workers the machine kept from working at the same time.
    assert len(result["insert_summary"]) == run["valid"]


def test_signal_during_the_first_run_leaves_no_result(tool: Tool) -> None:
    running = under_way(tool, *ENDLESS)
    running.send_group(signal.SIGINT)
    assert running.wait().status == 130
    assert tool.folders() == []


def test_second_signal_hurries_the_end_of_a_worker_that_hangs(tool: Tool) -> None:
    running = await_work(start_patient(tool, *ENDLESS))
    # A stopped process doesn't react to SIGTERM.
    running.part("worker-0").suspend()
    launcher = running.launcher()
    running.send_group(signal.SIGINT)
    eventually(lambda: len(launcher.children()) == 1, "the end of the others")
    running.send_group(signal.SIGINT)
    done = running.wait()
    assert done.status == 130
    assert "Traceback" not in done.err, done.err
    tool.check_nothing_runs(within_s=0.5)


def test_a_worker_that_hangs_is_killed_without_a_second_signal(tool: Tool) -> None:
    running = under_way(tool, *ENDLESS)
    running.part("worker-0").suspend()
    running.send(signal.SIGINT)
    assert running.wait().status == 130
    tool.check_nothing_runs(within_s=0.5)


def test_second_signal_hurries_an_embedded_server_that_hangs(tool: Tool) -> None:
    running = under_way(tool, *EMBEDDED, "--num-inserts", 10_000_000)
    pid = int((tool.embedded_home / "data" / "postmaster.pid").read_text().split()[0])
    psutil.Process(pid).suspend()
    launcher = running.launcher()
    running.send_group(signal.SIGINT)
    eventually(lambda: not launcher.children(), "the end of the run's processes", 20)
    running.send_group(signal.SIGINT)
    done = running.wait()
    assert done.status == 130
    assert "Traceback" not in done.err, done.err
    tool.check_nothing_runs()
    tool.run_here(*EMBEDDED, "--num-inserts", 100, "--output", tool.place / "next").ok()


def test_many_signals(tool: Tool) -> None:
    running = under_way(tool, *EMBEDDED, "--num-inserts", 10_000_000)
    while running.process.poll() is None:
        running.send_group(signal.SIGINT)
    done = running.wait(1)
    assert done.status == 130
    assert "Traceback" not in done.err, done.err


def test_signal_while_the_embedded_data_are_made(tool: Tool) -> None:
    home = tool.place / "pg"
    running = tool.start(*EMBEDDED, env={"EMBEDDED_DATA_DIR": str(home)})
    eventually((home / "data.part" / "base").exists, "the beginning of initdb")
    running.send_group(signal.SIGINT)
    done = running.wait()
    assert done.status == 130, done
    tool.check_nothing_runs(within_s=1)
    assert tool.folders() == []


@pytest.mark.parametrize("what", ["launcher", "server"])
def test_signal_while_things_start(tool: Tool, what: str) -> None:
    pid_file = tool.embedded_home / "data" / "postmaster.pid"
    # A server that an earlier test has killed leaves its own.
    pid_file.unlink(missing_ok=True)
    running = tool.start(*EMBEDDED, "--num-inserts", 10_000_000)
    if what == "launcher":
        running.launcher()
    else:
        eventually(pid_file.exists, "the server's start")
    running.send_group(signal.SIGINT)
    done = running.wait()
    assert done.status == 130, done
    assert "Traceback" not in done.err, done.err
    tool.check_nothing_runs(within_s=1)
    assert tool.folders() == []


def test_signal_at_the_first_moment(tool: Tool) -> None:
    """While Python still reads our code. Before it does, the signal just ends the interpreter."""
    running = tool.start(*ENDLESS)
    maps = Path(f"/proc/{running.process.pid}/maps")
    eventually(lambda: "site-packages" in maps.read_text(), "the first library of ours", 15, 0.001)
    running.send_group(signal.SIGINT)
    done = running.wait()
    assert done.status in (130, -signal.SIGINT), done
    assert "Traceback" not in done.err, done


def test_signal_during_clean_up(tool: Tool) -> None:
    running = tool.start(*SLOW, "--num-inserts", 500)
    # The last run is done, and its figures are not stored yet: they must not be lost.
    running.await_err("run 1 of 1: ")
    eventually(lambda: "inserts/s" in running.err, "the outcome")
    running.send_group(signal.SIGINT)
    done = running.wait()
    assert done.status in (0, 130), done
    assert "Traceback" not in done.err, done.err
    (run,) = tool.runs()
    check_run(run, 500, 10)


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGINT])
def test_a_signal_ignored_from_the_start_stays_ignored(tool: Tool, number: signal.Signals) -> None:
    """`nohup` starts a command like this, and a script its background jobs."""
    running = tool.start(*SLOW, "-r", 2, "--num-inserts", 500, ignored=[number])
    running.await_err("run 1 of 2: running")
    running.send_group(number)
    running.wait().ok()
    assert tool.result()["complete"] is True
    assert len(tool.runs()) == 2


def test_a_worker_killed_while_others_are_launched(tool: Tool) -> None:
    running = tool.start(*ENDLESS, "-w", 60)
    worker = running.part("worker-0")
    launcher = running.launcher()
    launcher.suspend()  # for a moment, so that the others still have to be launched
    assert len(launcher.children()) < 61
    worker.kill()
    launcher.resume()
    error = running.wait().error(1)
    assert "worker 0 was killed by SIGKILL" in error
    assert "worker-0.log" in error


def stop(process: psutil.Process) -> None:
    """As SIGSTOP does: it lives and does nothing any more."""
    process.suspend()
    eventually(lambda: process.status() == psutil.STATUS_STOPPED, f"{process} stopped")


def test_a_launcher_that_hangs_is_noticed(tool: Tool) -> None:
    running = under_way(tool, *ENDLESS)
    stop(running.launcher())
    done = running.wait()
    assert "launcher has not answered" in done.error(1)
    tool.check_nothing_runs(within_s=0.5)


def test_a_launcher_that_hangs_while_it_launches_is_noticed(tool: Tool) -> None:
    running = tool.start(*ENDLESS, "-w", 60)
    running.part("worker-0")
    stop(running.launcher())
    done = running.wait()
    assert "launcher has not answered" in done.error(1)
    tool.check_nothing_runs(within_s=0.5)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("launching", [False, True], ids=["at-work", "launching"])
def test_second_signal_ends_everything_when_the_launcher_hangs(
    tool: Tool, number: signal.Signals, launching: bool
) -> None:
    tool.may_lack_results = True
    running = start_patient(tool, *ENDLESS, *(("-w", 60) if launching else ()))
    if not launching:
        await_work(running)
    running.part("worker-0")
    stop(running.launcher())
    done = hurry(running, number)
    assert done.status == 128 + number
    assert "Traceback" not in done.err, done.err
    tool.check_nothing_runs(within_s=0.5)


def test_one_signal_ends_everything_when_the_launcher_hangs(tool: Tool) -> None:
    tool.may_lack_results = True
    running = under_way(tool, *ENDLESS)
    stop(running.launcher())
    running.send(signal.SIGTERM)
    assert running.wait().status == 143
    tool.check_nothing_runs(within_s=0.5)


def test_a_worker_that_hangs_does_not_outlive_its_launcher(tool: Tool) -> None:
    running = under_way(tool, *ENDLESS)
    stop(running.part("worker-0"))
    running.launcher().kill()
    assert "launcher has ended unexpectedly" in running.wait().error(1)
    tool.check_nothing_runs(within_s=0.5)


def test_second_signal_ends_an_embedded_server_of_which_nothing_answers(tool: Tool) -> None:
    """Its first process, those that serve connections and the launcher are all stopped."""
    running = await_work(start_patient(tool, *EMBEDDED, "--num-inserts", 10_000_000))
    pid = int((tool.embedded_home / "data" / "postmaster.pid").read_text().split()[0])
    postmaster = psutil.Process(pid)
    for process in (*postmaster.children(), postmaster, running.launcher()):
        stop(process)
    done = hurry(running, signal.SIGINT)
    assert done.status == 130
    assert "Traceback" not in done.err, done.err
    tool.check_nothing_runs(within_s=0.5)
    tool.run_here(*EMBEDDED, "--num-inserts", 100, "--output", tool.place / "next").ok()


def test_second_signal_ends_the_making_of_embedded_data_that_hangs(tool: Tool) -> None:
    home = tool.place / "pg"
    running = tool.start(*EMBEDDED, env={"EMBEDDED_DATA_DIR": str(home)})
    eventually((home / "data.part" / "base").exists, "the beginning of initdb")
    command = psutil.Process(running.process.pid)
    for process in command.children(recursive=True):
        with suppress(psutil.NoSuchProcess):  # initdb starts one after the other
            if process.name() in ("initdb", "postgres"):
                stop(process)
    done = hurry(running, signal.SIGINT)
    assert done.status == 130
    assert "Traceback" not in done.err, done.err
    tool.check_nothing_runs(within_s=0.5)
