"""The verdict on a campaign's measurements: faults here, the load in `judging_load`, disk and price in
`judging_disk`. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from statistics import fmean

from simulator.contract import GAP_S, GroupResult, Mark, Outage, RunResult
from simulator.units import format_amount, format_bytes, format_count, join_words

from .conditions import find_acknowledgement
from .decision import (
    Acknowledgement,
    CandidateVerdict,
    Cell,
    Requirement,
    Sample,
    Scale,
    Status,
    Unit,
    VerdictMatrix,
    decide,
    find_narrowest,
)
from .faults import find_catch_up
from .judging_disk import decide_cost, decide_disk, describe_price
from .judging_load import decide_limit, decide_rate
from .loads import (
    ALMOST,
    ORDER,
    Measured,
    Question,
    Repetition,
    cite,
    collect,
    find_level,
    find_memory,
    find_scale,
    join,
    make_sample,
    stay_silent,
)
from .model import Result
from .requirements import COST, DISK, DURABILITY, RATE, list_rows, name_fault, name_limit
from .retention import describe_cost, find_deletions
from .scaling import find_growth, project
from .store import StoredResult
from .verdicts import judge_trust


def judge(
    question: Question, title: str, measured: Sequence[Measured], repeats: int, jobs_left: int
) -> VerdictMatrix:
    """The verdict on what was measured."""
    rows = list_rows(question.needed, question.rate_per_s)
    candidates = []
    for candidate in measured:
        cells = [_make_cell(question, row, candidate) for row in rows]
        disk_bytes = decide_disk(question, candidate).value
        candidates.append(
            CandidateVerdict(
                candidate=candidate.candidate,
                acknowledgement=find_weakest(candidate),
                trust=judge_trust(_list_results(candidate)),
                cells=cells,
                narrowest=find_narrowest(cells),
                disk_bytes=disk_bytes,
                cost_per_month=decide_cost(question, candidate).value,
                price=describe_price(candidate.price, disk_bytes),
            )
        )
    return VerdictMatrix(
        title=title,
        requirements=rows,
        candidates=candidates,
        repeats=repeats,
        trust=judge_trust(result for candidate in measured for result in _list_results(candidate)),
        jobs_left=jobs_left,
        notes=list(_list_notes(question, measured)),
    )


def _make_cell(question: Question, row: Requirement, measured: Measured) -> Cell:
    if row.key == RATE:
        return decide_rate(question, row, measured)
    if row.key == DISK:
        return decide_disk(question, measured, row)
    if row.key == COST:
        return decide_cost(question, measured, row)
    if row.key == DURABILITY:
        return decide_durability(row, measured)
    limits = {name_limit(limit): limit for limit in question.needed.list_limits()}
    if (limit := limits.get(row.key)) is not None:
        return decide_limit(question, row, limit, measured)
    fault = row.key.removeprefix(name_fault(""))
    cell = decide(row, collect(measured, partial(judge_fault, question, row, fault), loaded=True))
    return cell.model_copy(update={"scale": _scale_fault(question, cell, measured)})


def _scale_fault(question: Question, cell: Cell, measured: Measured) -> Scale | None:
    """The number of events stored when a fault struck."""
    runs = {
        (stored.id, run.run): find_level(stored.result, run)
        for repetition in measured.repetitions
        for stored in repetition.stored
        for run in stored.result.runs
    }
    cited = [(evidence.result, number) for evidence in cell.evidence for number in evidence.runs]
    if question.kept is None or not cited:
        return None
    return Scale(events=min(runs[place] for place in cited), kept=question.kept)


def _list_results(measured: Measured) -> Iterator[Result]:
    for repetition in measured.repetitions:
        for stored in repetition.stored:
            yield stored.result


# --- durability --------------------------------------------------------------------------------------


def find_weakest(measured: Measured) -> Acknowledgement | None:
    """The weakest durability among the candidate's results with inserts."""
    found = [
        worth
        for result in _list_results(measured)
        if result.writers and (worth := find_acknowledgement(result))
    ]
    return min(found, key=lambda worth: ORDER[worth.on_disk], default=None)


