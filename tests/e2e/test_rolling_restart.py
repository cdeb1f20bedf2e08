"""Three nodes are restarted one after the other while events come in at a rate: on real servers, where there
are any."""

from __future__ import annotations

import re
import subprocess
import time
from dataclasses import replace

import pytest

from simulator.testing.server import Entry

from ..contract.entries import ENTRIES
from ..helpers import counted
from .tool import Tool

RATE_PER_S = 200


def _find(name: str) -> Entry:
    """Where three nodes are, and the command that restarts all of them, each when the one before is back;
    with a number behind it, only that one."""
    (entry,) = (entry for entry in ENTRIES if entry.name == name)
    restart = f"{name.partition('-')[0].upper()}_THREE_RESTART"
    return replace(entry, variables=(*entry.variables, restart))


CASSANDRA, ELASTICSEARCH = _find("cassandra-three"), _find("elasticsearch-three")


def make_target(entry: Entry) -> tuple[dict[str, object], str]:
    """The options of a target with a copy on each node, and the command."""
    *where, restart = entry.values()
    if entry is CASSANDRA:
        options = {"contact_points": where[0], "port": int(where[1]), "replication_factor": 3}
        return {"module": "cassandra", "keyspace": "iot_rolling", **options}, restart
    options = {"endpoint": where[0], "replicas": 2, "index_prefix": "iot-rolling-"}
    return {"module": "elasticsearch", **options}, restart


def measure_restart_s(restart: str) -> float:
    """How long one node takes here and now."""
    began = time.monotonic()
    subprocess.run(["/bin/sh", "-c", f"{restart} 1"], check=True, capture_output=True)
    return time.monotonic() - began


@pytest.mark.timeout(900)
@pytest.mark.parametrize("entry", [CASSANDRA, ELASTICSEARCH], ids=lambda entry: entry.name)
def test_a_rolling_restart_loses_nothing(tool: Tool, entry: Entry) -> None:
    options, restart = make_target(entry)
    # Three restarts, and time to be late: other tests are at work, too. A node of Elasticsearch takes longer
    # in the run, as there is something to recover then.
    duration_s = 10 + round((8 if entry is CASSANDRA else 12) * measure_restart_s(restart))
    tool.add_target("nodes", **options)
    # Cassandra's writers sort events into batches, of which it isn't known afterwards which were due.
    batch = () if entry is CASSANDRA else ("--batch", 10)
    done = tool.run(
        "insert", "-t", "nodes", "-w", 2, "-r", 1, *batch, "--rate", RATE_PER_S,
        "--arrivals", "even", "--duration", f"{duration_s}s", "--patience", "2m",
        "--disturb", f"3s run: {restart}", within_s=duration_s + 120,
    ).ok()  # fmt: skip
    (run,) = tool.runs()
    (mark,), (outage,) = run["marks"], run["outages"]
    # Each node was away and came back.
    assert (mark["ok"], mark["said"]) == (True, None)
    assert run["count"] + run["offered"]["unsent"] == pytest.approx(RATE_PER_S * duration_s, abs=40)
    stored = run["count"]
    assert run["verification"] == counted(stored)
    assert (run["lookup"]["missing"], run["lookup"]["doubled"]) == (0, 0)
    # Two nodes are always there: what one of them doesn't answer is asked of another.
    assert outage["gap_s"] < duration_s / 4
    # Of a long command its beginning is told.
    assert re.search(rf"After run /.* at {mark['at_s']:.1f} s ", done.out)
    assert "nothing was lost or stored twice." in done.out
