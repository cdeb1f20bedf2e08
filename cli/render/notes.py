"""What is to be known of a result, as lines of text: caveats, and what was found of the answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from simulator.contract import Phase
from simulator.units import format_duration, join_words

from ..results.bottleneck import find_bottlenecks
from ..results.caveats import Caveat, Kind
from ..results.faults import describe_outages
from ..results.model import Result
from ..results.retention import describe_deletions
from ..results.rules import spread_queries
from ..results.statistics import UNSTABLE_CV
from ..results.verdicts import find_caveats
from .chart import describe_run
from .limits import describe_limits
from .tables import format_rate, strike

MOST_LINES = 5
"""Below a table."""
_MOST_OUTAGES = 3
"""Sentences in a line."""


def list_notes(result: Result, terminal: bool) -> list[str]:
    """What held the runs back, and one line for each caveat, the gravest first."""
    caveats = [f"{kind}: {text}" for kind, text in describe_caveats(result, terminal)]
    told = list_outages(result) + _list_deletions(result) + describe_history(result)
    return told + describe_index_builds(result) + describe_bottlenecks(result) + caveats


def _list_deletions(result: Result) -> list[str]:
    return describe_deletions(result) if result.settings.data.retention_s is not None else []


def summarize_notes(result: Result, terminal: bool, *above: str | None) -> list[str]:
    """The lines below a table, of which there are few: what became of limits, `above`, then the most
    important notes, one of each kind. What has no room is named, and stands in `results show`."""
    of_kind: dict[Kind, list[Caveat]] = {}
    for caveat in find_caveats(result):
        of_kind.setdefault(caveat.kind, []).append(caveat)
    lines = {str(kind): _join_caveats(result, found, terminal) for kind, found in of_kind.items()}
    grave = [str(kind) for kind in of_kind if kind in _GRAVE]
    found = {
        "disturbances": _join_outages(list_outages(result)),
        "retention": " ".join(_list_deletions(result)),
        **{kind: lines[kind] for kind in grave},
        "bottleneck": _join_bottlenecks(result),
        "history": " ".join(describe_history(result)),
        "indices": " ".join(describe_index_builds(result)),
        **lines,
    }
    told = {kind: line for kind, line in found.items() if line}
    limits = [describe_limits(result)] if result.verdicts else []
    first = [line for line in (*limits, *above) if line]
    room = MOST_LINES - len(first)
    if len(told) <= room:
        return [*first, *told.values()]
    kinds = list(told)
    left_out = ", ".join(kinds[room - 1 :])
    shown = [told[kind] for kind in kinds[: room - 1]]
    return [*first, *shown, f"more: {left_out} (see `results show`)"]


_GRAVE = (
    Kind.NOT_MEASURED, Kind.INCOMPLETE, Kind.DISTURBANCE, Kind.INVALID, Kind.CLIENT_BOUND,
    Kind.SATURATED, Kind.NOT_AS_ASKED,
)  # fmt: skip
"""What comes before the bottleneck."""


def _join_caveats(result: Result, found: Sequence[Caveat], terminal: bool) -> str:
    """All caveats of a kind in a line."""
    first = found[0]
    cvs = [caveat.cv for caveat in found if caveat.cv is not None]
    if len(cvs) > 1:
        queries = first.where is not None and first.where.query is not None
        of = len(spread_queries(result))
        counted = f"{len(cvs)} of {of} queries" if queries else join_words(_list_places(found))
        return f"{first.kind}: {counted}, CV up to {max(cvs):.0%} ({UNSTABLE_CV:.0%} is much)"
    if len(found) == 1:
        return f"{first.kind}: {describe_caveat(first, terminal)}"
    if any(caveat.where is None for caveat in found):
        return f"{first.kind}: {'; '.join(describe_caveat(one, terminal) for one in found)}"
    if len({caveat.text for caveat in found}) == 1:
        return f"{first.kind}: {join_words(_list_places(found))}: {first.text}"
    runs = first.where is not None and first.where.run is not None
    counted = f"{len(found)} runs" if runs else join_words(_list_places(found))
    return f"{first.kind}: {counted}, as in {describe_caveat(first, terminal)}"


def _list_places(found: Sequence[Caveat]) -> list[str]:
    """Without the runs."""
    places = [str(replace(one.where, run=None)) for one in found if one.where is not None]
    return list(dict.fromkeys(places))


def _join_outages(told: Sequence[str]) -> str:
    """The first sentences, and how many more there are."""
    left_out = len(told) - _MOST_OUTAGES
    more = [f"({left_out:,} more: see `results show`)"] if left_out > 0 else []
    return " ".join([*told[:_MOST_OUTAGES], *more])


def _join_bottlenecks(result: Result) -> str:
    """What held the runs back at each place; of the last, mostly that of the most workers, how that shows."""
    found = find_bottlenecks(result)
    if not found:
        return ""
    if len(found) == 1:
        return describe_bottlenecks(result)[0]
    limits: dict[str, list[str]] = {}
    for place, one in found.items():
        limits.setdefault(str(one.limit), []).append(str(place))
    named = "; ".join(f"{limit} ({join_words(places)})" for limit, places in limits.items())
    last = list(found)[-1]
    return f"bottleneck: {named}; {last}: {found[last].evidence}"


def describe_caveats(result: Result, terminal: bool = False) -> list[tuple[str, str]]:
    """Kind and text of each caveat, the gravest first. What is said of several runs with the same workers
    is said once, in the words of the first of them."""
    alike: dict[object, list[Caveat]] = {}
    for caveat in find_caveats(result):
        key = caveat.kind, replace(caveat.where, run=None) if caveat.where else None
        by_run = caveat.kind in _BY_RUN and caveat.where is not None and caveat.where.run
        alike.setdefault(key if by_run else id(caveat), []).append(caveat)
    told = []
    for first, *others in alike.values():
        text = describe_caveat(first, terminal)
        if others and first.where is not None:
            place = replace(first.where, run=None)
            text = f"{place}, {len(others) + 1} runs, as in run {first.where.run}: {first.text}"
        told.append((str(first.kind), text))
    return told


_BY_RUN = (Kind.CLIENT_BOUND, Kind.SATURATED)
"""What is found in each run by itself, mostly in all of them, by figures that differ little."""


def list_outages(result: Result) -> list[str]:
    """A sentence for each thing that was done to the database; which run it was, if it was in several."""
    writers = result.writers
    told = {place: describe_outages(one) for place, one in enumerate(writers) if one.group.outages}
    if len(told) == 1:
        return next(iter(told.values()))
    return [
        f"{describe_run(result, writers[place])}: {text}"
        for place, texts in told.items()
        for text in texts
    ]


def describe_history(result: Result) -> list[str]:
    """What was stored before, and how long that took, in one line at most."""
    data = result.settings.data
    if data.prefill_span_s is None or data.prefill_every_s is None or result.command == "query":
        return []
    every, span = map(format_duration, (data.prefill_every_s, data.prefill_span_s))
    loads = [
        (run.prefilled, run.phases_s[Phase.PREFILL])
        for run in result.runs
        if run.prefilled and run.phases_s.get(Phase.PREFILL)
    ]
    text = f"history: an event of each device every {every} for {span}"
    if not loads:
        return [f"{text}, kept as it was there"]
    rates = ", ".join(
        f"{events:,} events in {took_s:,.3g} s ({events / took_s:,.0f}/s)"
        for events, took_s in loads[:_MOST_LOADS]
    )
    more = len(loads) - _MOST_LOADS
    return [
        f"{text}, loaded before the window: {rates}{f' and {more} times more' if more > 0 else ''}"
    ]


def list_interventions(result: Result) -> list[str]:
    """What was done to the database beside the load, and what came of it."""
    return [*list_outages(result), *describe_history(result), *describe_index_builds(result)]


def describe_index_builds(result: Result) -> list[str]:
    """How long it took to build indexes that no measured insert was to wait for, in one line at most."""
    times = [run.index_build_s for run in result.runs if run.index_build_s is not None]
    if not times:
        return []
    if result.command == "query":
        took = f"{times[0]:,.3g} s"
        return [f"indexes: the tables were loaded without; built before the queries, in {took}"]
    took = f"{min(times):,.3g} s"
    if len(times) > 1:
        took = f"{min(times):,.3g} to {max(times):,.3g} s ({len(times)} runs)"
    searched = result.command in ("mixed", "capacity") or bool(
        result.tuning and result.tuning.limits
    )
    measured = "inserts were measured with them" if searched else "inserts were measured without"
    when = "after the prefill" if searched else "after loading"
    return [f"indexes: built {when}, outside of the measured window, in {took}; {measured}"]


def describe_bottlenecks(result: Result) -> list[str]:
    """What held back the slowest valid run of each worker count, or level, and how that shows."""
    return [
        f"bottleneck: {place}: {found.limit}: {found.evidence}"
        for place, found in find_bottlenecks(result).items()
    ]


def describe_caveat(caveat: Caveat, terminal: bool = False) -> str:
    """Where it is, the figure that doesn't count, and what is wrong."""
    place = "" if caveat.where is None else f"{caveat.where}: "
    rate = "" if caveat.rate is None else f"{strike(format_rate(caveat.rate), terminal)} "
    return f"{place}{rate}{caveat.text}"


