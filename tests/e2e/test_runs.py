"""Runs that go well: what is printed, what is stored, and whether it is true."""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from hdrh.histogram import HdrHistogram

from simulator.modules import load_module

from ..helpers import counted
from .server import Server
from .tool import Done, Tool, flatten

Check = Callable[[Any], bool]


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def is_seconds(value: Any) -> bool:
    return is_number(value) and value >= 0


def is_flag(value: Any) -> bool:
    return isinstance(value, bool)


def is_text(value: Any) -> bool:
    return isinstance(value, str) and value != ""


def is_interval(value: Any) -> bool:
    return value is None or (isinstance(value, list) and len(value) == 2 and value[0] <= value[1])


def optional(check: Check) -> Check:
    return lambda value: value is None or check(value)


def check_keys(document: Mapping[str, Any], checks: Mapping[str, Check]) -> None:
    """Check that there are exactly these keys, each with a value of its kind."""
    assert set(document) == set(checks)
    for key, check in checks.items():
        assert check(document[key]), f"{key} = {document[key]!r}"


def has_keys(document: Mapping[str, Any], checks: Mapping[str, Check]) -> bool:
    """`check_keys` as a check of a value."""
    check_keys(document, checks)
    return True


def is_time(value: Any) -> bool:
    """Whether it's a time in UTC, to the millisecond."""
    return bool(re.fullmatch(r"\d{4}(-\d\d){2}T\d\d(:\d\d){2}\.\d{3}\+00:00", value))


def are_machines(value: Any) -> bool:
    """Whether it's this machine alone."""
    (machine,) = value
    check_keys(machine, MACHINE)
    return True


