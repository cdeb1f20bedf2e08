"""Tables of results. They compute only what a column's text needs."""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, replace

from tabulate import tabulate

from simulator.contract import LatencyMs, Load, Role, RunResult
from simulator.units import format_count, format_digits

from ..results import columns as columns_
from ..results.columns import READERS, Column, Runs
from ..results.comparison import Cost
from ..results.entries import QUERY_TABLE, Entry, list_entries
from ..results.figures import FIGURES, SUMMED, TABLES, Figure
from ..results.model import GroupRun, InsertSummary, QuerySummary, Result
from ..results.statistics import count_events_per_cost, summarize
from ..results.summaries import find_unanswered
from ..system.output import STRIKE, STRIKE_END, wrap_lines


@dataclass(frozen=True)
class Table:
    """A table for a terminal, a Markdown file or a page."""

    headers: Sequence[str]
    rows: Sequence[Sequence[object]]
    left: Container[str] = ("Query",)
    """Left-aligned columns; all others are right-aligned."""
    spare: Sequence[Sequence[str]] = ()
    """Groups of columns to leave out first where not all fit."""
    empty: str = "nothing to show"
    """The text if there are no rows."""

    def text(self, markdown: bool = False, width: int | None = None) -> str:
        """For a terminal or a README. In a table wider than `width` characters the longest texts are wrapped;
        if that isn't enough, it is split into several, each with the same first column."""
        if not self.rows:
            return self.empty
        if width is not None and not markdown:
            wrapped = self._wrap(width, _ROOM)
            if wrapped._count_wide() <= width:
                return wrapped.text()
            return "\n\n".join(part._wrap(width).text() for part in self._fold(width))
        align = ["left" if header in self.left else "right" for header in self.headers]
        rows = self.rows
        if markdown:
            rows = [[str(cell).replace("|", "\\|") for cell in row] for row in rows]
        form = "github" if markdown else "plain"
        return str(
            tabulate(rows, self.headers, tablefmt=form, colalign=align, disable_numparse=True)
        )

    def shrink(self, width: int | None) -> str:
        """As `text`, but in one table: if it exceeds `width`, spare columns are left out and counted in a
        line."""
        table = self
        for group in self.spare:
            if width is None or table._count_wide() <= width:
                break
            table = table.choose([name for name in table.headers if name not in group])
        hidden = format_count(len(self.headers) - len(table.headers), "more column")
        more = "" if table is self else f"\n{hidden}: --columns all, or results show"
        return table.text(width=width) + more

    def choose(self, headers: Container[str]) -> Table:
        """The table with its first column, which names the row, and these, in this order."""
        places = [place for place, name in enumerate(self.headers) if place == 0 or name in headers]
        rows = [[row[place] for place in places] for row in self.rows]
        return replace(self, headers=[self.headers[place] for place in places], rows=rows)

    def _count_wide(self) -> int:
        return sum(self._measure()) + _BETWEEN * (len(self.headers) - 1)

    def _fold(self, width: int) -> list[Table]:
        """Tables of as many columns as fit, at least two, since the first names the row."""
        cells = list(zip(self.headers, *self.rows, strict=True))
        widths = self._measure()
        parts: list[list[int]] = [[0]]
        for place in range(1, len(widths)):
            used = sum(widths[column] + _BETWEEN for column in parts[-1])
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
        """The width of each column."""
        cells = zip(self.headers, *self.rows, strict=True)
        columns = [Table([name], [[cell] for cell in own], self.left) for name, *own in cells]
        # Escape sequences take no space.
        return [max(map(len, _ESCAPES.sub("", column.text()).split("\n"))) for column in columns]

    def _wrap(self, width: int, least: int = 20) -> Table:
        """The table with its widest column wrapped if it is too wide, to `least` characters or more."""
        widths = self._measure()
        widest = max(range(len(widths)), key=widths.__getitem__)
        room = max(least, widths[widest] - (self._count_wide() - width))
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


_ROOM = 32
"""The fewest characters per line of a wrapped text for which a table stays in one piece."""
_BETWEEN = 2
"""Spaces between two columns."""
_ESCAPES = re.compile(r"\x1b\[\d+m")


def strike(text: str, terminal: bool) -> str:
    """Struck through: by the terminal, or in a pipe with ~~ as in Markdown."""
    return f"{STRIKE}{text}{STRIKE_END}" if terminal else f"~~{text}~~"