def decide_durability(row: Requirement, measured: Measured) -> Cell:
    """Whether events were on disk before they were acknowledged, by the effective settings."""
    cell = decide(row, collect(measured, _judge_durability))
    shown = {Status.MET: "on disk", Status.MISSED: "not on disk", Status.UNDECIDED: "-"}
    return cell.model_copy(update={"shown": shown[cell.status]})


def _judge_durability(repetition: Repetition) -> Sample:
    samples = []
    for stored in repetition.stored:
        if not stored.result.writers:
            continue
        worth = find_acknowledgement(stored.result)
        if worth is None:
            why = f"module {stored.result.module} doesn't declare when acknowledged events are on disk"
        elif worth.on_disk is None:
            why = worth.when
        else:
            remedy = f"set {worth.advice}" if worth.advice else "no setting would change that"
            why = f"on disk {worth.when}: {remedy}"
        on_disk = worth.on_disk if worth else None
        samples.append(make_sample(on_disk, None, why, [cite(stored)], final=on_disk is not None))
    if samples:
        return join(repetition, samples)
    return stay_silent(
        repetition, repetition.failed[0] if repetition.failed else "nothing was inserted"
    )


def _list_notes(question: Question, measured: Sequence[Measured]) -> Iterator[str]:
    """Notes on the whole verdict."""
    needed = question.needed
    if question.kept is not None:
        yield (
            f"{format_amount(question.kept)} events are stored at full retention: “at 3%” means measured on"
            " that share, “→” extrapolated to all of it by the growth between two fill levels."
        )
    if needed.retention is not None:
        sentences = {
            candidate.candidate: describe_retention(question, candidate) for candidate in measured
        }
        missing = [name for name, text in sentences.items() if text is None]
        text = "Disk is bytes per event × the required rate × the retention"
        if missing:
            of = "" if len(missing) == len(sentences) else f" of {join_words(missing)}"
            text += f"; the deletion of older events{of}, and its cost, were not measured"
        yield f"{text}."
        yield from filter(None, sentences.values())
        yield from _list_in_memory(question, measured)
    if any(
        candidate.price.cpu_hour is not None and candidate.price.hour is None
        for candidate in measured
    ):
        yield "CPUs are those available to the database, not those it used."


def _list_in_memory(question: Question, measured: Sequence[Measured]) -> Iterator[str]:
    """Candidates measured only in memory although full retention won't fit."""
    for candidate in measured:
        scale = find_scale(question, candidate)
        runs = (run for result in _list_results(candidate) for run in result.runs)
        memory = max((find_memory(question, run) or 0.0 for run in runs), default=0.0)
        disk = decide_disk(question, candidate).value
        if scale is None or not scale.in_memory or disk is None or disk <= memory:
            continue
        larger = format_amount(memory / disk * scale.kept)
        yield (
            f"{candidate.candidate} was measured in memory ({format_bytes(memory)}), and {format_bytes(disk)}"
            f" are stored at full retention: a history of {larger} events would exceed memory."
        )


def describe_retention(question: Question, measured: Measured) -> str | None:
    """How much inserts slow down while old events are deleted, in the worst run, and how deletions grow with
    the stored events; None if not measured."""
    runs = [
        group_run
        for repetition in measured.repetitions
        for stored in repetition.stored
        for group_run in stored.result.writers
        if group_run.run.retention is not None
    ]
    if not runs:
        return None
    wrong = [text for group_run in runs for text in group_run.group.invalid_reasons]
    if wrong:
        return f"{measured.candidate}, retention: {wrong[0]}."
    cost = describe_cost(runs, "inserts")
    return f"{measured.candidate}, retention: {cost}{_describe_deletions(question, measured)}."


