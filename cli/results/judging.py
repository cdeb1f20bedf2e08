"""The verdict on what a campaign has measured: here on disk, price and faults, in `judging_load` on the load.
Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from simulator.contract import GAP_S, GroupResult, Mark, Outage, RunResult
from simulator.units import format_bytes, format_count, join_words

from ..plan.target import Price
from .conditions import find_acknowledgement
from .decision import (
    Acknowledgement,
    CandidateVerdict,
    Cell,
    Evidence,
    Requirement,
    Sample,
    Status,
    Unit,
    VerdictMatrix,
    decide,
    find_narrowest,
)
from .evidence import (
    ALMOST,
    ORDER,
    Measured,
    Question,
    Repetition,
    cite,
    collect,
    join,
    make_sample,
    stay_silent,
)
from .faults import find_catch_up
from .judging_load import decide_rate, judge_limit
from .model import Result
from .requirements import COST, DISK, DURABILITY, RATE, list_rows, name_fault, name_limit
from .retention import describe_cost
from .store import StoredResult
from .summaries import weigh_together
from .verdicts import judge_trust

HOURS_PER_MONTH = 730.0
GB = 1e9


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
        return decide(row, collect(measured, partial(judge_limit, question, limit), loaded=True))
    fault = row.key.removeprefix(name_fault(""))
    return decide(row, collect(measured, partial(judge_fault, question, row, fault), loaded=True))


def _list_results(measured: Measured) -> Iterator[Result]:
    for repetition in measured.repetitions:
        for stored in repetition.stored:
            yield stored.result


# --- durability --------------------------------------------------------------------------------------


def find_weakest(measured: Measured) -> Acknowledgement | None:
    """What an acknowledgement was worth in the candidate's results that insert: the least of them."""
    found = [
        worth
        for result in _list_results(measured)
        if result.writers and (worth := find_acknowledgement(result))
    ]
    return min(found, key=lambda worth: ORDER[worth.on_disk], default=None)


def decide_durability(row: Requirement, measured: Measured) -> Cell:
    """Whether events were on disk before they were acknowledged, by the settings that were in effect."""
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
            why = f"module {stored.result.module} doesn't say what an acknowledgement is worth"
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
    if any(
        candidate.price.cpu_hour is not None and candidate.price.hour is None
        for candidate in measured
    ):
        yield "CPUs are those available to the database, not those it used."


# --- disk and price --------------------------------------------------------------------------------


def decide_disk(question: Question, measured: Measured, row: Requirement | None = None) -> Cell:
    """What is stored at the retention: bytes per event × rate × retention. `row` None: only the figure."""
    row = row or Requirement(key=DISK, heading="disk", unit=Unit.BYTES, bound=1.0)
    return decide(row, collect(measured, lambda repetition: _judge_disk(question, row, repetition)))


def _judge_disk(question: Question, row: Requirement, repetition: Repetition) -> Sample:
    """Judge by the result that shows what an event takes: of several by one after compaction, with the most
    events in a run."""
    retention_s = question.needed.retention
    if retention_s is None:
        return Sample(repetition=repetition.number, keeps=None, why="no `retention` is required")
    weighed = []
    for stored in repetition.stored:
        groups = [group_run.group for group_run in stored.result.writers]
        # Each run begins on tables of its own, or goes on with those of the one before.
        events = max((group.count or 0 for group in groups), default=0)
        if events and not any(run.retention for run in stored.result.runs):
            compacted = any(
                group.storage_compacted and group.storage_compacted.total_bytes for group in groups
            )
            size = weigh_together(stored.result.writers)
            weighed.append((size.bytes_per_event is not None, compacted, events, stored, size))
    if not weighed:
        why = repetition.failed[0] if repetition.failed else "nothing was inserted"
        return stay_silent(repetition, why)
    *_, stored, size = max(weighed, key=lambda weighing: weighing[:3])
    evidence = [cite(stored)]
    if size.bytes_per_event is None:
        why = size.reason or "the database reports no size"
        return join(repetition, [make_sample(None, None, why, evidence)])
    value = size.bytes_per_event * question.rate_per_s * retention_s
    return join(repetition, [make_sample(value <= row.bound, value, None, evidence)])


def describe_retention(measured: Measured) -> str | None:
    """What inserts lose while events that are too old are deleted, in the run that lost most; None if that
    wasn't measured."""
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
    return f"{measured.candidate}, retention: {describe_cost(runs, 'inserts')}."


def decide_cost(question: Question, measured: Measured, row: Requirement | None = None) -> Cell:
    """What a month costs: its hours, and what is stored at the retention. `row` None: only the figure."""
    row = row or Requirement(key=COST, heading="cost per month", unit=Unit.MONEY, bound=1.0)
    return decide(
        row, collect(measured, lambda repetition: _judge_cost(question, row, measured, repetition))
    )


