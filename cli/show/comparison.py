"""Tables of several results side by side."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from simulator.conditions import Condition
from simulator.units import join_words

from ..results.aspects import compare_campaigns, find_absent
from ..results.columns import format_cost
from ..results.comparison import MetricComparison, compare, find_missing
from ..results.conditions import (
    OWNED,
    WARNED,
    Conditions,
    compare_conditions,
    find_declared,
    list_settings,
)
from ..results.entries import list_entries
from ..results.figures import FIGURES, Form
from ..results.model import Result
from ..results.naming import format_value, name_database
from ..results.sources import Sources
from ..results.statistics import MOST_RUNS, count_events_per_cost
from ..results.summaries import list_queries, weigh_valid
from ..results.verdicts import list_kinds, summarize_doubts
from ..system.output import wrap_lines
from .ratios import describe_index_costs, format_speed, format_speed_interval, lead_comparison
from .searches import tabulate_capacities
from .tables import (
    COST_HEADER,
    Table,
    choose_more,
    format_interval,
    format_ms,
    format_rate,
    list_more,
)


def tabulate_overview(names: Sequence[str], results: Sequence[Result]) -> Table:
    """A line for each result: its best worker count, or its mean query times."""
    own_names = [
        f"{name} ({version})" if (version := name_database(result)) else name
        for name, result in zip(names, results, strict=True)
    ]
    if results[0].command == "query":
        return _tabulate_queries(own_names, results)
    if results[0].command == "capacity":
        return tabulate_capacities(own_names, results)
    rows = []
    for name, result in zip(own_names, results, strict=True):
        best, load = result.best, result.settings.load
        # p50 and p99 are those of the best count's run with the highest p99, as in every table.
        slowest = best and result.choose_slowest(best)
        times = slowest.latency_ms if slowest else None
        size = f", size {load.batch:,}" if load.batch else ""
        cost = result.cost_per_hour
        paid = format_cost(count_events_per_cost(best.avg, cost)) if best and cost else "-"
        # Mean bytes on disk per event, and after compaction if that was asked for.
        sizes = weigh_valid(result.writers)
        now = [each.bytes_per_event for each in sizes if each.bytes_per_event is not None]
        later = [each.compacted_bytes for each in sizes if each.compacted_bytes is not None]
        text = Form.BYTES.show(sum(now) / len(now)) if now else "-"
        size_on_disk = (
            f"{text} ({Form.BYTES.show(sum(later) / len(later))} compacted)" if later else text
        )
        rows.append(
            [
                name,
                "no valid run" if best is None else format_rate(best.median),
                format_interval(best.ci95 if best else None, format_rate),
                format_ms(times.p50 if times else None),
                format_ms(times.p99 if times else None),
                best.workers if best else "-",
                best.runs if best else "-",
                f"{result.settings.insert_mode or '-'}{size}",
                load.primary_key if "primary_key" in load.model_fields_set else "-",
                size_on_disk,
                ", ".join(list_kinds(result)) or "-",
                paid,
            ]
        )
    headers = [
        "Database (version)", "Inserts/s", "95% interval", "p50 ms", "p99 ms", "Workers", "Runs",
        "Insert mode", "Primary-key mode", "B/event", "Caveats", COST_HEADER,
    ]  # fmt: skip
    # Sizes and caveats have a column only if a result has some, and costs if one has a price.
    optional = [
        name for n, name in enumerate(headers[9:11], 9) if any(row[n] != "-" for row in rows)
    ]
    optional += [COST_HEADER] if any(result.cost_per_hour for result in results) else []
    left = ("Database (version)", "Insert mode", "Primary-key mode", "Caveats")
    return Table(headers, rows, left).choose([*headers[:9], *optional])


def _tabulate_queries(names: Sequence[str], results: Sequence[Result]) -> Table:
    queries = list_queries([query for result in results for query in result.asked])
    rows = []
    for name, result in zip(names, results, strict=True):
        means = {entry.query: format_ms(1000 * entry.avg) for entry in result.query_summary}
        own = list_queries(result.asked)
        cells = [means.get(query, "failure" if query in own else "-") for query in queries]
        rows.append([name, *cells])
    first = "Database / Query"
    return Table([first, *queries], rows, (first,))


def tabulate_asking(names: Sequence[str], results: Sequence[Result]) -> Table:
    """Cost and yield of queries, as means over the valid runs; no rows where only rates are known."""
    entries = [list_entries(result.readers) for result in results]
    together = [entry for own in entries for entry in own]
    more = choose_more(together)
    figures = [FIGURES["queries_per_s"], *more] if more else []
    bound = FIGURES["bottleneck"]
    is_known = any(bound.read(entry) for entry in together)
    rows = []
    for name, result, own in zip(names, results, entries, strict=True):
        if own and figures:
            version = name_database(result)
            rows.append([f"{name} ({version})" if version else name, *list_more(own, figures)])
            if is_known:
                limits = dict.fromkeys(bound.show(entry) for entry in own if entry.group.valid)
                rows[-1].append(", ".join(limits))
    first, last = "Readers of", [bound.heading] if is_known else []
    headers = [first, *(figure.heading for figure in figures), *last]
    return Table(headers, rows, (first, *last))


def tabulate_ratios(names: Sequence[str], comparisons: Sequence[MetricComparison]) -> Table:
    """How much faster or slower each result is than the first."""
    rows: list[list[object]] = []
    units = set()
    for comparison in comparisons:
        place, interval = comparison.place, comparison.speed.interval
        scale = 1000.0 if place.query is not None else 1.0
        form = format_ms if place.has_times else format_rate
        units.add("ms" if place.has_times else "Inserts/s")
        if not rows or rows[-1][0] != str(place):
            base = form(scale * comparison.base_figure)
            rows.append([str(place), names[0], base, comparison.base_runs, *"----"])
        needed = comparison.runs_for_five_percent
        few = f"> {MOST_RUNS:,}" if needed is None else f"{needed:,}"
        told = not (comparison.rate_given or comparison.speed.is_void)
        rows.append(
            [
                str(place),
                names[comparison.position],
                form(scale * comparison.figure),
                comparison.runs,
                format_speed(comparison.speed.value) if told else "-",
                format_speed_interval(*interval) if interval and told else "-",
                comparison.verdict,
                few if told and (interval or needed is not None) else "-",
            ]
        )
    headers = [
        "At", "Result", " or ".join(sorted(units)), "Runs", "Speed", "95% interval", "Verdict", "Runs for 5%",
    ]  # fmt: skip
    return Table(headers, rows, ("At", "Result", "Verdict"))


def list_differences(names: Sequence[str], results: Sequence[Result]) -> list[str]:
    """One line for each kind of condition: a warning where it makes figures incomparable."""
    conditions = compare_conditions(results)
    several = len({result.module for result in results}) > 1
    notes, folded = [], 0
    for condition in dict.fromkeys(difference.condition for difference in conditions.differences):
        of_condition = [
            difference for difference in conditions.differences if difference.condition is condition
        ]
        if several and condition is Condition.DATABASE:
            folded += len(of_condition)
            continue
        parts = [
            f"{difference.name}: {' / '.join(_shorten(format_value(value)) for value in difference.values)}"
            for difference in of_condition
        ]
        word = "warning" if condition in WARNED else "note"
        notes.append(f"{word}: {condition} differs: {'; '.join(parts)}")
    if notes:
        notes.append(f"(in the order {' / '.join(names)}; -: not set or not known)")
    return notes + _list_apart(conditions, names, results, folded)


def _list_apart(
    conditions: Conditions, names: Sequence[str], results: Sequence[Result], folded: int
) -> list[str]:
    """Notes on conditions for which the databases have no settings of the same name. For durability and
    replication they quote each result; for others they only name the kind."""
    notes = []
    stated_each = (Condition.DURABILITY, Condition.REPLICATION)
    for condition in stated_each:
        if condition in conditions.apart:
            texts = []
            for name, result in zip(names, results, strict=True):
                settings = list_settings(result, find_declared(result)).items()
                values = {
                    setting.name: _shorten(format_value(stated.value), 30)
                    for setting, stated in settings
                    if stated.condition is condition and setting.origin in OWNED
                }
                own = ", ".join(f"{key}={value}" for key, value in values.items())
                texts.append(f"{name}: {own or 'not stated'}")
            notes.append(f"note: {condition}, each in its own terms: {'; '.join(texts)}")
    others = [condition for condition in conditions.apart if condition not in stated_each]
    if others or folded:
        kinds = [_KIND_WORDS.get(condition, str(condition)) for condition in others]
        kinds += ["internals"] if folded else []
        notes.append(
            "note: each database has its own settings for"
            f" {', '.join(kinds)}: results show lists them"
        )
    return notes


_KIND_WORDS = {Condition.SCHEMA: "schemas", Condition.BATCH: "batches"}


def _shorten(text: str, most: int = 60) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def describe_comparison(
    names: Sequence[str], results: Sequence[Result], markdown: bool, width: int | None = None
) -> str:
    """Everything that `compare` prints. `width`: columns of the terminal; None: no limit."""
    command = results[0].command
    comparisons = compare(results)
    unit = (
        "Median inserts per second at the best worker count, the interval of the mean, and the run with the"
        " highest p99."
    )
    if command == "query":
        unit = "Mean time in ms."
    elif command == "capacity":
        unit = "The highest rate that holds, in events per second, and the lowest that doesn't."
    elif results[0].by_fill_level:
        unit = "Inserts per second of the best level, and its latencies."
    ratios = tabulate_ratios(names, comparisons)
    overview = tabulate_overview(names, results).text(markdown, width)
    parts = [f"{overview}\n{chr(10) * markdown}{wrap_lines(unit, width)}"]
    if (asking := tabulate_asking(names, results)).rows:
        parts.append(asking.text(markdown, width))
    if comparisons:
        answer = lead_comparison(names, comparisons)
        parts.insert(0, _list_lines(answer, markdown, width))
        parts.append(ratios.text(markdown, width))
    lines = list_remarks(names, results)
    if lines:
        parts.append(_list_lines(lines, markdown, width))
    return "\n\n".join(parts)


def describe_changes(
    names: Sequence[str], sides: Sequence[Sources], markdown: bool, width: int | None = None
) -> str:
    """Everything that `compare` prints for two campaigns with these names."""
    changes = compare_campaigns(*sides)
    rows: list[list[object]] = [
        [
            change.candidate,
            change.step,
            change.own.aspect.heading,
            *(shown.aspect.show(shown.value) for shown in (change.base, change.own)),
            "-" if change.speed is None else f"{change.speed.value:.2f}",
            "{:.2f} to {:.2f}".format(*change.speed.interval)
            if change.speed and change.speed.interval
            else "-",
            change.verdict,
        ]
        for change in changes
    ]
    headers = ["Candidate", "Step", "Figure", *names, "Times as good", "95% interval", "Verdict"]
    table = Table(headers, rows, ("Candidate", "Step", "Figure", "Verdict"))
    counts = Counter(change.verdict for change in changes)
    lines = [", ".join(f"{count} {verdict}" for verdict, count in counts.most_common())]
    if absent := find_absent(*sides):
        lines.append(f"only in one of the campaigns: {join_words(absent)}")
    first = changes[0].candidate
    same = [
        next(source.result for source in side.done if source.candidate == first) for side in sides
    ]
    lines += list_differences(names, same)
    return f"{table.text(markdown, width)}\n\n{_list_lines(lines, markdown, width)}"


def _list_lines(lines: Sequence[str], markdown: bool, width: int | None) -> str:
    return wrap_lines("\n".join(f"- {line}" if markdown else line for line in lines), width)


def list_remarks(names: Sequence[str], results: Sequence[Result]) -> list[str]:
    """What makes results incomparable, or a comparison unfair, one line each."""
    lines = [
        f"not compared at {place}: {names[position]} has no valid figure there"
        for place, position in find_missing(results)
    ]
    lines += [
        f"warning: {name}: {'; '.join(doubts)}"
        for name, result in zip(names, results, strict=True)
        if (doubts := summarize_doubts(result))
    ]
    lines += [
        f"own statements: {name}: {join_words(own)} sent as the workload's own"
        for name, result in zip(names, results, strict=True)
        if (own := result.own_statements)
    ]
    lines += describe_index_costs(
        {name: [result] for name, result in zip(names, results, strict=True)}
    )
    return lines + list_differences(names, results)
