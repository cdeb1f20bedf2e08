"""Servers that a campaign's file starts before their turns and stops after them."""

from __future__ import annotations

import re
import signal
import sys
from collections.abc import Mapping
from pathlib import Path

import yaml

from .server import Server, copy_home
from .tool import ROOT, Tool

SERVE = f"""
import signal, sys, time
sys.path.insert(0, {str(ROOT)!r})
from cli.run.embedded import EmbeddedPostgres
from cli.system.processes import Interrupts
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
time.sleep(3)  # longer than the first look whether it answers takes
with EmbeddedPostgres(sys.argv[1], Interrupts()):
    signal.sigwait([signal.SIGTERM])
"""
"""A server that takes its time to start."""

STEP = {"insert": {"workers": 1, "runs": 1, "batch": 10, "duration": "300ms"}}


def write_campaign(
    tool: Tool, targets: Mapping[str, Mapping[str, object]], step: object = STEP
) -> Path:
    """A file `c.yaml`, whose commands write what they do to the file that is returned."""
    document = {"targets": targets, "steps": [step], "repeats": 1}
    (tool.place / "c.yaml").write_text(yaml.safe_dump(document))
    return tool.place / "commands"


def commands(tool: Tool, label: str, program: str = "sleep 600") -> dict[str, object]:
    """`start` and `stop` of a program that goes on until it is stopped."""
    log, pid = tool.place / "commands", tool.place / f"{label}.pid"
    return {
        "start": f"echo start {label} >> {log}\n{program} & echo $! > {pid}",
        "stop": f"echo stop {label} >> {log}\nkill $(cat {pid})\n"
        f"while kill -0 $(cat {pid}); do sleep 0.05; done",
    }


def test_only_the_server_that_is_measured_runs(tool: Tool, template: Path) -> None:
    (tool.place / "serve.py").write_text(SERVE)
    targets: dict[str, Mapping[str, object]] = {}
    for label in ("one", "two"):
        home = tool.place / label
        copy_home(template, home)
        tool.add_target(label, **Server(home).target())
        program = f"{sys.executable} {tool.place}/serve.py {home} >/dev/null 2>&1"
        targets[label] = commands(tool, label, program)
    log = write_campaign(tool, targets)

    planned = tool.run_here("campaign", "c.yaml", "--dry-run").ok().out
    assert "runs on this machine: start of one: echo start one" in planned
    assert "runs on this machine: stop of two: echo stop two" in planned
    assert "starting servers takes extra time" in planned
    assert "--allow-run" in tool.start("campaign", "c.yaml").wait().err
    assert not log.exists()

    tool.run_here("campaign", "c.yaml", "--allow-run").ok()
    folder = tool.place / "campaigns" / "c"
    done = log.read_text().splitlines()
    assert sorted(done) == ["start one", "start two", "stop one", "stop two"]
    for started, stopped in zip(done[::2], done[1::2], strict=True):
        assert stopped == started.replace("start", "stop")
    assert (folder / "campaign.log").read_text().count(": done") == 2
    assert not (folder / "started.json").exists()


def test_it_is_stopped_after_ctrl_c_and_by_whoever_goes_on_with_a_killed_campaign(
    tool: Tool,
) -> None:
    step = {"insert": {**STEP["insert"], "duration": "60s"}}
    log = write_campaign(tool, {"a": {"target": "blackhole", **commands(tool, "a")}}, step)
    for number, status in ((signal.SIGINT, 130), (signal.SIGKILL, -9), (signal.SIGTERM, 143)):
        running = tool.start("campaign", "c.yaml", "--allow-run")
        running.await_err("running")
        running.send(number)
        assert running.wait().status == status
        if number is not signal.SIGKILL:
            tool.check_nothing_runs()
    assert log.read_text().split() == 3 * ["start", "a", "stop", "a"]
    tool.outputs = []


def test_one_that_does_not_start_fails_its_jobs_and_no_others(tool: Tool) -> None:
    targets = {
        "broken": {**commands(tool, "broken"), "target": "blackhole"},
        "whole": {**commands(tool, "whole"), "target": "blackhole"},
    }
    targets["broken"]["start"] = f"{targets['broken']['start']}\necho no room; exit 3"
    log = write_campaign(tool, targets)
    done = tool.run_here("campaign", "c.yaml", "--allow-run")
    assert done.status == 1
    assert re.search(r"broken insert: its server can't be started: .*status 3.*no room", done.err)
    assert "whole insert: done" in done.err
    # What it had begun is stopped nevertheless.
    assert "stop broken" in log.read_text()


def test_one_that_can_not_be_stopped_is_said(tool: Tool) -> None:
    target = {"target": "blackhole", "start": "true", "stop": "echo it is stuck; exit 4"}
    write_campaign(tool, {"a": target})
    done = tool.run_here("campaign", "c.yaml", "--allow-run")
    assert done.status == 1
    assert "error: the server of a was not stopped" in done.err and "it is stuck" in done.err
    assert "a insert: done" in done.err


def test_both_commands_or_none(tool: Tool) -> None:
    write_campaign(tool, {"a": {"target": "blackhole", "start": "true"}})
    error = tool.run_here("campaign", "c.yaml").error(2)
    assert "targets.a: start and stop belong together" in error
