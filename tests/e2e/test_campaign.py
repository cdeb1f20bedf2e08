"""A campaign that is killed, goes on, and has a job that fails; what it keeps, and what it refuses."""

from __future__ import annotations

import errno
import json
import os
import re
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.run.live.state import LiveState

from .test_database_failures import small_disk
from .tool import Done, Tool


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> list[LiveState]:
    """What the live page of each command showed when the command had ended."""
    ended: list[LiveState] = []
    end = LiveState.end

    def note_end(state: LiveState, outcome: str) -> None:
        end(state, outcome)
        ended.append(state)

    monkeypatch.setattr(LiveState, "end", note_end)
    return ended


FILE = """
title: Two of them
targets:
  quick: {target: blackhole}
  slow: {target: blackhole, extra-option: {delay_ms: 2}}
  gone: {timeout: 1}
steps:
- insert: {workers: 1, runs: 1, batch: 10, duration: 400ms}
"""


@pytest.fixture
def closed_port() -> Iterator[int]:
    """A port on which nobody listens, and where nobody else's campaign looks for a database."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]


def test_killed_resumed_and_refused(tool: Tool, shown: list[LiveState], closed_port: int) -> None:
    gone = f"host=127.0.0.1 port={closed_port} dbname=x"
    tool.add_target("gone", module="postgres", connection_string=gone)
    (tool.place / "night.yaml").write_text(FILE)
    folder = tool.place / "campaigns" / "night"
    planned = tool.run_here("campaign", "night.yaml", "--dry-run").ok()
    assert "3 jobs to do: about 26 s" in planned.out
    assert not folder.exists()
    order = re.findall(r"^(\w+ insert) ", planned.out, re.MULTILINE)
    assert sorted(order) == ["gone insert", "quick insert", "slow insert"]

    # Killed in its last job; meanwhile the folder is taken.
    running = tool.start("campaign", "night.yaml")
    running.await_err(f"job 3 of 3: {order[2]}")
    refused = tool.run_here("campaign", "night.yaml").error(2)
    assert "another campaign is running in campaigns/night" in refused
    # Another file, another folder, the same database.
    tool.add_target(
        "same",
        module="timescaledb",
        connection_string=f"postgresql://me@localhost:{closed_port}/db",
    )
    (tool.place / "other.yaml").write_text("targets: [same]\nsteps:\n- insert: {runs: 1}\n")
    refused = tool.run_here("campaign", "other.yaml").error(2)
    assert f"the database of target same (localhost:{closed_port})" in refused
    assert str(tool.place / "campaigns" / "night") in refused
    running.send(signal.SIGKILL)
    running.wait()
    tool.check_nothing_runs()
    before = _read_labels(folder)
    assert before.keys() == set(order[:2]) - {"gone insert"}

    _check_ended(tool.run_here("campaign", "night.yaml", "--live"), f"{order[2]}: done")
    _check_shown(shown[0], order[2])
    after = _read_labels(folder)
    assert after.keys() == {"quick insert", "slow insert"}
    assert before.items() <= after.items()  # nothing was made twice
    assert "Ranking" in (folder / "report.html").read_text()
    assert list(json.loads((folder / "failed.json").read_text())) == ["gone insert"]
    # What failed is tried again, and what was killed is made again.
    log = (folder / "campaign.log").read_text()
    assert [log.count(f" {name}: begins: ") for name in order] == [
        2 if name in ("gone insert", order[2]) else 1 for name in order
    ]
    assert log.count("gone insert: failed: ") == 2
    assert "failed " in tool.run_here("campaign", "night.yaml", "--dry-run").out
    assert "slow insert" in tool.run_here("results", "--results", folder / "results").ok().out

    (tool.place / "night.yaml").write_text(FILE.replace("400ms", "500ms"))
    changed = tool.run_here("campaign", "night.yaml").error(2)
    assert "steps[1].insert.duration: 400ms is now 500ms" in changed
    (tool.place / "night.yaml").write_text(FILE)
    tool.add_target("gone", module="postgres", connection_string="host=127.0.0.1 port=2 dbname=x")
    assert "target gone in the config file" in tool.run_here("campaign", "night.yaml").error(2)


def _check_ended(done: Done, said: str) -> None:
    assert done.status == 1
    assert said in done.err
    assert "error: 1 of 3 jobs failed: gone insert: " in done.err
    assert re.search(r"\nquick: [\d,]+ inserts/s\.\nslow: [\d,]+ inserts/s\.\n", done.out)
    assert "gone: no figure: 1 failed." in done.out
    assert "One repetition can't rank candidates: " in done.out


def _check_shown(live: LiveState, made: str) -> None:
    """Check the page of the campaign that went on to job `made`, and tried the one that fails again."""
    description = live.describe()
    states = {job["name"]: job["state"] for job in description["jobs"]}
    assert states == {"quick insert": "done", "slow insert": "done", "gone insert": "failed"}
    labels = [run["label"] for run in description["runs"]]
    assert labels == [f"{name}: 1 worker, run 1 of 1" for name in (made, "gone insert")]
    assert description["ended"].startswith("failed: 1 of 3 jobs failed: gone insert: ")


def _read_labels(folder: Path) -> dict[str, str]:
    """Label -> folder of each complete result."""
    folders = {}
    for file in (folder / "results").glob("*/result.json"):
        result = json.loads(file.read_text())
        job = f"{result['candidate']} {result['step']} {result['repetition']}"
        assert job in (result["label"], f"{result['label']} 1")
        if result["complete"]:
            folders[result["label"]] = file.parent.name
    return folders


def test_all_jobs_are_checked_before_the_first(tool: Tool) -> None:
    for options, words in (
        ("duration: soon", ["c.yaml:6: options.duration", "30s"]),
        ("steps: 2, workers: 1", ["c.yaml:3: steps[0]", "--runs 1"]),
        ("extra-option: {delay_ms: x}", ["c.yaml:6: options.extra-option", "delay_ms"]),
    ):
        (tool.place / "c.yaml").write_text(
            "targets: {quick: {target: blackhole}}\nsteps:\n- insert: {}\n"
            f"  label: insert\nvariants: {{}}\noptions: {{{options}}}\n"
        )
        error = tool.run_here("campaign", "c.yaml").error(2)
        for word in words:
            assert word in error
    assert not (tool.place / "campaigns").exists()
    (tool.place / "c.yaml").write_text(
        "targets: [embedded]\nsteps:\n- insert: {extra-option: {password: x-secret}}\n"
    )
    assert "password" in tool.run_here("campaign", "c.yaml").error(2)


def test_the_example_can_be_run(tool: Tool) -> None:
    example = tool.run_here("campaign", "--example").ok().out
    (tool.place / "campaign.yaml").write_text(example)
    planned = tool.run_here("campaign", "campaign.yaml", "--dry-run").ok().out
    assert "12 jobs to do: about " in planned
    # Of the inserts of large batches it is known about how long they take.
    assert "plus 6 runs of unknown length, until the last event or query" in planned


def test_ctrl_c_leaves_the_report_of_what_is_there_and_another_target_can_follow(
    tool: Tool,
) -> None:
    steps = "steps:\n- insert: {workers: 1, runs: 1, batch: 10, duration: DURATION}\n"
    text = "targets:\n  a: {target: blackhole}\n  b: {target: blackhole}\n"
    # Of two steps the second is long enough to be interrupted.
    long = steps.replace("DURATION", "60s").replace("steps:\n", "") + "  label: long\n"
    (tool.place / "c.yaml").write_text(text + steps.replace("DURATION", "300ms") + long)
    running = tool.start("campaign", "c.yaml")
    running.await_err("job 2 of 4: ")
    running.await_err("running")
    running.send(signal.SIGTERM)
    done = running.wait()
    assert done.status == 143
    folder = tool.place / "campaigns" / "c"
    assert "Report: campaigns/c/report.html" in done.out
    assert "resumes after the last completed run" in done.err
    assert re.search(r"job 1 of 4: \w insert, about .*; about .* left of the campaign", done.err)
    assert (folder / "report.html").exists()
    (label,) = _read_labels(folder)
    # Without the long step this is another campaign; with another target it isn't.
    (tool.place / "c.yaml").write_text(text + steps.replace("DURATION", "300ms"))
    assert "steps" in tool.run_here("campaign", "c.yaml").error(2)
    more = text.replace("steps", "") + "  c: {target: blackhole}\n"
    (tool.place / "c.yaml").write_text(more + steps.replace("DURATION", "300ms") + long)
    planned = tool.run_here("campaign", "c.yaml", "--dry-run").ok().out
    assert "5 jobs to do: " in planned
    assert re.search(rf"{label} +1 done", planned)


def test_a_full_disk_ends_it_and_is_no_failure_of_the_job(tool: Tool) -> None:
    (tool.place / "c.yaml").write_text(
        "targets: [blackhole]\nsteps:\n- insert: {workers: 1, runs: 1, num-inserts: 100}\n"
    )
    with small_disk(tool.place / "disk", 64) as disk:
        # Room for the plan, the file and the log: a page each.
        (disk / "filler").write_bytes(bytes(13 * 4096))
        command = ("campaign", "c.yaml", "--output", disk / "night")
        error = tool.run_here(*command).error(1)
        assert "blackhole insert: can't write" in error
        assert os.strerror(errno.ENOSPC) in error
        assert "When there is room again, the same command resumes" in error
        assert not (disk / "night" / "failed.json").exists()
        subprocess.run(["mount", "-o", "remount,size=20m", str(disk)], check=True)
        assert "blackhole insert: done" in tool.run_here(*command).ok().err
        assert _read_labels(disk / "night").keys() == {"blackhole insert"}


EQUALS = """
targets:
  one: {target: blackhole}
  two: {target: blackhole}
