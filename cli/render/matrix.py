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
"""Requirements that have a column anyway if they are known."""


@dataclass(frozen=True)
class MatrixCell:
    """A candidate and a requirement."""

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
    """(heading, figure) of disk and price, where these aren't required."""


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
    """IDs of those that it is from."""


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
        for key, heading, known in (
            (_DISK, "Disk", any(one.disk_bytes for one in verdict.candidates)),
            (_COST, "A month", any(one.cost_per_month for one in verdict.candidates)),
        )
        if known and all(one.key != key for one in verdict.requirements)
    ]
    notes = list(verdict.notes)
    if verdict.jobs_left:
        notes.insert(0, f"Not finished: {verdict.jobs_left} jobs are left.")
    return Matrix(
        [(one.heading, one.limit) for one in verdict.requirements],
        paid,
        [_make_row(one, verdict.requirements, paid) for one in verdict.candidates],
        _list_reasons(verdict),
        notes,
        _list_evidence(verdict),
    )


def _make_row(
    one: CandidateVerdict, requirements: Sequence[Requirement], paid: Sequence[str]
) -> MatrixRow:
    figures = {
        "Disk": Unit.BYTES.show(one.disk_bytes) if one.disk_bytes is not None else "-",
        "A month": Unit.MONEY.show(one.cost_per_month) if one.cost_per_month is not None else "-",
    }
    return MatrixRow(
        one.candidate,
        one.status,
        SYMBOLS[one.status],
        _summarize(one),
        _name_narrowest(one, requirements),
        [_make_cell(one.find(req.key), req, one.narrowest) for req in requirements],
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


def _summarize(one: CandidateVerdict) -> str:
    """How many requirements are met, or missed, or undecided."""
    total = len(one.cells)
    count = sum(cell.status is one.status for cell in one.cells)
    return {
        Status.MET: f"meets all {total}",
        Status.MISSED: f"misses {count} of {total}",
        Status.UNDECIDED: f"{count} of {total} undecided",
    }[one.status]


def _name_narrowest(one: CandidateVerdict, requirements: Sequence[Requirement]) -> str:
    narrowest = next((each for each in requirements if each.key == one.narrowest), None)
    if narrowest is None:
        return ""
    headroom = _show_headroom(one.find(narrowest.key))
    return f"{narrowest.heading} ({headroom})" if headroom else narrowest.heading


def _show_headroom(cell: Cell) -> str:
    return "" if cell.headroom is None else format_headroom(cell.headroom)


def _list_reasons(verdict: VerdictMatrix) -> list[str]:
    """A sentence for each reason, with all that it holds for."""
    headings = {one.key: one.heading for one in verdict.requirements}
    found: dict[tuple[Status, str], dict[str, list[str]]] = {}
    for one in verdict.candidates:
        for cell in one.cells:
            if cell.reason:
                own = found.setdefault((cell.status, cell.reason), {})
                own.setdefault(one.candidate, []).append(headings[cell.requirement])
    return [
        f"{SYMBOLS[status]} {status}: "
        + "; ".join(f"{name}: {join_words(own)}" for name, own in where.items())
        + f": {reason}."
        for (status, reason), where in found.items()
    ]


def _list_evidence(verdict: VerdictMatrix) -> list[EvidenceRow]:
    """Each cell's repetitions."""
    requirements = {one.key: one for one in verdict.requirements}
    words = {True: "kept", False: "broken", None: "-"}
    return [
        EvidenceRow(
            one.candidate,
            f"{required.heading} {required.limit}",
            f"{sample.repetition}",
            "-" if sample.value is None else required.unit.show(sample.value),
            words[sample.keeps],
            sample.why or "-",
            [evidence.result for evidence in sample.evidence],
        )
        for one in verdict.candidates
        for cell in one.cells
        for required in [requirements[cell.requirement]]
        for sample in cell.samples
    ]
