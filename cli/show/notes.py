"""Notes on a result, as lines of text: caveats, the check of its answers, and the outcome of its limits, also
as a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from simulator.contract import Answers, Phase
from simulator.errors import list_names
from simulator.units import format_count, format_duration, join_words

from ..results.answers import LimitVerdict, Outcome, sum_up
from ..results.bottleneck import find_bottlenecks
from ..results.caveats import Caveat, Kind
from ..results.faults import describe_outages
from ..results.model import GroupRun, Result
from ..results.naming import describe_run
from ..results.retention import describe_deletions
from ..results.statistics import UNSTABLE_CV
from ..results.verdicts import find_caveats, spread_queries
from .tables import Table, format_rate, locate, strike

MOST_NOTES = 3
"""Lines of notes below a table, before one that names the rest."""
_MOST_OUTAGES = 3
"""The most sentences on outages in one line."""


def list_notes(result: Result, terminal: bool) -> list[str]:
    """What held the runs back, and one line for each caveat, most serious first."""
    caveats = [f"{kind}: {text}" for kind, text in describe_caveats(result, terminal)]
    notes = list_outages(result) + _list_deletions(result) + describe_history(result)
    return notes + describe_index_builds(result) + describe_bottlenecks(result) + caveats


def _list_deletions(result: Result) -> list[str]:
    return describe_deletions(result) if result.settings.data.retention_s is not None else []


def summarize_notes(
    result: Result, terminal: bool, *above: str | None, verbose: bool = False
) -> list[str]:
    """The few lines below a table: the outcome of limits, `above`, then the most important notes, one of each
    kind. The rest are only named, and `results show` prints them; `verbose`: print all of them here."""
    limits = [describe_limits(result)] if result.verdicts else []
    first = [line for line in (*limits, *above) if line]
    if verbose:
        return [*first, *list_notes(result, terminal)]
    of_kind: dict[Kind, list[Caveat]] = {}
    for caveat in find_caveats(result):
        of_kind.setdefault(caveat.kind, []).append(caveat)
    lines = {
        str(kind): _join_caveats(result, caveats, terminal) for kind, caveats in of_kind.items()
    }
    outages = list_outages(result)
    if (more := len(outages) - _MOST_OUTAGES) > 0:
        outages[_MOST_OUTAGES:] = [f"({more:,} more: see `results show`)"]
    grave = [str(kind) for kind in of_kind if kind.weight.is_grave]
    notes = {
        "disturbances": " ".join(outages),
        "retention": " ".join(_list_deletions(result)),
        **{kind: lines[kind] for kind in grave},
        "bottleneck": _join_bottlenecks(result),
        "history": " ".join(describe_history(result)),
        "indices": " ".join(describe_index_builds(result)),
        **lines,
    }
    filled = {kind: line for kind, line in notes.items() if line}
    shown, left_out = list(filled.values())[:MOST_NOTES], ", ".join(list(filled)[MOST_NOTES:])
    if left_out:
        shown.append(f"more: {left_out} (-v, or `results show`)")
    return [*first, *shown]


def _join_caveats(result: Result, caveats: Sequence[Caveat], terminal: bool) -> str:
    """All caveats of a kind in one line."""
    first = caveats[0]
    cvs = [caveat.cv for caveat in caveats if caveat.cv is not None]
    if len(cvs) > 1:
        queries = first.where is not None and first.where.query is not None
        of = len(spread_queries(result))
        counted = f"{len(cvs)} of {of} queries" if queries else join_words(_list_places(caveats))
        return f"{first.kind}: {counted}, CV up to {max(cvs):.0%} ({UNSTABLE_CV:.0%} is high)"
    if len(caveats) == 1:
        return f"{first.kind}: {describe_caveat(first, terminal)}"
    if any(caveat.where is None for caveat in caveats):
        return f"{first.kind}: {'; '.join(describe_caveat(caveat, terminal) for caveat in caveats)}"
    if len({caveat.text for caveat in caveats}) == 1:
        return f"{first.kind}: {join_words(_list_places(caveats))}: {first.text}"
    runs = first.where is not None and first.where.run is not None
    counted = f"{len(caveats)} runs" if runs else join_words(_list_places(caveats))
    return f"{first.kind}: {counted}, as in {describe_caveat(first, terminal)}"


def _list_places(caveats: Sequence[Caveat]) -> list[str]:
    """Where these caveats apply, without the runs."""
    places = [
        str(replace(caveat.where, run=None)) for caveat in caveats if caveat.where is not None
    ]
    return list(dict.fromkeys(places))


def _join_bottlenecks(result: Result) -> str:
    """What held the runs back at each place, with the evidence for the last one, which usually has the most
    workers."""
    bottlenecks = find_bottlenecks(result)
    if not bottlenecks:
        return ""
    if len(bottlenecks) == 1:
        return describe_bottlenecks(result)[0]
    limits: dict[str, list[str]] = {}
    for place, bottleneck in bottlenecks.items():
        limits.setdefault(str(bottleneck.limit), []).append(str(place))
    named = "; ".join(f"{limit} ({join_words(places)})" for limit, places in limits.items())
    last = list(bottlenecks)[-1]
    return f"bottleneck: {named}; {last}: {bottlenecks[last].evidence}"


def describe_caveats(result: Result, terminal: bool = False) -> list[tuple[str, str]]:
    """Kind and text of each caveat, most serious first. What several runs with the same workers share is said
    once, in the words of the first."""
    alike: dict[object, list[Caveat]] = {}
    for caveat in find_caveats(result):
        key = caveat.kind, replace(caveat.where, run=None) if caveat.where else None
        by_run = caveat.kind in _BY_RUN and caveat.where is not None and caveat.where.run
        alike.setdefault(key if by_run else id(caveat), []).append(caveat)
    notes = []
    for first, *other_caveats in alike.values():
        text = describe_caveat(first, terminal)
        if other_caveats and first.where is not None:
            place = replace(first.where, run=None)
            text = (
                f"{place}, {len(other_caveats) + 1} runs, as in run {first.where.run}: {first.text}"
            )
        notes.append((str(first.kind), text))
    return notes


_BY_RUN = (Kind.CLIENT_BOUND, Kind.SATURATED)
"""Kinds that are judged run by run, and usually found in all of them with similar figures."""


def list_outages(result: Result) -> list[str]:
    """A sentence for each disturbance of the database, with its run if there were several."""
    writers = result.writers
    by_run = {
        place: describe_outages(run) for place, run in enumerate(writers) if run.group.outages
    }
    if len(by_run) == 1:
        return next(iter(by_run.values()))
    return [
        f"{describe_run(result, writers[place])}: {text}"
        for place, texts in by_run.items()
        for text in texts
    ]


def describe_history(result: Result) -> list[str]:
    """What was loaded before, and how long that took, in one line at most."""
    data = result.settings.data
    if data.prefill_span_s is None or result.command == "query":
        return []
    every_s, span = data.prefill_every_s, format_duration(data.prefill_span_s)
    loads = [
        (run.prefilled, run.phases_s[Phase.PREFILL])
        for run in result.runs
        if run.prefilled and run.phases_s.get(Phase.PREFILL)
    ]
    if every_s is None:
        text = f"history: the recording's events of {span}"
    elif data.prefill_span_s > every_s:
        text = f"history: one event per device every {format_duration(every_s)} for {span}"
    else:
        text = "history"  # only tells runs what earlier ones stored
    if not loads:
        return [f"{text}, kept from an earlier run"]
    rates = ", ".join(
        f"{events:,} events in {took_s:,.3g} s ({events / took_s:,.0f}/s)"
        for events, took_s in loads[:_MOST_LOADS]
    )
    more = len(loads) - _MOST_LOADS
    return [
        f"{text}, loaded before the window: {rates}{f' and {more} times more' if more > 0 else ''}"
    ]


def list_interventions(result: Result) -> list[str]:
    """What was done to the database besides the load, and with what effect."""
    return [*list_outages(result), *describe_history(result), *describe_index_builds(result)]


def describe_index_builds(result: Result) -> list[str]:
    """How long it took to build indexes outside of the measured inserts, in one line at most."""
    times = [run.index_build_s for run in result.runs if run.index_build_s is not None]
    if not times:
        return []
    if result.command == "query":
        took = f"{times[0]:,.3g} s"
        return [
            f"indexes: built before the queries, in {took}; the tables were loaded without them"
        ]
    took = f"{min(times):,.3g} s"
    if len(times) > 1:
        took = f"{min(times):,.3g} to {max(times):,.3g} s ({len(times)} runs)"
    searched = result.command in ("mixed", "capacity") or bool(
        result.tuning and result.tuning.limits
    )
    measured = (
        "inserts were measured with them" if searched else "inserts were measured without them"
    )
    when = "after the prefill" if searched else "after loading"
    return [f"indexes: built {when}, outside of the measured window, in {took}; {measured}"]


def describe_bottlenecks(result: Result) -> list[str]:
    """What held back the slowest valid run of each worker count or level, with the evidence."""
    return [
        f"bottleneck: {place}: {bottleneck.limit}: {bottleneck.evidence}"
        for place, bottleneck in find_bottlenecks(result).items()
    ]


def describe_caveat(caveat: Caveat, terminal: bool = False) -> str:
    """Where it applies, the figure it invalidates, and what is wrong."""
    place = "" if caveat.where is None else f"{caveat.where}: "
    rate = "" if caveat.rate is None else f"{strike(format_rate(caveat.rate), terminal)} "
    return f"{place}{rate}{caveat.text}"


_MOST_NAMED = 3
_MOST_LOADS = 3


def describe_answers(result: Result) -> str | None:
    """How many answers were checked, and why others weren't; None if checking was off."""
    all_answers = result.answers
    if not all_answers:
        return None
    checked, unchecked = sum_up_answers(all_answers)
    parts = [checked] if checked else []
    reasons: dict[str, list[str]] = {}
    for answers in all_answers:
        for reason, queries in answers.reasons.items():
            reasons.setdefault(reason, []).extend(queries)
    if len(reasons) == 1 and not checked:
        why = next(iter(reasons))
    else:
        why = "; ".join(
            f"{list_names(dict.fromkeys(queries), _MOST_NAMED)} ({reason})"
            for reason, queries in reasons.items()
        )
    if unchecked:
        parts.append(f"{unchecked:,} not checked: {why}")
    return f"Answers: {'; '.join(parts) or 'none to check'}."


