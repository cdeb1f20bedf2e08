"""The tables of `comparison/README.md`, and the front page's findings, from the kept results.

The fleet's figures are those of the site that `publish` makes of the same results. `tests/test_comparison.py`
holds pages, pictures and results together.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from textwrap import fill

from cli.results.caveats import Place
from cli.results.conditions import find_acknowledgement
from cli.results.kept import SUFFIX
from cli.results.matrix import CandidateFigures, Matrix, collect_samples
from cli.results.model import Result
from cli.results.published import Candidate, Cell, Field, Row, find_candidates, make_fields
from cli.results.sources import find_sources
from cli.results.statistics import find_mean
from simulator.contract import GroupResult
from simulator.units import format_count, format_digits, join_words

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "comparison" / "results"
FLEET = RESULTS / f"fleet{SUFFIX}"
BEGIN, END = "<!-- comparison: made by `make comparison-table` -->", "<!-- comparison: end -->"
_BLOCK = re.compile(rf"{re.escape(BEGIN)}.*?{re.escape(END)}", re.DOTALL)
_WIDTH = 140
"""The characters in a line of the repository's pages."""

INSERTS, CAPACITY = "inserts/s", "capacity, events/s"
QUERIES, DISK = "ten queries, ms", "bytes/event"
COLUMNS: Mapping[str, tuple[str, str | None]] = {
    INSERTS: ("inserts", "fill"),
    CAPACITY: ("capacity", "capacity"),
    QUERIES: ("hot", "questions"),
    DISK: ("disk", None),
    "CPU µs/event": ("cpu", "fill"),
    "outage after SIGKILL, s": ("outage", "kill"),
}
"""Heading -> the aspect of the site's first page, and its step; None: the step that the site has chosen."""
LOST = "acknowledged but lost"
STORED = "load"
"""The reference's step that only stores the events of the queries."""


def make_table(folder: Path) -> str:
    """The table in Markdown, with its notes. Each cell has the mean of the repetitions and their range, bold
    if it leads."""
    sources = find_sources([folder])
    fleet = make_fields(find_candidates(sources))[0]
    columns = [[find_cell(fleet, row, *place) for row in fleet.rows] for place in COLUMNS.values()]
    shown = [
        list(map(show_cell, cells, _find_leaders(map(_read_figures, cells)))) for cells in columns
    ]
    lines = [["candidate", *COLUMNS, LOST], ["---"] * (len(COLUMNS) + 2)]
    for row, *cells in zip(fleet.rows, *shown, strict=True):
        lines.append([row.candidate.name, *cells, _show_losses(row.candidate)])
    return "\n\n".join(
        filter(None, [
            write_table(lines),
            _list_notes([row.candidate for row in fleet.rows]),
            _describe([source.result for source in sources.done]),
        ])
    )  # fmt: skip


def write_table(lines: Iterable[Sequence[str]]) -> str:
    """The table in Markdown: the heading, what follows it, and the rows."""
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _list_notes(candidates: Iterable[Candidate]) -> str:
    return "\n".join(
        f"* {candidate.name}: {note}" for candidate in candidates for note in candidate.notes
    )


def find_cell(fleet: Field, row: Row, aspect: str, step: str | None) -> Cell | None:
    """A row's cell of this aspect and step."""
    for column, cell in zip(fleet.columns, row.cells, strict=True):
        if column.aspect.key == aspect and step in (None, column.test):
            return cell
    return None


def _find_leaders(column: Iterable[CandidateFigures | None]) -> list[bool]:
    """Whether each candidate of a column is first by the rule of ranking, whoever may share that place."""
    figures = list(column)
    matrix = Matrix({place: own for place, own in enumerate(figures) if own is not None})
    ranks = {place: matrix.find_rank(place) for place in matrix.rows}
    return [
        (rank := ranks.get(place)) is not None and rank.of > 1 and rank.worst == 1
        for place in range(len(figures))
    ]


def _read_figures(cell: Cell | None) -> CandidateFigures | None:
    return cell.shown.figures if cell else None


def show_cell(cell: Cell | None, leads: bool) -> str:
    """The figure with its range; `leads`: bold."""
    if cell is None:
        return "-"
    aspect = cell.shown.aspect
    ends = sorted(map(aspect.from_speed, cell.shown.figures.scores))
    low, high = aspect.show(ends[0]), aspect.show(ends[-1])
    figure = f"**{cell.text}**" if leads else cell.text
    return (
        figure
        + (f" ({low} to {high})" if low != high else "")
        + (f", {cell.note}" if cell.note else "")
    )


