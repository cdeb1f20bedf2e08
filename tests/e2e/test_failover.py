"""One of three nodes dies, or hangs, while events come in: on real servers, where there are any."""

from __future__ import annotations

from dataclasses import replace

import pytest

from simulator.testing.server import Entry

from ..contract.entries import ENTRIES
from ..helpers import counted
from .test_rolling_restart import CASSANDRA, ELASTICSEARCH, make_target, measure_restart_s
from .tool import Tool

(_ONE_NODE,) = (entry for entry in ENTRIES if entry.name == "cratedb")
CRATEDB = replace(
    _ONE_NODE, name="cratedb-three", variables=("CRATEDB_THREE_URLS", "CRATEDB_THREE_RESTART")
)
FAULTS = {"killed": "--kill 1", "killed in turn": "--kill 1 2", "frozen": "--freeze 1"}
RATES_PER_S = {100: 1000, 0: 40}
"""By batch: what three nodes on one busy machine keep up with."""


def make_replicated_target(entry: Entry) -> tuple[dict[str, object], str]:
    """The options of a target that can do without one node, and the command that restarts nodes."""
    if entry is not CRATEDB:
        return make_target(entry)
    urls, restart = entry.values()
    return {"module": "cratedb", "endpoint": urls, "replicas": 1, "shards": 6}, restart


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("batch", RATES_PER_S)
@pytest.mark.parametrize("loop", ["closed", "open"])
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("entry", [CRATEDB, CASSANDRA, ELASTICSEARCH], ids=lambda entry: entry.name)
def test_a_fault_loses_nothing(tool: Tool, entry: Entry, fault: str, loop: str, batch: int) -> None:
    options, restart = make_replicated_target(entry)
    # With something to recover it takes longer.
    duration_s = 40 + round(4 * measure_restart_s(restart)) * (
        2 if fault == "killed in turn" else 1
    )
    tool.add_target("nodes", **options)
    rate = ("--rate", RATES_PER_S[batch]) if loop == "open" else ()
    tool.run(
        "insert", "-t", "nodes", "-w", 2, "-r", 1, "--batch", batch, *rate,
        "--duration", f"{duration_s}s", "--patience", "2m",
        "--disturb", f"8s run: {restart} {FAULTS[fault]}", within_s=duration_s + 300,
    ).ok()  # fmt: skip
    (run,) = tool.runs()
    stored = run["count"]
    assert run["verification"] == counted(stored)
    assert (run["lookup"]["missing"], run["lookup"]["doubled"]) == (0, 0)
    (mark,) = run["marks"]
    assert (mark["ok"], mark["said"]) == (True, None)
