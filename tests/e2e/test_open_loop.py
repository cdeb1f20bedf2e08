"""Inserts at a rate: a database that stalls, and the end of a warm-up that nobody waits for."""

from __future__ import annotations

import csv
import signal
import time

import pytest

from simulator.contract import GAP_S

from ..helpers import counted
from .server import Server
from .tool import Tool, eventually


def test_a_stall_is_felt_by_all_that_was_due_and_nothing_is_lost(
    tool: Tool, server: Server
) -> None:
    """Two workers at 100 requests a second each; for a second nobody may write."""
    tool.add_target("server", **server.target())
    running = tool.start(
        "insert", "-t", "server", "-w", 2, "-r", 1, "--rate", 200, "--arrivals", "even",
        "--duration", "3s", "--warm-up", "500ms",
    )  # fmt: skip
    running.await_err(": running")
    with server.connection() as connection, connection.cursor() as cursor:
        cursor.execute("BEGIN")
        cursor.execute("LOCK TABLE events IN ACCESS EXCLUSIVE MODE")
        time.sleep(1.0)
        cursor.execute("ROLLBACK")
    done = running.wait().ok()
    assert "Response p50 ms" in done.out
    assert "No figure includes the first 0.5 s (warm-up)." in done.out
    (run,) = tool.runs()
    assert run["valid"] is True
    assert (run["retries"], run["warm_up_s"]) == (0, 0.5)
    assert run["window_s"] == pytest.approx(2.5, abs=0.3)
    # Two workers, a request every 10 ms for 3 s each: each was sent, unless the end came before.
    assert run["count"] + run["offered"]["unsent"] == pytest.approx(600, abs=4)
    assert run["verification"] == counted(run["count"])
    assert run["offered"]["due"] == pytest.approx(500, abs=4)
    # About 200 were due meanwhile, and have waited; two were under way.
    assert run["latency_ms"]["max"] > 950
    assert run["latency_ms"]["p90"] > 400
    assert run["service_ms"]["p90"] < run["latency_ms"]["p90"] / 2
    assert "client-bound" not in done.out


