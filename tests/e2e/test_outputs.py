"""Where output and results go: closed streams, full disks, devices; and what must never be in them."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from .server import Server
from .test_database_failures import small_disk
from .test_runs import check_run, rows
from .tool import PASSWORD, RUN, Running, Tool

QUICK = ("insert", "-t", "blackhole", "-w", "1", "-r", "1", "--batch", "10", "--num-inserts", "100")
SLOW = (*QUICK, "-r", "2", "--extra-option", "delay_ms=20")


def closed_pipe() -> int:
    """The writing end of a pipe that nobody reads any more."""
    read, write = os.pipe()
    os.close(read)
    return write


@pytest.mark.parametrize("streams", [("out",), ("err",), ("out", "err")], ids="+".join)
def test_nobody_reads_the_output(tool: Tool, streams: Sequence[str]) -> None:
    """As in `run.py insert … | head -1` and `… 2>&1 | head -1`."""
    pipe = closed_pipe()
    running = tool.start(
        *SLOW, out=pipe if "out" in streams else None, err=pipe if "err" in streams else None
    )
    os.close(pipe)
    done = running.wait()
    assert done.status == 0, done
    assert "Traceback" not in done.err
    assert "error" not in done.err
    if "out" not in streams:
        assert rows(done.out, "Workers")[1][0] == "1"
    # That nobody looks on is no reason to give the runs up.
    assert [run["valid"] for run in tool.runs()] == [True, True]


@pytest.mark.parametrize(
    "arguments", [("--help",), ("insert", "--help"), ("targets",), ("ceiling", "--events", "1000")]
)
def test_nobody_reads_a_list(tool: Tool, arguments: Sequence[str]) -> None:
    pipe = closed_pipe()
    running = tool.start(*arguments, out=pipe)
    os.close(pipe)
    done = running.wait()
    assert done.status in (0, 1)
    assert done.err == ""


def test_nobody_reads_an_error(tool: Tool) -> None:
    pipe = closed_pipe()
    running = tool.start("insert", "-t", "nowhere", err=pipe)
    os.close(pipe)
    assert running.wait().status == 2


def started_with(tool: Tool, redirections: str, *arguments: str) -> Running:
    """A command started by a shell with such redirections."""
    script = f'exec "$@" {redirections}'
    return tool.start("-c", script, "sh", sys.executable, RUN, *arguments, program=("/bin/sh",))


@pytest.mark.parametrize("redirections", [">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_streams(tool: Tool, redirections: str) -> None:
    done = started_with(tool, redirections, *QUICK).wait()
    assert done.status == 0, done
    assert "Traceback" not in done.err
    for run in tool.runs():
        check_run(run, 100, 10)
    # Nothing that was meant for a closed stream may end up in a file that took its number.
    for log in tool.folder().rglob("*.log"):
        text = log.read_text()
        assert "inserts/s" not in text
        assert "Workers" not in text


def test_closed_streams_and_an_error(tool: Tool) -> None:
    assert started_with(tool, "2>&-", "insert", "-t", "nowhere").wait().status == 2


def test_output_on_a_full_device(tool: Tool) -> None:
    with Path("/dev/full").open("wb") as full:
        done = tool.start(*QUICK, out=full).wait()
    error = done.error(1)
    assert os.strerror(errno.ENOSPC) in error
    assert len(tool.runs()) == 1


def test_results_on_a_full_disk(tool: Tool) -> None:
    with small_disk(tool.place / "disk", 64) as disk:
        (disk / "filler").write_bytes(bytes(64 * 1024))
        done = tool.run_here(*QUICK, "--output", disk / "results", "--json", tool.json)
        error = done.error(1)
        assert f"{disk}/results" in error
        assert os.strerror(errno.ENOSPC) in error
        # What was measured is not lost: it is on the other disk, and on the screen.
        assert f"The result is in {tool.json}" in error
        assert rows(done.out, "Workers")[1][0] == "1"
        assert json.loads(tool.json.read_bytes())["runs"]
        assert "Result: " not in done.out
        assert not list(disk.rglob("result.json*"))


def test_result_folders_on_a_disk_without_room_for_files(tool: Tool) -> None:
    with small_disk(tool.place / "disk", 64, "nr_inodes=5") as disk:
        done = tool.run_here(*QUICK, "--output", disk / "results")
        error = done.error(1)
        assert str(disk) in error
        assert os.strerror(errno.ENOSPC) in error


def test_copy_that_cannot_be_written(tool: Tool) -> None:
    done = tool.run_here(*QUICK, "--json", "/proc/copy.json")
    assert "/proc/copy.json" in done.error(1)
    assert rows(done.out, "Workers")[1][0] == "1"
    assert len(tool.runs()) == 1


def test_copy_to_standard_output(tool: Tool) -> None:
    # What /dev/stdout is, but for the damage if it were replaced by a file.
    link = tool.place / "stdout"
    link.symlink_to("/proc/self/fd/1")
    done = tool.run(*QUICK, "--json", link).ok()
    assert link.is_symlink()
    assert done.out.startswith((tool.folder() / "result.json").read_text())
    assert rows(done.out, "Workers")[1][0] == "1"


def test_copy_to_a_pipe(tool: Tool) -> None:
    pipe = tool.place / "pipe"
    os.mkfifo(pipe)
    running = tool.start(*QUICK, "--json", pipe, "--output", "other/results")
    copy = pipe.read_text()
    done = running.wait().ok()
    assert pipe.is_fifo()
    (folder,) = (tool.place / "other" / "results").iterdir()
    assert copy == (folder / "result.json").read_text()
    assert f"Result: other/results/{folder.name}" in done.out


def test_copy_through_a_symbolic_link(tool: Tool) -> None:
    tool.json.write_text('{"old": true}')
    link = tool.place / "latest.json"
    link.symlink_to(tool.json)
    tool.run_here(*QUICK, "--json", link).ok()
    assert link.is_symlink()
    assert tool.json.read_text() == (tool.folder() / "result.json").read_text()


@pytest.mark.parametrize("way", ["variable", "extra-option", "url"])
def test_no_process_shows_the_password(tool: Tool, server: Server, way: str) -> None:
    """What the command leaves behind is checked for it after every test."""
    keys = server.slow_target(0.04)
    dsn = str(keys["connection_string"])
    arguments = ["insert", "-t", "slow", "-w", "2", "-r", "1", "--batch", "10"]
    if way == "extra-option":
        arguments += [
            "--extra-option",
            "connection_string=" + dsn.replace("${E2E_PASSWORD}", PASSWORD),
        ]
    if way == "url":
        keys["connection_string"] = (
            f"postgresql://bench:${{E2E_PASSWORD}}@/postgres?host={server.home}/data"
            "&options=-c%20commit_delay%3D40000%20-c%20commit_siblings%3D0"
        )
    tool.add_target("slow", **keys)
    running = tool.start(*arguments, "--num-inserts", 700)
    running.await_err(": running")
    processes = tool.processes()
    assert len(processes) == 5
    for process in processes:
        if way != "extra-option" or process.pid != running.process.pid:
            assert PASSWORD not in " ".join(process.cmdline())
    assert PASSWORD not in str(server.ask("SELECT * FROM pg_stat_activity"))
    running.wait().ok()
    assert "***" in tool.result()["options"]["module"]["connection_string"]
    # The run's token, by which its report could be fetched, is nowhere either.
    assert "token" not in (tool.folder() / "result.json").read_text()


@pytest.mark.parametrize(
    "option",
    [
        "connection_string=host=x pasword={}",
        "connection_string=postgresql://x:{}@[::1",
        "connection_string=host=127.0.0.1 port=1 user=x password={}",
        "conection_string=host=x password={}",
        "max_retries={}",
        "copy_format={}",
    ],
)
def test_no_error_shows_the_password(tool: Tool, option: str) -> None:
    tool.add_target("x", module="postgres", connection_string="host=127.0.0.1 port=1")
    # With a traceback, which says more than the error alone.
    done = tool.run_here(
        "insert", "-t", "x", "-w", 1, "-r", 1, "--batch", 10, "--debug",
        "--extra-option", option.format(PASSWORD),
    )  # fmt: skip
    assert done.status in (1, 2)
    assert "error" in done.err.lower()
    assert PASSWORD not in done.out + done.err


def test_a_run_where_all_is_said_to_be_ascii(tool: Tool) -> None:
    tool.add_target("München", module="blackhole")
    done = tool.run(
        *QUICK[:1], "-t", "München", *QUICK[3:], "--label", "Größe", "--json", "größe.json",
        env={"LC_ALL": "C", "PYTHONUTF8": "0"},
    ).ok()  # fmt: skip
    assert r"insert-M\xfcnchen" in done.out
    assert done.out.isascii() and done.err.isascii()
    assert tool.folder().name.endswith("-insert-München")
    result = tool.result()
    assert (result["target"], result["label"]) == ("München", "Größe")
    assert (tool.place / "größe.json").read_bytes() == (tool.folder() / "result.json").read_bytes()


@pytest.fixture(scope="session")
def latin_1(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    """The variables of a shell in a locale whose characters are those of ISO 8859-1."""
    folder = tmp_path_factory.mktemp("locales")
    name = "de_DE.ISO-8859-1"
    try:
        subprocess.run(
            ["localedef", "-i", "de_DE", "-f", "ISO-8859-1", folder / name],
            check=True, capture_output=True,
        )  # fmt: skip
    except (FileNotFoundError, subprocess.CalledProcessError):
        if "locales" in os.environ.get("REQUIRE_SERVERS", "").split(","):
            raise
        pytest.skip("needs localedef and the sources of locales")
    return {"LC_ALL": name, "LOCPATH": str(folder), "PYTHONUTF8": "0"}


def test_a_campaign_in_latin_1(tool: Tool, latin_1: Mapping[str, str]) -> None:
    """One of its targets can't be the name of a folder there."""
    for name in ("München", "温度"):
        tool.add_target(name, module="blackhole")
    file = tool.place / "campaign.yaml"
    file.write_text(
        "title: 'Größe × 温度'\ntargets: {München: , 温度: }\nsteps: [{insert: }]\n"
        "options: {workers: 1, runs: 1, batch: 10, num_inserts: 100}\n",
        encoding="utf-8",
    )
    tool.outputs = [tool.place / "out" / "results"]
    running = tool.start("campaign", "campaign.yaml", "--output", "out", env=latin_1)
    assert running.process.wait(90) == 1
    out, err = ((tool.place / f"1.{end}").read_bytes().decode("latin-1") for end in ("out", "err"))
    assert r"\u6e29\u5ea6" in err and "LC_ALL=C.UTF-8" in err
    assert "defect" not in err
    assert "Report: out/report.html" in out
    assert "Größe × 温度" in (tool.place / "out" / "report.html").read_text(encoding="utf-8")
    (folder,) = (tool.place / "out" / "results").iterdir()
    assert os.fsencode(folder).endswith(b"-insert-M\xfcnchen")