def tabulate_writers(result: Result, terminal: bool) -> Table:
    """The table of writers that `insert` and `mixed` print: by worker count, or by fill level."""
    runs, cost = result.writers, result.cost_per_hour
    if result.by_fill_level:
        return tabulate_steps(runs, terminal, cost)
    return tabulate_inserts(runs, result.insert_summary, terminal, cost)


def tabulate_inserts(
    runs: Sequence[GroupRun],
    summary: Sequence[InsertSummary],
    terminal: bool,
    cost_per_hour: float | None = None,
) -> Table:
    """Workers, Min, Max, Avg (events per second over the valid runs), and further columns. For an open loop,
    also the offered rate and the achieved share (means over the valid runs)."""
    rows = []
    for workers in dict.fromkeys(run.group.workers for run in runs):
        own = [entry for entry in list_entries(runs) if entry.group.workers == workers]
        total = next((entry for entry in summary if entry.workers == workers), None)
        rates = [rate for entry in own if (rate := entry.group.rate_per_s) is not None]
        paid = count_events_per_cost(total.avg, cost_per_hour) if total and cost_per_hour else None
        all_rates = summarize(rates) if rates else None
        rows.append(Runs(own, total or all_rates, total is not None, paid))
    closed = ("Min", "Max", "Avg", "Median", "95% interval", "CV")
    return _tabulate_writers("Workers", closed, rows, terminal, cost_per_hour)


def tabulate_steps(
    runs: Sequence[GroupRun], terminal: bool, cost_per_hour: float | None = None
) -> Table:
    """Level (events stored before the step) and Inserts/s, rounded to tens as in the reference."""
    rows = []
    for entry in list_entries(runs):
        rate, valid = entry.group.rate_per_s, entry.group.valid
        rates = None if rate is None else summarize([round(rate, -1)])
        is_paid = rate and valid and cost_per_hour
        paid = count_events_per_cost(rate or 0.0, cost_per_hour or 0.0) if is_paid else None
        rows.append(Runs([entry], rates, valid, paid))
    return _tabulate_writers("Level", ("Inserts/s",), rows, terminal, cost_per_hour)


def _tabulate_writers(
    first: str,
    closed: Sequence[str],
    rows: Sequence[Runs],
    terminal: bool,
    cost_per_hour: float | None,
) -> Table:
    """A table with the columns that only some results have on the right; they are left out first. `closed`:
    the columns of a closed loop's rates."""
    entries = [entry for row in rows for entry in row.entries]
    is_open = any(entry.group.offered for entry in entries)
    names = [first, *(("Offered/s", "Achieved/s") if is_open else closed)]
    names += ["Response p50 ms", "p99 ms", "Service p99"] if is_open else ["p50 ms", "p99 ms"]
    columns = [columns_.WRITERS[name] for name in [*names, "Client CPU"]]
    costs = [] if cost_per_hour is None else [columns_.WRITERS[COST_HEADER]]
    return tabulate_columns(columns, rows, terminal, costs)


def tabulate_columns(
    columns: Sequence[Column[Runs]],
    rows: Sequence[Runs],
    terminal: bool,
    last: Sequence[Column[Runs]] = (),
) -> Table:
    """A row for each of some runs, with the columns that only some results have before the `last`."""
    more = choose_more([entry for row in rows for entry in row.entries])
    names = [figure.heading for figure in more]

    def show(column: Column[Runs], row: Runs) -> str:
        text = column.show(row)
        is_struck = column.struck and not row.counts and text != "-"
        return strike(text, terminal) if is_struck else text

    return Table(
        [*(column.heading for column in columns), *names, *(column.heading for column in last)],
        [
            [
                *(show(column, row) for column in columns),
                *list_more(row.entries, more),
                *(show(column, row) for column in last),
            ]
            for row in rows
        ],
        spare=[*([name] for name in reversed(names)), *_SPARE],
        empty="no runs",
    )