def _describe_deletions(question: Question, measured: Measured) -> str:
    """`; a deletion took 26 ms with 15k events stored, 210 ms with 150k → 5.1 s with 4.5M`."""
    pairs = []
    for repetition in measured.repetitions:
        runs = [group for stored in repetition.stored for group in stored.result.writers]
        levels = sorted(level for group_run in runs if (level := find_deletions(group_run)))
        if levels:
            pairs.append((repetition.number, levels[0], levels[-1]))
    if question.kept is None or not pairs:
        return ""
    growths = [growth for pair in pairs if (growth := find_growth(*pair)) is not None]
    most = min(events for _, _, (events, _) in pairs)
    scale = project(Scale(events=most, kept=question.kept), growths)
    if not growths or scale.extrapolated is None:
        took_ms = fmean(took for _, _, (_, took) in pairs)
        of = f"{format_amount(most)} of {format_amount(question.kept)} events stored"
        return f"; a deletion took {Unit.MS.show(took_ms)} with {of}"
    low, high = (
        f"{Unit.MS.show(fmean(took))} with {format_amount(min(events))}"
        for events, took in (zip(*[pair[place] for pair in pairs], strict=True) for place in (1, 2))
    )
    later = f"{Unit.MS.show(scale.extrapolated.mean)} with {format_amount(scale.reach)}"
    return f"; a deletion took {low} events stored, {high} → {later} of {format_amount(scale.kept)}"


# --- faults ----------------------------------------------------------------------------------------


def judge_fault(question: Question, row: Requirement, fault: str, repetition: Repetition) -> Sample:
    """The outage after a fault, and whether anything was lost."""
    samples = []
    for stored in repetition.stored:
        for run in stored.result.runs:
            skipped = [undone for undone in run.undone if _name_action(undone.action) == fault]
            if skipped:
                why = f"it was not done: {skipped[0].reason}"
                samples.append(make_sample(None, None, why, [cite(stored, run)]))
            places = [n for n, mark in enumerate(run.marks) if _name_action(mark.action) == fault]
            samples += [_judge_mark(question, row, stored, run, place) for place in places]
    if samples:
        return join(repetition, samples)
    return stay_silent(repetition, repetition.failed[0] if repetition.failed else "it was not done")


def _name_action(text: str) -> str:
    """What was done, without its scheduled time."""
    return text.partition(" ")[2]


def _judge_mark(
    question: Question, row: Requirement, stored: StoredResult, run: RunResult, place: int
) -> Sample:
    """The outage in a run, and whether anything was lost. Outages under half a second aren't seen."""
    evidence, writers = [cite(stored, run)], run.writers
    mark = run.marks[place]
    if not mark.ok:
        return make_sample(None, None, f"it failed: {mark.said or ''}".rstrip(": "), evidence)
    if writers is None or place >= len(writers.outages):
        return make_sample(None, None, "nothing was inserted during it", evidence)
    lost = _count_lost(writers)
    if lost:
        text = f"{format_count(lost, 'acknowledged event')} lost"
        sample = make_sample(False, None, text, evidence, final=True)
        return sample.model_copy(update={"shown": f"{format_count(lost, 'event')} lost"})
    offered = writers.offered.rate_per_s if writers.offered else None
    if offered is None or offered < ALMOST * question.rate_per_s:
        return make_sample(None, None, "the required load was not offered during it", evidence)
    value, is_over = _measure_outage(writers, mark, writers.outages[place])
    if value > row.bound:
        return make_sample(False, value, None, evidence)
    if not is_over:
        why = "the run ended before the rate recovered: a longer one would decide"
        return make_sample(None, value, why, evidence)
    if lost is None:
        return make_sample(None, value, "events lost: unknown", evidence)
    return make_sample(True, value, None, evidence)


def _measure_outage(writers: GroupResult, mark: Mark, outage: Outage) -> tuple[float, bool]:
    """How long nothing was acknowledged or, after a fleet was cut off, how long clearing the backlog took;
    and whether it was over before the run ended."""
    end_s = writers.warm_up_s + (writers.window_s or 0.0)
    catch_up = find_catch_up(mark, writers)
    if catch_up is None:
        ended_s = outage.gap_began_s + outage.gap_s
        return max(outage.gap_s, GAP_S), not outage.gap_s or ended_s <= end_s - GAP_S
    if catch_up.after_s is None:
        return end_s - catch_up.ends_s, False
    return catch_up.after_s, True


def _count_lost(writers: GroupResult) -> int | None:
    """Acknowledged events that are missing; None if unknown."""
    if writers.lookup is not None and writers.lookup.missing is not None:
        return writers.lookup.missing
    verification = writers.verification
    if verification is None or verification.stored is None:
        return None
    return max(0, verification.expected - verification.stored)