def _judge_cost(
    question: Question, row: Requirement, measured: Measured, repetition: Repetition
) -> Sample:
    """Judge the cost of a month's hours, and of what is stored. If no part of it is measured, it is known
    without."""
    price, hourly = measured.price, measured.price.hour
    evidence: list[Evidence] = []
    if hourly is None and price.cpu_hour is not None:
        shown = (
            (run.resources.cpus, [cite(stored, run)])
            for stored in repetition.stored
            for run in stored.result.runs
            if run.resources is not None and run.resources.cpus
        )
        cpus, evidence = next(shown, (None, []))
        if cpus is None:
            return stay_silent(repetition, "the database's CPUs are unknown: give cost_per_hour")
        hourly = cpus * price.cpu_hour
    if hourly is None and price.gb_month is None:
        why = "no price is known: give `price:` in the campaign, or the target's cost_per_hour"
        return stay_silent(repetition, why)
    value = (hourly or 0.0) * HOURS_PER_MONTH
    if price.gb_month is not None:
        disk = _judge_disk(question, row, repetition)
        if disk.value is None:
            return disk.model_copy(update={"keeps": None, "why": f"disk: {disk.why}"})
        value += disk.value / GB * price.gb_month
        evidence = [*evidence, *disk.evidence]
    keeps = value <= row.bound
    return join(repetition, [make_sample(keeps, value, None, evidence, final=not evidence)])


def describe_price(price: Price, disk_bytes: float | None) -> str | None:
    """`1.2 an hour, 0.05 a CPU and hour, 1.83 TB at 0.1 a GB and month`."""
    parts = []
    if price.hour is not None:
        parts.append(f"{price.hour:g} an hour")
    elif price.cpu_hour is not None:
        parts.append(f"{price.cpu_hour:g} per CPU and hour")
    if price.gb_month is not None:
        disk = "disk" if disk_bytes is None else format_bytes(disk_bytes)
        parts.append(f"{disk} at {price.gb_month:g} per GB and month")
    return ", ".join(parts) or None


# --- faults ----------------------------------------------------------------------------------------


def judge_fault(question: Question, row: Requirement, fault: str, repetition: Repetition) -> Sample:
    """How long nothing was acknowledged after a fault, and whether anything was lost."""
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
    """What was done, without when it was to be done."""
    return text.partition(" ")[2]


def _judge_mark(
    question: Question, row: Requirement, stored: StoredResult, run: RunResult, place: int
) -> Sample:
    """How long nothing was acknowledged, and whether anything was lost. What is shorter than half a second
    isn't seen."""
    evidence, writers = [cite(stored, run)], run.writers
    mark = run.marks[place]
    if not mark.ok:
        return make_sample(None, None, f"it failed: {mark.said or ''}".rstrip(": "), evidence)
    if writers is None or place >= len(writers.outages):
        return make_sample(None, None, "nothing was inserted during it", evidence)
    lost = _count_lost(writers)
    if lost:
        text = f"{format_count(lost, 'acknowledged event is', 'acknowledged events are')} missing"
        return make_sample(False, None, text, evidence, final=True)
    offered = writers.offered.rate_per_s if writers.offered else None
    if offered is None or offered < ALMOST * question.rate_per_s:
        return make_sample(None, None, "the required load was not offered during it", evidence)
    value, is_over = _measure_outage(writers, mark, writers.outages[place])
    if value > row.bound:
        return make_sample(False, value, None, evidence)
    if not is_over:
        why = "the run ended before the rate was back: a longer one would decide"
        return make_sample(None, value, why, evidence)
    if lost is None:
        return make_sample(None, value, "events lost: unknown", evidence)
    return make_sample(True, value, None, evidence)


def _measure_outage(writers: GroupResult, mark: Mark, outage: Outage) -> tuple[float, bool]:
    """How long nothing was acknowledged, or, after a fleet was cut off, how long it took to work off what had
    been held back; and whether that was done when the run was over."""
    end_s = writers.warm_up_s + (writers.window_s or 0.0)
    catch_up = find_catch_up(mark, writers)
    if catch_up is None:
        ended_s = outage.gap_began_s + outage.gap_s
        return max(outage.gap_s, GAP_S), not outage.gap_s or ended_s <= end_s - GAP_S
    if catch_up.after_s is None:
        return end_s - catch_up.ends_s, False
    return catch_up.after_s, True


def _count_lost(writers: GroupResult) -> int | None:
    """Acknowledged events that are missing; None if that isn't known."""
    if writers.lookup is not None and writers.lookup.missing is not None:
        return writers.lookup.missing
    verification = writers.verification
    if verification is None or verification.stored is None:
        return None
    return max(0, verification.expected - verification.stored)