def tabulate_queries(
    summary: Sequence[QuerySummary], failed: Mapping[str, int], unasked: Sequence[str] = ()
) -> Table:
    """A row for each query, times in ms. `failed`: queries never answered -> how often; `unasked`: queries
    for which there was no time."""
    figures = [
        figure
        for figure in QUERY_TABLE
        if figure.always or any(figure.show(entry) != "-" for entry in summary)
    ]
    headers = [figure.heading for figure in figures]
    rows: list[list[object]] = [[figure.show(entry) for figure in figures] for entry in summary]
    dashes = ["-"] * (len(headers) - 3)
    rows += [[name, "failed", *dashes, f"{count:,}"] for name, count in failed.items()]
    rows += [[name, "-", *dashes, "-"] for name in unasked]
    return Table(headers, rows, empty="no queries")


def describe_durations(result: Result) -> str:
    """What the figures of a query table mean."""
    text = "Times in ms, of all but the first execution (cold) of each worker"
    if not result.by_number:
        text = "Times in ms, of all executions in the window; the mean without the first (cold)"
    if any(run.group.offered for run in result.readers):
        text += ", from when they were due"
    if result.fill_level is not None:
        text += f"; {result.fill_level:,} events in the database"
    rates = [run.group.rate_per_s for run in result.readers if result.by_number]
    if not rates or rates[0] is None:
        return f"{text}."
    return f"{text}. All executions together: {format_digits(rates[0])} queries per second."


def describe_load(load: Load) -> str | None:
    """What the figures of an insert table mean, where that depends on the load; None if there is nothing to
    say."""
    parts = []
    if load.rate_per_s is not None:
        parts.append(
            "Open loop: response times count from when a request was due, service times from when it was"
            " sent, in ms, of the slowest run."
        )
    if load.warm_up_s:
        parts.append(f"No figure includes the first {load.warm_up_s:g} s (warm-up).")
    return " ".join(parts) or None


def describe_in_flight(in_flight: int | None) -> str:
    """Words after the readers: how many queries each has in flight; empty for one."""
    if in_flight is None or in_flight == 1:
        return ""
    return f" with {in_flight:,} queries in flight each"


COST_HEADER = columns_.COST
INSERT_COLUMNS = (
    *(name for name in columns_.WRITERS if name not in ("Workers", "Level", COST_HEADER)),
    *(FIGURES[key].heading for key in SUMMED[Role.WRITE]), COST_HEADER,
)  # fmt: skip
"""Columns of the table of inserts, after the first."""
_SPARE = (
    ("CV",), ("Median",), ("Min", "Max"), ("Service p99",), ("Response p50 ms", "p50 ms"), ("95% interval",),
)  # fmt: skip
"""The columns that may be left out, least needed first, after those that only some results have."""


def choose_more(all_entries: Sequence[Entry]) -> list[Figure]:
    """The columns of `results.figures.SUMMED` that these runs have figures for."""
    keys = [key for role in {entry.group.role for entry in all_entries} for key in SUMMED[role]]
    chosen = [
        FIGURES[key]
        for key in keys
        # Bytes per event count only in valid runs.
        if any(
            FIGURES[key].read(entry)
            for entry in all_entries
            if entry.group.valid or key != "bytes_per_event"
        )
    ]
    groups = [entry.group for entry in all_entries]
    if all(group.metrics_per_s in (None, 0, group.rate_per_s) for group in groups):
        chosen = [figure for figure in chosen if figure.key != "metrics_per_s"]
    return chosen


def list_more(entries: Sequence[Entry], figures: Sequence[Figure]) -> list[str]:
    """The cells of these columns over some runs: the mean of the valid ones. Figures on visibility are from
    the run whose events took longest to appear."""
    valid = [entry for entry in entries if entry.group.valid]
    late = [entry for entry in valid if entry.group.queryable]
    latest = max(
        late, key=lambda entry: FIGURES["queryable_lag_s"].read(entry) or 0.0, default=None
    )
    cells = []
    for figure in figures:
        if figure.key.startswith("queryable"):
            cells.append(figure.form.show(figure.read(latest) if latest else None))
            continue
        values = [value for entry in valid if (value := figure.read(entry)) is not None]
        cells.append(figure.form.show(sum(values) / len(values) if values else None))
    return cells