_MOST_NAMED = 3
_MOST_LOADS = 3


def describe_answers(result: Result) -> str | None:
    """How many answers were checked, and why others weren't; None if none were to be."""
    found = result.answers
    if not found:
        return None
    checked, unchecked = sum(a.checked for a in found), sum(a.unchecked for a in found)
    wrong = sum(len(one.workers) for answers in found for one in answers.wrong)
    if not checked and not unchecked:
        return "Answers: there were none to check."
    said = []
    if checked:
        said.append(f"{checked:,} checked, {f'{wrong:,} of them wrong' if wrong else 'all right'}")
    if unchecked:
        said.append(f"{unchecked:,} not checked: {_list_reasons(result)}")
    return f"Answers: {'; '.join(said)}."


def _list_reasons(result: Result) -> str:
    reasons: dict[str, list[str]] = {}
    for answers in result.answers:
        for reason, queries in answers.reasons.items():
            known = reasons.setdefault(reason, [])
            known += [query for query in queries if query not in known]
    if len(reasons) == 1 and not any(answers.checked for answers in result.answers):
        return next(iter(reasons))
    return "; ".join(f"{_name(queries)} ({reason})" for reason, queries in reasons.items())


def _name(queries: list[str]) -> str:
    more = len(queries) - _MOST_NAMED
    return ", ".join(queries[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