def test_a_rate_in_stages_has_figures_of_each(tool: Tool) -> None:
    """Writers have a peak, and readers have a rate of their own."""
    done = tool.run(
        "mixed", "-t", "embedded", "-w", 2, "--readers", 1, "--batch", 10, "--arrivals", "even", "-r", 1,
        "--rate", "2s:200,2s:1000,1s:200", "--query-rate", "3s:10,2s:30", "--queries", "count-events",
        "--prefill", 1000, "--label", "staged",
    ).ok()  # fmt: skip
    (run,), (reads,) = tool.runs(), tool.runs("read")
    stages = run["stages"]
    assert [stage["rate_per_s"] for stage in stages] == [200, 1000, 200]
    assert [stage["duration_s"] for stage in stages] == pytest.approx([2, 2, 1], abs=0.01)
    # Requests of ten events.
    assert [stage["due"] for stage in stages] == pytest.approx([400, 2000, 200], abs=20)
    assert run["offered"]["rate_per_s"] == pytest.approx(520)
    assert run["offered"]["due"] == sum(stage["due"] for stage in stages)
    assert run["offered"]["achieved"] == sum(stage["achieved"] for stage in stages)
    assert run["verification"]["ok"] is True
    for stage in stages:
        assert 0 < stage["latency_ms"]["p50"] <= run["latency_ms"]["max"]
    assert [stage["due"] for stage in reads["stages"]] == pytest.approx([30, 60], abs=2)
    assert run["window_s"] == pytest.approx(5.0, abs=0.2)
    table = done.out.split("\nStages\n")[1]
    assert "Response p50 ms" in table
    options = tool.result()["options"]
    assert (options["stages"], options["query_stages"]) == (
        "2s:200,2s:1000,1s:200",
        "3s:10,2s:30",
    )
    shown = tool.run_here("results", "show", "staged").ok().out
    assert "2s:200,2s:1000,1s:200 events/s offered (even arrivals)" in shown
    tool.run_here("results", "export", "--output", "all.csv").ok()
    with (tool.place / "all.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["stage"]]
    assert [(row["group"], row["stage"], row["inserts_per_s"]) for row in rows] == [
        ("writers", "1", ""), ("writers", "2", ""), ("writers", "3", ""),
        ("readers", "1", ""), ("readers", "2", ""),
    ]  # fmt: skip
    assert float(rows[1]["stage_offered_per_s"]) == pytest.approx(1000, rel=0.02)
    tool.run_here("report", "staged", "--output", "r.html").ok()
    assert "Stages" in (tool.place / "r.html").read_text()


def test_a_fleet_that_is_cut_off_sends_its_events_late(tool: Tool) -> None:
    """For two seconds nothing is sent of what two workers have to send at 400 events a second each."""
    done = tool.run(
        "insert", "-t", "embedded", "-w", 2, "-r", 1, "--batch", 10, "--rate", 800, "--arrivals", "even",
        "--duration", "7s", "--disturb", "2s pause-fleet 2s",
    ).ok()  # fmt: skip
    (run,) = tool.runs()
    assert run["valid"] is True
    (mark,), (catch_up,) = run["marks"], run["catch_ups"]
    assert (mark["at_s"], mark["ended_s"], mark["ok"]) == (2.0, 4.0, True)
    # A busy machine may make other gaps.
    assert [gap for gap in run["gaps"] if gap[0] < 3 and gap[1] >= 4.0]
    assert dict(run["timeline"]).get(3) is None
    assert run["offered"]["due"] == pytest.approx(5600, abs=40)
    done_before = sum(events for second, events in run["timeline"] if second < 4)
    assert dict(run["offered"]["backlog"])[3] == pytest.approx(3200 - done_before, abs=40)
    assert (catch_up["begins_s"], catch_up["ends_s"]) == (2.0, 4.0)
    # What became due meanwhile, and what a busy machine had not sent before.
    assert catch_up["held"] >= 1560
    assert catch_up["held"] == pytest.approx(3200 - done_before, abs=40)
    assert catch_up["after_s"] is not None, run
    assert 0 < catch_up["after_s"] < 3
    assert 2.0 <= catch_up["lateness_s"] < 4
    # The two seconds are the fleet's, not the database's.
    assert run["latency_ms"]["max"] < 1000 * max(catch_up["after_s"] + 0.5, 1.9)
    assert catch_up["later_ms"]["p50"] < catch_up["burst_ms"]["p99"] <= run["latency_ms"]["max"]
    assert run["verification"]["ok"] is True
    assert (run["lookup"]["missing"], run["lookup"]["doubled"]) == (0, 0)
    assert "After pause-fleet 2s at 2.0 s " in done.out
    assert "nothing was lost or stored twice." in done.out


def test_readers_go_on_while_the_fleet_is_cut_off(tool: Tool) -> None:
    """The fleet is cut off while a stage becomes the next."""
    tool.run(
        "mixed", "-t", "embedded", "-w", 1, "--readers", 1, "--in-flight", 4, "--arrivals", "even", "-r", 1,
        "--rate", "2s:100,3s:300", "--query-rate", 20, "--queries", "count-events", "--prefill", 1000,
        "--disturb", "1s pause-fleet 2s",
    ).ok()  # fmt: skip
    (run,), (reads,) = tool.runs(), tool.runs("read")
    first, second = run["stages"]
    assert first["saturated"] is False
    # What a busy machine has left is no part of what was held back.
    assert second["backlog"] < 100
    # 100 of the first stage, and a second of the next; what was late before is held back as well.
    assert 396 <= run["catch_ups"][0]["held"] < 500
    assert run["count"] + run["offered"]["unsent"] == pytest.approx(1100, abs=4)
    assert run["lookup"]["missing"] == 0
    timeline = dict(reads["timeline"])
    # Twenty, and fewer where a busy machine comes to them in the next second.
    assert min(timeline.get(number, 0) for number in range(5)) >= 5


def test_a_fleet_that_is_cut_off_needs_events_that_become_due(tool: Tool) -> None:
    pause = ("insert", "-t", "embedded", "-w", 2, "-r", 1, "--disturb", "2s pause-fleet 2s")
    error = tool.run(*pause, "--duration", "5s").error(2)
    assert "holds back events that are due, and without a rate none are: give --rate" in error
    error = tool.run(*pause, "--rate", 100, "--duration", "4s").error(2)
    assert "is not back before the run's end at 4 s: give a longer --duration" in error


def test_the_embedded_server_is_killed_and_comes_back(tool: Tool) -> None:
    done = tool.run(
        "insert", "-t", "embedded", "-w", 2, "-r", 1, "--batch", 10, "--rate", 1000, "--duration", "6s",
        "--disturb", "2s kill-server", "--patience", "1m", "--tables", "multiple",
    ).ok()  # fmt: skip
    (run,) = tool.runs()
    (mark,), (outage,) = run["marks"], run["outages"]
    assert (mark["action"], mark["ok"]) == ("2s kill-server", True)
    assert 2.0 <= mark["at_s"] < 4.0
    # A quick machine has its server back before a pause counts as a gap.
    assert outage["gap_s"] == 0 or outage["gap_s"] >= GAP_S
    assert outage["gap_began_s"] >= mark["at_s"]
    assert run["retries"] >= 2
    assert set(run["errors"]) == {"connection_lost"}
    assert run["verification"]["ok"] is True
    looked_up = {
        "events": run["count"],
        "missing": 0,
        "incomplete": 0,
        "doubled": 0,
        "per_group": 1,
        "reason": None,
    }
    assert run["lookup"] == looked_up
    assert run["resources"]["restarts"] == 1
    assert "After kill-server at " in done.out
    assert "nothing was lost or stored twice." in done.out


def test_a_database_that_never_comes_back_ends_the_run_and_what_was_measured_is_kept(
    tool: Tool,
) -> None:
    kill = f"kill -9 $(head -1 {tool.embedded_home}/data/postmaster.pid)"
    done = tool.run(
        "insert", "-t", "embedded", "-w", 2, "-r", 2, "--batch", 10, "--rate", 1000, "--duration", "1h",
        "--disturb", f"2s run: {kill}", "--patience", "2s",
    )  # fmt: skip
    error = done.error(1)
    assert "gave up after 2 s (connection_lost)" in error
    assert "; the embedded PostgreSQL has ended: " in error
    result = tool.result()
    assert result["complete"] is False
    (run,) = tool.runs()
    assert run["valid"] is False
    (reason,) = run["invalid_reasons"]
    assert error.removeprefix("error: ").replace("\n", " ").startswith(reason)
    # Two seconds of 1,000 events each, and none for two more.
    assert 1000 < run["count"] <= 4000
    assert len(run["per_worker"]) == 2
    assert run["rate_per_s"] == pytest.approx(run["count"] / run["window_s"])
    assert run["errors"]["connection_lost"] >= 2
    assert run["offered"]["due"] == pytest.approx(1000 * run["window_s"], rel=0.25)
    assert run["offered"]["achieved"] == run["count"] < 0.8 * run["offered"]["due"]
    (mark,), (outage,) = run["marks"], run["outages"]
    assert mark["ok"] is True
    assert 1.5 < outage["gap_s"] < 8
    assert outage["recovered_after_s"] is None
    assert run["verification"] is None
    assert f"~~{run['rate_per_s']:,.0f}~~ " in done.out
    assert "the rate did not return to 90 %" in done.out
    assert "events lost: unknown." in done.out


def test_ctrl_c_while_a_command_of_the_users_runs(tool: Tool) -> None:
    begun = tool.place / "begun"
    running = tool.start(
        "insert", "-t", "blackhole", "-w", 1, "-r", 1, "--rate", 10, "--duration", "1h",
        "--disturb", f"0s run: echo > {begun}; sleep 600 & wait",
    )  # fmt: skip
    eventually(begun.exists, "the command")
    running.send_group(signal.SIGINT)
    done = running.wait()
    assert done.status == 130
    assert "sleep 600 & wait' was still running and was stopped" in done.err
    assert done.err.splitlines()[-1] == "ended by SIGINT: nothing is left running"
    tool.check_nothing_runs(within_s=0.5)


def test_ctrl_c_in_a_warm_up(tool: Tool) -> None:
    running = tool.start(
        "insert", "-t", "blackhole", "-w", 2, "-r", 1, "--rate", 10, "--duration", "1h",
        "--warm-up", "30m",
    )  # fmt: skip
    running.await_err(": warming up")
    running.send_group(signal.SIGINT)
    done = running.wait()
    assert done.status == 130
    assert done.err.splitlines()[-1] == "ended by SIGINT: nothing is left running"
    assert tool.folders() == []
    tool.check_nothing_runs(within_s=0.5)


def test_above_what_there_is_is_saturated_and_too_short_is_invalid(tool: Tool) -> None:
    """A request takes 50 ms, so one worker does 20 a second."""
    tool.add_target("slow", module="blackhole", delay_ms=50)
    arguments = ("insert", "-t", "slow", "-w", 1, "-r", 1)
    done = tool.run_here(
        *arguments, "--rate", 1000, "--duration", "1500ms", "--json", tool.json
    ).ok()
    (run,) = tool.runs()
    assert run["valid"] is True
    assert 10 < run["rate_per_s"] < 20.5
    assert run["offered"]["saturated"] is True
    assert "saturated: 1 worker, run 1: did not keep up with 1,000 events/s: 1," in done.out
    done = tool.run_here(*arguments, "--duration", "20ms")
    assert done.status == 1
    assert "nothing was measured: no answer came within the window" in done.err
