"""The tables of results in the repository's pages: `make comparison-table`. That of the fleet is on the front
page, that of the reference's inserts and queries in `comparison/README.md`.

The fleet's figures are those of the site that `publish` makes of the same results. `tests/test_comparison.py`
holds pages and results together.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean

from cli.publishing.matrix import Candidate, Cell, Field, Row, find_candidates, make_fields
from cli.publishing.sources import find_sources
from cli.results.caveats import Place
from cli.results.comparison import collect_samples
from cli.results.model import Result
from simulator.contract import GroupResult
from simulator.units import format_count, format_digits

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "comparison" / "results"
BEGIN, END = "<!-- comparison: made by `make comparison-table` -->", "<!-- comparison: end -->"
_BLOCK = re.compile(rf"{re.escape(BEGIN)}.*?{re.escape(END)}", re.DOTALL)

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
STORED = "load"
"""The reference's step that only stores what is asked about."""


def make_table(folder: Path) -> str:
    """The table in Markdown, with the sentences that belong to it. Each cell: the mean of the repetitions and
    their range, bold if it is the column's best or overlaps with that."""
    sources = find_sources([folder])
    field = make_fields(find_candidates(sources))[0]
    columns = [[_find_cell(field, row, *place) for row in field.rows] for place in COLUMNS.values()]
    shown = [list(map(_show, cells, _find_leaders(map(_score, cells)))) for cells in columns]
    lines = [["candidate", *COLUMNS, LOST], ["---"] * (len(COLUMNS) + 2)]
    for row, *cells in zip(field.rows, *shown, strict=True):
        lines.append([row.candidate.name, *cells, _show_losses(row.candidate)])
    return "\n\n".join(
        filter(None, [
            _write_table(lines),
            _list_notes([row.candidate for row in field.rows]),
            _describe([one.result for one in sources.done]),
        ])
    )  # fmt: skip


def _write_table(lines: Iterable[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _list_notes(candidates: Iterable[Candidate]) -> str:
    return "\n".join(f"* {one.name}: {note}" for one in candidates for note in one.notes)


def _find_cell(field: Field, row: Row, aspect: str, step: str | None) -> Cell | None:
    for column, cell in zip(field.columns, row.cells, strict=True):
        if column.aspect.key == aspect and step in (None, column.test):
            return cell
    return None


def _find_leaders(column: Iterable[Sequence[float]]) -> list[bool]:
    """Of a column with each candidate's repetitions, who has the highest mean, or a range that overlaps with
    its. Few repetitions prove no order, so this says what was seen, not who is shown to be better."""
    found = list(column)
    best = max(filter(None, found), key=fmean, default=[0.0])
    return [bool(own) and max(own) >= min(best) for own in found]


def _score(cell: Cell | None) -> Sequence[float]:
    return cell.shown.scores if cell else ()


def _show(cell: Cell | None, leads: bool) -> str:
    if cell is None:
        return "-"
    aspect = cell.shown.aspect
    ends = sorted(map(aspect.from_speed, cell.shown.scores))
    low, high = aspect.show(ends[0]), aspect.show(ends[-1])
    figure = f"**{cell.text}**" if leads else cell.text
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


def _describe_cells(results: Sequence[Result]) -> str:
    repeats = max(int((re.findall(r" (\d+)$", one.label or "") or ["1"])[0]) for one in results)
    return (
        f"Means and ranges of {repeats} repetitions; bold: the best, and those whose range overlaps the best"
        " one's."
    )


def _describe(results: Sequence[Result]) -> str:
    client = results[0].describe("client")
    cpus, model = client.get("cpus"), client.get("cpu_model")
    return (
        f"{_describe_cells(results)} {_describe_windows(results)} Database and client shared the {cpus} CPUs"
        f" of one machine ({model}): on a server of its own a database does more, and who needs few CPUs"
        " looks better here than there."
        " Ranges that overlap show no difference. Durability is as each comes, unless the name says `disk`:"
        " see [the conditions](comparison/README.md), with every result."
    )


def _describe_windows(results: Sequence[Result]) -> str:
    """By which somebody knows how short they were."""
    fills = [one.writers for one in results if one.by_fill_level]
    events = max(sum(each.group.count or 0 for each in own) for own in fills)
    step_s = max(one.options["duration_s"] for one in results if one.command == "capacity")
    return f"{events:,} events to insert and to ask about, steps of {step_s:g} s in the search."


def make_reference_table(folder: Path) -> str:
    """The reference's table in Markdown: inserts by each number of workers, and each query's time. Each cell:
    the mean of the repetitions' means and their range, bold as in the fleet's."""
    sources = find_sources([folder])
    candidates = find_candidates(sources)
    found = {one.name: _collect_repetitions(one) for one in candidates}
    places = sorted({place for cells in found.values() for place in cells}, key=_order)
    shown = []
    for place in places:
        column = [own.get(place, []) for own in found.values()]
        # Rates are better the higher, times the lower.
        scores = ([one if place.query is None else -one for one in own] for own in column)
        leaders = _find_leaders(scores)
        shown.append([_write_range(place, *one) for one in zip(column, leaders, strict=True)])
    lines = [["candidate", *map(_head, places)], ["---"] * (len(places) + 1)]
    lines += map(list, zip(found, *shown, strict=True))
    results = [one.result for one in sources.done]
    parts = [_write_table(lines), _list_notes(candidates), _describe_cells(results)]
    return "\n\n".join(filter(None, parts))


def _collect_repetitions(candidate: Candidate) -> dict[Place, list[float]]:
    """What is measured -> the mean of each repetition, in events per second or seconds."""
    found: dict[Place, list[float]] = {}
    shown = (source for source in candidate.sources if source.test != STORED)
    for source in shown:
        for place, values in collect_samples(source.result).items():
            found.setdefault(place, []).append(fmean(values))
    return found


def _order(place: Place) -> tuple[int, str]:
    return place.workers or sys.maxsize, place.query or ""


def _head(place: Place) -> str:
    if place.query is not None:
        return f"`{place.query}`, ms"
    return f"inserts/s by {format_count(place.workers or 0, 'worker')}"


def _write_range(place: Place, values: Sequence[float], leads: bool) -> str:
    if not values:
        return "-"
    ends = fmean(values), min(values), max(values)
    if place.query is None:
        middle, low, high = (f"{one:,.0f}" for one in ends)
    else:
        middle, low, high = (format_digits(1000 * one) for one in ends)
    return f"**{middle}** ({low} to {high})" if leads else f"{middle} ({low} to {high})"


PAGES: Mapping[str, tuple[Path, Callable[[Path], str]]] = {
    "README.md": (RESULTS / "fleet", make_table),
    "comparison/README.md": (RESULTS / "temperature", make_reference_table),
}
"""Page -> the results whose table it has, and what makes it."""


def make_block(name: str) -> str:
    """The table of a page; nothing where nothing is measured yet."""
    folder, make = PAGES[name]
    return make(folder) if folder.is_dir() else ""


def complete_page(page: str, block: str) -> str:
    """The page with this block between its marks."""
    return _BLOCK.sub(lambda _: "\n".join(filter(None, [BEGIN, block, END])), page)


if __name__ == "__main__":
    for name in PAGES:
        file = ROOT / name
        file.write_text(complete_page(file.read_text(), make_block(name)))
