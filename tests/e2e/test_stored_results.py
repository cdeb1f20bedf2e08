"""The commands that read stored results."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Sequence
from pathlib import Path

import pytest
from pyarrow import csv as csv_
from pyarrow import parquet

from cli.results.model import Result

from ..cli.made import inserts, queries, steps
from .test_usage import QUICK_S
from .tool import Tool

# Not below the tool's own place, where every JSON file must be whole.
Kept = dict[str, Path]


def keep(folder: Path, hour: int, result: Result) -> Path:
    """Store a result as the tool does; its folder."""
    started = f"2025-01-02T{hour:02d}:04:05+00:00"
    result = result.model_copy(update={"started_at": started})
    name = f"20250102T{hour:02d}0405Z-{result.command}-{result.target}"
    (folder / name).mkdir(parents=True)
    (folder / name / "result.json").write_text(result.model_dump_json())
    return folder / name


@pytest.fixture
def kept(tmp_path: Path) -> Kept:
    """Some results."""
    folder = tmp_path / "kept"
    results = {
        "base": inserts({1: [100.0, 101.0, 99.0], 4: [300.0, 303.0, 297.0]}),
        "slow": inserts({1: [50.0, 51.0, 49.0], 4: [290.0, 300.0, 310.0]}, "beta", {"batch": 7}),
        "query": queries({"count": [0.5, 0.6], "newest": [2.0, None]}),
        "steps": steps({0: 200.0, 500: 150.0}),
    }
    return {
        name: keep(folder, hour, result) for hour, (name, result) in enumerate(results.items(), 3)
    }


def place(kept: Kept) -> Sequence[object]:
    return ("--results", kept["base"].parent)


# --- results --------------------------------------------------------------------------------------


@pytest.mark.parametrize("words", [("results",), ("results", "list")])
def test_list(tool: Tool, kept: Kept, words: Sequence[str]) -> None:
    done = tool.run_here(*words, *place(kept)).ok()
    lines = done.out.splitlines()
    assert lines[0].split()[:4] == ["ID", "When", "Command", "Target"]
    assert [line.split()[0] for line in lines[1:]] == [path.name for path in kept.values()]
    assert "300 inserts/s with 4 workers" in lines[1]
    assert "batch=100" in lines[1]
    assert "batch=7" in lines[2]
    (line,) = (
        tool.run_here("results", *place(kept), "-t", "alpha", "--last", "1")
        .ok()
        .out.splitlines()[1:]
    )
    assert line.startswith(kept["steps"].name)


def test_list_of_what_a_run_has_stored(tool: Tool) -> None:
    tool.add_target("priced", module="blackhole", cost_per_hour=0.25)
    arguments = ("-t", "priced", "-w", "2", "-r", "2", "--batch", "10", "--num-inserts", "1k")
    named = ("--label", "first try", "--tag", "disk=nvme")
    printed = tool.run_here("insert", *arguments, *named)
    assert "Cost/million" in printed.out
    assert tool.result()["cost_per_hour"] == 0.25
    assert tool.folder().name in tool.run_here("results").ok().out
    assert "first try" in tool.run_here("results", "--tag", "disk=nvme").ok().out
    assert "None of the 1 results" in tool.run_here("results", "--tag", "disk=hdd").ok().out
    shown = tool.run_here("results", "show", "first try").ok().out
    assert "“first try” (disk=nvme)" in shown
    # What was printed then is what is shown now.
    table = [
        line for line in printed.out.splitlines() if line.lstrip().startswith(("Workers", "2 "))
    ]
    assert len(table) == 2
    assert [line for line in table if line not in shown] == []


def test_a_single_run_prints_the_notes_that_are_shown_later(tool: Tool) -> None:
    """That a single run says nothing about its spread used to be said by `results show` alone."""
    arguments = ("-t", "blackhole", "-w", "1,2", "-r", "1", "--num-inserts", "1000")
    printed = tool.run_here("insert", *arguments).out.splitlines()
    shown = tool.run_here("results", "show", tool.folder().name).ok().out.splitlines()
    kinds = ("invalid:", "client-bound:", "short:", "unstable:", "few runs:")
    notes = [line for line in shown if line.startswith(kinds)]
    assert any(line.startswith("few runs: a single valid run with") for line in notes)
    # Below the table there are few lines: what has no room is named there.
    for kind in {line.partition(":")[0] for line in notes}:
        assert any(
            line.startswith(f"{kind}: ") or (line.startswith("more: ") and kind in line)
            for line in printed
        )


def test_nothing_stored(tool: Tool, tmp_path: Path) -> None:
    assert (
        tool.run_here("results", "--results", tmp_path).ok().out == f"No results in {tmp_path}.\n"
    )
    error = tool.run_here("results").error(2)
    assert "no folder results" in error
    assert "--results" in error


def test_a_damaged_file_is_named_and_skipped(tool: Tool, kept: Kept) -> None:
    (kept["slow"] / "result.json").write_text('{"format": 1, "comm')
    document = json.loads((kept["query"] / "result.json").read_text())
    (kept["query"] / "result.json").write_text(json.dumps(document | {"format": 3}))
    done = tool.run_here("results", *place(kept))
    assert done.status == 0
    assert [line.split()[0] for line in done.out.splitlines()[1:]] == [
        kept["base"].name, kept["steps"].name,
    ]  # fmt: skip
    damaged, newer = done.err.splitlines()
    assert f"{kept['slow'].name}/result.json is damaged" in damaged
    assert "format 3, made by a newer version" in newer


def test_as_a_program(tool: Tool, kept: Kept) -> None:
    """What the other tests do in this process."""
    for arguments in (
        ("results", "show", kept["query"].name),
        ("compare", kept["base"].name, kept["slow"].name),
        ("compare",),
    ):
        done = tool.run(*arguments, *place(kept))
        here = tool.run_here(*arguments, *place(kept))
        assert (done.status, done.out, done.err) == (here.status, here.out, here.err)


@pytest.mark.parametrize("way", ["id", "beginning", "folder", "file", "copy"])
def test_show(tool: Tool, kept: Kept, tmp_path: Path, way: str) -> None:
    copy = tmp_path / "copy.json"
    copy.write_bytes((kept["base"] / "result.json").read_bytes())
    name = {
        "id": kept["base"].name,
        "beginning": kept["base"].name[:11],
        "folder": kept["base"],
        "file": kept["base"] / "result.json",
        "copy": copy,
    }[way]
    done = tool.run_here("results", "show", name, *place(kept)).ok()
    for text in ("Most with 4 workers: 300 inserts/s", "Phases, seconds", "Spread of the workers",
                 "Latencies of a request", "Environment", "Some CPU"):  # fmt: skip
        assert text in done.out
    assert "\x1b" not in done.out


def test_export(tool: Tool, kept: Kept, tmp_path: Path) -> None:
    everything = tool.run_here("results", "export", *place(kept)).ok()
    rows = list(csv.DictReader(io.StringIO(everything.out)))
    assert len(rows) == 6 + 6 + 6 + 2
    assert {row["result_id"] for row in rows} == {path.name for path in kept.values()}
    for name in ("runs.csv", "runs.parquet"):
        file = tmp_path / name
        done = tool.run_here("results", "export", kept["base"].name, "--output", file, *place(kept))
        assert f"Written: {file}" in done.ok().err
        assert done.out == ""
        table = csv_.read_csv(file) if name == "runs.csv" else parquet.read_table(file)
        rates = table["inserts_per_s"].to_pylist()
        assert rates == [100.0, 101.0, 99.0, 300.0, 303.0, 297.0]
    refused = tool.run_here("results", "export", "--format", "parquet", *place(kept))
    assert refused.status == 2 and "name a file with --output" in refused.err


# --- compare --------------------------------------------------------------------------------------


def test_compare(tool: Tool, kept: Kept) -> None:
    done = tool.run_here("compare", kept["base"].name, kept["slow"], *place(kept)).ok()
    out = done.out
    (row,) = [line for line in out.splitlines() if line.startswith("1 worker ") and "beta" in line]
    assert row.split()[2:5] == ["beta", "50", "3"]
    assert row.split()[5:7] == ["2.00×", "slower"]
    (row,) = [line for line in out.splitlines() if line.startswith("4 workers") and "beta" in line]
    assert "no difference shown" in row
    assert "warning: batch differs: batch: 100 / 7" in out


def test_compare_fails_if(tool: Tool, kept: Kept) -> None:
    limits = ("--fail-if", "p99 > 5ms", "--fail-if", "rate < 0.4 base")
    done = tool.run_here("compare", kept["base"].name, kept["slow"].name, *limits, *place(kept))
    assert done.status == 1
    assert "failed: p99 > 5ms: beta at 1 worker: 6.000 ms" in done.err and "rate" not in done.err


@pytest.mark.parametrize(("limit", "status"), [("0.95", 1), ("0.4", 0)])
def test_compare_fails_below(tool: Tool, kept: Kept, limit: str, status: int) -> None:
    done = tool.run_here(
        "compare", kept["base"].name, kept["slow"].name, "--fail-below", limit, *place(kept)
    )
    assert done.status == status
    assert ("below 0.95: beta at 1 worker: 0.500" in done.err) is bool(status)
    assert "Speed" in done.out


def test_compare_to_a_file_as_markdown(tool: Tool, kept: Kept, tmp_path: Path) -> None:
    file = tmp_path / "comparison.md"
    done = tool.run_here(
        "compare", kept["base"].name, kept["slow"].name, "--markdown", "--output", file,
        *place(kept),
    ).ok()  # fmt: skip
    assert done.out == ""
    assert file.read_text().splitlines()[2].startswith("| Database (version)")


# --- what goes wrong ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("results", "shw"), ["'shw'", "show"]),
        (("results", "show"), ["RESULT", "--help"]),
        (("results", "show", "20259"), ["no result '20259'", "run.py results"]),
        (("results", "show", "2025"), ["4 results begin with 2025", "more of the ID"]),
        (("results", "export", "--output", "runs.xls"), ["ends in .csv"]),
        (("results", "export", "--output", "nowhere/runs.csv"), ["nowhere/runs.csv"]),
        (("compare",), ["RESULT", "--help"]),
        (("compare", "20250102T03"), ["two results or more"]),
        (("compare", "20250102T03", "20250102T05"), ["inserts and queries can't be compared"]),
        (("compare", "20250102T03", "20250102T06"), ["inserts and fill levels can't be"]),
        (("compare", "20250102T03", "20250102T04", "--fail-below", "0"), ["--fail-below"]),
        (
            ("compare", "20250102T03", "20250102T04", "--fail-if", "p98 > 1s"),
            ["p98 is not one of rate"],
        ),
        (("compare", "20250102T03", "20250102T04-bet"), ["no result '20250102T04-bet'"]),
        (("compare", "20250102T03", "config.yaml"), ["config.yaml is damaged or not a result"]),
        (("compare", "20250102T03", "."), ["folder without a result.json"]),
    ],
)
def test_wrong_usage(
    tool: Tool, kept: Kept, arguments: Sequence[str], words: Sequence[str]
) -> None:
    done = tool.run_here(*arguments, *place(kept))
    error = done.error(1 if "nowhere/runs.csv" in arguments else 2)
    assert [word for word in words if word not in error] == [], error
    assert done.out == ""
    assert done.seconds < QUICK_S


def test_nobody_reads(tool: Tool, kept: Kept) -> None:
    """As in `run.py results export | head -1`."""
    for arguments in (("results",), ("results", "export"), ("results", "show", "20250102T03")):
        read, write = os.pipe()
        os.close(read)
        running = tool.start(*arguments, *place(kept), out=write)
        os.close(write)
        done = running.wait()
        assert (done.status, done.err) == (0, "")