def _show_losses(candidate: Candidate) -> str:
    """The acknowledged events that were missing after the fault: the fewest and the most of a repetition."""
    losses = count_losses(candidate)
    if not losses:
        return "-"
    return " to ".join(dict.fromkeys(f"{count:,}" for count in (min(losses), max(losses))))


def count_losses(candidate: Candidate) -> list[int]:
    """The acknowledged events that were missing after the fault, for each repetition."""
    groups = [run.group for source in candidate.sources for run in source.result.writers]
    counts = [_count_lost(group) for group in groups if group.lookup]
    return [count for count in counts if count is not None]


def _count_lost(group: GroupResult) -> int | None:
    """Events whose look-up failed; without a look-up, expected minus stored events."""
    if group.lookup and group.lookup.missing is not None:
        return group.lookup.missing
    counted = group.verification
    if counted is None or counted.stored is None:
        return None
    return max(0, counted.expected - counted.stored)


def _describe_cells(results: Sequence[Result]) -> str:
    repeats = max(result.repetition or 1 for result in results)
    return (
        f"Geometric means and ranges of {repeats} repetitions. Bold: the best, where the repetitions"
        " decide it; where nothing is bold, they don't."
    )


def _describe(results: Sequence[Result]) -> str:
    client = results[0].describe("client")
    cpus, model = client.get("cpus"), client.get("cpu_model")
    return (
        f"{_describe_cells(results)} {_describe_windows(results)} Database and client shared the {cpus} CPUs"
        f" of one machine ({model}): on its own server a database does more, and one that needs little CPU"
        " looks better here than there. Durability is each database's default, unless the name says `disk`."
    )


def _describe_windows(results: Sequence[Result]) -> str:
    """How long the measurements took, and within which limits the searches stayed."""
    fills = [result.writers for result in results if result.by_fill_level]
    events = max(sum(run.group.count or 0 for run in runs) for runs in fills)
    searches = [result for result in results if result.command == "capacity"]
    step_s = max(result.options["duration_s"] for result in searches)
    found = [result.capacity for result in searches if result.capacity]
    limits = dict.fromkeys(str(limit) for capacity in found for limit in capacity.limits)
    return (
        f"{events:,} events to insert and query. Capacity: the highest rate within {join_words([*limits])}"
        f" in a search with steps of {step_s:g} s."
    )


def make_reference_table(folder: Path) -> str:
    """The reference's table in Markdown: inserts by each number of workers, each query's time, and the disk.
    Each cell has the mean of the repetitions' means and their range, bold as in the fleet's table."""
    sources = find_sources([folder])
    candidates = find_candidates(sources)
    (reference, *_) = make_fields(candidates)
    repetitions = {candidate.name: _collect_repetitions(candidate) for candidate in candidates}
    places = sorted({place for cells in repetitions.values() for place in cells}, key=_order)
    shown = []
    for place in places:
        column = [cells.get(place, []) for cells in repetitions.values()]
        leaders = _find_leaders(
            CandidateFigures([{place: [value]} for value in values]) if values else None
            for values in column
        )
        shown.append([_write_range(place, *cell) for cell in zip(column, leaders, strict=True)])
    sizes = {
        row.candidate.name: show_cell(cell, cell.rank == "1")
        for row in reference.rows
        if (cell := find_cell(reference, row, *COLUMNS[DISK]))
    }
    shown.append([sizes.get(name, "-") for name in repetitions])
    lines = [["candidate", *map(_head, places), DISK], ["---"] * (len(places) + 2)]
    lines += map(list, zip(repetitions, *shown, strict=True))
    results = [source.result for source in sources.done]
    parts = [write_table(lines), _list_notes(candidates), _describe_cells(results)]
    return "\n\n".join(filter(None, parts))


def _collect_repetitions(candidate: Candidate) -> dict[Place, list[float]]:
    """Place -> the mean of each repetition, in events per second or seconds."""
    means: dict[Place, list[float]] = {}
    shown = (source for source in candidate.sources if source.test != STORED)
    for source in shown:
        for place, values in collect_samples(source.result).items():
            means.setdefault(place, []).append(fmean(values))
    return means


def _order(place: Place) -> tuple[int, str]:
    return place.workers or sys.maxsize, place.query or ""


def _head(place: Place) -> str:
    if place.query is not None:
        return f"`{place.query}`, ms"
    return f"inserts/s by {format_count(place.workers or 0, 'worker')}"


