"""Limits of inserts and queries on the embedded server: exit statuses, and runs that end early."""

from __future__ import annotations

import csv

import pytest

from .tool import Tool

_INSERT = ("insert", "-t", "embedded", "-w", 1, "-r", 1, "--batch", 10)


def test_only_limits_that_are_kept_end_with_0(tool: Tool) -> None:
    kept = tool.run_here(
        *_INSERT, "--num-inserts", "2k", "--limit", "p99=1m", "--limit", "error_share=0"
    ).ok()
    assert "Limits kept: p99=60s kept (" in kept.out
    missed = tool.run_here(*_INSERT, "--num-inserts", "2k", "--limit", "p50=1us", "--label", "slow")
    assert (missed.status, missed.err.count("error")) == (3, 0)
    assert "Limits missed: p50=0.001ms missed (" in missed.out
    few = tool.run_here(*_INSERT, "--num-inserts", "500", "--limit", "p50=1m")
    assert few.status == 3
    assert (
        "Limits undecided: p50=60s undecided (too few requests: 50, and 100 are needed)" in few.out
    )
    assert "p50=0.001ms" in tool.run_here("results", "show", "slow").ok().out
    assert "limits missed" in tool.run_here("results").ok().out
    tool.run_here("report", "slow", "--output", "r.html").ok()
    assert "Limits missed: p50=0.001ms missed" in (tool.place / "r.html").read_text()
    tool.run_here("results", "export", "--output", "all.csv").ok()
    with (tool.place / "all.csv").open() as file:
        outcomes = [(row["holds"], row["limits"]) for row in csv.DictReader(file)]
    assert sorted(outcomes) == [
        ("", "p50=60s undecided"),
        ("false", "p50=0.001ms missed"),
        ("true", "p99=60s kept; error_share=0% kept"),
    ]


def test_each_query_has_limits_and_runs_that_can_not_keep_theirs_end_early(tool: Tool) -> None:
    """Of some 10,000 requests in 100 s, 101 may be slow: that is decided within seconds."""
    done = tool.run(
        "mixed", "-t", "embedded", "-w", 2, "--readers", 1, "--batch", 10, "--rate", 1000,
        "--duration", "100s", "--prefill", 1000, "--queries", "count-events", "--query-rate", 5, "--runs", 2,
        "--limit", "p99=1us", "--limit", "query:count-events:p50=1m", "--abort-on-limit",
    )  # fmt: skip
    assert (done.status, done.err.count("error")) == (3, 0)
    assert done.seconds < 60
    assert "run 2 of 2: ended after" in done.err
    tool.check_nothing_runs(within_s=0.5)
    result = tool.result()
    assert result["complete"] is True
    assert [verdict["outcome"] for verdict in result["verdicts"]] == ["missed", "missed"]
    for run, verdict in zip(result["runs"], result["verdicts"], strict=True):
        aborted = run["aborted"]
        assert aborted["limit"] == "p99=0.001ms"
        assert [limit["outcome"] for limit in verdict["limits"]] == ["missed", "kept"]
        for group in run["groups"]:
            (reason,) = group["invalid_reasons"]
            assert reason == run["invalid_reasons"][0] == verdict["reasons"][0]
            assert reason.startswith("ended after ")
            assert group["window_s"] == pytest.approx(aborted["at_s"], abs=0.5)
            assert group["rate_per_s"] == pytest.approx(
                1000 if group["role"] == "write" else 5, rel=0.5
            )
            assert group["overlap"] > 0.8
        writers = run["groups"][0]
        assert writers["verification"]["ok"] is True
        assert writers["offered"]["due"] == pytest.approx(1000 * writers["window_s"], rel=0.2)
    assert (
        "p99=0.001ms can no longer be kept"
        in tool.run_here("results", "show", tool.folder().name).ok().out
    )
    querying = tool.run_here(
        "query", "-t", "embedded", "--runs", 3, "--queries", "count-events,newest-per-device",
        "--limit", "p50=1m", "--limit", "query:count-events:p50=1us",
    )  # fmt: skip
    assert querying.status == 3
    assert "query:newest-per-device:p50=60s kept" in querying.out
    assert "query:count-events:p50=0.001ms missed" in querying.out
