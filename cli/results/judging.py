"""The verdict on what a campaign has measured. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from simulator.units import join_words

from .decision import (
    CandidateVerdict,
    Cell,
    Requirement,
    VerdictMatrix,
    decide,
    find_narrowest,
)
from .evidence import Measured, Question, collect
from .judging_faults import judge_fault
from .judging_load import decide_rate, judge_limit, list_stand_ins
from .judging_upkeep import decide_cost, decide_disk, describe_price, describe_retention
from .requirements import COST, DISK, RATE, list_rows, name_fault, name_limit


def judge(
    question: Question, title: str, measured: Sequence[Measured], repeats: int, jobs_left: int
) -> VerdictMatrix:
    """The verdict on what was measured."""
    rows = list_rows(question.needed, question.rate_per_s)
    return VerdictMatrix(
        title=title,
        requirements=rows,
        candidates=[_judge_candidate(question, rows, candidate) for candidate in measured],
        repeats=repeats,
        jobs_left=jobs_left,
        notes=list(_list_notes(question, measured)),
    )


def _judge_candidate(
    question: Question, rows: Sequence[Requirement], measured: Measured
) -> CandidateVerdict:
    cells = [_make_cell(question, row, measured) for row in rows]
    disk = decide_disk(question, measured)
    cost = decide_cost(question, measured)
    return CandidateVerdict(
        candidate=measured.candidate,
        cells=cells,
        narrowest=find_narrowest(cells),
        disk_bytes=disk.value,
        cost_per_month=cost.value,
        price=describe_price(measured.price, disk.value),
    )


def _make_cell(question: Question, row: Requirement, measured: Measured) -> Cell:
    if row.key == RATE:
        return decide_rate(question, row, measured)
    if row.key == DISK:
        return decide_disk(question, measured, row)
    if row.key == COST:
        return decide_cost(question, measured, row)
    limits = {name_limit(limit): limit for limit in question.needed.list_limits()}
    if (limit := limits.get(row.key)) is not None:
        return decide(row, collect(measured, partial(judge_limit, question, limit)))
    fault = row.key.removeprefix(name_fault(""))
    return decide(row, collect(measured, partial(judge_fault, question, row, fault)))


def _list_notes(question: Question, measured: Sequence[Measured]) -> Iterator[str]:
    """What holds for the whole verdict."""
    needed = question.needed
    if needed.retention is not None:
        sentences = {candidate.candidate: describe_retention(candidate) for candidate in measured}
        missing = [name for name, text in sentences.items() if text is None]
        text = "Disk is bytes per event × the required rate × the retention"
        if missing:
            of = "" if len(missing) == len(sentences) else f" of {join_words(missing)}"
            text += f"; the deletion of older events{of}, and its cost, were not measured"
        yield f"{text}."
        yield from filter(None, sentences.values())
    replaced = [name for candidate in measured for name in list_stand_ins(question, candidate)]
    if replaced:
        names = join_words(list(dict.fromkeys(replaced)))
        yield f"In searches, p90 replaces the percentile of {names}, which run too rarely there."
    if any(
        candidate.price.cpu_hour is not None and candidate.price.hour is None
        for candidate in measured
    ):
        yield "CPUs are those available to the database, not those it used."
