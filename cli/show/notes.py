"""What weakens a result, as lines of text."""

from __future__ import annotations

from simulator.contract import InsertRun

from ..results.bottleneck import find_bottleneck
from ..results.model import Result
from ..results.outage import describe_outages
from ..results.place import format_workers
from ..results.verdicts import find_weaknesses
from ..results.weakness import Weakness
from .figure import describe_run
from .tables import format_rate, strike


def list_notes(result: Result, terminal: bool) -> list[str]:
    """What held the runs back, and one line for each weakness, the gravest first."""
    weaknesses = [
        f"{weakness.kind}: {describe_weakness(weakness, terminal)}"
        for weakness in find_weaknesses(result)
    ]
    return tell_outages(result) + describe_bottlenecks(result) + weaknesses


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
