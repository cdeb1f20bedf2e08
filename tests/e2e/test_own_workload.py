"""A workload of one's own from its file to checked answers."""

from __future__ import annotations

import json

from .tool import Tool, flatten

DEFINITION = """\
name: own
about: Named as SQL's words
table: order
time: timestamp
device: user
devices: {per_worker: 4}
interval: 10s
epoch: now
late: {share: 5%, most: 1m}
columns:
  - {name: timestamp, type: timestamp_ms}
  - {name: user, type: text}
  - {name: group, type: text, tag: true, signal: {kind: choice, values: [a b, "100 %", Küche]}}
  - {name: select, type: float64, missing: 5%, signal: {kind: wander, low: 0, high: 9, period: 1h}}
  - {name: table, type: int64, signal: {kind: counter, every: 1s}}
queries:
  - {name: per-group, compute: [{function: max, column: table}, {function: count}], per: [group]}
"""


def test_it_is_stored_and_its_answers_are_right(tool: Tool) -> None:
    file = tool.place / "own.yaml"
    file.write_text(DEFINITION)
    mine = ("-t", "embedded", "--workload", "own.yaml")
    done = tool.run_here(
        "insert", *mine, "-w", 1, "-r", 1, "--batch", 100, "--num-inserts", 1000
    ).ok()
    result = tool.result()
    assert (result["options"]["workload"], tool.runs()[0]["valid"]) == ("own", True)
    assert result["options"]["definition"]["table"] == "order"
    epoch = result["options"]["module"]["epoch"]
    assert f"--workload-option epoch={epoch}" in done.err
    refused = tool.run_here("query", *mine).error(2)
    assert "give the time that the insert said" in refused
    tool.run_here("query", *mine, "-r", 1, "--workload-option", f"epoch={epoch}").ok()
    (run,) = json.loads((tool.folders()[-1] / "result.json").read_text())["runs"]
    asked = flatten(run, "read")
    assert [query["query"] for query in asked["queries"]][:2] == ["per-group", "point"]
    assert asked["answers"]["checked"] == len(asked["queries"]) == 11
    assert asked["answers"]["wrong"] == []
