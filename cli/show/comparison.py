"""Tables of several results beside each other."""

from __future__ import annotations

from collections.abc import Sequence

from simulator.conditions import Condition

from ..results.comparison import Compared, compare, find_missing
from ..results.conditions import WARNED, Conditions, compare_conditions
from ..results.model import Result
from ..results.naming import format_value
from ..results.reads import list_queries
from ..results.statistics import MOST_RUNS, count_events_per_cost
from ..results.verdicts import summarize_doubts
from .capacity import tabulate_capacities
from .tables import COST_HEADER, Table, format_bytes_per_event, weigh_event
from .words import name_database


def tabulate_overview(names: Sequence[str], results: Sequence[Result]) -> Table:
    """A line for each result: its best worker count, or its mean query times."""
    if results[0].command == "query":
        return _tabulate_queries(names, results)
    if results[0].command == "capacity":
        own = [_name_with_version(*pair) for pair in zip(names, results, strict=True)]
        return tabulate_capacities(own, results)
    costs = any(result.cost_per_hour for result in results)
    sizes = any(weigh_event(run) for result in results for run in result.insert_runs)
    rows = []
    for name, result in zip(names, results, strict=True):
        best = result.best
        settings = result.settings
        load = settings.load
        size = f", size {load.batch:,}" if load.batch else ""
        rows.append(
            [
                _name_with_version(name, result),
                "no valid run" if best is None else f"{best.avg:,.0f}",
                "-"
                if best is None or best.ci95 is None
                else "{:,.0f} to {:,.0f}".format(*best.ci95),
                "-" if best is None else best.workers,
                "-" if best is None else best.runs,
                f"{settings.insert_mode or '-'}{size}",
                load.primary_key if "primary_key" in load.model_fields_set else "-",
            ]
        )
        if sizes:
            rows[-1].append(_format_size(result))
        if costs:
            cost = result.cost_per_hour
            paid = f"{count_events_per_cost(best.avg, cost):,.0f}" if best and cost else "-"
            rows[-1].append(paid)
    headers = [
        "Database (version)", "Inserts/s", "95% interval", "Workers", "Runs", "Insert mode",
        "Primary-key mode", *(["B/event"] if sizes else []), *([COST_HEADER] if costs else []),
    ]  # fmt: skip
    left = ("Database (version)", "Insert mode", "Primary-key mode")
    return Table(headers, rows, left)


def _format_size(result: Result) -> str:
    """Mean bytes on disk per event, and after compaction if that was asked for."""
    runs = [run for run in result.insert_runs if run.valid]
    now = [size for run in runs if (size := weigh_event(run)) is not None]
    later = [
        size
        for run in runs
        if run.storage_compacted and (size := run.storage_compacted.bytes_per_event) is not None
    ]
    text = format_bytes_per_event(sum(now) / len(now)) if now else "-"
    return (
        f"{text} ({format_bytes_per_event(sum(later) / len(later))} compacted)" if later else text
    )


def _tabulate_queries(names: Sequence[str], results: Sequence[Result]) -> Table:
    asked = list(dict.fromkeys(query for result in results for query in _list_asked(result)))
    rows = []
    for name, result in zip(names, results, strict=True):
        means = {entry.query: f"{entry.avg:.3g}" for entry in result.query_summary}
        own = _list_asked(result)
        cells = [means.get(query, "failure" if query in own else "-") for query in asked]
        rows.append([_name_with_version(name, result), *cells])
    first = "Database / Query"
    return Table([first, *asked], rows, (first,))


def _list_asked(result: Result) -> list[str]:
    return [*(run.query for run in result.query_runs), *list_queries(result.reads)]


def _name_with_version(name: str, result: Result) -> str:
    version = name_database(result)
    return f"{name} ({version})" if version else name


def tabulate_ratios(names: Sequence[str], found: Sequence[Compared]) -> Table:
    """Each result's speed as a ratio to the first one's."""
    rows: list[list[object]] = []
    for one in found:
        place = str(one.place)
        form = _FORMS[_name_unit(one)]
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
                _format_runs_needed(one, needed),
            ]
        )
    figure = " or ".join(sorted({_name_unit(one) for one in found}))
    headers = [
        "At", "Result", figure, "Runs", "Speed ratio", "95% interval", "Verdict", "Runs for 5%",
    ]  # fmt: skip
    return Table(headers, rows, ("At", "Result", "Verdict"))


_FORMS = {"Inserts/s": "{:,.0f}", "Seconds": "{:,.4f}", "ms": "{:,.3f}"}


def _name_unit(one: Compared) -> str:
    if one.place.response is not None:
        return "ms"
    return "Seconds" if one.place.has_times else "Inserts/s"


def _format_runs_needed(one: Compared, needed: int | None) -> str:
    if needed is not None:
        return f"{needed:,}"
    return "-" if one.speed.ci95 is None else f"> {MOST_RUNS:,}"


def list_differences(names: Sequence[str], results: Sequence[Result]) -> list[str]:
    """One line for each kind of condition: a warning where figures can't be compared for it."""
    found = compare_conditions(results)
    notes = []
    for condition in dict.fromkeys(one.condition for one in found.differences):
        parts = [
            f"{one.name}: {' / '.join(_shorten(format_value(value)) for value in one.values)}"
            for one in found.differences
            if one.condition is condition
        ]
        word = "warning" if condition in WARNED else "note"
        notes.append(f"{word}: {condition} differs: {'; '.join(parts)}")
    if notes:
        notes.append(f"(in the order {' / '.join(names)}; -: not set or not known)")
    return notes + _list_apart(found, results)


def _list_apart(found: Conditions, results: Sequence[Result]) -> list[str]:
    """What can't be set against each other because the databases have nothing of one name."""
    if not found.apart:
        return []
    modules = list(dict.fromkeys(result.module for result in results))
    kinds = ", ".join(_KIND_WORDS.get(condition, condition) for condition in found.apart)
    note = (
        f"note: {' and '.join(modules)} have settings of their own for {kinds}, which can't be set"
        " against each other: compare what results show says of each"
    )
    return [note]


_KIND_WORDS = {Condition.KEY: "keys", Condition.BATCH: "batches"}


def _shorten(text: str, most: int = 60) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def describe_comparison(names: Sequence[str], results: Sequence[Result], markdown: bool) -> str:
    """All that `compare` prints."""
    command = results[0].command
    found = compare(results)
    unit = "Mean inserts per second of the best worker count."
    if command == "query":
        unit = "Mean duration in seconds."
    elif command == "capacity":
        unit = "The highest rate that holds, in events per second, and the lowest that doesn't."
    elif results[0].by_fill_level:
        unit = "Inserts per second of the best level."
    ratios = tabulate_ratios(names, found)
    parts = [f"{tabulate_overview(names, results).text(markdown)}\n{chr(10) * markdown}{unit}"]
    if found:
        parts.append(ratios.text(markdown))
    lines = list_remarks(names, results)
    if lines:
        parts.append("\n".join(f"- {line}" if markdown else line for line in lines))
    return "\n\n".join(parts)


def list_remarks(names: Sequence[str], results: Sequence[Result]) -> list[str]:
    """What keeps results from being compared, or from being compared fairly, one line each."""
    lines = [
        f"not compared at {place}: {names[position]} has no valid figure there"
        for place, position in find_missing(results)
    ]
    lines += [
        f"warning: {name}: {'; '.join(doubts)}"
        for name, result in zip(names, results, strict=True)
        if (doubts := summarize_doubts(result))
    ]
    return lines + list_differences(names, results)
