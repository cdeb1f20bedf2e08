"""The verdict on a campaign's requirements, as text and for a page: the matrix, then each candidate's cells
in words."""

from __future__ import annotations

from collections import Counter
from textwrap import fill
from typing import Any

from simulator.units import format_bytes, format_count, format_digits, join_words

from ..results.decision import CandidateVerdict, Cell, Requirement, Status, Unit, VerdictMatrix
from ..results.requirements import COST, DISK
from ..results.scaling import describe_share, format_share, is_flat
from ..system.output import wrap_lines
from .tables import Table


def tabulate_verdict(verdict: VerdictMatrix) -> Table:
    """Candidates × requirements: met, missed or undecided, the figure, and the headroom."""
    headers = ["Candidate"]
    headers += [f"{_break_heading(row.heading)}\n{row.limit}" for row in verdict.requirements]
    rows = [
        [
            candidate.candidate,
            *(show_cell(row, candidate.find(row.key)) for row in verdict.requirements),
        ]
        for candidate in verdict.candidates
    ]
    return Table(headers, rows, left=headers)


def show_matrix(verdict: VerdictMatrix, width: int | None = None) -> str:
    """What was asked, and the matrix. `width`: see `describe_whole_verdict`."""
    return f"Verdict: {verdict.title}\n{tabulate_verdict(verdict).text(width=width)}"


def _break_heading(text: str) -> str:
    """A heading on short lines, so that 80 characters have room for a candidate and two requirements."""
    parts = text.replace(" (", "\n(").split("\n")
    return "\n".join(
        fill(part, 16, break_long_words=False, break_on_hyphens=False) for part in parts
    )


def show_cell(row: Requirement, cell: Cell) -> str:
    """`met: 112 ms → 180 ms (1.4×) at 3.2%`, `undecided`: without the range of its repetitions."""
    means = cell.model_copy(update={"lowest": None, "highest": None, "headrooms": None})
    figure = "" if show_figure(row, means) == "-" else f": {show_figure(row, means)}"
    at = f" at {format_share(cell.scale.share)}" if cell.scale and figure else ""
    return f"{cell.status}{figure}{_add_headroom(means)}{at}"


def show_figure(row: Requirement, cell: Cell) -> str:
    """`112 ms (110 to 115)`; `112 ms (110 to 115) → 180 ms` with the extrapolation to full retention; `112 ms
    (110 to 115), flat`."""
    if _is_missed_otherwise(cell):
        return cell.reason or "-"
    scale, measured = cell.scale, cell.shown + _show_range(row, cell)
    if scale is None or scale.extrapolated is None or scale.extrapolated_to is None:
        return measured
    if is_flat(scale):
        return f"{measured}, flat"
    later = row.find_headroom(scale.extrapolated.mean)
    if cell.value is None or later >= row.find_headroom(cell.value):
        return measured  # there is no reason to expect figures to improve
    if scale.extrapolated_to < scale.kept and cell.status is not Status.MISSED:
        return measured
    return f"{measured} → {row.unit.show(scale.extrapolated.mean)}"


def _is_missed_otherwise(cell: Cell) -> bool:
    """Whether something other than the figure breaks the requirement, such as lost events."""
    is_projected = cell.scale is not None and cell.scale.extrapolated is not None
    return cell.status is Status.MISSED and (cell.headroom or 0.0) >= 1 and not is_projected


def _show_range(row: Requirement, cell: Cell) -> str:
    """` (110 to 115)`: the range of the repetitions, without the unit if it is the same; empty if both ends
    read the same."""
    if cell.lowest is None or cell.highest is None:
        return ""
    low, high = row.unit.show(cell.lowest), row.unit.show(cell.highest)
    number, _, unit = low.partition(" ")
    if low == high:
        return ""
    if unit and high.endswith(f" {unit}"):
        low, high = number, high.removesuffix(f" {unit}")
    return f" ({low} to {high})"


