"""One result with everything that was measured, and the list of stored results."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from simulator.contract import Machine, Role

from ..results.bottleneck import find_bottleneck
from ..results.comparison import compare_with_alone
from ..results.conditions import flatten_definition
from ..results.entries import list_entries, split_stages
from ..results.figures import FIGURES, TABLES
from ..results.index import ResultLine
from ..results.indexes import find_index_sizes
from ..results.model import GroupRun, Result
from ..results.naming import find_changed_options, format_options, format_value, name_database
from ..results.store import StoredResult, make_line, read_or_skip
from ..system.output import wrap_lines
from . import words
from .listing import HEADLINE, LABEL, OPTIONS
from .notes import describe_answers, list_notes, tabulate_limits
from .ratios import tabulate_clients, tabulate_questions, tabulate_turns
from .searches import advise, describe_steps, tabulate_capacity, tabulate_tuning
from .tables import (
    Table,
    describe_load,
    list_places,
    locate,
    tabulate_costs,
    tabulate_reads,
    tabulate_reads_by_query,
    tabulate_runs,
    tabulate_writers,
)
from .workloads import describe_statements


def describe_result(stored: StoredResult, terminal: bool, width: int | None = None) -> str:
    """Everything about one result. `width`: columns of the terminal; None: no limit."""
    result = stored.result
    sections = [
        f"Result {stored.id}{describe_name(result)}\n{words.describe_measurement(result)}\n"
        + words.give_answer(result),
        "\n".join(list_notes(result, terminal)),
    ]
    sections = [wrap_lines(section, width) for section in sections]
    about = describe_load(result.settings.load) if result.command not in ("query", "tune") else None
    if result.command == "capacity":
        about = describe_steps(result)
    sections += [wrap_lines(text, width) for text in (about, describe_answers(result)) if text]
    if result.command == "tune":
        # Lines meant for copying are not wrapped.
        sections.append(advise(result).strip())
    sections += [
        f"{title}\n{table.text(width=width)}"
        for title, table in tabulate_result(result, terminal).items()
    ]
    sections.append(describe_statements(result.statements))
    return "\n\n".join([*filter(None, sections), f"File: {stored.file}"])


def describe_name(result: Result) -> str:
    """The label given by the user, and the tags."""
    label = f" “{result.label}”" if result.label else ""
    tags = ", ".join(f"{key}={value}" for key, value in sorted(result.tags.items()))
    return label + (f" ({tags})" if tags else "")


_TITLES = {
    "query": "Durations, ms", "capacity": "Steps", "tune": "Combinations", "clients": "Clients",
}  # fmt: skip
"""Titles of the table that the command itself printed, where it isn't the insert table."""


def tabulate_result(result: Result, terminal: bool) -> dict[str, Table]:
    """Title -> table, for all tables that have rows."""
    runs = result.writers
    alone = {role: [run for run in result.alone if run.group.role is role] for role in Role}
    closed = [run for run in runs if not run.group.offered]
    offered = [run for run in runs if run.group.offered]
    options = {name: value for name, value in result.options.items() if name != "definition"}
    tables = {
        _TITLES.get(result.command, "Inserts per second"): tabulate_figures(result, terminal),
        **tabulate_readers(result, terminal),
        "Stages": tabulate_stages(result),
        "Limits": tabulate_limits(result),
        "Writers alone": tabulate_runs("Runs", result, alone[Role.WRITE], terminal),
        "Readers alone": tabulate_reads(alone[Role.READ], terminal),
        "Query times": tabulate_questions(result),
        "Turns": tabulate_turns(result),
        "Runs": tabulate_runs("Runs", result, runs, terminal),
        "Latencies of a request, ms": tabulate_runs("Latencies", result, closed, terminal),
        "Response times of a request, ms": tabulate_runs("Latencies", result, offered, terminal),
        "Service times of a request, ms": tabulate_runs("Service times", result, runs, terminal),
        "What was due": tabulate_runs("What was due", result, runs, terminal),
        "Deletions": tabulate_runs("Deletions", result, runs, terminal),
        "On disk": tabulate_runs("On disk", result, runs, terminal),
        "Indexes": tabulate_indexes(result),
        "What the database used": tabulate_runs(
            "What the database used", result, runs or result.readers, terminal
        ),
        "What held the runs back": tabulate_bottlenecks(runs),
        "What held the readers back": tabulate_bottlenecks(result.readers),
        "Spread of the workers": tabulate_workers(runs),
        "Time and machine": tabulate_machines(result),
        "Retries and errors": tabulate_errors(runs),
        "Phases, seconds": tabulate_phases(result),
        "Options": _tabulate_pairs(
            [*flatten(options), *flatten_definition(result.settings.data.definition or {}).items()]
        ),
        "Environment": _tabulate_pairs(flatten(result.environment)),
    }
    return {title: table for title, table in tables.items() if table.rows}


