"""What a command prints when its runs are made: the tables of its figures, and a few lines below them."""

from __future__ import annotations

import sys

from ..results.model import Result
from ..system.output import print_prose, print_text, terminal_width
from .notes import describe_answers, list_outages, summarize_notes
from .ratios import describe_clients, tabulate_questions
from .searches import advise, describe_capacity, describe_steps, describe_tuning
from .stored import tabulate_figures, tabulate_readers, tabulate_stages
from .tables import Table, describe_durations, describe_load, tabulate_writers

ALL_COLUMNS = "all"


def split_columns(columns: str) -> list[str]:
    """The headings that `--columns` names."""
    return [name.strip() for name in columns.split(",")]


def print_measured(result: Result, verbose: bool = False, columns: str | None = None) -> None:
    """Print it. `columns`: those of the table of inserts; None: all, or on a terminal those that fit in one
    table; `verbose`: with all notes."""
    terminal, answers = sys.stdout.isatty(), describe_answers(result)
    inserted = any(run.group.rate_per_s is not None for run in result.writers)
    if result.command in ("insert", "query") and not (inserted or result.asked):
        for text in list_outages(result):
            print_prose(text)
        return
    above: list[str | None] = []
    lines: list[str] = []
    match result.command:
        case "insert":
            _print_inserts(result, terminal, columns)
            above = [describe_load(result.settings.load)]
        case "query":
            for title, table in tabulate_readers(result, terminal).items():
                _print(table, f"{title}\n", "\n")
            _print(tabulate_figures(result, terminal))
            above = [describe_durations(result), answers]
        case "mixed":
            if inserted:
                _print(tabulate_writers(result, terminal), "Inserts per second\n")
            tables = tabulate_readers(result, terminal).items()
            for title, table in (pair for pair in tables if pair[1].rows):
                _print(table, f"\n{title}\n")
            _print_stages(result)
            print_text("")
            above = [answers]
        case _:
            _print(tabulate_figures(result, terminal))
            if result.clients is not None and result.clients.asks:
                _print(tabulate_questions(result), "\nQuery times\n")
            lines, above = _describe_found(result), [answers] if result.capacity else []
    for line in (*lines, *summarize_notes(result, terminal, *above, verbose=verbose)):
        print_prose(line)
    if result.tuning is not None:
        print_text(advise(result))


def _print_inserts(result: Result, terminal: bool, columns: str | None) -> None:
    load, table = result.settings.load, tabulate_writers(result, terminal)
    if not result.by_fill_level:
        print_text("Inserts per second")
    elif load.duration_s is None and isinstance(workers := result.settings.workers, list):
        print_text(f"Stepsize: {workers[0] * load.events:,}")
    if columns is None:
        print_text(table.shrink(terminal_width()))
    else:
        _print(table if columns == ALL_COLUMNS else table.choose(split_columns(columns)))
    _print_stages(result)


def _describe_found(result: Result) -> list[str]:
    """What a search, or a comparison of clients, says below its table."""
    if result.capacity is not None:
        return [f"{describe_steps(result)}\n", *describe_capacity(result)]
    describe = describe_clients if result.tuning is None else describe_tuning
    return ["", *describe(result)]


def _print(table: Table, before: str = "", after: str = "") -> None:
    print_text(f"{before}{table.text(width=terminal_width())}{after}")


def _print_stages(result: Result) -> None:
    """Print the table of the stages of a rate that changes."""
    if (stages := tabulate_stages(result)).rows:
        _print(stages, "\nStages\n")
