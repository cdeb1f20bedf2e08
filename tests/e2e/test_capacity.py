"""A search on the embedded server, from the command line to the figure, and one that is interrupted."""

from __future__ import annotations

import signal

import pytest

from .tool import Tool


def test_a_search_with_readers_and_what_is_made_of_it(tool: Tool) -> None:
    done = tool.run(
        "capacity", "-t", "embedded", "-w", 2, "--batch", 100, "--step-duration", "2s",
        "--warm-up", "100ms", "--precision", "50%", "--max-steps", 2, "--fill", "2k",
        "--readers", 1, "--query-rate", 60, "--queries", "count-events",
        "--limit", "p99=2s", "--limit", "query:count-events:p99=2s", "--limit", "error_share=0",
    )  # fmt: skip
    result = tool.result()
    capacity = result["capacity"]
    assert capacity["steps"], done
    closed, *steps = capacity["steps"]
    assert (closed["rate_per_s"], closed["holds"]) == (None, None)
    assert 1 <= len(steps) <= 2
    runs = tool.runs()
    assert len(runs) == len(tool.runs("read")) == len(steps) + 1
    # On data of like size, whatever the step before has left.
    assert {run["fill_level"] for run in runs} == {2000}
    for step, run in zip(steps, runs[1:], strict=True):
        assert run["run"] == step["run"]
        assert run["offered"]["rate_per_s"] == step["rate_per_s"]
        within = run["latency_ms"]["p99"] <= 2000 and step["figures"].get("error_share") == 0
        assert bool(step["holds"]) <= (run["valid"] and not run["offered"]["saturated"] and within)
    holding = [step["rate_per_s"] for step in steps if step["holds"]]
    if capacity["events_per_s"] is not None:
        assert capacity["events_per_s"] in holding
        assert capacity["devices"] == pytest.approx(capacity["events_per_s"] * 0.45)
        # Steps of 2 s may be too short for it.
        per_day = capacity["bytes_per_day"]
        assert per_day is None or per_day > capacity["events_per_s"] * 86_400 * 30
        assert f"{capacity['events_per_s']:,.10g}" in done.out
    assert "closed loop" in done.out
    assert "left at most" in done.err
    assert (
        "a closed loop and at most 2 steps of 2 s: 5 s at most, plus the time before and after each step,"
        " and the time to insert" in done.err
    )
    name = tool.folder().name
    assert "Steps" in tool.run_here("results", "show", name).ok().out
    assert "capacity" in tool.run_here("results").ok().out
    tool.run_here("plot", name, "--kind", "rate").ok()
    assert "achieved:" in (tool.place / "rate.svg").read_text()


def test_ctrl_c_keeps_the_steps_that_were_made(tool: Tool) -> None:
    running = tool.start(
        "capacity", "-t", "blackhole", "-w", 1, "--batch", 1000, "--step-duration", "3s"
    )
    running.await_err(" inserts/s\n")  # of the closed loop
    running.send_group(signal.SIGINT)
    done = running.wait()
    assert done.status == 130
    result = tool.result()
    assert (result["complete"], len(result["runs"])) == (False, 1)
    assert result["capacity"]["unsure_because"] == "no rate was tried"
    assert "No capacity was found; no rate was tried." in done.out
    tool.check_nothing_runs(within_s=0.5)
