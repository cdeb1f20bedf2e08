"""The first table of the repository's README, made of `comparison/results/fleet`: `make comparison-table`.

Its figures are those of the site that `publish` makes of the same results. Nothing is put there as long as
there are no results; `tests/test_comparison.py` holds both together.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from cli.publishing.matrix import Candidate, Cell, Field, Row, find_candidates, make_fields
from cli.publishing.sources import find_sources
from cli.results.model import Result
from simulator.contract import GroupResult

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "comparison" / "results" / "fleet"
BEGIN, END = "<!-- comparison: made by `make comparison-table` -->", "<!-- comparison: end -->"
_PLACE = re.compile(r"\A# .*?\n\n.*?\n\n(?:.*?^## The comparison\n\n)?", re.DOTALL | re.MULTILINE)
"""The front page up to its heading for the table; of a page without one the heading and first paragraph."""

COLUMNS: Mapping[str, tuple[str, str | None]] = {
    "inserts/s": ("inserts", "fill"),
    "carries at p99 ≤ 100 ms, events/s": ("capacity", "capacity"),
    "ten questions, ms": ("hot", "questions"),
    "bytes/event": ("disk", None),
    "CPU µs/event": ("cpu", "fill"),
    "away after SIGKILL, s": ("outage", "kill"),
}
"""Heading -> the aspect of the site's first page, and the step that it is from; None: from the one that the
site has chosen."""
LOST = "acknowledged and lost"


def make_table(folder: Path) -> str:
    """The table in Markdown, with the sentences that belong to it. Each cell: the mean of the repetitions and
    their range, bold if nobody is shown to be better."""
    sources = find_sources([folder])
    field = make_fields(find_candidates(sources))[0]
    lines = [["candidate", *COLUMNS, LOST], ["---"] * (len(COLUMNS) + 2)]
    for row in field.rows:
        cells = (_find_cell(field, row, *place) for place in COLUMNS.values())
        lines.append([row.candidate.name, *map(_show, cells), _show_losses(row.candidate)])
    parts = ["\n".join(f"| {' | '.join(line)} |" for line in lines)]
    notes = [
        f"* {row.candidate.name}: {note}" for row in field.rows for note in row.candidate.notes
    ]
    if notes:
        parts.append("\n".join(notes))
    parts.append(_describe([one.result for one in sources.done]))
    return "\n\n".join(parts)


def _find_cell(field: Field, row: Row, aspect: str, step: str | None) -> Cell | None:
    for column, cell in zip(field.columns, row.cells, strict=True):
        if column.aspect.key == aspect and step in (None, column.test):
            return cell
    return None


def _show(cell: Cell | None) -> str:
    if cell is None:
        return "-"
    aspect = cell.shown.aspect
    ends = sorted(map(aspect.from_speed, cell.shown.scores))
    low, high = aspect.show(ends[0]), aspect.show(ends[-1])
    figure = f"**{cell.text}**" if cell.leads else cell.text
    return (
        figure
        + (f" ({low} to {high})" if low != high else "")
        + (f", {cell.note}" if cell.note else "")
    )


def _show_losses(candidate: Candidate) -> str:
    """The acknowledged events that were gone after the fault: the fewest and the most of a repetition."""
    groups = [one.group for source in candidate.sources for one in source.result.writers]
    counts = [_count_lost(one) for one in groups if one.lookup]
    known = [one for one in counts if one is not None]
    return (
        " to ".join(dict.fromkeys(f"{one:,}" for one in (min(known), max(known)))) if known else "-"
    )


def _count_lost(group: GroupResult) -> int | None:
    """Those that were looked up in vain; where that can't be done, by the number of all."""
    if group.lookup and group.lookup.missing is not None:
        return group.lookup.missing
    counted = group.verification
    if counted is None or counted.stored is None:
        return None
    return max(0, counted.expected - counted.stored)


def _describe(results: Sequence[Result]) -> str:
    client = results[0].describe("client")
    cpus, model = client.get("cpus"), client.get("cpu_model")
    repeats = max(int((re.findall(r" (\d+)$", one.label or "") or ["1"])[0]) for one in results)
    return (
        f"Means and ranges of {repeats} repetitions; bold: nobody is shown to be better."
        f" {_describe_windows(results)} Database and client shared the {cpus} CPUs of one machine ({model}):"
        " on a server of its own a database does more, and who needs few CPUs looks better here than there."
        " Ranges that overlap show no difference. Durability is as each comes, unless the name says `disk`:"
        " see [the conditions](comparison/README.md), with every result."
    )


def _describe_windows(results: Sequence[Result]) -> str:
    """By which somebody knows how short they were."""
    fills = [one.writers for one in results if one.by_fill_level]
    events = max(sum(each.group.count or 0 for each in own) for own in fills)
    step_s = max(one.options["duration_s"] for one in results if one.command == "capacity")
    return f"{events:,} events to insert and to ask about, steps of {step_s:g} s in the search."


def put_into(page: str, block: str | None) -> str:
    """The page with this block in its place; None: without it."""
    page = re.sub(rf"{re.escape(BEGIN)}.*?{re.escape(END)}\n\n", "", page, flags=re.DOTALL)
    if block is None:
        return page
    return _PLACE.sub(lambda found: f"{found[0]}{BEGIN}\n{block}\n{END}\n\n", page, count=1)


def complete_page(page: str, results: Path = RESULTS) -> str:
    """The front page as it should be by what results there are."""
    return put_into(page, make_table(results) if results.is_dir() else None)


if __name__ == "__main__":
    readme = ROOT / "README.md"
    readme.write_text(complete_page(readme.read_text()))
    sys.stderr.write(f"{readme}: {'with' if RESULTS.is_dir() else 'without'} results\n")
