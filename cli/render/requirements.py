"""The verdict on a campaign's requirements as text: the matrix, then what each candidate's cells say."""

from __future__ import annotations

from collections.abc import Iterator

from simulator.units import format_bytes, format_count, format_digits

from ..output import wrap_lines
from ..results.decision import CandidateVerdict, Cell, Requirement, Status, VerdictMatrix
from .tables import Table


def tabulate_verdict(verdict: VerdictMatrix) -> Table:
    """Requirements × candidates: met, missed or undecided, the figure, and the headroom."""
    headers = ["Required", *(candidate.candidate for candidate in verdict.candidates)]
    rows = [
        [
            f"{row.heading} {row.limit}",
            *(show_cell(candidate.find(row.key)) for candidate in verdict.candidates),
        ]
        for row in verdict.requirements
    ]
    return Table(headers, rows, left=headers)


def show_cell(cell: Cell) -> str:
    """`met: 112 ms (2.2×)`, `undecided`."""
    figure = "" if cell.shown == "-" else f": {cell.shown}"
    headroom = "" if cell.headroom is None else f" ({format_headroom(cell.headroom)})"
    return f"{cell.status}{figure}{headroom}"


def format_headroom(headroom: float) -> str:
    """`2.4×`, `0.83×`, `120×`: below 1 the requirement isn't met."""
    return f"{headroom:.2g}×" if headroom < 10 else f"{format_digits(round(headroom))}×"


def describe_verdict(verdict: VerdictMatrix) -> list[str]:
    """A line for each candidate, and below it one for each requirement that isn't met; then what holds for
    all."""
    lines: list[str] = []
    for candidate in verdict.candidates:
        lines.append(describe_candidate(verdict, candidate))
        lines += [f"  {text}" for text in _list_doubts(verdict, candidate)]
    if verdict.jobs_left:
        jobs = format_count(verdict.jobs_left, "job is", "jobs are")
        lines.append(f"So far: {jobs} still to run.")
    return lines + list(verdict.notes)


def describe_candidate(verdict: VerdictMatrix, candidate: CandidateVerdict) -> str:
    """`questdb: all met; narrowest: disk (1.3×); 1.83 TB stored; 812 a month (1.2 an hour).`"""
    parts = [f"{candidate.candidate}: {_sum_up(candidate)}"]
    if candidate.narrowest is not None:
        cell = candidate.find(candidate.narrowest)
        headroom = "" if cell.headroom is None else f" ({format_headroom(cell.headroom)})"
        parts.append(f"narrowest: {_find_row(verdict, candidate.narrowest).heading}{headroom}")
    if candidate.disk_bytes is not None:
        parts.append(f"{format_bytes(candidate.disk_bytes)} stored at full retention")
    if candidate.cost_per_month is not None:
        price = f" ({candidate.price})" if candidate.price else ""
        parts.append(f"{candidate.cost_per_month:,.0f} a month{price}")
    return "; ".join(parts) + "."


def _sum_up(candidate: CandidateVerdict) -> str:
    counts = {status: [cell.status for cell in candidate.cells].count(status) for status in Status}
    if counts[Status.MET] == len(candidate.cells):
        return "all met"
    named = [f"{count} {status}" for status, count in counts.items() if count]
    return (
        f"{candidate.status} ({', '.join(named)})" if len(named) > 1 else f"all {candidate.status}"
    )


def _list_doubts(verdict: VerdictMatrix, candidate: CandidateVerdict) -> Iterator[str]:
    for cell in candidate.cells:
        if cell.status is not Status.MET and cell.reason:
            yield f"{cell.status} {_find_row(verdict, cell.requirement).heading}: {cell.reason}."


def describe_whole_verdict(verdict: VerdictMatrix, width: int | None = None) -> str:
    """Everything that is known about a verdict. `width`: how many characters a line has room for; None: no
    limit."""
    sections = [
        f"{verdict.title}: the verdict\n{tabulate_verdict(verdict).text(width=width)}",
        wrap_lines("\n".join(describe_verdict(verdict)), width),
        wrap_lines("\n".join(["What it is based on", *describe_evidence(verdict)]), width),
    ]
    return "\n\n".join(sections)


def _find_row(verdict: VerdictMatrix, key: str) -> Requirement:
    return next(row for row in verdict.requirements if row.key == key)


def describe_evidence(verdict: VerdictMatrix) -> list[str]:
    """For each cell the figure of each repetition, and the results that it comes from."""
    return [
        f"{candidate.candidate}, {_find_row(verdict, cell.requirement).heading}:"
        f" {_list_samples(verdict, cell)}"
        for candidate in verdict.candidates
        for cell in candidate.cells
        if cell.evidence
    ]


def _list_samples(verdict: VerdictMatrix, cell: Cell) -> str:
    unit = _find_row(verdict, cell.requirement).unit
    texts = []
    for sample in cell.samples:
        figure = unit.show(sample.value) if sample.value is not None else "no figure"
        if sample.value is None and sample.keeps is not None:
            figure = "kept up" if sample.keeps else "not kept up"
        names = [
            evidence.result
            + (f" run {', '.join(map(str, evidence.runs))}" if evidence.runs else "")
            for evidence in sample.evidence
        ]
        texts.append(f"{figure} ({', '.join(names) or 'no result'})")
    return "; ".join(texts)
