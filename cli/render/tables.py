"""Tables of results. They compute nothing but what a column's text needs."""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from math import floor, log10

from tabulate import tabulate

from simulator.contract import GroupResult, LatencyMs, Load, RunResult

from ..output import STRIKE, STRIKE_END, wrap_lines
from ..results.growth import EventSize, list_event_sizes
from ..results.model import GroupRun, InsertSummary, QuerySummary, Result
from ..results.rules import limit_of_clients_part
from ..results.statistics import count_events_per_cost


@dataclass(frozen=True)
class Table:
    """What a terminal, a Markdown file or a page shows."""

    headers: Sequence[str]
    rows: Sequence[Sequence[object]]
    left: Container[str] = ("Query",)
    """Columns that are aligned to the left; all others are to the right."""

    def text(self, markdown: bool = False, width: int | None = None) -> str:
        """For a terminal or a README. What is wider than `width`, in characters, goes on in further tables
        that begin with the same first column."""
        if not self.rows:
            return "no runs"
        if width is not None and not markdown:
            return "\n\n".join(part._wrap(width).text() for part in self._fold(width))
        align = ["left" if header in self.left else "right" for header in self.headers]
        rows = self.rows
        if markdown:
            rows = [[str(cell).replace("|", "\\|") for cell in row] for row in rows]
        form = "github" if markdown else "plain"
        return str(
            tabulate(rows, self.headers, tablefmt=form, colalign=align, disable_numparse=True)
        )

    def _fold(self, width: int) -> list[Table]:
        """Tables of as many columns as fit; of two at least, since the first names the row."""
        cells = list(zip(self.headers, *self.rows, strict=True))
        widths = self._measure()
        parts: list[list[int]] = [[0]]
        for place in range(1, len(widths)):
            used = sum(widths[one] + _BETWEEN for one in parts[-1])
            if len(parts[-1]) > 1 and used + widths[place] > width:
                parts.append([0])
            parts[-1].append(place)
        return [
            Table(
                [cells[place][0] for place in part],
                [[row[place] for place in part] for row in self.rows],
                self.left,
            )
            for part in parts
        ]

    def _measure(self) -> list[int]:
        """How wide each column is."""
        cells = zip(self.headers, *self.rows, strict=True)
        columns = [Table([name], [[cell] for cell in own], self.left) for name, *own in cells]
        # Escape sequences take no room.
        return [max(map(len, _ESCAPES.sub("", one.text()).split("\n"))) for one in columns]

    def _wrap(self, width: int) -> Table:
        """With texts in the widest column on several lines, if the table is too wide all the same."""
        widths = self._measure()
        widest = max(range(len(widths)), key=widths.__getitem__)
        room = max(
            _LEAST_TEXT, widths[widest] - (sum(widths) + _BETWEEN * (len(widths) - 1) - width)
        )
        if self.headers[widest] not in self.left or room >= widths[widest]:
            return self
        rows = [
            [
                wrap_lines(str(cell), room) if place == widest else cell
                for place, cell in enumerate(row)
            ]
            for row in self.rows
        ]
        return Table(self.headers, rows, self.left)


_LEAST_TEXT = 20
"""Characters of a text in a line."""
_BETWEEN = 2
"""Spaces between two columns."""
_ESCAPES = re.compile(r"\x1b\[\d+m")


def strike(text: str, terminal: bool) -> str:
    """Struck through: by the terminal, or in a pipe by ~~ as in Markdown."""
    return f"{STRIKE}{text}{STRIKE_END}" if terminal else f"~~{text}~~"