requirements:
  events_per_s: 2000
  insert: {p99: 250ms, batch: 50}
  cost_per_month: 5
steps:
- insert: {rate: 2000, batch: 50, workers: 1, runs: 1, duration: 4s, warm-up: 500ms}
repeats: 2
"""


def test_equals_meet_alike_and_nobody_is_ranked(tool: Tool) -> None:
    (tool.place / "equals.yaml").write_text(EQUALS)
    done = tool.run_here("campaign", "equals.yaml", "-v").ok()
    for candidate in ("one", "two"):
        assert re.search(rf"\n{candidate}: (all )?undecided.*narrowest: inserts p99", done.out)
    assert "undecided cost per month: no price is known" in done.out
    assert re.search(r"(\n(1\. \w+|\w+ \(undecided\)): .*){2}", done.out)
    folder = tool.place / "campaigns" / "equals"
    verdict = json.loads((folder / "verdict.json").read_text())
    folders = _read_labels(folder)
    for candidate in verdict["candidates"]:
        cells = {cell["requirement"]: cell for cell in candidate["cells"]}
        assert candidate["acknowledgement"]["on_disk"] is False  # it stores nothing
        assert candidate["trust"]["level"] == "low"  # of runs of four seconds
        p99 = cells["insert.p99"]
        # On a machine that does other things they decide nothing, or are too far apart.
        busy = re.search("too close to call|an idle machine would decide", p99["reason"] or "")
        assert p99["status"] == "met" or busy
        named = [evidence["result"] for sample in p99["samples"] for evidence in sample["evidence"]]
        own = [folders[f"{candidate['candidate']} insert {number}"] for number in (1, 2)]
        assert named == own
    # A price changes no step: what is there is judged anew.
    (tool.place / "equals.yaml").write_text(EQUALS.replace("month: 5", "month: 50"))
    tool.run_here("campaign", "equals.yaml", "--report-only").ok()
    shown = tool.run_here("results", "show", folder).ok().out
    assert re.search(r"cost per month\n.* ≤ 50\n", shown)
    assert folders["one insert 1"] in shown
