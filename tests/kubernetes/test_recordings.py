"""A recording in pods: sent to them, checked, and inserted."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.e2e.tool import flatten

from .test_access import documented_rules, use, without
from .tool import DATABASE, HALF, WORKER, ClusterTool

pytestmark = pytest.mark.cluster

ROWS = 3_000


@pytest.fixture
def recording(tool: ClusterTool, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file with the data of three pumps, one of which is late at times."""
    monkeypatch.setenv("IOTBENCH_RECORDINGS", str(tool.place / "recordings"))
    draw = random.Random(7)
    lines = ["ts,pump,pressure"]
    for number in range(ROWS):
        late_s = 5 if number % 300 == 2 else 0
        second = max(0, number // 3 - late_s)
        lines.append(
            f"2024-03-01T{second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}Z,pump-{number % 3},"
            f"{draw.gauss(5, 1):.2f}"
        )
    file = tool.place / "pumps.csv"
    file.write_text("\n".join(lines))
    return file


def test_a_recording_is_sent_to_the_pods(tool: ClusterTool, database: str, recording: Path) -> None:
    """Once for both runs; the documented Role is enough for it."""
    use(tool, documented_rules())
    tool.configure(resources={**WORKER, "cpu": HALF})
    tool.add_database(database)
    done = tool.insert(
        "--workload", recording, "--workers", 2, "--batch", 50, "--num-inserts", 1_000, "--rate", 2_000,
        "--runs", 2, target=DATABASE,
    )  # fmt: skip
    assert done.err.count("sending the recording to the collector") == 1
    runs = tool._read(tool.json)["runs"]
    assert [flatten(run)["verification"]["stored"] for run in runs] == [2_000, 2_000]
    read = tool.run_here(
        "query", "--target", DATABASE, "--workload", recording, "--workers", 1, "--runs", 1,
        "--queries", "range", "--json", tool.json,
    ).ok()  # fmt: skip
    assert "wrong" not in read.out


def test_who_may_not_send_it_is_told_another_way(tool: ClusterTool, recording: Path) -> None:
    use(tool, without(("services/proxy", "create")))
    text = tool.insert_here("--workload", recording).error(1)
    assert "the recording can't be sent to the collector: 403" in text
    assert "kubernetes: recordings: source" in text


def test_it_is_where_the_values_say(tool: ClusterTool, recording: Path) -> None:
    tool.configure(recordings={"source": "/nowhere"})
    text = tool.insert_here("--workload", recording).error(1)
    assert "can't get recording /nowhere/" in text and "No such file" in text