# The result file's names. Other programs read them: a change here is a change of the format.
RESULT: dict[str, Check] = {
    "format": lambda value: value == 2,
    "command": lambda value: value in ("insert", "query"),
    "target": is_text,
    "module": is_text,
    "executor": lambda value: value == "local",
    "tuning": lambda value: value is None,
    "clients": lambda value: value is None,
    "capacity": lambda value: value is None,
    "label": optional(is_text),
    "tags": lambda value: isinstance(value, dict),
    "source": lambda value: value is None,
    # Of a campaign.
    "candidate": lambda value: value is None,
    "step": lambda value: value is None,
    "repetition": lambda value: value is None,
    "cost_per_hour": optional(is_seconds),
    "started_at": lambda value: bool(re.fullmatch(r"\d{4}(-\d\d){2}T\d\d(:\d\d){2}\+00:00", value)),
    "complete": is_flag,
    "ended_by": optional(is_text),
    "options": lambda value: isinstance(value, dict),
    "environment": lambda value: set(value) == {"tool", "client", "database", "kubernetes"},
    "runs": lambda value: isinstance(value, list) and value != [],
    # Without limits.
    "verdicts": lambda value: value == [],
    "baseline": lambda value: value == [],
    "insert_summary": lambda value: isinstance(value, list),
    "query_summary": lambda value: isinstance(value, list),
    "statements": lambda value: [statement["query"] for statement in value].count(None) == 1,
}
RUN: dict[str, Check] = {
    "run": is_count,
    "fill_level": is_count,
    "prefilled": optional(is_count),
    "began_at": is_time,
    "ended_at": is_time,
    "index_build_s": lambda value: value is None or is_seconds(value),
    "machines": are_machines,
    "resources": optional(lambda value: has_keys(value, RESOURCES)),
    # Nobody has asked for them.
    "marks": lambda value: value == [],
    "undone": lambda value: value == [],
    "aborted": lambda value: value is None,
    "retention": lambda value: value is None,
    # Seconds: longer steps are those of runs of more than an hour.
    "step_s": lambda value: value == 1,
    "phases_s": lambda value: isinstance(value, dict),
}
GROUP: dict[str, Check] = {
    "role": lambda value: value in ("write", "read"),
    "workers": is_count,
    "invalid_reasons": lambda value: isinstance(value, list),
    "count": is_count,
    "window_s": is_seconds,
    "stalls": lambda value: isinstance(value, list),  # a busy machine makes them
    "rate_per_s": is_seconds,
    "rate_per_s_mean_duration": optional(is_seconds),
    "metrics_per_s": optional(is_seconds),
    "overlap": optional(lambda value: 0 < value <= 1),
    "warm_up_s": lambda value: value == 0,
    "latency_ms": optional(lambda value: list(value) == ["p50", "p90", "p99", "p99_9", "max"]),
    "histogram": optional(is_text),
    # Only of an open loop.
    "service_ms": lambda value: value is None,
    "service_histogram": lambda value: value is None,
    "offered": lambda value: value is None,
    "stages": lambda value: value == [],
    "client": optional(lambda value: isinstance(value, dict)),
    "retries": is_count,
    "errors": lambda value: isinstance(value, dict),
    "timeline": lambda value: all(is_count(second) and is_count(n) for second, n in value),
    "slowest_worker": optional(lambda value: list(value) == ["worker", "timeline"]),
    "per_worker": lambda value: isinstance(value, list),
    "verification": optional(lambda value: isinstance(value, dict)),
    # Of runs of more than a minute.
    "minutes": lambda value: value == [],
    "gaps": lambda value: all(end - begin >= 0.5 for begin, end in value),
    "outages": lambda value: value == [],
    "catch_ups": lambda value: value == [],
    "deletion_cost": lambda value: value is None,
    "lookup": lambda value: value is None,
    "lateness": lambda value: value is None,
    "storage": optional(lambda value: has_keys(value, STORAGE)),
    "storage_during": optional(lambda value: has_keys(value, STORAGE)),
    "storage_compacted": lambda value: value is None,
    # Only of a database that acknowledges events before they can be queried.
    "queryable": lambda value: value is None,
    "queries": lambda value: isinstance(value, list),
    "answers": lambda value: value is None or value["wrong"] == [],
    "long_windows": optional(lambda value: isinstance(value, dict)),
}
MACHINE: dict[str, Check] = {
    "node": is_text,
    "cpus": is_count,
    "load_average_1m": is_seconds,
    "busy_share": optional(is_seconds),
    "steal_share": optional(is_seconds),
    "others_share": optional(is_seconds),
    "others": lambda value: all(
        is_text(name) and is_seconds(share) for name, share in value.items()
    ),
    "link_share": optional(is_seconds),
}
RESOURCES: dict[str, Check] = {
    "source": lambda value: isinstance(value, str),
    "names": lambda value: all(map(is_text, value)),
    # Of pods.
    "nodes": lambda value: value == [],
    "covered_share": lambda value: value is None,
    "busiest": lambda value: value is None,
    "busiest_share": lambda value: value is None,
    "link_share": lambda value: value is None,
    "cpu_s": optional(is_seconds),
    "cpus": optional(is_seconds),
    "cpu_share": optional(is_seconds),
    "cpu_us_per_event": optional(is_seconds),
    "memory_bytes": optional(is_count),
    "memory_peak_bytes": optional(is_count),
    "disk_read_bytes": optional(is_count),
    "disk_written_bytes": optional(is_count),
    "disk_busy_share": optional(is_seconds),
    "received_bytes": optional(is_count),
    "sent_bytes": optional(is_count),
    "restarts": is_count,
    "timeline": lambda value: isinstance(value, list),
    "reason": optional(is_text),
}
LEVEL: dict[str, Check] = {"size_bytes": is_count, "events": is_count}
ALLOCATION: dict[str, Check] = {
    "unit_bytes": is_count,
    "cause": is_text,
    "enough_events": optional(is_count),
}
STORAGE: dict[str, Check] = {
    "total_bytes": optional(is_count),
    "data_bytes": optional(is_count),
    "index_bytes": optional(is_count),
    "indexes": lambda value: all(is_text(name) and is_count(size) for name, size in value.items()),
    "copies": is_count,
    "events": optional(is_count),
    "level": optional(lambda value: has_keys(value, LEVEL)),
    "allocation": optional(lambda value: has_keys(value, ALLOCATION)),
    "event_bytes": optional(is_count),
    "shared": lambda value: value is False,
    "source": lambda value: isinstance(value, str),
    "reason": optional(is_text),
}
CLIENT: dict[str, Check] = {
    "cpu_s": is_seconds,
    "cpu_share": is_seconds,
    "generate_s": is_seconds,
    "encode_s": is_seconds,
    "ceiling_share": is_seconds,
    "throttled_share": optional(is_seconds),
    "in_flight": is_count,
    "pause_share": optional(is_number),
    "bound": is_flag,
    "bound_reason": optional(is_text),
}
PER_WORKER: dict[str, Check] = {
    "worker": is_count,
    "node": is_text,
    "start_s": is_number,
    "end_s": is_seconds,
    "count": is_count,
    "measured": is_count,
    "cpu_s": is_seconds,
    "clock_offset_s": is_number,
}
SUMMARY: dict[str, Check] = {
    "runs": is_count,
    "min": is_seconds,
    "max": is_seconds,
    "avg": is_seconds,
    "median": is_seconds,
    "ci95": is_interval,
}
INSERT_SUMMARY: dict[str, Check] = {
    "workers": is_count,
    "fill_level": optional(is_count),
    **SUMMARY,
    "cv": optional(is_seconds),
    "stable": optional(is_flag),
}
EXECUTION: dict[str, Check] = {
    "run": is_count,
    "worker": is_count,
    "duration_s": is_seconds,
    "rows": is_count,
    "bytes": optional(is_count),
    "error": lambda value: value is None,
}
QUERY_SUMMARY: dict[str, Check] = {
    "query": is_text,
    **SUMMARY,
    "p95": is_seconds,
    "cold": is_seconds,
    "rows": is_count,
    "p90": is_seconds,
    "p99": optional(is_seconds),
    "p99_9": optional(is_seconds),
    "rows_min": is_count,
    "rows_mean": optional(is_number),
    "bytes_mean": optional(is_number),
    "per_s": is_seconds,
    "errors": is_count,
}
PHASES = {"start", "prepare", "barrier", "run", "verify", "clean_up"}
QUERIES = [
    "count-events",
    "temperature-min-max",
    "temperature-stats",
    "temperature-stats-per-device",
    "newest-per-device",
]