def _write_range(place: Place, values: Sequence[float], leads: bool) -> str:
    if not values:
        return "-"
    ends = find_mean(values), min(values), max(values)
    if place.query is None:
        middle, low, high = (f"{end:,.0f}" for end in ends)
    else:
        middle, low, high = (format_digits(1000 * end) for end in ends)
    return f"**{middle}** ({low} to {high})" if leads else f"{middle} ({low} to {high})"


# --- which two to look at -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """What somebody needs of a database of the fleet."""

    about: str
    prefers: str
    """The heading of the figure that matters most."""
    needs: Mapping[str, float] = field(default_factory=dict)
    """Heading -> what every repetition must have reached."""


CASES = (
    Case("100,000 devices, an event in ten seconds each, little disk", DISK, {CAPACITY: 10_000}),
    Case("ten devices, heavy dashboards", QUERIES),
)
_LOOKED_AT = 2


def make_cases(folder: Path) -> str:
    """For each case the two databases that are best by the figure that matters most, among candidates that
    have what is needed: of all, and of those that acknowledge what is on disk."""
    (fleet, *_) = make_fields(find_candidates(find_sources([folder])))
    lines = [
        ["your case", "look at", "if what is acknowledged must be on disk"],
        ["---"] * 3,
    ]
    for case in CASES:
        needed = "".join(f", {name}: at least {least:,.0f}" for name, least in case.needs.items())
        able = [row for row in fleet.rows if _can(fleet, row, case)]
        kept = [row for row in able if _is_on_disk(row.candidate)]
        choices = [_choose(fleet, rows, case.prefers) for rows in (able, kept)]
        lines.append([f"**{case.about}** (by {case.prefers}{needed})", *choices])
    return write_table(lines)


def _can(fleet: Field, row: Row, case: Case) -> bool:
    for heading, least in case.needs.items():
        cell = find_cell(fleet, row, *COLUMNS[heading])
        if cell is None or min(cell.shown.figures.scores) < cell.shown.aspect.to_speed(least):
            return False
    return find_cell(fleet, row, *COLUMNS[case.prefers]) is not None


def _is_on_disk(candidate: Candidate) -> bool:
    acknowledgement = find_acknowledgement(candidate.sources[0].result)
    on_disk = acknowledgement is not None and acknowledgement.on_disk is True
    return on_disk and not any(count_losses(candidate))


def _choose(fleet: Field, rows: Iterable[Row], heading: str) -> str:
    found = sorted(
        (
            (cell, row.candidate)
            for row in rows
            if (cell := find_cell(fleet, row, *COLUMNS[heading]))
        ),
        key=lambda pair: -pair[0].share,
    )
    best: dict[str, str] = {}
    for cell, candidate in found:
        # Of a database with several settings the best.
        best.setdefault(candidate.sources[0].result.target, f"{candidate.name} ({cell.text})")
    return ", ".join(list(best.values())[:_LOOKED_AT]) or "-"


# --- pages --------------------------------------------------------------------------------------------

PAGE, FRONT = ROOT / "comparison" / "README.md", ROOT / "README.md"
BLOCKS: Mapping[str, tuple[str, Callable[[Path], str]]] = {
    "cases": ("fleet", make_cases),
    "fleet": ("fleet", make_table),
    "temperature": ("temperature", make_reference_table),
}
"""The blocks of the page -> the results that they are made of, and what makes them."""


def make_block(name: str) -> str:
    """A block of the page; nothing where nothing is measured yet."""
    results, make = BLOCKS[name]
    file = RESULTS / f"{results}{SUFFIX}"
    return make(file) if file.is_file() else ""


def make_findings(files: Iterable[Path]) -> str:
    """The findings that were written about the campaigns, as the front page lists them."""
    return "\n".join(
        fill(f"* **{claim}**: {text}", _WIDTH, subsequent_indent="  ", break_on_hyphens=False,
             break_long_words=False)
        for file in files
        for claim, text in find_sources([file]).findings.items()
    )  # fmt: skip


def list_published() -> list[Path]:
    """The kept campaigns, in the order of the page."""
    return [RESULTS / f"{name}{SUFFIX}" for name in ("fleet", "temperature", "versions")]


def complete_page(page: str, blocks: Iterable[str]) -> str:
    """The page with these blocks between its marks, in their order."""
    left = iter(blocks)
    return _BLOCK.sub(lambda _: "\n".join(filter(None, [BEGIN, next(left), END])), page)
