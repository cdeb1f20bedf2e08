"""The verdict as a page shows it: candidates × requirements, with a symbol and a word for each state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from simulator.units import join_words

from ..results.decision import (
    CandidateVerdict,
    Cell,
    Requirement,
    Status,
    Unit,
    VerdictMatrix,
)
from .requirements import format_headroom

SYMBOLS = {Status.MET: "✓", Status.MISSED: "✗", Status.UNDECIDED: "?"}

_DISK, _COST = "disk", "cost_per_month"
"""Figures that have a column even where they aren't required, if they are known."""


@dataclass(frozen=True)
class MatrixCell:
    """One candidate and one requirement."""

    head: str
    """The requirement."""
    status: Status
    symbol: str
    figure: str
    headroom: str
    """`2.4×`; empty if not known."""
    narrowest: bool


@dataclass(frozen=True)
class MatrixRow:
    """A candidate."""

    name: str
    status: Status
    symbol: str
    summary: str
    """`meets all 8`, `misses 2 of 8`."""
    narrowest: str
    """`disk (1.3×)`; empty if not known."""
    cells: Sequence[MatrixCell]
    paid: Sequence[tuple[str, str]]
    """(heading, figure) of disk and price where these aren't required."""


@dataclass(frozen=True)
class EvidenceRow:
    """A repetition of a cell, in words."""

    candidate: str
    requirement: str
    repetition: str
    figure: str
    kept: str
    why: str
    results: Sequence[str]
    """IDs of the results that it is from."""


@dataclass(frozen=True)
class Matrix:
    """The verdict."""

    heads: Sequence[tuple[str, str]]
    """(requirement, limit)."""
    paid: Sequence[str]
    """Headings of columns that aren't required."""
    rows: Sequence[MatrixRow]
    reasons: Sequence[str]
    """Why something is missed or undecided, each once."""
    notes: Sequence[str]
    evidence: Sequence[EvidenceRow]


def make_matrix(verdict: VerdictMatrix) -> Matrix:
    """The verdict in words."""
    paid = [
        heading
        for key, heading, is_known in (
            (_DISK, "Disk", any(candidate.disk_bytes for candidate in verdict.candidates)),
            (_COST, "A month", any(candidate.cost_per_month for candidate in verdict.candidates)),
        )
        if is_known and all(requirement.key != key for requirement in verdict.requirements)
    ]
    notes = list(verdict.notes)
    if verdict.jobs_left:
        notes.insert(0, f"Not finished: {verdict.jobs_left} jobs are left.")
    return Matrix(
        [(requirement.heading, requirement.limit) for requirement in verdict.requirements],
        paid,
        [_make_row(candidate, verdict.requirements, paid) for candidate in verdict.candidates],
        _list_reasons(verdict),
        notes,
        _list_evidence(verdict),
    )


def _make_row(
    candidate: CandidateVerdict, requirements: Sequence[Requirement], paid: Sequence[str]
) -> MatrixRow:
    figures = {
        "Disk": Unit.BYTES.show(candidate.disk_bytes) if candidate.disk_bytes is not None else "-",
        "A month": Unit.MONEY.show(candidate.cost_per_month)
        if candidate.cost_per_month is not None
        else "-",
    }
    return MatrixRow(
        candidate.candidate,
        candidate.status,
        SYMBOLS[candidate.status],
        _summarize(candidate),
        _name_narrowest(candidate, requirements),
        [
            _make_cell(candidate.find(requirement.key), requirement, candidate.narrowest)
            for requirement in requirements
        ],
        [(heading, figures[heading]) for heading in paid],
    )


def _make_cell(cell: Cell, requirement: Requirement, narrowest: str | None) -> MatrixCell:
    return MatrixCell(
        requirement.heading,
        cell.status,
        SYMBOLS[cell.status],
        cell.shown,
        _show_headroom(cell),
        requirement.key == narrowest,
    )


def _summarize(candidate: CandidateVerdict) -> str:
    """How many requirements are met, or missed, or undecided."""
    total = len(candidate.cells)
    count = sum(cell.status is candidate.status for cell in candidate.cells)
    return {
        Status.MET: f"meets all {total}",
        Status.MISSED: f"misses {count} of {total}",
        Status.UNDECIDED: f"{count} of {total} undecided",
    }[candidate.status]


def _name_narrowest(candidate: CandidateVerdict, requirements: Sequence[Requirement]) -> str:
    narrowest = next(
        (requirement for requirement in requirements if requirement.key == candidate.narrowest),
        None,
    )
    if narrowest is None:
        return ""
    headroom = _show_headroom(candidate.find(narrowest.key))
    return f"{narrowest.heading} ({headroom})" if headroom else narrowest.heading


def _show_headroom(cell: Cell) -> str:
    return "" if cell.headroom is None else format_headroom(cell.headroom)


def _list_reasons(verdict: VerdictMatrix) -> list[str]:
    """A sentence for each reason, with all that it applies to."""
    headings = {requirement.key: requirement.heading for requirement in verdict.requirements}
    by_reason: dict[tuple[Status, str], dict[str, list[str]]] = {}
    for candidate in verdict.candidates:
        for cell in candidate.cells:
            if cell.reason:
                where = by_reason.setdefault((cell.status, cell.reason), {})
                where.setdefault(candidate.candidate, []).append(headings[cell.requirement])
    return [
        f"{SYMBOLS[status]} {status}: "
        + "; ".join(f"{name}: {join_words(required)}" for name, required in where.items())
        + f": {reason}."
        for (status, reason), where in by_reason.items()
    ]


def _list_evidence(verdict: VerdictMatrix) -> list[EvidenceRow]:
    """The repetitions of each cell."""
    requirements = {requirement.key: requirement for requirement in verdict.requirements}
    words = {True: "kept", False: "broken", None: "-"}
    return [
        EvidenceRow(
            candidate.candidate,
            f"{required.heading} {required.limit}",
            f"{sample.repetition}",
            "-" if sample.value is None else required.unit.show(sample.value),
            words[sample.keeps],
            sample.why or "-",
            [evidence.result for evidence in sample.evidence],
        )
        for candidate in verdict.candidates
        for cell in candidate.cells
        for required in [requirements[cell.requirement]]
        for sample in cell.samples
    ]