def tabulate_inserts(
    runs: Sequence[GroupRun],
    summary: Sequence[InsertSummary],
    terminal: bool,
    cost_per_hour: float | None = None,
) -> Table:
    """Workers, Min, Max, Avg (events per second over the valid runs) and more to the right. Of an open
    loop, what was offered and what of it achieved (mean over the valid runs)."""
    is_open = any(one.group.offered for one in runs)
    more = [] if cost_per_hour is None else [COST_HEADER]
    rows = []
    for workers in dict.fromkeys(one.group.workers for one in runs):
        own = [one for one in runs if one.group.workers == workers]
        found = [entry for entry in summary if entry.workers == workers]
        if found:
            cost = [_format_cost_at(found[0].avg, cost_per_hour)] if cost_per_hour else []
            rows.append(
                [
                    f"{workers:,}",
                    *(_list_achieved(found[0], own) if is_open else _list_figures(found[0])),
                    *_list_details(own, is_open),
                    *_list_more(own, runs),
                    *cost,
                ]
            )
        else:
            known = (one.group.rate_per_s for one in own)
            rates = [rate for rate in known if rate is not None]
            figures = [min(rates), max(rates), sum(rates) / len(rates)] if rates else []
            shown = [strike(format_rate(figure), terminal) for figure in figures] or ["-"] * 3
            none = ["-" for _ in more]
            rows.append(
                [
                    f"{workers:,}",
                    *([format_offered(own), shown[-1]] if is_open else shown + ["-"] * 3),
                    *_list_details(own, is_open),
                    *_list_more(own, runs),
                    *none,
                ]
            )
    achieved = ["Min", "Max", "Avg", "Median", "95% interval", "CV"]
    headers = ["Workers", *(_OFFERED if is_open else achieved), *_list_detail_headers(is_open)]
    return Table([*headers, *_list_more_headers(runs), *more], rows)


def tabulate_steps(
    runs: Sequence[GroupRun], terminal: bool, cost_per_hour: float | None = None
) -> Table:
    """Level (events stored before the step) and Inserts/s, rounded to tens as in the reference."""
    is_open = any(one.group.offered for one in runs)
    more = [] if cost_per_hour is None else [COST_HEADER]
    rows = []
    for one in runs:
        known, valid = one.group.rate_per_s, one.group.valid
        rate = "-" if known is None else format_rate(round(known, -1))
        cost = ["-" for _ in more]
        if cost_per_hour and valid and known:
            cost = [_format_cost_at(known, cost_per_hour)]
        shown = rate if valid or known is None else strike(rate, terminal)
        rates = [format_offered([one]), _flag_saturated(shown, [one])] if is_open else [shown]
        rows.append(
            [
                format_level(one),
                *rates,
                *_list_details([one], is_open),
                *_list_more([one], runs),
                *cost,
            ]
        )
    headers = ["Level", *(_OFFERED if is_open else ["Inserts/s"]), *_list_detail_headers(is_open)]
    return Table([*headers, *_list_more_headers(runs), *more], rows)


def format_duration(value: float) -> str:
    """Seconds, with four digits behind the point."""
    return f"{value:,.4f}"


def format_duration_of_histogram(value: float) -> str:
    """Seconds, with the three digits that a histogram knows, and no more than four behind the point."""
    rounded = float(f"{value:.3g}")
    behind = 2 - floor(log10(rounded)) if rounded > 0 else 4
    return f"{rounded:,.{min(4, max(0, behind))}f}"


def tabulate_queries(
    summary: Sequence[QuerySummary],
    failed: Sequence[str],
    form: Callable[[float], str] = format_duration,
    unasked: Sequence[str] = (),
) -> Table:
    """Query, Min, Max, Avg in seconds and more to the right."""
    rows: list[list[object]] = [
        [
            entry.query,
            *map(form, (entry.min, entry.max, entry.avg, entry.median)),
            "-" if entry.ci95 is None else " to ".join(map(form, entry.ci95)),
            form(entry.p95),
            "-" if entry.cold is None else form(entry.cold),
            f"{entry.rows:,}",
            f"{entry.runs:,}",
        ]
        for entry in summary
    ]
    rows += [[name, "failed", *["-"] * 8] for name in failed]
    rows += [[name, *["-"] * 9] for name in unasked]
    headers = [
        "Query",
        "Min",
        "Max",
        "Avg",
        "Median",
        "95% interval",
        "p95",
        "Cold",
        "Rows",
        "Runs",
    ]
    return Table(headers, rows)


def describe_durations(result: Result) -> str:
    """What the figures of a query table are."""
    what = "Durations in seconds, of all but the first execution (cold) of each worker"
    if not result.by_number:
        what = "Durations in seconds, of all executions in the window; the mean without the first (cold)"
    if any(one.group.offered for one in result.readers):
        what += ", from when they were due"
    if result.fill_level is not None:
        what += f"; {result.fill_level:,} events in the database"
    rates = [one.group.rate_per_s for one in result.readers if result.by_number]
    if not rates or rates[0] is None:
        return f"{what}."
    return f"{what}. All executions together: {rates[0]:,.3g} queries per second."


