"""A history on the embedded server: loaded once, kept, gone on from, and asked about with what follows."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from ..contract.entries import ENTRIES
from .tool import Tool

_DATA = (
    "-t", "embedded", "--workload", "machines", "--workload-option", "devices=20",
    "--prefill-span", "8d", "--prefill-every", "1h",
)  # fmt: skip
_QUERIES = "point,range,downsample,last-values,threshold"
HISTORY = 8 * 24 * 20


def read_runs(tool: Tool, label: str) -> list[dict[str, Any]]:
    """The runs of the result with this label."""
    results = [json.loads((folder / "result.json").read_bytes()) for folder in tool.folders()]
    [runs] = [result["runs"] for result in results if result["label"] == label]
    assert isinstance(runs, list)
    return runs


def test_a_history_is_loaded_once_and_asked_about(tool: Tool) -> None:
    loading = tool.run_here(
        "insert", *_DATA, "-w", 2, "-r", 1, "--duration", "2s", "--batch", 10, "--rate", 800,
        "--label", "first",
    ).ok()  # fmt: skip
    assert "history: one event per device every 1h for 8d, loaded before the window: 3,840" in (
        loading.out
    )
    mixed = tool.run_here(
        "mixed", *_DATA, "-w", 2, "-r", 2, "--duration", "2s", "--batch", 10, "--rate", 500,
        "--query-rate", 20, "--queries", "point,range,downsample", "--no-clean", "--label", "second",
    ).ok()  # fmt: skip
    assert "every 1h for 8d, kept from an earlier run" in mixed.out
    # Windows before what is added are asked about the history and the inserts of both runs.
    assert "checked, all right" in mixed.out
    querying = tool.run_here(
        "query", *_DATA, "-w", 2, "-r", 3, "--queries", _QUERIES, "--label", "third"
    ).ok()
    assert "Answers: 10 checked, all right." in querying.out
    [loaded] = read_runs(tool, "first")
    assert loaded["fill_level"] == HISTORY
    runs = read_runs(tool, "second")
    assert [run["groups"][0]["verification"]["ok"] for run in runs] == [True, True]
    assert runs[0]["fill_level"] == HISTORY + loaded["groups"][0]["count"]
    assert runs[1]["fill_level"] == runs[0]["fill_level"] + runs[0]["groups"][0]["count"]
    assert [run["prefilled"] for run in runs] == [None, None]
    # Whoever doesn't know of it is told so, and what else is there is no history.
    unknown = tool.run_here("query", *_DATA[:6], "-w", 1, "-r", 1, "--queries", _QUERIES)
    assert unknown.status == 1
    assert "--prefill-span and --prefill-every if it had them" in unknown.err
    other = [*_DATA[:-1], "2h"]
    refused = tool.run_here("insert", *other, "-w", 2, "-r", 1, "--num-inserts", 50, "--no-clean")
    assert refused.status == 1
    assert "that this run and its history can't continue" in refused.err
    assert "Run it once without --no-clean" in refused.err


def test_a_recording_is_played_before_as_a_history(
    tool: Tool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("IOTBENCH_RECORDINGS", str(tool.place / "cache"))
    pumps, rows = tool.place / "pumps.csv", range(400)
    rising = [f"{1_772_323_200 + row // 4},pump-{row % 4},{row}\n" for row in rows]
    pumps.write_text("time,pump,flow\n" + "".join(rising))
    # Copies of devices, and three repetitions.
    data = (
        "-t", "embedded", "--workload", str(pumps), "--workload-option", "devices=20",
        "--prefill-span", "5m",
    )  # fmt: skip
    for label in ("first", "second"):
        tool.run_here(
            "insert", *data, "-w", 2, "-r", 1, "--duration", "2s", "--batch", 10, "--speed", 20,
            "--label", label, *(["--no-clean"] if label == "second" else []),
        ).ok()  # fmt: skip
    querying = tool.run_here("query", *data, "-w", 2, "-r", 1, "--queries", "point,range").ok()
    assert "Answers: 4 checked, all right." in querying.out
    [loaded], [kept] = read_runs(tool, "first"), read_runs(tool, "second")
    assert loaded["fill_level"] == loaded["prefilled"] == 20 * 300
    assert kept["prefilled"] is None
    assert kept["fill_level"] == 20 * 300 + loaded["groups"][0]["count"]
    assert kept["groups"][0]["verification"]["ok"]


def test_a_search_keeps_one_history_for_all_steps(tool: Tool) -> None:
    done = tool.run_here(
        "capacity", *_DATA, "-w", 2, "--batch", 1, "--step-duration", "4s", "--max-steps", 3,
        "--readers", 1, "--query-rate", 20, "--queries", "range",
    ).ok()  # fmt: skip
    runs = tool.result()["runs"]
    assert [run["prefilled"] for run in runs] == [HISTORY, *[None] * 3]
    levels = [run["fill_level"] for run in runs]
    counts = [run["groups"][0]["count"] for run in runs]
    assert levels == [HISTORY + sum(counts[:place]) for place in range(4)]
    assert all(run["groups"][0]["verification"]["ok"] for run in runs)
    assert [run["groups"][1]["answers"]["wrong"] for run in runs] == [[]] * 4
    assert sum(run["groups"][1]["answers"]["checked"] for run in runs) >= 3
    assert "loaded before the window: 3,840 events" in done.out


def test_runs_on_cassandra_go_on_behind_sorted_events(tool: Tool) -> None:
    """Its requests have events of one device, so that a run by duration ends amid a chunk of sorted events.
    One test, since one command uses a server at a time."""
    (entry,) = (entry for entry in ENTRIES if entry.name == "cassandra")
    hosts, port = entry.values()
    tool.add_target(
        "sorting", module="cassandra", contact_points=hosts, port=int(port), keyspace="iot_history",
        replication_factor=1,
    )  # fmt: skip
    tool.run(
        "capacity", "-t", "sorting", *_DATA[2:], "-w", 2, "--batch", 50, "--step-duration", "4s",
        "--max-steps", 3, "--readers", 1, "--query-rate", 20, "--queries", "range", "--label", "search",
    ).ok()  # fmt: skip
    runs = read_runs(tool, "search")
    assert [run["prefilled"] for run in runs] == [HISTORY, *[None] * 3]
    assert all(run["groups"][0]["verification"]["ok"] for run in runs)
    # What has gaps is not asked about, but the history before it.
    assert [run["groups"][1]["answers"]["wrong"] for run in runs] == [[]] * 4
    assert sum(run["groups"][1]["answers"]["checked"] for run in runs) >= 3
    # Another command doesn't know where the one before has ended.
    for tables in ("single", "multiple"):
        load = (
            "-t", "sorting", "--workload", "machines", "--workload-option", "devices=500", "-w", 1,
            "-r", 1, "--batch", 50, "--duration", "1s", "--tables", tables,
        )  # fmt: skip
        tool.run("insert", *load, "--label", f"first {tables}").ok()
        tool.run("insert", *load, "--no-clean", "--label", f"second {tables}").ok()
        [first], [second] = (read_runs(tool, f"{name} {tables}") for name in ("first", "second"))
        assert second["fill_level"] == first["groups"][0]["count"] > 0


SCAN = """
targets: [embedded]
options:
  {workload: machines, workload-option: {devices: 5000}, workers: 2, batch: 50, rate: 500, runs: 1,
   readers: 1, query-rate: 5, queries: {last-value: 5}, duration: 3s, warm-up: 1s,
   prefill-span: 10s, prefill-every: 10s}
