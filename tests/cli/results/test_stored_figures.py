"""Stored results of each kind show the same figures as ever.

What they show is kept in tests/cli/stored/figures.json: the numbers of each line of text, or a
checksum where there are many.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest

from cli.results.export import COLUMNS, list_rows
from cli.results.figures import SUMMED
from cli.results.naming import NamedResult
from cli.results.store import StoredResult, read_result
from cli.show.charts import draw_all
from cli.show.comparison import describe_comparison
from cli.show.notes import summarize_notes
from cli.show.report import make_report
from cli.show.stored import describe_result
from simulator import __version__

from ..undrawn import undrawn

ROOT = Path(__file__).resolve().parents[3]
KEPT = ROOT / "tests" / "cli" / "stored"
EXPECTED = KEPT / "figures.json"
FILES = {
    path.stem: path
    for folder in (ROOT / "img" / "results", KEPT, KEPT / "kinds")
    for path in sorted(folder.glob("*.json"))
    if path != EXPECTED and not path.stem.endswith("-verdict")
}
COMPARED = (
    ("inserts", "failed", "insert", "demo-insert"),
    ("open-loop", "inserts", "example-open"),
    ("queries", "by-clock", "query"),
    ("demo-query", "example-query"),
    ("mixed", "mixed"),
    ("capacity", "capacity-beside", "example-capacity"),
    ("steps", "example-steps", "reference-fill-level-postgresql"),
)

_NUMBER = re.compile(r"[-+]?\d[\d,]*(?:\.\d+)?(?:e[-+]\d+)?")


def open_all(names: Iterable[str]) -> list[StoredResult]:
    return [StoredResult(name, FILES[name], read_result(FILES[name])) for name in names]


def list_numbers(lines: Iterable[str]) -> list[str]:
    """The numbers of each line that has some."""
    numbers = (" ".join(_NUMBER.findall(line)) for line in lines)
    return [line for line in numbers if line]


def collect_figures(names: Sequence[str]) -> dict[str, Any]:
    """What is shown of a result, or of several beside each other."""
    stored = open_all(names)
    named = [
        NamedResult(f"r{place}", stored_result.result) for place, stored_result in enumerate(stored)
    ]
    figures = {figure.kind: list(_list_data(figure.spec)) for figure in draw_all(named)}
    shown: dict[str, Any] = {"plots": {kind: _sum_up(data) for kind, data in figures.items()}}
    with undrawn():
        page = re.sub(r"<svg.*?</svg>", "", make_report(stored, "title"), flags=re.DOTALL)
        page = page.replace(__version__, "0.1.0")
    shown["report"] = _sum_up(list_numbers(page.partition("</style>")[2].splitlines()))
    if len(stored) > 1:
        results = [stored_result.result for stored_result in stored]
        text = describe_comparison(
            [named_result.name for named_result in named], results, markdown=False
        )
        return shown | {"compared": list_numbers(text.splitlines())}
    text = describe_result(stored[0], terminal=False).rpartition("\n\nOptions\n")[0]
    rows = sorted(map(_pick_cells, list_rows(stored[0])), key=str)
    return shown | {
        "notes": list_numbers(summarize_notes(stored[0].result, terminal=False)),
        "shown": _fold(list_numbers(text.splitlines())),
        "rows": [len(rows), _sum_up(rows)],
    }


def _pick_cells(row: dict[str, Any]) -> list[Any]:
    # What an execution did not have in the export.
    later = ("overlap",) if row.get("worker") is not None else ()
    return [[n, row[n]] for n in KEPT_COLUMNS if row.get(n) is not None and n not in later]


LATER = (
    "rows_per_s", "bytes_per_s", "rows_mean", "bytes_mean", "database_cpu_us_per_query",
    "disk_read_bytes_per_query", "client_cpu_us_per_query", "pause_share", "bottleneck",
)  # fmt: skip
"""Figures that were not shown then, and are left out here."""
KEPT_COLUMNS = [name for name in COLUMNS if name not in ("options", "tool_version", *LATER)]


def _list_data(part: Any) -> Iterator[Any]:
    """The data of all panels and layers of a figure."""
    if isinstance(part, dict):
        if "values" in part and isinstance(part["values"], list):
            yield [row for row in part["values"] if isinstance(row, dict)]
        for child in part.values():
            yield from _list_data(child)
    elif isinstance(part, list):
        for child in part:
            yield from _list_data(child)


def _sum_up(data: Any) -> str:
    return f"{crc32(json.dumps(data, sort_keys=True).encode()):08x}"


MOST_LINES = 40


def _fold(lines: Sequence[str]) -> list[str]:
    """The first lines, and a checksum of the others."""
    if len(lines) <= MOST_LINES:
        return list(lines)
    return [*lines[:MOST_LINES], f"{len(lines)} lines", _sum_up(lines)]


@pytest.mark.parametrize("names", [*((name,) for name in FILES), *COMPARED], ids=" ".join)
def test_it_shows_the_figures_that_it_showed(
    names: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    for role, keys in SUMMED.items():
        monkeypatch.setitem(SUMMED, role, tuple(key for key in keys if key not in LATER))
    expected = json.loads(EXPECTED.read_text())[" ".join(names)]
    assert collect_figures(names) == expected


def write_expected() -> None:
    """Keep what this version shows: only where a change of what is shown is meant."""
    for role, keys in list(SUMMED.items()):
        SUMMED[role] = tuple(key for key in keys if key not in LATER)
    expected = {" ".join(n): collect_figures(n) for n in [*((name,) for name in FILES), *COMPARED]}
    EXPECTED.write_text(json.dumps(expected, indent=0, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    write_expected()