def tabulate_indexes(result: Result) -> Table:
    """Disk space of each index. Their cost to inserts takes a second result without them."""
    cost = find_index_sizes([result])
    rows = [
        [index, f"{size / 1e6:,.1f}", f"{size / cost.total_bytes:.0%}", "not measured"]
        for index, size in sorted(cost.sizes.items(), key=lambda each: -each[1])
        if cost.total_bytes
    ]
    return Table(["Index", "MB", "of the tables", "in inserts"], rows, left=("Index", "in inserts"))


def tabulate_figures(result: Result, terminal: bool) -> Table:
    """The table that the command itself printed."""
    if result.command == "capacity":
        return tabulate_capacity(result, terminal)
    if result.command == "tune":
        return tabulate_tuning(result)
    if result.command == "clients":
        return tabulate_clients(result)
    if result.command == "query":
        return tabulate_reads_by_query(result)
    return tabulate_writers(result, terminal)


def tabulate_readers(result: Result, terminal: bool) -> dict[str, Table]:
    """Title -> table of readers; for `mixed`, also what the groups cost each other. Readers that ran a number
    of queries, without client figures, have only the table of their queries."""
    if not any(run.group.client or not result.by_number for run in result.readers):
        return {}
    tables = {"Queries per second": tabulate_reads(result.readers, terminal)}
    if result.command == "mixed":
        tables["Durations of the queries, ms"] = tabulate_reads_by_query(result)
    if result.baseline:
        costs = compare_with_alone(result)
        tables["What writers and readers cost each other"] = tabulate_costs(costs)
    return tables


def tabulate_stages(result: Result) -> Table:
    """Each stage of each group whose rate changes."""
    entries = [
        stage
        for entry in list_entries([*result.writers, *result.readers, *result.alone])
        for stage in split_stages(entry)
    ]
    figures = [FIGURES[key] for key in TABLES["Stages"]]
    rows = [
        [*locate(entry.group_run), *(figure.show(entry) for figure in figures)] for entry in entries
    ]
    return Table(["Workers", "Run", "Level", *(figure.heading for figure in figures)], rows)


def tabulate_workers(runs: Sequence[GroupRun]) -> Table:
    """How much the workers of each run differ, and the slowest of them."""
    rows = []
    for run in runs:
        spans = [
            (
                (span.count if span.measured is None else span.measured)
                / (span.end_s - span.start_s),
                span,
            )
            for span in run.group.per_worker
            if span.end_s > span.start_s
        ]
        if spans:
            rates = [rate for rate, _ in spans]
            slowest = min(spans, key=lambda pair: pair[0])[1]
            rows.append(
                [
                    *locate(run),
                    f"{min(rates):,.0f}",
                    f"{max(rates):,.0f}",
                    f"{(max(rates) - min(rates)) / max(rates):.1%}",
                    f"{max(span.start_s for _, span in spans):,.3f}",
                    f"{slowest.worker} on {slowest.node}",
                ]
            )
    headers = [
        "Workers", "Run", "Level", "Slowest inserts/s", "Fastest inserts/s", "Spread",
        "Last start s", "Slowest worker",
    ]  # fmt: skip
    return Table(headers, rows)