def tabulate_runs(title: str, result: Result, runs: Sequence[GroupRun], terminal: bool) -> Table:
    """A table of `results.figures.TABLES`: a row for each run that has one of its figures. Columns that need
    `--compact` appear only with it."""
    entries = list_entries(runs, result)
    figures = [FIGURES[key] for key in TABLES[title]]
    if not any(entry.group.storage_compacted for entry in entries):
        figures = [figure for figure in figures if "compacted" not in figure.key]
    is_query = result.command == "query"
    rows = [
        [
            *([] if is_query else locate(entry.group_run)),
            *(_show(figure, entry, terminal) for figure in figures),
        ]
        for entry in entries
        if any(figure.read(entry) is not None for figure in figures)
    ]
    headers = [] if is_query else ["Workers", "Run", "Level"]
    return Table(
        [*headers, *(figure.heading for figure in figures)], rows, left=("By",), empty="no runs"
    )


def _show(figure: Figure, entry: Entry, terminal: bool) -> str:
    text = figure.show(entry)
    is_struck = figure.struck and not entry.group.valid and text != "-"
    return strike(text, terminal) if is_struck else text


def locate(run: GroupRun) -> list[str]:
    """The first three cells of a run's row: workers, run and fill level."""
    return [f"{run.group.workers:,}", f"{run.run.run:,}", format_level(run)]


def list_places(result: Result) -> tuple[list[str], list[tuple[list[str], RunResult]]]:
    """The headings of the cells that name a run, and each run with its cells; that of a query command needs
    none."""
    if result.command == "query":
        return [], [([], run) for run in result.runs]
    return ["Workers", "Run", "Level"], [
        (locate(group_run), group_run.run) for group_run in result.writers
    ]


def format_level(run: GroupRun) -> str:
    """The number of events stored before the run."""
    return "-" if run.run.fill_level is None else f"{run.run.fill_level:,}"


def format_rate(value: float) -> str:
    """A whole number."""
    return f"{value:,.0f}"


def format_ms(value: float | None) -> str:
    """Three digits, never as 1.23e+03; `-` if unknown."""
    return "-" if value is None else format_digits(value)


def format_tail(latency: LatencyMs) -> str:
    """`p99 12 ms`, or `maximum 12 ms` if there are too few requests for a p99."""
    return f"{'maximum' if latency.p99 is None else 'p99'} {format_ms(latency.tail)} ms"


def format_interval(interval: tuple[float, float] | None, form: Callable[[float], str]) -> str:
    """`1 to 2`; `form` formats each end."""
    return "-" if interval is None else " to ".join(map(form, interval))


# --- readers -----------------------------------------------------------------------------------------


def tabulate_reads(readers: Sequence[GroupRun], terminal: bool) -> Table:
    """Queries per second over the valid runs, and the response times of the slowest run."""
    rows = []
    for workers in dict.fromkeys(run.group.workers for run in readers):
        own = [entry for entry in list_entries(readers) if entry.group.workers == workers]
        runs = Runs(own, None, any(entry.group.valid for entry in own))
        rates = [group.rate_per_s for group in runs.counted if group.rate_per_s is not None]
        rows.append(replace(runs, rates=summarize(rates) if rates else None))
    is_open = any(run.group.offered for run in readers)
    left_out = "Latency p50 ms" if is_open else "Response p50 ms"
    columns = [
        column
        for name, column in READERS.items()
        if name != left_out and (is_open or name != "Offered")
    ]
    return replace(tabulate_columns(columns, rows, terminal), spare=())


def tabulate_reads_by_query(result: Result) -> Table:
    """The queries' times in ms, rows and bytes, over all runs."""
    failed, unasked = find_unanswered(result.asked)
    errors = {
        name: sum(query.errors for query in result.asked if query.query == name) for name in failed
    }
    return tabulate_queries(result.query_summary, errors, unasked)


def tabulate_costs(costs: Sequence[Cost]) -> Table:
    """What writers and readers cost each other."""
    rows = [
        [
            cost.group,
            cost.figure,
            _format_figure(cost.alone, cost.unit),
            _format_figure(cost.beside, cost.unit),
            cost.unit,
            f"{cost.ratio.value:.2f}",
            format_interval(cost.ratio.interval, "{:.2f}".format),
        ]
        for cost in costs
    ]
    headers = ["Group", "Figure", "Alone", "Beside the others", "Unit", "Ratio", "95% interval"]
    return Table(headers, rows, left=("Group", "Figure", "Unit"))


def _format_figure(value: float, unit: str) -> str:
    return (
        format_ms(value) if unit == "ms" else f"{value:,.1f}" if value < 1000 else f"{value:,.0f}"
    )
