"""A comparison of clients, from the command line to the export."""

from __future__ import annotations

import os
from signal import SIGKILL

from psycopg import connect

from .tool import Tool, eventually


def test_official_clients_beside_the_lean_path(tool: Tool) -> None:
    done = tool.run_here(
        "clients", "-t", "embedded", "--batch", 100, "--num-inserts", 300, "-r", 1,
        "--client", "official",
    )  # fmt: skip
    stored = tool.result()
    assert stored["clients"]["ways"] == {
        "lean": "the lean path (copy)", "official": "psycopg2's copy_expert",
    }  # fmt: skip
    assert [turn["client"] for turn in stored["clients"]["turns"]] == ["lean", "official"]
    assert [run["verification"]["stored"] for run in tool.runs()] == [300, 300]
    # Of both, though each run has its own.
    assert {"psycopg", "psycopg2-binary"} <= set(stored["environment"]["client"]["packages"])
    assert "What your application's client (psycopg2's copy_expert) costs you: " in done.out
    name = tool.folder().name
    exported = tool.run_here("results", "export", name).ok().out
    assert '""tuned"": {""client"": ""official""}' in exported
    assert "a comparison itself" in tool.run_here("compare", name, name).error(2)
    wrong = tool.run_here("clients", "-t", "embedded", "--client", "offical")
    assert "did you mean official?" in wrong.error(2)
    none = tool.run_here("clients", "-t", "blackhole")
    assert "module blackhole has no official client" in none.error(2)


def test_official_clients_ask_the_same_as_the_lean_path(tool: Tool) -> None:
    """About events that are inserted once."""
    done = tool.run_here(
        "clients", "-t", "embedded", "--queries", "point,last-value", "--num-inserts", 300,
        "--duration", "1s", "-r", 1, "--reader-in-flight", 2,
    )  # fmt: skip
    done.ok()
    stored = tool.result()
    comparison = stored["clients"]
    assert comparison["asks"] is True
    assert comparison["ways"] == {
        "lean": "the lean path", "official": "psycopg2-binary", "psycopg3": "psycopg",
    }  # fmt: skip
    assert [(turn["client"], turn["run"]) for turn in comparison["turns"]] == [
        ("lean", 2), ("official", 3), ("psycopg3", 4),
    ]  # fmt: skip
    assert (stored["options"]["reader_in_flight"], stored["options"]["prefill"]) == (2, 300)
    groups = [group for run in stored["runs"] for group in run["groups"]]
    assert [group["role"] for group in groups] == ["read"] * 4
    for group in groups:
        assert group["client"]["in_flight"] == 2
        assert {query["query"]: query["rows_max"] for query in group["queries"]} == {
            "point": 1, "last-value": 1,
        }  # fmt: skip
        assert group["answers"]["checked"] == 2 and not group["answers"]["wrong"]
    assert "Queries by" in done.out
    assert "What your application's client (psycopg2-binary) costs you: " in done.out
    shown = tool.run_here("results", "show", tool.folder().name).ok().out
    assert "Query times" in shown


def test_of_a_run_that_is_given_up_what_was_measured_is_kept(tool: Tool) -> None:
    running = tool.start(
        "clients", "-t", "embedded", "--batch", 100, "--rate", 1000, "--duration", "1h", "-r", 1,
        "--patience", "1s", "--client", "psycopg3",
    )  # fmt: skip
    running.await_err("lean, run 1 of 1: running")
    data = tool.embedded_home / "data"
    pid = int((data / "postmaster.pid").read_text().split()[0])
    with connect(f"postgresql://postgres@/postgres?host={data}", autocommit=True) as connection:
        eventually(lambda: connection.execute("SELECT FROM events").rowcount > 500, "some events")
    os.kill(pid, SIGKILL)
    assert "gave up after 1 s (connection_lost)" in running.wait().error(1)
    (run,) = tool.runs()
    assert run["valid"] is False
    assert run["rate_per_s"] > 0