def tabulate_machines(result: Result) -> Table:
    """When each run was, and how busy the machines of its workers were: the one on which other programs used
    most."""
    headers, runs = list_places(result)
    rows = []
    for place, run in runs:
        began, ended = run.began_at, run.ended_at
        if began is None or ended is None:
            continue
        # The part of a machine that the run could not use.
        most = max(
            run.machines,
            key=lambda machine: (machine.steal_share or 0.0) + (machine.others_share or 0.0),
            default=Machine(node="-"),
        )
        rows.append(
            [
                *place,
                began[:19].replace("T", " "),
                ended[11:19],
                most.node,
                _format_or_dash(most.cpus, "{:,}"),
                _format_or_dash(most.load_average_1m, "{:,.1f}"),
                _format_or_dash(most.busy_share, "{:.0%}"),
                _format_or_dash(most.steal_share, "{:.0%}"),
                _format_or_dash(most.others_share, "{:.0%}"),
            ]
        )
    headers += ["Began (UTC)", "Ended", "Machine", "CPUs", "Load", "Busy", "Stolen", "Others"]
    return Table(headers, rows)


def tabulate_errors(runs: Sequence[GroupRun]) -> Table:
    """Errors by kind, including those that a retry cured."""
    rows = [
        [*locate(run), f"{run.group.retries:,}", kind, f"{count:,}"]
        for run in runs
        for kind, count in (run.group.errors or ({"-": 0} if run.group.retries else {})).items()
    ]
    headers = ["Workers", "Run", "Level", "Retries", "Error", "Times"]
    return Table(headers, rows, left=("Error",))


def tabulate_phases(result: Result) -> Table:
    """Seconds of each phase."""
    headers, runs = list_places(result)
    names = list(dict.fromkeys(name for _, run in runs for name in run.phases_s))
    rows = [
        place + [_format_or_dash(run.phases_s.get(name), "{:,.2f}") for name in names]
        for place, run in runs
        if run.phases_s
    ]
    return Table([*headers, *(name.replace("_", "-") for name in names)], rows)


def flatten(values: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, str]]:
    """The leaves of nested mappings as `outer.inner`, value."""
    for name, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from flatten(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", "-" if value == {} else format_value(value)


def _tabulate_pairs(pairs: Iterable[tuple[str, str]]) -> Table:
    return Table(["Name", "Value"], [list(pair) for pair in pairs], left=("Name", "Value"))


def _format_or_dash(value: float | None, form: str) -> str:
    return "-" if value is None else form.format(value)


def tabulate_bottlenecks(runs: Sequence[GroupRun]) -> Table:
    """What held each valid run back, with the evidence."""
    rows = [
        [*locate(run), bottleneck.limit, bottleneck.evidence]
        for run in runs
        if (bottleneck := find_bottleneck(run.run, run.group.role)) is not None
    ]
    headers = ["Workers", "Run", "Level", "Bottleneck", "Evidence"]
    return Table(headers, rows, left=("Bottleneck", "Evidence"))


def write_cells(stored: StoredResult) -> dict[str, str]:
    """A result's cells in a list: heading -> text."""
    result = stored.result
    return {
        "ID": stored.id,
        "When": result.started_at[:16].replace("T", " "),
        "Command": result.command,
        "Target": result.target,
        "Database": name_database(result) or result.module,
        LABEL: result.label or "-",
        HEADLINE: words.write_headline(result),
        "Valid": words.describe_validity(result),
        "Stable": words.describe_stability(result),
        OPTIONS: format_options(find_changed_options(result)) or "-",
    }


def read_line(folder: Path, id_: str) -> ResultLine | None:
    """A result's cells in a list; None, with a message, if it can't be read."""
    stored = read_or_skip(folder, id_)
    return None if stored is None else make_line(stored, write_cells(stored))
