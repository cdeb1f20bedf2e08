"""A workload of one's own from its file to checked answers."""

from __future__ import annotations

import json

from ..helpers import begin_definition
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
    assert "give the time that the insert printed" in refused
    tool.run_here("query", *mine, "-r", 1, "--workload-option", f"epoch={epoch}").ok()
    (run,) = json.loads((tool.folders()[-1] / "result.json").read_text())["runs"]
    reads = flatten(run, "read")
    assert [query["query"] for query in reads["queries"]][:2] == ["per-group", "point"]
    assert reads["answers"]["checked"] == len(reads["queries"]) == 11
    assert reads["answers"]["wrong"] == []


STATED = (
    begin_definition(
        "stated", "machine", "Asked by a statement of its own", devices=4, interval="10s"
    )
    + """\
  - {name: heat, type: float64, signal: {kind: wander, low: 0, high: 9, period: 1h}}
queries:
  - name: means
    devices: 1
    window: {span: 10m}
    compute: [{function: avg, column: heat}, {function: count}]
    per: [{every: 2m}]
    statement:
      postgres: |
        SELECT at - at % :every, avg(heat), count(*)::bigint  -- ':start' is none
        FROM :table WHERE machine = :device AND at BETWEEN :start AND :end - 1
        GROUP BY 1;
      questdb: SELECT 1
  - {name: counts, compute: [{function: count}], per: [machine]}
"""
)


def test_a_statement_of_its_own_is_asked_and_a_wrong_one_found_out(tool: Tool) -> None:
    file = tool.place / "stated.yaml"
    file.write_text(STATED)
    mine = ("-t", "embedded", "--workload", "stated.yaml")
    tool.run_here("insert", *mine, "-w", 1, "-r", 1, "--batch", 100, "--num-inserts", 2000).ok()
    # An insert asks nothing: its result has the schema.
    statements = json.loads((tool.folders()[-1] / "result.json").read_text())["statements"]
    assert [part["title"] for part in statements] == ["Schema"]
    ask = ("query", *mine, "-r", 3, "-w", 2, "--queries", "means,counts")
    done = tool.run_here(*ask).ok()
    assert "Answers: 4 checked, all right." in done.out
    assert "own statements" in done.out
    folder = tool.folders()[-1]
    statements = json.loads((folder / "result.json").read_text())["statements"]
    assert [(part["query"], part["own"]) for part in statements] == [
        (None, False), ("means", True), ("counts", False),
    ]  # fmt: skip
    assert "at BETWEEN" in statements[1]["lines"][1]
    shown = tool.run_here("results", "show", folder.name).ok().out
    assert "own statements: means sent as the workload's own" in shown
    assert (
        "Query means, the workload's own statement\n  SELECT at - at % 120000, avg(heat)" in shown
    )

    file.write_text(STATED.replace(":end - 1", ":end - 60000"))
    failed = tool.run_here(*ask)
    assert failed.status == 1
    assert "query means gave a wrong answer to worker" in failed.out
    assert "(using the workload's own statement)" in failed.out
    assert "query counts" not in failed.out
    file.write_text(STATED.replace(" GROUP BY 1;", " GROUP BY 2;"))
    refused = tool.run_here(*ask)
    assert refused.status == 1
    assert "aggregate functions are not allowed in GROUP BY" in refused.out + refused.err
    file.write_text(STATED.replace(":every", ":bucket"))
    assert "stated.yaml:19: queries[means].statement.postgres: there is no parameter :bucket" in (
        tool.run_here(*ask).error(2)
    )