requirements:
  devices: 5000
  insert: {batch: 50}
  queries: {last-value: {rate: 5, p50: 2s}}
  retention: 90d
steps:
- mixed: {prefill: 20k}
  label: load-small
- mixed: {prefill: 200k, clean: false}
  label: load
repeats: 2
"""
"""A query without an index: each device's newest event of all that are stored."""


def test_a_full_scan_of_a_growing_history_is_not_met(tool: Tool) -> None:
    (tool.place / "scan.yaml").write_text(SCAN)
    done = tool.run_here("campaign", "scan.yaml").ok()
    folder = tool.place / "campaigns" / "scan"
    verdict = json.loads((folder / "verdict.json").read_text())
    [cells] = [candidate["cells"] for candidate in verdict["candidates"]]
    cell = next(cell for cell in cells if cell["requirement"] == "queries.last-value.p50")
    assert cell["status"] != "met"
    assert re.search(r"last-value p50\n.* ≤ 2,000 ms\n", done.out)
    scale = cell["scale"]
    assert scale["kept"] == 500 * 90 * 86_400
    # With an event of each device, what the first load has added, and half of what the second adds.
    assert 226_000 <= scale["events"] <= 228_000
    # About as many times as long on ten times as many.
    assert 0.4 < scale["exponent"]["mean"] < 1.4
    # Thirty times as many are predicted at most.
    assert scale["extrapolated_to"] == 30 * scale["events"]
    results = [json.loads(path.read_text()) for path in folder.glob("results/*/result.json")]
    runs = [run for result in results if result["step"] == "load" for run in result["runs"]]
    assert [run["prefilled"] for run in runs] == [200_000, 200_000]
    assert all(run["groups"][0]["verification"]["ok"] for run in runs)