def show_scale(cell: Cell) -> str:
    """`at 3.2%, in memory`: the share of full retention at which a cell was measured."""
    if cell.scale is None:
        return ""
    where = {True: ", in memory", False: ", beyond memory", None: ""}[cell.scale.in_memory]
    return f"at {format_share(cell.scale.share)}{where}"


def _add_headroom(cell: Cell) -> str:
    text = describe_headroom(cell)
    return f" ({text})" if text else ""


def describe_headroom(cell: Cell) -> str:
    """The headroom with its range over the repetitions: `2.2×, 2.1× to 2.4×`; empty if unknown."""
    if cell.headroom is None or _is_missed_otherwise(cell):
        return ""
    middle, low, high = map(
        format_headroom, (cell.headroom, *(cell.headrooms or [cell.headroom] * 2))
    )
    return middle if low == high else f"{middle}, {low} to {high}"


def format_headroom(headroom: float) -> str:
    """`2.4×`, `0.83×`, `120×`: below 1 the requirement isn't met."""
    return f"{headroom:.2g}×" if headroom < 10 else f"{format_digits(round(headroom))}×"


def describe_verdict(verdict: VerdictMatrix) -> list[str]:
    """A line for each candidate, and below it its durability, how far to trust its figures, and why
    requirements aren't met; then what applies to all."""
    lines: list[str] = []
    for candidate in verdict.candidates:
        lines.append(describe_candidate(verdict, candidate))
        if candidate.acknowledgement is not None:
            lines.append(f"  Durability: {candidate.acknowledgement}.")
        if candidate.trust is not None:
            lines.append(f"  {candidate.trust}.")
        by_reason: dict[tuple[Status, str], list[str]] = {}
        for cell in candidate.cells:
            if cell.status is not Status.MET and cell.reason:
                heading = _find_row(verdict, cell.requirement).heading
                by_reason.setdefault((cell.status, cell.reason), []).append(heading)
        lines += [
            f"  {status} {join_words(headings)}: {reason}."
            for (status, reason), headings in by_reason.items()
        ]
    lines += _describe_left(verdict)
    if verdict.trust is not None and len(verdict.candidates) > 1:
        lines.append(f"All: {verdict.trust}.")
    return [*lines, *map(str, verdict.requirement_changes), *verdict.notes]


MOST_REASONS = 3


def summarize_verdict(verdict: VerdictMatrix) -> list[str]:
    """A line for each candidate, durability, how far to trust the figures, and the most serious reasons why
    requirements aren't met; `describe_verdict` has the others."""
    lines = [describe_candidate(verdict, candidate) for candidate in verdict.candidates]
    worth: dict[str, list[str]] = {}
    for candidate in verdict.candidates:
        if candidate.acknowledgement is not None:
            worth.setdefault(str(candidate.acknowledgement), []).append(candidate.candidate)
    for text, names in worth.items():
        of = f" ({join_words(names)})" if len(worth) > 1 else ""
        lines.append(f"Durability{of}: {text}.")
    lines += _describe_left(verdict) + list(map(str, verdict.requirement_changes))
    if verdict.trust is not None:
        lines.append(f"{verdict.trust}.")
    reasons = _group_reasons(verdict)
    missed = sorted(
        (key for key in reasons if key[0] is not Status.MET),
        key=lambda key: key[0] is not Status.MISSED,
    )
    return lines + [
        f"{status}: {_name_where(reasons[status, reason])}: {reason}."
        for status, reason in missed[:MOST_REASONS]
    ]


def _group_reasons(verdict: VerdictMatrix) -> dict[tuple[Status, str], dict[str, list[str]]]:
    """Why requirements aren't met -> candidate -> which ones."""
    by_reason: dict[tuple[Status, str], dict[str, list[str]]] = {}
    for candidate in verdict.candidates:
        for cell in candidate.cells:
            if cell.reason:
                where = by_reason.setdefault((cell.status, cell.reason), {})
                heading = _find_row(verdict, cell.requirement).heading
                where.setdefault(candidate.candidate, []).append(heading)
    return by_reason


