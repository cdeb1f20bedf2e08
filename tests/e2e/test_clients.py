"""A comparison of clients, from the command line to the export."""

from __future__ import annotations

from .tool import Tool


def test_official_clients_beside_the_lean_path(tool: Tool) -> None:
    done = tool.run_here(
        "clients", "-t", "embedded", "--batch", 100, "--num-inserts", 300, "-r", 1,
        "--client", "psycopg3",
    )  # fmt: skip
    stored = tool.result()
    assert stored["clients"]["ways"] == {
        "lean": "the lean path (copy)", "psycopg3": "psycopg 3's copy",
    }  # fmt: skip
    assert [turn["client"] for turn in stored["clients"]["turns"]] == ["lean", "psycopg3"]
    assert [run["verification"]["stored"] for run in stored["runs"]] == [300, 300]
    # Of both, though each run has its own.
    assert {"psycopg", "psycopg2-binary"} <= set(stored["environment"]["client"]["packages"])
    assert "What your application's client costs you, by psycopg 3's copy: " in done.out
    name = tool.folder().name
    exported = tool.run_here("results", "export", name).ok().out
    assert '""tuned"": {""client"": ""psycopg3""}' in exported
    assert "a comparison itself" in tool.run_here("compare", name, name).error(2)
    wrong = tool.run_here("clients", "-t", "embedded", "--client", "offical")
    assert "did you mean official?" in wrong.error(2)
    none = tool.run_here("clients", "-t", "blackhole")
    assert "module blackhole has no official client" in none.error(2)
