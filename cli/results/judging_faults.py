"""What results say about faults: how long nothing was acknowledged, and whether anything was lost. Pure."""

from __future__ import annotations

from simulator.contract import GAP_S, GroupResult, Mark, Outage, RunResult
from simulator.units import format_count

from .decision import Requirement, Sample
from .evidence import ALMOST, Question, Repetition, cite, join, make_sample, stay_silent
from .faults import find_catch_up
from .store import StoredResult


def judge_fault(question: Question, row: Requirement, fault: str, repetition: Repetition) -> Sample:
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
