"""Tables of several results beside each other."""

from __future__ import annotations

from collections.abc import Sequence

from ..results.comparison import (
    WARNED,
    Compared,
    Difference,
    compared,
    differences,
    key_text,
    missing,
    value_text,
)
from ..results.model import Result
from ..results.statistics import MOST_RUNS, events_per_cost
from .tables import COST_HEADER, Table
from .words import database


def overview(names: Sequence[str], results: Sequence[Result]) -> Table:
    """A line for each result: its best worker count, or its mean query times."""
    if results[0].command == "query":
        return _queries(names, results)
    costs = any(result.cost_per_hour for result in results)
    rows = []
    for name, result in zip(names, results, strict=True):
        best = result.best
        batch = result.options.get("batch")
        size = f", size {batch}" if batch else ""
        rows.append(
            [
                _with_version(name, result),
                "no valid run" if best is None else f"{best.avg:.0f}",
                "-" if best is None or best.ci95 is None else "{:.0f} to {:.0f}".format(*best.ci95),
                "-" if best is None else best.workers,
                "-" if best is None else best.runs,
                f"{result.options.get('insert_mode') or '-'}{size}",
                result.options.get("primary_key") or "-",
            ]
        )
        if costs:
            cost = result.cost_per_hour
            paid = f"{events_per_cost(best.avg, cost):.3g}" if best and cost else "-"
            rows[-1].append(paid)
    headers = [
        "Database (version)", "Inserts/s", "95% interval", "Workers", "Runs", "Insert mode",
        "Primary-key mode", *([COST_HEADER] if costs else []),
    ]  # fmt: skip
    left = ("Database (version)", "Insert mode", "Primary-key mode")
    return Table(headers, rows, left)


def _queries(names: Sequence[str], results: Sequence[Result]) -> Table:
    asked = list(dict.fromkeys(run.query for result in results for run in result.query_runs))
    rows = []
    for name, result in zip(names, results, strict=True):
        means = {entry.query: f"{entry.avg:.3g}" for entry in result.query_summary}
        own = {run.query for run in result.query_runs}
        cells = [means.get(query, "failure" if query in own else "-") for query in asked]
        rows.append([_with_version(name, result), *cells])
    first = "Database / Query"
    return Table([first, *asked], rows, (first,))


def _with_version(name: str, result: Result) -> str:
    version = database(result)
    return f"{name} ({version})" if version else name


def ratio_table(names: Sequence[str], command: str, found: Sequence[Compared]) -> Table:
    """Each result's speed as a ratio to the first one's."""
    form = "{:.0f}" if command == "insert" else "{:.4f}"
    rows: list[list[object]] = []
    for one in found:
        place = key_text(one.key)
        if not rows or rows[-1][0] != place:
            rows.append([place, names[0], form.format(one.base_figure), one.base_runs, *"1---"])
        interval = one.speed.ci95
        needed = one.runs_for_five_percent
        rows.append(
            [
                place,
                names[one.position],
                form.format(one.figure),
                one.runs,
                f"{one.speed.value:.3f}",
                "-" if interval is None else "{:.3f} to {:.3f}".format(*interval),
                one.verdict,
                _runs_text(one, needed),
            ]
        )
    figure = "Inserts/s" if command == "insert" else "Seconds"
    headers = [
        "At", "Result", figure, "Runs", "Speed ratio", "95% interval", "Verdict", "Runs for 5%",
    ]  # fmt: skip
    return Table(headers, rows, ("At", "Result", "Verdict"))


def _runs_text(one: Compared, needed: int | None) -> str:
    if needed is not None:
        return str(needed)
    return "-" if one.speed.ci95 is None else f"> {MOST_RUNS}"


def difference_notes(names: Sequence[str], found: Sequence[Difference]) -> list[str]:
    """One line for each kind of condition: a warning where figures can't be compared for it."""
    categories = dict.fromkeys(one.category for one in found)
    notes = []
    for category in categories:
        parts = [
            f"{one.name}: {' / '.join(_shortened(value_text(value)) for value in one.values)}"
            for one in found
            if one.category == category
        ]
        word = "warning" if category in WARNED else "note"
        verb = "differ" if category == "keys" else "differs"
        notes.append(f"{word}: {category} {verb}: {'; '.join(parts)}")
    if notes:
        notes.append(f"(in the order {' / '.join(names)}; -: not set or not known)")
    return notes


def _shortened(text: str, most: int = 60) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def comparison_text(names: Sequence[str], results: Sequence[Result], markdown: bool) -> str:
    """All that `compare` prints."""
    command = results[0].command
    found = compared(results)
    unit = "Mean inserts per second of the best worker count."
    if command == "query":
        unit = "Mean duration in seconds."
    elif results[0].by_fill_level:
        unit = "Inserts per second of the best level."
    ratios = ratio_table(names, command, found)
    parts = [f"{overview(names, results).text(markdown)}\n{chr(10) * markdown}{unit}"]
    if found:
        parts.append(ratios.text(markdown))
    lines = remarks(names, results)
    if lines:
        parts.append("\n".join(f"- {line}" if markdown else line for line in lines))
    return "\n\n".join(parts)


def _invalid(result: Result) -> list[str]:
    bad = sum(not run.valid for run in result.insert_runs)
    reasons = [f"{bad} of {len(result.insert_runs)} runs are invalid and left out"] if bad else []
    return reasons + list(result.invalid_reasons)


def remarks(names: Sequence[str], results: Sequence[Result]) -> list[str]:
    """What keeps results from being compared, or from being compared fairly, one line each."""
    lines = [
        f"not compared at {key_text(key)}: {names[position]} has no valid figure there"
        for key, position in missing(results)
    ]
    lines += [
        f"warning: {name}: {'; '.join(reasons)}"
        for name, result in zip(names, results, strict=True)
        if (reasons := _invalid(result))
    ]
    return lines + difference_notes(names, differences(results))