def _name_where(where: dict[str, list[str]]) -> str:
    """`a, b: disk and cost; c: disk`: candidates grouped by the requirements they share."""
    alike: dict[str, list[str]] = {}
    for name, required in where.items():
        alike.setdefault(join_words(required), []).append(name)
    return "; ".join(f"{', '.join(names)}: {required}" for required, names in alike.items())


def _describe_left(verdict: VerdictMatrix) -> list[str]:
    if not verdict.jobs_left:
        return []
    return [f"So far: {format_count(verdict.jobs_left, 'job is', 'jobs are')} still to run."]


def describe_candidate(verdict: VerdictMatrix, candidate: CandidateVerdict) -> str:
    """`questdb: all met; narrowest: disk (1.3×); 1.83 TB stored; 812 a month (1.2 an hour).`"""
    counts = Counter(cell.status for cell in candidate.cells)
    named = ", ".join(f"{counts[status]} {status}" for status in Status if counts[status])
    whole = f"all {candidate.status}" if len(counts) < 2 else f"{candidate.status} ({named})"
    parts = [f"{candidate.candidate}: {whole}"]
    if narrowest := _name_narrowest(verdict, candidate):
        parts.append(f"narrowest: {narrowest}")
    if candidate.disk_bytes is not None:
        parts.append(f"{format_bytes(candidate.disk_bytes)} stored at full retention")
    if candidate.cost_per_month is not None:
        price = f" ({candidate.price})" if candidate.price else ""
        parts.append(f"{candidate.cost_per_month:,.0f} a month{price}")
    parts += [text] if (text := _describe_scale(candidate)) else []
    return "; ".join(parts) + "."


def _describe_scale(candidate: CandidateVerdict) -> str:
    """`measured on 104M of 3.11G events (3.3%), in memory`; empty if unknown."""
    scales = [cell.scale for cell in candidate.cells if cell.scale is not None]
    if not scales:
        return ""
    scale = max(scales, key=lambda scale: scale.events)
    where = {True: "in memory", False: "beyond memory", None: "in memory or not: unknown"}
    share = format_share(scale.share)
    return f"measured {describe_share(scale)} ({share}), {where[scale.in_memory]}"


def _name_narrowest(verdict: VerdictMatrix, candidate: CandidateVerdict) -> str:
    """`disk (1.3×)`; empty if unknown."""
    rows = (row for row in verdict.requirements if row.key == candidate.narrowest)
    return next((row.heading + _add_headroom(candidate.find(row.key)) for row in rows), "")


def describe_whole_verdict(verdict: VerdictMatrix, width: int | None = None) -> str:
    """Everything known about a verdict. `width`: characters per line; None: no limit."""
    sections = [
        show_matrix(verdict, width),
        wrap_lines("\n".join(describe_verdict(verdict)), width),
        wrap_lines("\n".join(["What it is based on", *describe_evidence(verdict)]), width),
    ]
    return "\n\n".join(sections)


def sum_up(verdict: VerdictMatrix) -> str:
    """`9 of 15 candidates meet all 7 requirements, 4 miss one or more`: how many there are of each."""
    counts = Counter(candidate.status for candidate in verdict.candidates)
    of = format_count(len(verdict.candidates), "candidate")
    needed = format_count(len(verdict.requirements), "requirement")
    words = {
        Status.MET: f"meet all {needed}",
        Status.MISSED: "miss one or more",
        Status.UNDECIDED: "are undecided",
    }
    said = [f"{counts[status]} {text}" for status, text in words.items() if counts[status]]
    return f"Of {of}, {join_words(said)}."


def _find_row(verdict: VerdictMatrix, key: str) -> Requirement:
    return next(row for row in verdict.requirements if row.key == key)