def sum_up_answers(all_answers: Sequence[Answers]) -> tuple[str, int]:
    """How many were checked, with the outcome (empty if none); and how many weren't."""
    checked = sum(answers.checked for answers in all_answers)
    wrong = sum(len(answer.workers) for answers in all_answers for answer in answers.wrong)
    outcome = f"{wrong:,} of them wrong" if wrong else "all right"
    unchecked = sum(answers.unchecked for answers in all_answers)
    return f"{checked:,} checked, {outcome}" if checked else "", unchecked


# --- limits ---------------------------------------------------------------------------------------


def describe_limits(result: Result) -> str | None:
    """The outcome of each limit over all runs, and other reasons why a run fails them; None without
    limits."""
    if not result.verdicts:
        return None
    by_name: dict[str, list[LimitVerdict]] = {}
    for verdict in result.verdicts:
        for limit_verdict in verdict.limits:
            by_name.setdefault(str(limit_verdict.limit), []).append(limit_verdict)
    parts = [_describe_limit(name, verdicts) for name, verdicts in by_name.items()]
    saturated = [
        verdict
        for verdict in result.verdicts
        if verdict.outcome is Outcome.MISSED
        and all(limit.outcome is Outcome.KEPT for limit in verdict.limits)
    ]
    if saturated:
        parts.append(f"{_count(len(saturated), len(result.verdicts))}: {saturated[0].reasons[0]}")
    outcome = sum_up([verdict.outcome for verdict in result.verdicts])
    return f"Limits {outcome}: {'; '.join(parts)}."


