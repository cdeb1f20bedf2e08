"""Readers by the clock, alone and beside writers."""

from __future__ import annotations

from typing import Any

import pytest

from .server import Server
from .test_runs import check_valid, rows
from .tool import Tool, eventually, flatten


def test_writers_and_readers_at_once_and_alone(tool: Tool) -> None:
    done = tool.run(
        "mixed", "-t", "embedded", "-w", 2, "--readers", 2, "--batch", 20, "--rate", 5000,
        "--query-rate", 40, "--queries", "newest-per-device=3,count-events=1", "--arrivals", "even",
        "--duration", "1500ms", "--warm-up", "500ms", "--prefill", 5000, "--runs", 1, "--baseline",
    ).ok()  # fmt: skip
    result = tool.result()
    assert (result["command"], len(result["runs"]), len(result["baseline"])) == ("mixed", 1, 2)
    (writing,) = (run for run in result["baseline"] if run["groups"][0]["role"] == "write")
    (reading,) = (run for run in result["baseline"] if run["groups"][0]["role"] == "read")
    for run in (*tool.runs(), flatten(writing)):
        assert run["valid"]
        check_offer(run, 5000, within=0.1)
        assert run["fill_level"] == 5000
        assert run["verification"]["stored"] == 5000 + run["count"]
        # Sent and verified, but in no figure.
        warm_up = dict(run["timeline"])[0]
        assert run["count"] > run["rate_per_s"] * run["window_s"] > 0
        assert warm_up > 0
    readers = [*tool.runs("read"), flatten(reading, "read")]
    for read in readers:
        assert read["valid"]
        check_offer(read, 40, within=0.3)
        assert read["fill_level"] == 5000
        counts = {query["query"]: query["executions"] for query in read["queries"]}
        assert counts["newest-per-device"] == pytest.approx(3 * counts["count-events"], abs=4)
        assert all(query["errors"] == 0 for query in read["queries"])
    beside, by_itself = (read["answers"] for read in readers)
    # Two queries of two readers: what they ask about grows, but not without writers.
    assert (beside["checked"], beside["unchecked"], beside["wrong"]) == (0, 4, [])
    assert list(beside["reasons"]) == ["rows were being added during the query"]
    assert by_itself == {"checked": 4, "unchecked": 0, "reasons": {}, "wrong": []}
    titles = (
        "Inserts per second",
        "Queries per second",
        "What writers and readers cost each other",
    )
    for title in titles:
        assert title in done.out
    costs = rows(done.out, "Group")
    assert [row[:2] for row in costs[1:4]] == [
        ["writers", "rate"], ["writers", "p50"], ["writers", "p99"],
    ]  # fmt: skip
    # What is stored can be shown, compared with itself, and exported.
    name = tool.folder().name
    shown = tool.run_here("results", "show", name).ok().out
    assert "Readers alone" in shown
    assert "Writers alone" in shown
    assert "mixed" in tool.run_here("results").ok().out
    compared = tool.run_here("compare", name, name).ok().out
    assert "newest-per-device" in compared


def check_offer(run: dict[str, Any], rate: float, within: float) -> None:
    """What was due was offered, and nearly all of it was done."""
    offered = run["offered"]
    assert offered["rate_per_s"] == rate
    assert offered["due"] == pytest.approx(rate * 1.0, rel=within)
    # Without the warm-up of 0.5 s. On a busy machine a worker may begin late.
    assert run["window_s"] == pytest.approx(1.0, abs=0.2)
    assert run["service_ms"]["p50"] <= run["latency_ms"]["p50"]


def test_a_query_that_fails_is_told_and_the_writers_go_on(tool: Tool, server: Server) -> None:
    """Its connection is cut during the run; the reader connects again and goes on."""
    tool.add_target("other", **server.target())
    running = tool.start(
        "mixed", "-t", "other", "--batch", 100, "--duration", "2s", "--runs", 1, "--prefill", 50000,
        "--queries", "newest-per-device",
    )  # fmt: skip
    cut = (
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE query LIKE '%AS newest ON%' AND pid <> pg_backend_pid() AND state = 'active'"
    )
    eventually(lambda: server.ask(cut), "a query under way")
    done = running.wait()
    assert done.status == 1
    [run], [read] = tool.runs(), tool.runs("read")
    check_valid(run)
    assert run["rate_per_s"] > 0
    assert not read["valid"]
    [query] = read["queries"]
    assert query["errors"] == 1
    assert query["executions"] > 1
    assert "invalid: 1 reader, run 1: query newest-per-device failed once: " in done.out


def test_queries_for_a_time_and_at_a_rate(tool: Tool) -> None:
    tool.run_here("insert", "-t", "embedded", "-w", 1, "-r", 1, "--batch", 1000,
             "--output", tool.place / "first").ok()  # fmt: skip
    done = tool.run_here(
        "query", "-t", "embedded", "-w", 2, "--duration", "1s", "--rate", 30, "--arrivals", "even"
    ).ok()
    result = tool.result()
    [read] = tool.runs("read")
    assert (result["command"], read["fill_level"]) == ("query", 10_000)
    assert read["offered"]["due"] == pytest.approx(30, abs=1)
    assert sum(n for _, n in read["timeline"]) == 30
    _, *table = rows(done.out, "Query")
    assert [row[0] for row in table[:5]] == [query["query"] for query in result["query_summary"]]
