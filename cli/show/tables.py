"""Tables of results. They compute nothing but what a column's text needs."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from tabulate import tabulate

from simulator.contract import InsertRun, QueryRun

from ..results import InsertSummary, QuerySummary
from ..stats import ENOUGH_RUNS, UNSTABLE_CV, smallest_difference


def struck(text: str, terminal: bool) -> str:
    """Struck through: by the terminal, or in a pipe by ~~ as in Markdown."""
    return f"\x1b[9m{text}\x1b[29m" if terminal else f"~~{text}~~"


def insert_table(
    runs: Sequence[InsertRun], summary: Sequence[InsertSummary], terminal: bool
) -> str:
    """Workers, Min, Max, Avg (events per second over the valid runs) and more to the right."""
    rows = []
    for workers in dict.fromkeys(run.workers for run in runs):
        own = [run for run in runs if run.workers == workers]
        found = [entry for entry in summary if entry.workers == workers]
        if found:
            rows.append([workers, *_figures(found[0]), *_details(own)])
        else:
            rates = [run.inserts_per_s for run in own if run.inserts_per_s is not None]
            figures = [min(rates), max(rates), sum(rates) / len(rates)] if rates else []
            shown = [struck(_rate(figure), terminal) for figure in figures] or ["-"] * 3
            rows.append([workers, *shown, "-", "-", "-", *_details(own)])
    headers = ["Workers", "Min", "Max", "Avg", "Median", "95% interval", "CV", *_DETAILS]
    return _table(headers, rows)


def steps_table(runs: Sequence[InsertRun], step_size: int, terminal: bool) -> str:
    """Level (events stored before the step) and Inserts/s, rounded to tens as in the reference."""
    rows = []
    for run in runs:
        rate = "-" if run.inserts_per_s is None else str(round(run.inserts_per_s, -1)).split(".")[0]
        rows.append(
            [run.fill_level, rate if run.valid else struck(rate, terminal), *_details([run])]
        )
    return f"Stepsize: {step_size}\n" + _table(["Level", "Inserts/s", *_DETAILS], rows)


def query_table(summary: Sequence[QuerySummary], failed: Sequence[str]) -> str:
    """Query, Min, Max, Avg in seconds and more to the right."""
    rows: list[list[object]] = [
        [
            entry.query,
            *(f"{value:.4f}" for value in (entry.min, entry.max, entry.avg, entry.median)),
            _interval(entry.ci95, "{:.4f}"),
            f"{entry.p95:.4f}",
            entry.rows,
            entry.runs,
        ]
        for entry in summary
    ]
    rows += [[name, "failed", *["-"] * 7] for name in failed]
    headers = ["Query", "Min", "Max", "Avg", "Median", "95% interval", "p95", "Rows", "Runs"]
    return _table(headers, rows) + "\nDurations in seconds."


def failed_queries(runs: Sequence[QueryRun]) -> list[str]:
    """Queries that were never answered."""
    answered = {run.query for run in runs if run.error is None}
    return [name for name in dict.fromkeys(run.query for run in runs) if name not in answered]


def insert_notes(
    runs: Sequence[InsertRun], summary: Sequence[InsertSummary], by_fill_level: bool, terminal: bool
) -> list[str]:
    """What weakens the figures, one line each; the invalid runs first."""
    notes = []
    for run in runs:
        place = (
            f"level {run.fill_level}" if by_fill_level else f"{run.workers} workers, run {run.run}"
        )
        if not run.valid:
            rate = (
                ""
                if run.inserts_per_s is None
                else f" {struck(_rate(run.inserts_per_s), terminal)}"
            )
            notes.append(f"invalid: {place}:{rate} {'; '.join(run.invalid_reasons)}")
    for run in runs:
        if run.valid and run.client and run.client.bound:
            place = (
                f"level {run.fill_level}"
                if by_fill_level
                else f"{run.workers} workers, run {run.run}"
            )
            notes.append(
                f"client-bound: {place}: {run.client.bound_reason}:"
                " this is your client's speed, not your database's"
            )
    for run in runs:
        if run.retries:
            kinds = ", ".join(f"{count} {kind}" for kind, count in run.errors.items())
            notes.append(f"retries: {run.workers} workers, run {run.run}: {run.retries} ({kinds})")
    return notes + _short_notes(runs) + _spread_notes(summary)


SHORT_WINDOW_S = 10.0
"""Below this, starting and ending are a noticeable part of a run."""


def _short_notes(runs: Sequence[InsertRun]) -> list[str]:
    windows = [run.window_s for run in runs if run.valid and run.window_s is not None]
    if not windows or min(windows) >= SHORT_WINDOW_S:
        return []
    note = (
        f"short: runs of {min(windows):.1f} s measure much of their own start and end; with more"
        f" --num-inserts let them take {SHORT_WINDOW_S:.0f} s or longer"
    )
    return [note]


def _spread_notes(summary: Sequence[InsertSummary]) -> list[str]:
    notes = [
        f"unstable: {entry.workers} workers: the runs differ by {entry.cv:.0%} (CV;"
        f" {UNSTABLE_CV:.0%} is much): find out why before you use this number"
        for entry in summary
        if entry.stable is False and entry.cv is not None
    ]
    few = [e for e in summary if e.cv is not None and 2 <= e.runs < ENOUGH_RUNS]
    if few:
        widest = max(few, key=lambda entry: smallest_difference(entry.cv or 0, entry.runs))
        difference = smallest_difference(widest.cv or 0, widest.runs)
        shown = "no difference" if difference == inf else f"differences of {difference:.0%} or more"
        notes.append(
            f"few runs: {widest.runs} runs that vary like these show {shown} between two results;"
            " six or more show smaller ones"
        )
    return notes


_DETAILS = ["p50 ms", "p99 ms", "Client CPU"]


def _details(runs: Sequence[InsertRun]) -> list[str]:
    """Latency and client share of the slowest run: an average would hide it."""
    measured = [run for run in runs if run.latency_ms and run.client]
    if not measured:
        return ["-", "-", "-"]
    worst = max(measured, key=lambda run: run.latency_ms.p99 if run.latency_ms else 0.0)
    assert worst.latency_ms is not None
    share = max(run.client.cpu_share for run in measured if run.client)
    bound = any(run.client.bound for run in measured if run.client)
    return [
        _ms(worst.latency_ms.p50),
        _ms(worst.latency_ms.p99),
        f"{share:.0%}" + (" bound" if bound else ""),
    ]


def _figures(entry: InsertSummary) -> list[str]:
    return [
        *(_rate(value) for value in (entry.min, entry.max, entry.avg, entry.median)),
        _interval(entry.ci95, "{:.0f}"),
        "-" if entry.cv is None else f"{entry.cv:.1%}",
    ]


def _rate(value: float) -> str:
    return str(round(value))


def _ms(value: float) -> str:
    """Three digits, but never as 1.23e+03."""
    return f"{value:.3g}" if value < 1000 else f"{value:.0f}"


def _interval(interval: tuple[float, float] | None, form: str) -> str:
    return "-" if interval is None else " to ".join(form.format(end) for end in interval)


def _table(headers: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    align = ["left" if header == "Query" else "right" for header in headers]
    return str(
        tabulate(rows, headers, tablefmt="plain", colalign=align, disable_numparse=True)
        if rows
        else "no runs"
    )
