"""A result in plain words: what was measured, what the answer is, and what weakens it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..results.comparison import Compared, key_text
from ..results.model import InsertSummary, Result
from ..results.statistics import events_per_cost
from .tables import insert_notes, query_notes, workers_text


@dataclass(frozen=True)
class Weakness:
    """Something to know before the figures are used."""

    kind: str
    """client-bound, unstable, invalid, short, few runs, …"""
    text: str


def headline(result: Result) -> str:
    """The answer in a few words, for a list."""
    if result.command == "query":
        times = [entry.avg for entry in result.query_summary]
        if not times:
            return "no query answered"
        queries = "1 query" if len(times) == 1 else f"{len(times)} queries"
        level = "" if result.fill_level is None else f", level {result.fill_level:,}"
        return f"{queries}, {min(times):.3g} to {max(times):.3g} s{level}"
    if result.by_fill_level and result.insert_summary:
        first, last = result.insert_summary[0], result.insert_summary[-1]
        levels = f"level {first.fill_level:,} to {last.fill_level:,}"
        return f"{first.median:,.0f} to {last.median:,.0f} inserts/s, {levels}"
    if result.best is None:
        return "no valid run"
    return f"{result.best.median:,.0f} inserts/s with {workers_text(result.best.workers)}"


def stable(result: Result) -> str:
    """`yes`, `no`, or `-` if there is too little to say."""
    known = [entry.stable for entry in result.insert_summary if entry.stable is not None]
    if result.command == "query":
        notes = query_notes(result)
        enough = any(entry.runs > 1 for entry in result.query_summary)
        known = [not any(note.startswith("unstable") for note in notes)] if enough else []
    return "-" if not known else "yes" if all(known) else "no"


def valid(result: Result) -> str:
    """`yes`, or how many are not; with whether something is missing."""
    bad = sum(not run.valid for run in result.insert_runs)
    text = "yes" if result.valid else f"{bad} of {len(result.insert_runs)} not"
    if result.command == "query" and not result.valid:
        text = "no"
    if not result.runs:
        text = "no runs"
    return text if result.complete else f"{text}, incomplete"


def database(result: Result) -> str | None:
    """Name and version of the server, without how it was compiled."""
    found = result.environment.get("database")
    version = found.get("version") if isinstance(found, dict) else None
    parts = str(version or "").split("; ")
    return "; ".join(re.split(r" on |,| \(", part)[0] for part in parts) or None


def measured(result: Result) -> str:
    """What was done, to what, from where."""
    options = result.options
    server = database(result)
    where = f"{result.target} ({server})" if server else result.target
    day = result.started_at[:10]
    if result.source:
        return f"Figures for {where}, not measured by this tool: {result.source}."
    at = {"local": "from processes on one machine", "kubernetes": "from pods on Kubernetes"}
    place = at.get(result.executor, f"by executor {result.executor}")
    if result.command == "query":
        workers = options.get("workers", 1)
        level = "" if result.fill_level is None else f" with {result.fill_level:,} events in it"
        return (
            f"Queries to {where}{level} by {workers_text(workers)}"
            f"{' at once' if workers != 1 else ''}, each query"
            f" {_count(options.get('runs'), 'time', 'times')}, {place} on {day}."
        )
    counts = list(dict.fromkeys(run.workers for run in result.insert_runs))
    spelled = _and([str(count) for count in counts]) or "0"
    parts = [f"Inserts into {where} by {spelled} worker{'s' if counts != [1] else ''} at once"]
    if "num_inserts" in options:
        parts.append(f"{_number(options['num_inserts'])} events each")
    if "batch" in options:
        batch = options["batch"]
        mode = f" ({options['insert_mode']})" if options.get("insert_mode") else ""
        parts.append(
            f"{batch:,} in a request{mode}" if batch else f"each a request of its own{mode}"
        )
    if options.get("primary_key"):
        parts.append(f"primary key: {options['primary_key']}")
    if options.get("prefill"):
        parts.append(f"with {options['prefill']:,} events there before")
    if result.by_fill_level:
        parts.append(f"{_count(options.get('steps'), 'step', 'steps')} on growing data")
    elif "runs" in options:
        parts.append(f"{_count(options['runs'], 'run', 'runs')} of each worker count")
    return f"{', '.join(parts)}, {place} on {day}."


def answer(result: Result) -> str:
    """The figure that was asked for."""
    if result.command == "query":
        times = sorted(result.query_summary, key=lambda entry: entry.avg)
        if not times:
            return "No query was answered: there is no figure."
        said = [f"{entry.query} {entry.avg:,.3g} s" for entry in times]
        return f"On average a query took: {', '.join(said)}."
    if not result.insert_summary:
        return "No run is valid: there is no figure to use."
    assert result.best is not None
    if result.by_fill_level:
        first, last = result.insert_summary[0], result.insert_summary[-1]
        change = last.avg / first.avg - 1
        return (
            f"{first.avg:,.0f} inserts/s at level {first.fill_level:,}, {last.avg:,.0f} at level"
            f" {last.fill_level:,}: {change:+.0%}."
        )
    best = result.best
    return f"Most with {workers_text(best.workers)}: {_rate(best)}{_cost(result, best)}."


def weaknesses(result: Result) -> list[Weakness]:
    """What to know before the figures are used, the gravest first."""
    found = []
    if result.source:
        found.append(Weakness("not measured", f"by this tool: {result.source}"))
    if not result.complete:
        found.append(Weakness("incomplete", "the command ended before all its runs were done"))
    if result.command == "query":
        notes = query_notes(result)
    else:
        notes = insert_notes(
            result.insert_runs, result.insert_summary, result.by_fill_level, terminal=False
        )
        notes += _single_runs(result)
    return found + [Weakness(*note.split(": ", 1)) for note in notes]


def _single_runs(result: Result) -> list[str]:
    if result.by_fill_level:
        return ["few runs: each level is a single run, so its spread is not known"]
    single = [str(entry.workers) for entry in result.insert_summary if entry.runs == 1]
    if not single:
        return []
    word = "worker" if single == ["1"] else "workers"
    return [f"few runs: a single valid run with {_and(single)} {word} says nothing of its spread"]


def comparison(names: Sequence[str], found: Sequence[Compared]) -> list[str]:
    """What each comparison shows, a sentence each."""
    sentences = []
    for one in found:
        what, base = names[one.position], names[0]
        place = key_text(one.key)
        if one.speed.ci95 is None:
            text = (
                f"{what} reaches {one.speed.value:.2f} times the speed of {base}, from single runs"
            )
        else:
            low, high = one.speed.ci95
            interval = f"95 % interval {low:.2f} to {high:.2f}"
            if one.speed.differs:
                text = f"{what} is {one.speed.value:.2f} times as fast as {base} ({interval})"
            else:
                text = f"no difference shown between {what} and {base} ({interval})"
        sentences.append(f"{place}: {text}.")
    return sentences


def _rate(entry: InsertSummary) -> str:
    text = f"{entry.median:,.0f} inserts/s"
    if entry.runs == 1:
        return f"{text} in a single run"
    text += f" (median of {entry.runs} valid runs"
    if entry.ci95:
        low, high = entry.ci95
        text += f"; mean {entry.avg:,.0f}, 95 % interval {low:,.0f} to {high:,.0f}"
    return text + ")"


def _cost(result: Result, entry: InsertSummary) -> str:
    if not result.cost_per_hour:
        return ""
    events = events_per_cost(entry.avg, result.cost_per_hour)
    return (
        f"; at a cost of {result.cost_per_hour:g} an hour, one unit of money pays for"
        f" {events:,.0f} events"
    )


def _count(number: Any, one: str, many: str) -> str:
    return f"{_number(number)} {one if number == 1 else many}"


def _number(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else "an unknown number of"


def _and(words: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(words[:-1]), *words[-1:]]))
