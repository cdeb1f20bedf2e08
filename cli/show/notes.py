"""What weakens a result, as lines of text."""

from __future__ import annotations

from dataclasses import replace

from simulator.contract import InsertRun

from ..results.bottleneck import find_bottleneck
from ..results.model import Result
from ..results.outage import describe_outages
from ..results.place import format_workers
from ..results.verdicts import find_weaknesses
from ..results.weakness import Kind, Weakness
from .figure import describe_run
from .tables import format_rate, strike


def list_notes(result: Result, terminal: bool) -> list[str]:
    """What held the runs back, and one line for each weakness, the gravest first."""
    weaknesses = [f"{kind}: {text}" for kind, text in describe_weaknesses(result, terminal)]
    return tell_outages(result) + describe_bottlenecks(result) + weaknesses


def describe_weaknesses(result: Result, terminal: bool = False) -> list[tuple[str, str]]:
    """Kind and text of each weakness, the gravest first. What is said of several runs with the same workers
    is said once, in the words of the first of them."""
    alike: dict[object, list[Weakness]] = {}
    for weakness in find_weaknesses(result):
        key = weakness.kind, replace(weakness.where, run=None) if weakness.where else None
        by_run = weakness.kind in _BY_RUN and weakness.where is not None and weakness.where.run
        alike.setdefault(key if by_run else id(weakness), []).append(weakness)
    told = []
    for first, *others in alike.values():
        text = describe_weakness(first, terminal)
        if others and first.where is not None:
            place = replace(first.where, run=None)
            text = f"{place}, {len(others) + 1} runs, as in run {first.where.run}: {first.text}"
        told.append((str(first.kind), text))
    return told


_BY_RUN = (Kind.CLIENT_BOUND, Kind.SATURATED)
"""What is found in each run by itself, mostly in all of them, by figures that differ little."""


def tell_outages(result: Result) -> list[str]:
    """A sentence for each thing that was done to the database; which run it was, if it was in several."""
    told = {place: describe_outages(run) for place, run in enumerate(result.insert_runs)}
    told = {place: texts for place, texts in told.items() if texts}
    if len(told) == 1:
        return next(iter(told.values()))
    return [
        f"{describe_run(result, result.insert_runs[place])}: {text}"
        for place, texts in told.items()
        for text in texts
    ]


def describe_bottlenecks(result: Result) -> list[str]:
    """What held back the slowest valid run of each worker count, or level, and how that shows."""
    if result.command in ("capacity", "tune", "clients"):
        return []  # its answer says what is above it
    slowest: dict[str, InsertRun] = {}
    for run in result.insert_runs:
        if run.valid and run.inserts_per_s:
            place = (
                f"level {run.fill_level:,}" if result.by_fill_level else format_workers(run.workers)
            )
            known = slowest.get(place)
            if known is None or run.inserts_per_s < (known.inserts_per_s or 0):
                slowest[place] = run
    return [
        f"bottleneck: {place}: {found.limit}: {found.evidence}"
        for place, run in slowest.items()
        if (found := find_bottleneck(run)) is not None and run.resources is not None
    ]


def describe_weakness(weakness: Weakness, terminal: bool = False) -> str:
    """Where it is, the figure that doesn't count, and what is wrong."""
    place = "" if weakness.where is None else f"{weakness.where}: "
    rate = "" if weakness.rate is None else f"{strike(format_rate(weakness.rate), terminal)} "
    return f"{place}{rate}{weakness.text}"
