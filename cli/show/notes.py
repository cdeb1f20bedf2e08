"""What weakens a result, as lines of text."""

from __future__ import annotations

from simulator.contract import InsertRun

from ..results.bottleneck import find_bottleneck
from ..results.model import Result
from ..results.outage import describe_outages
from ..results.place import format_workers
from ..results.verdicts import Weakness, find_weaknesses
from .tables import format_rate, strike


def list_notes(result: Result, terminal: bool) -> list[str]:
    """What held the runs back, and one line for each weakness, the gravest first."""
    weaknesses = [
        f"{weakness.kind}: {describe_weakness(weakness, terminal)}"
        for weakness in find_weaknesses(result)
    ]
    told = [text for run in result.insert_runs for text in describe_outages(run)]
    return told + describe_bottlenecks(result) + weaknesses


def describe_bottlenecks(result: Result) -> list[str]:
    """What held back the slowest valid run of each worker count, or level, and how that shows."""
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