def _describe_limit(name: str, verdicts: Sequence[LimitVerdict]) -> str:
    outcome = sum_up([verdict.outcome for verdict in verdicts])
    decisive = [verdict for verdict in verdicts if verdict.outcome is outcome]
    figures = [verdict.figure for verdict in decisive if verdict.figure is not None]
    why = next((verdict.reason for verdict in decisive if verdict.reason), None)
    if figures and why is None:
        highest = decisive[0].limit.show(max(figures))
        why = highest if len(figures) == 1 else f"up to {highest}"
    often = "" if len(decisive) == len(verdicts) else f" {_count(len(decisive), len(verdicts))}"
    return f"{name} {outcome}{often}" + (f" ({why})" if why else "")


def _count(runs: int, of: int) -> str:
    return f"in {runs:,} of {format_count(of, 'run')}"


def tabulate_limits(result: Result) -> Table:
    """Each limit in each run."""
    rows = []
    for run, verdict in result.judged:
        place = [] if result.command == "query" else locate(GroupRun(run, run.groups[0]))
        reasons = "; ".join(verdict.reasons)
        for limit_verdict in verdict.limits:
            figure = (
                "-"
                if limit_verdict.figure is None
                else limit_verdict.limit.show(limit_verdict.figure)
            )
            why = limit_verdict.reason or (
                reasons if limit_verdict.outcome is Outcome.UNDECIDED else ""
            )
            rows.append(
                [*place, str(limit_verdict.limit), figure, limit_verdict.outcome, why or "-"]
            )
    places = [] if result.command == "query" else ["Workers", "Run", "Level"]
    return Table([*places, "Limit", "Measured", "Outcome", "Why"], rows, left=("Limit", "Why"))
