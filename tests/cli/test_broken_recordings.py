"""Files that are no recordings: each gets one line and status 2, soon and without much memory."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from .broken_recordings import (
    ROWS,
    SOUND,
    Make,
    all_changed,
    archive,
    bomb,
    changed,
    claim_rows,
    content,
    csv,
    database_file,
    fifo,
    flip,
    gz,
    json_lines,
    link,
    listening,
    looping_folder,
    parquet,
    parquet_of,
    rows,
    several,
    sparse,
    times,
    unreadable,
    wide,
    zstd,
)

ROOT = Path(__file__).parents[2]
MOST_MB = 600
MOST_CPU_S = 8

Ask = Callable[[list[str]], dict[str, Any]]

BROKEN: dict[str, tuple[Make, str]] = {
    # --- Parquet
    "parquet-cut-in-half": (parquet(lambda sound: sound[: len(sound) // 2]), "not a parquet file"),
    "parquet-without-its-last-bytes": (parquet(lambda sound: sound[:-3]), "not a parquet file"),
    "parquet-of-magic-numbers": (content(b"PAR1PAR1", "pumps.parquet"), "smaller than the size"),
    "parquet-footer-of-2-gb": (
        parquet(lambda sound: sound[:-8] + b"\xff\xff\xff\x7fPAR1"),
        "smaller than the size",
    ),
    "parquet-claims-100-gb": (parquet(claim_rows), "is damaged: 9,999,945,679 of the rows"),
    "parquet-flipped-bits": (parquet(flip), "Corrupt"),
    "parquet-encrypted": (parquet(lambda sound: b"PARE" + sound[4:-4] + b"PARE"), "encrypted"),
    "parquet-no-rows": (
        parquet_of(lambda pa: {"ts": times(pa, 0), "v": pa.array([], "f8")}),
        "has no rows",
    ),
    "parquet-no-time": (
        parquet_of(lambda pa: {"a": pa.array([1.5, 2.5]), "b": pa.array(["x", "y"])}),
        "set recorded.time to",
    ),
    "parquet-time-is-null": (
        parquet_of(
            lambda pa: {"ts": pa.array([None] * 9, pa.timestamp("ms")), "v": pa.array([1.0] * 9)}
        ),
        "without a time",
    ),
    "parquet-two-columns-of-one-name": (
        parquet_of(
            lambda pa: {"ts": times(pa), "v": pa.array([1.0] * ROWS), "w": pa.array([2.0] * ROWS)},
            ["ts", "v", "v"],
        ),
        "several columns named v",
    ),
    "parquet-decimal-of-76-digits": (
        parquet_of(
            lambda pa: {"ts": times(pa), "v": pa.array([10**75] * ROWS, pa.decimal256(76, 0))}
        ),
        "as: text",
    ),
    "parquet-binary": (
        parquet_of(lambda pa: {"ts": times(pa), "v": pa.array([b"\xff\xfe"] * ROWS)}),
        "skip it",
    ),
    "parquet-year-287396": (
        parquet_of(
            lambda pa: {"ts": pa.array([2**53] * 9, pa.timestamp("ms")), "v": pa.array([1] * 9)}
        ),
        "after 9999",
    ),
    "parquet-is-a-csv": (content(SOUND, "pumps.parquet"), "not a parquet file"),
    "csv-is-a-parquet": (parquet(name="pumps.csv"), "has NUL bytes"),
    "parquet-is-a-database": (database_file, "not a parquet file"),
    # --- CSV
    "empty-file": (content(b""), "is empty"),
    "empty-lines": (content(b"\n\n\n\n"), "has no rows"),
    "header-alone": (content("ts,pump,pressure\n"), "has no rows"),
    "no-time": (
        content(csv(([pump, value] for _, pump, value in rows()), "pump,pressure")),
        "set recorded.time to",
    ),
    "two-times": (
        content(csv(([time, time, value] for time, _, value in rows()), "a,b,v")),
        "a, b could be the time",
    ),
    "two-headers": (
        content(csv([*rows()[:200], ["ts", "pump", "pressure"], *rows()[200:]])),
        "'ts' is no time",
    ),
    "mixed-types": (changed(2, "broken"), "missing: [broken]"),
    "a-row-too-long": (changed(2, "1,2,3"), "Expected 3 columns, got 5"),
    "an-open-quote": (changed(1, '"pump'), "Row #202"),
    "nul-bytes": (changed(1, "pu\0mp"), "has NUL bytes"),
    "utf-16": (content(SOUND.decode().encode("utf-16")), "is UTF-16"),
    "utf-16-without-a-mark": (content(SOUND.decode().encode("utf-16-le")), "has NUL bytes"),
    "latin-1": (content(SOUND.replace(b"pump-1", "pömp".encode("latin-1"))), "isn't UTF-8"),
    "two-columns-of-one-name": (
        content(csv(rows(), "ts,pump,pump")),
        "several columns named pump",
    ),
    "a-column-without-a-name": (
        content(csv(rows(), "ts,,pressure")),
        "recorded.device to one of column_2",
    ),
    "a-name-with-a-nul": (content(csv(rows(), "ts,pump,pres\0sure")), "has NUL bytes"),
    "100000-columns": (wide(100_000), "first line is longer"),
    "times-that-are-none": (all_changed(0, "yesterday"), "set recorded.time to"),
    "one-time-that-is-none": (changed(0, "yesterday"), "'yesterday' is no time"),
    "one-time-missing": (changed(0, ""), "without a time"),
    "times-before-1970": (changed(0, "1969-07-20T20:17:40Z"), "before 1970"),
    "times-of-day-40": (changed(0, "2024-03-40T00:00:00Z"), "is no time"),
    "a-device-missing": (changed(1, ""), "without a device"),
    "a-line-of-20-mb": (content(SOUND + b"x" * 20_000_000), "a row is longer than"),
    "noise": (content(bytes(range(256)) * 4_000), "has NUL bytes"),
    "a-web-page": (
        content("<!DOCTYPE html><html><body>404, not found</body></html>"),
        "can't be read",
    ),
    # --- JSON lines
    "json-array": (content("[1, 2, 3]", "pumps.jsonl"), "jq -c"),
    "json-cut-off": (json_lines('{"ts": "2024-03-01T', first=ROWS), "in row 400"),
    "json-nested": (
        json_lines('{"ts": "2024-03-01T00:00:00Z", "pump": {"id": [1]}, "pressure": 1}'),
        "from string to object",
    ),
    "json-mixed-types": (
        json_lines('{"ts": "2024-03-01T00:00:00Z", "pump": "p", "pressure": "high"}'),
        "from number to string",
    ),
    "json-100000-deep": (content("[" * 100_000, "pumps.jsonl"), "jq -c"),
    "json-numbers": (content("1\n2\n3\n", "pumps.jsonl"), "from object to number"),
    # --- compressed
    "gz-that-is-none": (content(SOUND, "pumps.csv.gz"), "incorrect header"),
    "gz-cut-off": (content(gz(SOUND)[:-100], "pumps.csv.gz"), "Truncated"),
    "gz-bomb": (content(lambda: bomb(gz), "pumps.csv.gz"), "a row is longer than"),
    "zst-that-is-none": (content(SOUND, "pumps.csv.zst"), "ZSTD"),
    "zst-cut-off": (content(lambda: zstd(SOUND)[:-100], "pumps.csv.zst"), "Truncated"),
    "zst-bomb": (content(lambda: bomb(zstd), "pumps.csv.zst"), "a row is longer than"),
    "zip": (archive("zip"), "that ends in .parquet, .csv or .jsonl"),
    "tar": (archive("tar.gz"), "that ends in .parquet, .csv or .jsonl"),
    # --- files, folders, addresses
    "fifo": (fifo("pumps.csv"), "is not a regular file"),
    "fifo-of-parquet": (fifo("pumps.parquet"), "is not a regular file"),
    "socket": (listening, "is not a regular file"),
    "endless-device": (link("/dev/zero"), "is not a regular file"),
    "link-loop": (link("pumps.csv"), "Too many levels"),
    "link-to-nothing": (link("nowhere.csv"), "No such file"),
    "no-permission": (unreadable, "Permission denied"),
    "100-gb-of-nothing": (sparse, "has NUL bytes"),
    "unknown-ending": (content(SOUND, "pumps.dat"), "that ends in .parquet, .csv or .jsonl"),
    "folder-without-files": (several(), "has no Parquet"),
    "folder-that-holds-itself": (looping_folder, "has no Parquet"),
    "folder-of-other-files": (several(readme__md=b"hello\n"), "has no Parquet"),
    "folder-of-two-formats": (
        several(a=SOUND, b__jsonl=b'{"ts": 1}\n'),
        "is it Parquet, CSV or JSON lines?",
    ),
    "folder-of-two-schemas": (
        several(a=SOUND, b=csv(rows(), "at,truck,speed")),
        "has other columns",
    ),
    "address-without-an-answer": (
        lambda folder: "http://127.0.0.1:9/pumps.csv",
        "can't be fetched",
    ),
    "address-of-no-kind": (lambda folder: "gopher://pumps/pumps.csv", "install its package"),
}
"""Name -> how it is made, and what its line says."""

ODD: dict[str, Make] = {
    "parquet-nested": parquet_of(
        lambda pa: {"ts": times(pa), "v": pa.array([{"a": [1, 2]}] * ROWS)}
    ),
    "parquet-durations": parquet_of(
        lambda pa: {"ts": times(pa), "v": pa.array([1] * ROWS, pa.duration("us"))}
    ),
    "a-name-of-9000-letters": content(csv(rows(), "ts,pump," + "p" * 9_000)),
    "times-in-year-9999": changed(0, "9999-12-31T23:59:59Z"),
}
"""What looks broken, and can be used."""


@pytest.fixture(scope="module")
def ask() -> Iterator[Ask]:
    """The command line in a process that has imported everything."""
    with subprocess.Popen(
        [sys.executable, "-m", "tests.cli.broken_recordings"],
        cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stdin and process.stdout

        def ask(arguments: list[str]) -> dict[str, Any]:
            print(json.dumps(arguments), file=process.stdin, flush=True)
            outcome: dict[str, Any] = json.loads(process.stdout.readline())  # type: ignore[union-attr]
            return outcome

        yield ask
        process.stdin.close()


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_recording(name: str, tmp_path: Path, ask: Ask) -> None:
    make, said = BROKEN[name]
    folder = tmp_path / "here"
    folder.mkdir()
    outcome = ask(["workloads", str(make(folder))])
    assert outcome.get("status") == 2, outcome
    error: str = outcome["err"]
    assert "Traceback" not in error and "defect" not in error, error
    assert len(error.splitlines()) <= 2 and error.replace("\n", "").isprintable(), error
    assert said in error, error
    assert outcome["out"] == ""
    assert outcome["peak_mb"] < MOST_MB, outcome
    assert outcome["cpu_s"] < MOST_CPU_S, outcome


@pytest.mark.parametrize("name", ODD)
def test_an_odd_recording(name: str, tmp_path: Path, ask: Ask) -> None:
    outcome = ask(["workloads", str(ODD[name](tmp_path))])
    assert outcome.get("status") == 0, outcome
    assert outcome["peak_mb"] < MOST_MB and outcome["cpu_s"] < MOST_CPU_S, outcome