WAITED = re.compile(r"the workers overlapped in only |workers? [\d, ]+ started up to ")


def check_valid(run: Mapping[str, Any]) -> None:
    """Check that a run is valid, unless a busy machine kept a worker waiting."""
    assert [reason for reason in run["invalid_reasons"] if not WAITED.match(reason)] == []
    assert run["valid"] is (run["invalid_reasons"] == [])


def check_run(run: Mapping[str, Any], num_inserts: int, batch: int) -> None:
    """Check that a run's figures fit together, and that it is valid, unless a busy machine kept a worker
    waiting."""
    check_keys(run, RUN | GROUP | {"valid": is_flag})
    assert run["verification"] and run["client"] and run["latency_ms"] and run["histogram"]
    assert run["index_build_s"] is None
    check_valid(run)
    assert run["count"] == run["workers"] * num_inserts
    requests = run["workers"] * -(-num_inserts // (batch or 1))
    assert HdrHistogram.decode(run["histogram"]).get_total_count() == requests
    latency = run["latency_ms"]
    # Percentiles of too few requests are not told.
    told_ms = [time_ms for time_ms in latency.values() if time_ms is not None]
    assert told_ms == sorted(told_ms) and told_ms[0] >= 0
    assert latency["max"] <= 1000 * run["window_s"] * 1.01
    assert sum(events for _, events in run["timeline"]) == run["count"]
    assert run["timeline"][-1][0] <= run["window_s"] + 1
    assert run["rate_per_s"] == pytest.approx(run["count"] / run["window_s"])
    assert run["rate_per_s_mean_duration"] >= run["rate_per_s"] * 0.999
    assert set(run["phases_s"]) - {"prefill"} == PHASES
    assert run["phases_s"]["run"] >= run["window_s"] * 0.99
    workers = run["per_worker"]
    assert [worker["worker"] for worker in workers] == list(range(run["workers"]))
    for worker in workers:
        check_keys(worker, PER_WORKER)
    assert sum(worker["count"] for worker in workers) == run["count"]
    slowest = min(workers, key=lambda w: w["count"] / (w["end_s"] - w["start_s"]))
    assert run["slowest_worker"]["worker"] == slowest["worker"]
    assert sum(n for _, n in run["slowest_worker"]["timeline"]) == slowest["count"]
    span = max(w["end_s"] for w in workers) - min(w["start_s"] for w in workers)
    assert run["window_s"] == pytest.approx(span)
    check_keys(run["client"], CLIENT)
    window_s = run["workers"] * run["window_s"]
    cpu_s = sum(worker["cpu_s"] for worker in workers)
    assert run["client"]["cpu_s"] == pytest.approx(cpu_s)
    busiest = max(w["cpu_s"] / (w["end_s"] - w["start_s"]) for w in workers)
    assert run["client"]["cpu_share"] == pytest.approx(busiest)
    # The clocks are read one after the other, and the reporting thread works, too: 12 ms on a busy machine.
    assert 0 < cpu_s <= window_s * 1.1 + 0.05
    assert (run["client"]["bound_reason"] is not None) == run["client"]["bound"]


def check_stored(run: Mapping[str, Any], fill_level: int) -> None:
    """The run found `fill_level` events, and afterwards the database held its own, too."""
    expected = fill_level + run["count"]
    assert run["fill_level"] == fill_level
    assert run["verification"] == counted(expected)


def rows(out: str, first_header: str) -> list[list[str]]:
    """Header and rows of the table whose header begins with `first_header`, split at spaces."""
    lines = [line.split() for line in out.splitlines()]
    begin = next(number for number, line in enumerate(lines) if line[:1] == [first_header])
    # Behind it come notes (`unstable: …`) or nothing.
    end = next(
        (n for n in range(begin, len(lines)) if not lines[n] or lines[n][0].endswith(":")),
        len(lines),
    )
    return lines[begin:end]


def result_place(done: Done, tool: Tool) -> Path:
    """The folder that the output names."""
    (line,) = [line for line in done.out.splitlines() if line.startswith("Result: ")]
    return tool.place / line.removeprefix("Result: ")


def test_insert_sweep(tool: Tool, server: Server) -> None:
    tool.add_target("slow", **server.slow_target(0.1))
    done = tool.run(
        "insert", "--target", "slow", "-w", "1,2", "-r", "2", "--batch", 50,
        "--num-inserts", 1010, "--json", tool.json,
    ).ok()  # fmt: skip
    header, *table = rows(done.out, "Workers")
    assert header[:4] == ["Workers", "Min", "Max", "Avg"]
    assert [row[0] for row in table[:2]] == ["1", "2"]
    assert result_place(done, tool) == tool.folder()
    assert re.fullmatch(r"\d{8}T\d{6}Z-insert-slow", tool.folder().name)
    result = tool.result()
    check_keys(result, RESULT)
    assert (result["command"], result["target"], result["module"]) == ("insert", "slow", "postgres")
    assert result["complete"] is True
    runs = tool.runs()
    assert [(run["workers"], run["run"]) for run in runs] == [
        (1, 1), (1, 2), (2, 1), (2, 2),
    ]  # fmt: skip
    for run in runs:
        check_run(run, 1010, 50)
        check_stored(run, 0)
        assert run["latency_ms"]["p50"] >= 50
        assert run["client"]["bound"] is False
        assert run["client"]["cpu_share"] < 0.5
        assert (run["retries"], run["errors"]) == (0, {})
    for entry, row in zip(result["insert_summary"], table, strict=False):
        check_keys(entry, INSERT_SUMMARY)
        rates = [run["rate_per_s"] for run in runs if run["workers"] == entry["workers"]]
        assert (entry["runs"], entry["min"], entry["max"]) == (2, min(rates), max(rates))
        assert entry["avg"] == pytest.approx(statistics.mean(rates))
        assert entry["median"] == pytest.approx(statistics.median(rates))
        assert entry["cv"] == pytest.approx(statistics.stdev(rates) / statistics.mean(rates))
        assert row[1:4] == [f"{entry[key]:,.0f}" for key in ("min", "max", "avg")]
    assert result["options"]["workers"] == [1, 2]
    assert result["options"]["batch"] == 50
    assert result["options"]["insert_mode"] == "copy"
    assert "password=***" in result["options"]["module"]["connection_string"]
    assert result["environment"]["database"]["version"].startswith("PostgreSQL")
    assert result["environment"]["database"]["settings"]["fsync"] == "on"
    assert is_text(result["environment"]["client"]["cpu_model"])
    assert is_text(result["environment"]["tool"]["version"])
    logs = sorted(str(file.relative_to(tool.folder())) for file in tool.folder().rglob("*.log"))
    assert logs == [
        f"logs/workers-0{workers}/run-0{run}/{name}.log"
        for workers in (1, 2)
        for run in (1, 2)
        for name in ("collector", *(f"worker-{number}" for number in range(workers)))
    ]
    assert json.loads(tool.json.read_text()) == result


def test_embedded_insert_then_query(tool: Tool) -> None:
    first = tool.run_here(
        "insert", "-t", "embedded", "-w", 1, "-r", 1, "--batch", 1000, "--num-inserts", 20000,
        "--extra-option", "device_spread=3", "--output", tool.place / "first",
    ).ok()  # fmt: skip
    assert [row[0] for row in rows(first.out, "Workers")] == ["Workers", "1"]
    done = tool.run_here(
        "query", "--target", "embedded", "--workers", 2, "--runs", 2,
        "--extra-option", "device_spread=3",
    ).ok()  # fmt: skip
    header, *table = rows(done.out, "Query")
    assert header[:4] == ["Query", "Min", "Max", "Avg"]
    assert [row[0] for row in table[:5]] == QUERIES
    result = tool.result()
    check_keys(result, RESULT)
    assert result["command"] == "query"
    (run,) = tool.runs("read")
    check_keys(run, RUN | GROUP | {"valid": is_flag})
    assert run["valid"]
    assert run["fill_level"] == 20_000
    assert "of each worker; 20,000 events in the database." in done.out
    spans = [execution["duration_s"] for query in run["queries"] for execution in query["each"]]
    assert 0 < run["rate_per_s"] <= 2 * len(spans) / sum(spans)
    assert " queries per second." in done.out
    assert result_place(done, tool) == tool.folder()
    assert set(run["phases_s"]) == PHASES | {"check"}
    assert run["answers"]["checked"] == 2 * len(QUERIES)
    assert "Answers: 10 checked, all right." in done.out
    expected_rows = dict(zip(QUERIES, (1, 1, 1, 3, 3), strict=True))
    assert [query["query"] for query in run["queries"]] == QUERIES
    for entry, query in zip(result["query_summary"], run["queries"], strict=True):
        check_keys(entry, QUERY_SUMMARY)
        executions, name = query["each"], query["query"]
        for execution in executions:
            check_keys(execution, EXECUTION)
            assert execution["rows"] == expected_rows[name]
        assert sorted((execution["worker"], execution["run"]) for execution in executions) == [
            (0, 1), (0, 2), (1, 1), (1, 2),
        ]  # fmt: skip
        cold, durations = (
            [execution["duration_s"] for execution in executions if execution["run"] == number]
            for number in (1, 2)
        )
        assert (entry["query"], entry["runs"], entry["min"]) == (name, 2, min(durations))
        assert entry["cold"] == pytest.approx(statistics.mean(cold))
        assert entry["min"] <= entry["median"] <= entry["p95"] <= entry["max"] == max(durations)
    # The server's place is another each time; what was used is what matters.
    assert "started by this tool" in result["options"]["module"]["connection_string"]


def test_steps_on_growing_data_without_a_command(tool: Tool, server: Server) -> None:
    # Steps of 2 s: on a busy machine a worker may begin 0.3 s after the other.
    tool.add_target("slow", **server.slow_target(0.1))
    done = tool.run_here(
        "--target", "slow", "-w", 2, "-r", 1, "--steps", 3, "--batch", 25, "--num-inserts", 500
    ).ok()  # fmt: skip
    assert done.out.startswith("Stepsize: 1,000\n")
    header, *table = rows(done.out, "Level")
    assert header[:2] == ["Level", "Inserts/s"]
    assert [row[0] for row in table[:3]] == ["0", "1,000", "2,000"]
    result = tool.result()
    for step, run in enumerate(tool.runs()):
        check_run(run, 500, 25)
        check_stored(run, step * 1000)
        assert table[step][1] == f"{round(run['rate_per_s'], -1):,.0f}"
    assert [entry["fill_level"] for entry in result["insert_summary"]] == [0, 1000, 2000]
    assert server.value("SELECT count(*) FROM events") == 3000
    # Each step went on where the last one ended, in the numbers as in time.
    assert server.ask(
        "SELECT device_id, min(sequence_number), max(sequence_number), count(*)"
        " FROM events GROUP BY 1 ORDER BY 1"
    ) == [("w00000d000000", 0, 1499, 1500), ("w00001d000000", 0, 1499, 1500)]
    assert server.ask(
        'SELECT 1 FROM (SELECT "timestamp" - lag("timestamp") OVER'
        " (PARTITION BY device_id ORDER BY sequence_number) AS gap FROM events) AS e WHERE gap <= 0"
    ) == []  # fmt: skip


def test_prefill_counts_as_fill_level(tool: Tool, server: Server) -> None:
    tool.add_target("server", **server.target())
    tool.run_here(
        "insert", "-t", "server", "-w", 1, "-r", 2, "--prefill", 2501, "--num-inserts", 300
    ).ok()
    for run in tool.runs():
        check_run(run, 300, 0)
        check_stored(run, 2501)
        assert run["phases_s"]["prefill"] > 0
    assert server.value("SELECT count(DISTINCT sequence_number) FROM events") == 2801


def test_prefill_is_shared_by_the_workers(tool: Tool, server: Server) -> None:
    tool.add_target("slow", **server.slow_target(0.1))
    tool.run_here(
        "insert", "-t", "slow", "-w", 2, "-r", 1, "--prefill", 1001, "--batch", 10,
        "--num-inserts", 200,
    ).ok()  # fmt: skip
    (run,) = tool.runs()
    check_run(run, 200, 10)
    check_stored(run, 1001)
    assert server.ask("SELECT device_id, count(*) FROM events GROUP BY 1 ORDER BY 1") == [
        ("w00000d000000", 701),
        ("w00001d000000", 700),
    ]


@pytest.mark.parametrize(("timestamps", "commands"), [("continue", 2), ("restart", 1)])
def test_without_cleaning_the_counts_go_on(
    tool: Tool, server: Server, timestamps: str, commands: int
) -> None:
    tool.add_target("server", **server.target())
    for _ in range(commands):
        # The client's keys come from the events: an event made twice would be refused.
        tool.run_here(
            "insert", "-t", "server", "-w", 1, "-r", 2, "--no-clean", "--num-inserts", 1000,
            "--batch", 100, "--primary-key", "client", "--timestamps", timestamps,
        ).ok()  # fmt: skip
    level = 0
    for folder in tool.folders():
        for run in map(flatten, json.loads((folder / "result.json").read_text())["runs"]):
            check_run(run, 1000, 100)
            check_stored(run, level)
            level += 1000
    assert level == commands * 2000
    assert server.value("SELECT count(DISTINCT sequence_number) FROM events") == level
    span_ms = server.value('SELECT max("timestamp") - min("timestamp") FROM events')
    assert span_ms == pytest.approx((level if timestamps == "continue" else 1000) * 450, abs=1000)


@pytest.mark.parametrize("batch", [0, 100])
def test_multiple_tables_share_the_events(tool: Tool, server: Server, batch: int) -> None:
    tool.add_target("server", **server.target())
    tool.run_here(
        "insert", "-t", "server", "-w", 1, "-r", 1, "--tables", "MULTIPLE", "--batch", batch,
        "--num-inserts", 402,
    ).ok()  # fmt: skip
    (run,) = tool.runs()
    check_run(run, 402, batch)
    check_stored(run, 0)
    counts = [server.value(f"SELECT count(*) FROM events{table}") for table in range(4)]
    assert counts == [101, 101, 100, 100]


@pytest.mark.parametrize(
    ("given", "kind", "default"),
    [
        ("sql", "bigint", None),
        ("DB", "integer", "nextval"),
        ("Client", "character varying", None),
        ("uuid", "uuid", "gen_random_uuid"),
        ("none", None, None),
    ],
)
def test_primary_key(
    tool: Tool, server: Server, given: str, kind: str | None, default: str | None
) -> None:
    tool.add_target("server", **server.target())
    tool.run_here(
        "insert", "-t", "server", "-w", 1, "-r", 1, "--primary-key", given, "--batch", 100,
        "--num-inserts", 250,
    ).ok()  # fmt: skip
    result = tool.result()
    assert result["options"]["primary_key"] == given.lower()
    (run,) = tool.runs()
    check_run(run, 250, 100)
    check_stored(run, 0)
    column = server.ask(
        "SELECT data_type, column_default, is_identity FROM information_schema.columns"
        " WHERE table_name = 'events' AND column_name = 'id'"
    )
    if kind is None:
        assert column == []
        return
    assert column[0][0] == kind
    assert (column[0][1] is not None and default is not None and default in column[0][1]) or (
        column[0][1] is None and default is None
    )
    assert column[0][2] == ("YES" if given == "sql" else "NO")
    assert server.value("SELECT count(DISTINCT id) FROM events") == 250


@pytest.mark.parametrize(
    ("batch", "options", "statement", "times"),
    [
        (100, [], "COPY", 3),
        (100, ["copy_format=text"], "COPY", 3),
        (100, ["use_values_lists=true"], "INSERT INTO", 3),
        (100, ["insert_mode=transaction"], "INSERT INTO", 250),
        (0, ["insert_mode=single"], "INSERT INTO", 250),
    ],
)
def test_insert_mode(
    tool: Tool, server: Server, batch: int, options: list[str], statement: str, times: int
) -> None:
    tool.add_target("server", **server.target("-c log_statement=all"))
    server.ask("SELECT 'before this test'")
    position = (server.home / "server.log").stat().st_size
    extra = [part for option in options for part in ("--extra-option", option)]
    tool.run_here(
        "insert", "-t", "server", "-w", 1, "-r", 1, "--num-inserts", 250, "--batch", batch, *extra
    ).ok()
    (run,) = tool.runs()
    check_run(run, 250, batch)
    check_stored(run, 0)
    log = (server.home / "server.log").read_bytes()[position:].decode()
    # Prepared statements are executed by name.
    logged = r"(?:statement|execute [^:]*): "
    assert len(re.findall(logged + statement, log)) == times
    transactions = len(re.findall(logged + "COMMIT", log))
    assert transactions == (3 if options == ["insert_mode=transaction"] else 0)


def test_workload_cpu(tool: Tool, server: Server) -> None:
    tool.add_target("server", **server.target())
    tool.run_here(
        "insert", "-t", "server", "-w", 1, "-r", 1, "--workload", "cpu", "--batch", 100,
        "--num-inserts", 500, "--extra-option", "device_spread=5", "--extra-option", "extra_tags=2",
    ).ok()  # fmt: skip
    (run,) = tool.runs()
    check_run(run, 500, 100)
    assert run["metrics_per_s"] == pytest.approx(10 * run["rate_per_s"])
    check_stored(run, 0)
    answer = server.ask(
        "SELECT count(*), count(DISTINCT tags ->> 'hostname'), min(usage_user), max(usage_user),"
        " count(DISTINCT ts) FROM cpu WHERE tags ? 'tag_01'"
    )
    assert answer[0][:2] == (500, 5)
    assert 0 <= answer[0][2] < 20
    assert 80 < answer[0][3] <= 100
    assert answer[0][4] == 500


def test_answers_are_checked(tool: Tool, server: Server) -> None:
    tool.add_target("server", **server.target())
    of_cpu = ("-t", "server", "--workload", "cpu", "-r", 1)
    elsewhere = ("--output", tool.place / "elsewhere")
    tool.run_here("insert", *of_cpu, "-w", 1, "--batch", 100, "--num-inserts", 300, *elsewhere).ok()
    other = tool.run_here("query", *of_cpu, "-w", 2, "--seed", 1, *elsewhere).ok()
    assert (
        "6 not checked: they have other values than events of seed 1. Use the --seed" in other.out
    )
    server.ask("UPDATE cpu SET usage_idle = usage_idle + 1 WHERE ts = 1704067499000 RETURNING ts")
    trusted = tool.run_here("query", *of_cpu, "-w", 2, "--no-check", *elsewhere).ok()
    assert "Answers" not in trusted.out
    wrong = tool.run_here("query", *of_cpu, "-w", 2)
    assert wrong.status == 1
    assert "Answers: 6 checked, 2 of them wrong." in wrong.out
    (run,) = tool.runs("read")
    (answer,) = run["answers"]["wrong"]
    assert (answer["query"], answer["workers"]) == ("last-point", [0, 1])
    assert answer["difference"].startswith("usage_idle of tags w00000d000000 is ")
    (reason,) = run["invalid_reasons"]
    assert answer["difference"] in reason
    assert f"invalid: {reason}" in wrong.out


def test_the_seed_decides_the_events(tool: Tool, server: Server) -> None:
    tool.add_target("server", **server.target())
    contents = []
    for seed, batch in ((7, 100), (7, 70), (8, 100)):
        tool.run_here(
            "insert", "-t", "server", "-w", 1, "-r", 1, "--seed", seed, "--batch", batch,
            "--num-inserts", 500, "--primary-key", "none",
        ).ok()  # fmt: skip
        contents.append(
            server.value("SELECT md5(string_agg(e::text, ';' ORDER BY e::text)) FROM events AS e")
        )
    assert contents[0] == contents[1] != contents[2]


@pytest.mark.parametrize(("workers", "in_flight"), [(1, 1), (2, 1), (2, 4)])
def test_a_database_of_known_speed_is_measured_right(
    tool: Tool, workers: int, in_flight: int
) -> None:
    # Long enough for two workers to overlap where processes wait for a CPU.
    delay_s, batch, requests = 0.02, 50, 100 * in_flight
    expected = workers * in_flight * batch / delay_s
    # A busy machine can make sleeps longer, never shorter: the best of a few runs counts.
    done = tool.run_here(
        "insert", "-t", "blackhole", "-w", workers, "-r", 3, "--batch", batch,
        "--num-inserts", batch * requests, "--extra-option", f"delay_ms={delay_s * 1000}",
        "--extra-option", f"max_in_flight={in_flight}",
    )  # fmt: skip
    assert done.status == 0, done
    runs = tool.runs()
    for run in runs:
        check_run(run, batch * requests, batch)
        assert run["rate_per_s"] <= expected * 1.01
        assert run["latency_ms"]["p50"] >= delay_s * 1000 * 0.99
        assert run["client"]["cpu_share"] < 0.5
        assert run["client"]["bound"] is False
    assert max(run["rate_per_s"] for run in runs) >= expected * 0.85
    assert min(run["latency_ms"]["p50"] for run in runs) <= delay_s * 1000 * 1.15


def test_an_idle_target_shows_the_client_as_the_bottleneck(tool: Tool) -> None:
    done = tool.run_here(
        "insert", "-t", "blackhole", "-w", 1, "-r", 3, "--batch", 1000, "--num-inserts", 2_000_000
    )
    assert done.status == 0, done
    runs = tool.runs()
    for run in runs:
        check_run(run, 2_000_000, 1000)
    # A worker that has to share its processor with other programs is not busy all the time, and not judged.
    busy = [run for run in runs if run["client"]["cpu_share"] >= 0.9]
    assert all(run["client"]["bound"] for run in busy)
    bound = any(run["client"]["bound"] for run in runs)
    assert ("this is your client's speed" in done.out) is bound
    assert "bottleneck: the database" not in done.out


def test_a_run_whose_count_is_wrong_is_invalid(tool: Tool, server: Server) -> None:
    tool.add_target("server", **server.target())
    first = ("insert", "-t", "server", "-w", 1, "-r", 1, "--batch", 10, "--num-inserts", 100)
    tool.run_here(*first, "--output", tool.place / "first").ok()
    # A database that acknowledges events and does not keep them.
    server.ask(
        "CREATE FUNCTION forget() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN DELETE FROM events WHERE sequence_number = 42; RETURN NULL; END $$;"
        "CREATE TRIGGER forget AFTER INSERT ON events EXECUTE FUNCTION forget()"
    )
    try:
        done = tool.run_here(*first, "--no-clean")
    finally:
        server.ask("DROP FUNCTION forget CASCADE")
    assert done.status == 1
    (run,) = tool.runs()
    assert run["valid"] is False
    assert run["verification"] == counted(200, 199)
    assert "199 events, 200 were expected" in run["invalid_reasons"][0]
    assert re.search(r"invalid: .*~~[\d,]+~~ .*199 events, 200 were expected", done.out)
    assert tool.result()["insert_summary"] == []


def test_targets_lists_what_each_can_do(tool: Tool) -> None:
    done = tool.run_here("targets").ok()
    header, *table = rows(done.out, "Target")
    assert header[:3] == ["Target", "Module", "Executor"]
    names = {row[0]: row[1:] for row in table}
    assert names["embedded"][:3] == ["postgres", "local", "full"]
    assert names["blackhole"][:2] == ["blackhole", "local"]
    assert {"postgresql", "cockroachdb", "timescaledb", "influxdb"} <= set(names)


def test_targets_explains_the_options_of_one(tool: Tool) -> None:
    done = tool.run_here("targets", "influxdb").ok()
    lines = {line.split()[0]: line for line in done.out.splitlines()[3:] if line}
    model = load_module("influxdb").options_model
    assert set(model.model_fields) <= set(lines)
    assert lines["token"].split(maxsplit=2)[1:] == [
        "required",
        model.model_fields["token"].description,
    ]
    assert lines["verify_ssl"].split()[1] == "true"
    # Those that every module has come last.
    assert list(lines).index("query_timeout_s") < list(lines).index("device_spread")


def test_ceiling_prints_a_rate_for_each_way_to_encode(tool: Tool) -> None:
    done = tool.run_here(
        "ceiling", "--module", "postgres", "--events", 20000, "--batch", "100,1000"
    ).ok()
    header, *table = rows(done.out, "Module")
    assert header[:4] == ["Module", "Mode", "Batch", "Events/s"]
    modes = [" ".join(row[1:-6]) for row in table]
    assert modes == [
        mode
        for mode in ("copy binary", "copy text", "values_lists", "transaction")
        for _ in range(2)
    ] + ["single"]
    for row in table:
        generate, encode, both, octets = map(float, row[-4:])
        assert both == pytest.approx(generate + encode, abs=0.0015)
        rate = int(row[-5].replace(",", ""))
        assert rate == pytest.approx(1e6 / both, rel=0.05)
        # By binary COPY: 33 bytes of values, 4 for the length of each, 2 for how many there are.
        assert octets >= 33
        if row[1:3] == ["copy", "binary"]:
            assert octets == pytest.approx(8 + 13 + 8 + 4 + 4 * 4 + 2, rel=0.15)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--help"], ["insert", "query", "targets", "ceiling", "Exit status"]),
        (["insert", "--help"], ["--primary-key", "--steps", "--extra-option", "--no-clean"]),
        (["query", "--help"], ["--workers", "--runs", "--json"]),
        (["targets", "--help"], ["--config", "TARGET"]),
        (["ceiling", "--help"], ["--events"]),
        (["--version"], ["iot-database-benchmark"]),
    ],
)
def test_help(tool: Tool, arguments: list[str], words: list[str]) -> None:
    done = tool.run_here(*arguments).ok()
    assert done.err == ""
    assert [word for word in words if word not in done.out] == []
    assert not tool.folders()