def describe_evidence(verdict: VerdictMatrix) -> list[str]:
    """For each cell, the figure of each repetition and the results it comes from."""
    lines = []
    for candidate in verdict.candidates:
        for cell in candidate.cells:
            row = _find_row(verdict, cell.requirement)
            texts = []
            for sample in cell.samples:
                figure = row.unit.show(sample.value) if sample.value is not None else "no figure"
                if sample.value is None and sample.keeps is not None:
                    kept = row.words or "kept up"
                    figure = kept if sample.keeps else f"not {kept}"
                names = [
                    f"{evidence.result} run {', '.join(map(str, evidence.runs))}"
                    if evidence.runs
                    else evidence.result
                    for evidence in sample.evidence
                ]
                texts.append(f"{figure} ({', '.join(names) or 'no result'})")
            if cell.evidence:
                lines.append(f"{candidate.candidate}, {row.heading}: {'; '.join(texts)}")
    return lines


# --- on a page ------------------------------------------------------------------------------------


SYMBOLS = {Status.MET: "✓", Status.MISSED: "✗", Status.UNDECIDED: "?"}


def make_matrix(verdict: VerdictMatrix) -> dict[str, Any]:
    """The data of the macro `as_verdict`: candidates × requirements, each state with a symbol and a word."""
    # Disk and price have a column even if not required, where known.
    known = {
        DISK: ("Disk", Unit.BYTES, [candidate.disk_bytes for candidate in verdict.candidates]),
        COST: ("A month", Unit.MONEY, [candidate.cost_per_month for candidate in verdict.candidates]),
    }  # fmt: skip
    required = {row.key for row in verdict.requirements}
    paid = {
        heading: ["-" if value is None else unit.show(value) for value in values]
        for key, (heading, unit, values) in known.items()
        if any(values) and key not in required
    }
    notes = [*map(str, verdict.requirement_changes), *verdict.notes]
    if verdict.trust is not None and len(verdict.candidates) > 1:
        notes.insert(0, f"All candidates: {verdict.trust}.")
    if verdict.jobs_left:
        notes.insert(0, f"Not finished: {verdict.jobs_left} jobs left.")
    rows = []
    for candidate in verdict.candidates:
        cells = []
        for row in verdict.requirements:
            cell = candidate.find(row.key)
            cells.append(
                (row, cell, show_figure(row, cell), describe_headroom(cell), show_scale(cell))
            )
        total = len(candidate.cells)
        count = sum(cell.status is candidate.status for cell in candidate.cells)
        summary = {
            Status.MET: f"meets all {total}",
            Status.MISSED: f"misses {count} of {total}",
            Status.UNDECIDED: f"{count} of {total} undecided",
        }[candidate.status]
        rows.append({
            "candidate": candidate, "summary": summary, "narrowest": _name_narrowest(verdict, candidate),
            "cells": cells,
        })  # fmt: skip
    reasons = [
        f"{SYMBOLS[status]} {status}: {_name_where(where)}: {reason}."
        for (status, reason), where in _group_reasons(verdict).items()
    ]
    return {
        "symbols": SYMBOLS, "requirements": verdict.requirements, "paid": paid, "rows": rows,
        "reasons": reasons, "notes": notes, "evidence": _list_repetitions(verdict),
    }  # fmt: skip


def _list_repetitions(verdict: VerdictMatrix) -> list[tuple[list[str], list[str]]]:
    """Each repetition of each cell in words, with the IDs of its results."""
    words = {True: "kept", False: "broken", None: "-"}
    rows = []
    for candidate in verdict.candidates:
        for cell in candidate.cells:
            row = _find_row(verdict, cell.requirement)
            for sample in cell.samples:
                texts = [
                    candidate.candidate,
                    f"{row.heading} {row.limit}",
                    f"{sample.repetition}",
                    "-" if sample.value is None else row.unit.show(sample.value),
                    words[sample.keeps],
                    sample.why or "-",
                ]
                rows.append((texts, [evidence.result for evidence in sample.evidence]))
    return rows