def describe_load(load: Load) -> str | None:
    """What the figures of an insert table are, where that depends on how requests were offered; None if
    there is nothing to say."""
    parts = []
    if load.rate_per_s is not None:
        parts.append(
            "Open loop: response times run from when a request was due, service times from when it was"
            " sent, both in ms; of the slowest run."
        )
    if load.warm_up_s:
        parts.append(f"The first {load.warm_up_s:g} s (warm-up) are in no figure.")
    return " ".join(parts) or None


COST_HEADER = "Cost/million"
"""Of a million events, in the currency of `cost_per_hour`."""


def format_cost(events_per_cost: float) -> str:
    """What a million events cost: two digits behind the point, or of small amounts two that aren't 0."""
    cost = 1e6 / events_per_cost
    return f"{cost:,.{max(2, 1 - floor(log10(cost)))}f}"


def _format_cost_at(rate: float, cost_per_hour: float) -> str:
    return format_cost(count_events_per_cost(rate, cost_per_hour))


_OFFERED = ["Offered/s", "Achieved/s"]


def format_offered(runs: Sequence[GroupRun]) -> str:
    """What was due per second, see `find_offered_rate`."""
    rate = find_offered_rate(runs)
    return "-" if rate is None else format_rate(rate)


def find_offered_rate(runs: Sequence[GroupRun]) -> float | None:
    """What was due per second, the mean of the valid runs; of runs that gave no figure, of all."""
    counted = [one.group for one in runs if one.group.valid] or [one.group for one in runs]
    offers = [(group.offered, group.window_s) for group in counted]
    rates = [
        offered.due / (offered.due_s or window_s)
        for offered, window_s in offers
        if offered and window_s
    ]
    return sum(rates) / len(rates) if rates else None


def _list_achieved(entry: InsertSummary, runs: Sequence[GroupRun]) -> list[str]:
    return [format_offered(runs), _flag_saturated(format_rate(entry.avg), runs)]


def _flag_saturated(rate: str, runs: Sequence[GroupRun]) -> str:
    offers = [one.group.offered for one in runs if one.group.valid]
    return f"{rate} saturated" if any(one and one.saturated for one in offers) else rate


def _list_detail_headers(is_open: bool) -> list[str]:
    if is_open:
        return ["Response p50 ms", "p99 ms", "Service p99", "Client CPU"]
    return ["p50 ms", "p99 ms", "Client CPU"]


def _list_details(runs: Sequence[GroupRun], is_open: bool) -> list[str]:
    """Latency and client share of the slowest valid run: an average would hide it."""
    measured = [one for one in list_valid(runs) if one.latency_ms and one.client]
    worst = find_slowest(measured)
    if worst is None or worst.latency_ms is None:
        return ["-" for _ in _list_detail_headers(is_open)]
    clients = [one.client for one in measured if one.client]
    share = max(client.cpu_share for client in clients)
    bound = any(client.bound for client in clients)
    service = ["-" if worst.service_ms is None else format_ms(worst.service_ms.p99)]
    return [
        format_ms(worst.latency_ms.p50),
        format_ms(worst.latency_ms.p99),
        *(service if is_open else []),
        f"{share:.0%}" + (" bound" if bound else _limit_text(measured)),
    ]


def list_valid(runs: Sequence[GroupRun]) -> list[GroupResult]:
    """What the valid ones measured."""
    return [one.group for one in runs if one.group.valid]


def find_slowest(groups: Sequence[GroupResult]) -> GroupResult | None:
    """The one with the highest p99; None without any that has latencies."""
    timed = [one for one in groups if one.latency_ms]
    return max(timed, key=lambda one: one.latency_ms.tail if one.latency_ms else 0.0, default=None)


def _limit_text(groups: Sequence[GroupResult]) -> str:
    """How many times as fast the runs could be at most with an ideal client."""
    limits = [limit for group in groups if (limit := limit_of_clients_part(group))]
    return f" (≤ {max(limits):.2f}×)" if limits else ""


def _list_more_headers(all_runs: Sequence[GroupRun]) -> list[str]:
    """Columns that only some tables need: for events with several metrics, for databases that
    acknowledge events before they can be queried, for indexes that were built after loading, and for
    databases that tell what they take on disk."""
    groups = [one.group for one in all_runs]
    metrics = any(one.metrics_per_s != one.rate_per_s for one in groups if one.metrics_per_s)
    return [
        *(["Metrics/s"] if metrics else []),
        *(["Queryable/s", "Lag s"] if any(one.queryable for one in groups) else []),
        *(["Index s"] if any(one.run.index_build_s is not None for one in all_runs) else []),
        *(["B/event"] if weigh_valid(all_runs, all_runs) else []),
    ]


def _list_more(runs: Sequence[GroupRun], all_runs: Sequence[GroupRun]) -> list[str]:
    """The cells of these columns over some runs: the mean of the valid runs' metrics and bytes, and the
    valid run whose events took longest to appear."""
    names = ("Metrics/s", "Queryable/s", "Lag s", "Index s", "B/event")
    shown = dict.fromkeys(names, "-")
    valid = list_valid(runs)
    metrics = [one.metrics_per_s for one in valid if one.metrics_per_s]
    if metrics:
        shown["Metrics/s"] = format_rate(sum(metrics) / len(metrics))
    found = [one.queryable for one in valid if one.queryable]
    if found:
        slowest = max(found, key=lambda queryable: queryable.lag_s)
        shown |= {"Queryable/s": format_rate(slowest.events_per_s), "Lag s": f"{slowest.lag_s:.1f}"}
    times = [one.run.index_build_s for one in runs if one.group.valid]
    builds = [took_s for took_s in times if took_s is not None]
    if builds:
        shown["Index s"] = f"{sum(builds) / len(builds):,.3g}"
    sizes = [one.bytes_per_event or 0.0 for one in weigh_valid(runs, all_runs)]
    if sizes:
        shown["B/event"] = format_bytes_per_event(sum(sizes) / len(sizes))
    return [shown[header] for header in _list_more_headers(all_runs)]


def weigh_valid(runs: Sequence[GroupRun], all_runs: Sequence[GroupRun]) -> list[EventSize]:
    """What an event takes on disk in the valid ones of some runs, as far as that is known."""
    weights = zip(all_runs, list_event_sizes(all_runs), strict=True)
    return [
        weight
        for one, weight in weights
        if weight.bytes_per_event is not None
        and one.group.valid
        and any(one.run is other.run for other in runs)
    ]


def format_bytes_per_event(value: float) -> str:
    """A digit behind the point below 100."""
    return f"{value:,.1f}" if value < 100 else f"{value:,.0f}"


def _list_figures(entry: InsertSummary) -> list[str]:
    return [
        *(format_rate(value) for value in (entry.min, entry.max, entry.avg, entry.median)),
        format_interval(entry.ci95, "{:,.0f}"),
        "-" if entry.cv is None else f"{entry.cv:.1%}",
    ]


def locate(one: GroupRun) -> list[str]:
    """The first three cells of a run's row: workers, run and fill level."""
    return [f"{one.group.workers:,}", f"{one.run.run:,}", format_level(one)]


def list_places(result: Result) -> tuple[list[str], list[tuple[list[str], RunResult]]]:
    """Each run under the cells that name it, and their headings; the run of a query command needs none."""
    if result.command == "query":
        return [], [([], run) for run in result.runs]
    return ["Workers", "Run", "Level"], [(locate(one), one.run) for one in result.writers]


def format_level(one: GroupRun) -> str:
    """The events before it."""
    return "-" if one.run.fill_level is None else f"{one.run.fill_level:,}"


def format_rate(value: float) -> str:
    """A whole number."""
    return f"{value:,.0f}"


def format_ms(value: float | None) -> str:
    """Three digits, but never as 1.23e+03; `-` for what isn't known."""
    if value is None:
        return "-"
    return f"{value:.3g}" if value < 999.5 else f"{value:,.0f}"


def format_tail(latency: LatencyMs) -> str:
    """`p99 12 ms`, or of too few requests for that the slowest: `maximum 12 ms`."""
    return f"{'maximum' if latency.p99 is None else 'p99'} {format_ms(latency.tail)} ms"


def format_interval(interval: tuple[float, float] | None, form: str) -> str:
    """`1 to 2`, by the form of each."""
    return "-" if interval is None else " to ".join(form.format(end) for end in interval)
