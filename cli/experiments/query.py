"""The work of `query`: one run of all queries, its result, its table."""

from __future__ import annotations

import sys
from collections.abc import Collection

from simulator.contract import DataSet, Load, Report
from simulator.units import format_count

from ..errors import EXIT_FAILED, ConfigError, RunFailed
from ..live.serving import find_live
from ..output import print_prose, say, terminal_width
from ..plan import check_load, check_query, public_data, public_load
from ..render.answers import describe_answers
from ..render.notes import summarize_notes
from ..render.progress import make_display
from ..render.stored import tabulate_figures, tabulate_readers
from ..render.tables import describe_durations
from ..results.reads import summarize_reads
from ..results.statistics import summarize_queries
from ..signals import Interrupts
from .experiment import ends_checked
from .session import CommonOptions, Session, open_session


def run_queries(
    load: Load,
    data: DataSet,
    request: CommonOptions,
    given: Collection[str],
    interrupts: Interrupts,
) -> int:
    """Ask the queries; the exit status. `given`: the options that stood on the command line."""
    check_load(load, given)
    if load.duration_s is None and (load.rate_per_s or load.warm_up_s):
        raise ConfigError("--rate and --warm-up need a --duration: say how long to ask")
    session = open_session(request)
    # The target's disturbances are for runs that insert.
    session.disturbances = ()
    load = choose_queries(load, session)
    data = session.complete(data, existing=True)
    check_query(load, data, session.module, session.options)
    if ends_checked(session, [load]):
        return 0

    with (
        session.start("query", interrupts) as context,
        make_display([load], find_live()) as display,
    ):
        length = f"{load.runs} runs" if load.duration_s is None else f"{load.duration_s:g} s"
        display.begin(f"{format_count(load.workers, 'worker')}, {length}")
        settings = context.make_settings(data, load)
        context.executor.check_capacity([load.workers])
        try:
            with context.series("queries", [settings]) as series:
                report = series.run(settings, request.timeout_s, display.update)
        except RunFailed:
            context.folder.keep_logs()
            raise
        display.end("done" if not report.invalid_reasons else "done, not all valid")
        with interrupts.shield():
            result = context.make_result(
                "query",
                session,
                {
                    "workers": load.workers,
                    **public_load(load),
                    **list_asked(data),
                },
                report.environment,
                fill_level=report.fill_level,
                overlap=report.overlap,
                began_at=report.began_at,
                ended_at=report.ended_at,
                machines=report.machines,
                resources=report.resources,
                invalid_reasons=report.invalid_reasons,
                phases_s=report.phases_s,
                queries_per_s=report.queries_per_s,
                answers=report.answers,
                long_windows=report.long_windows,
                index_build_s=report.index_build_s,
                **_list_measured(report),
            )
            unwritten = context.write(result)
    terminal = sys.stdout.isatty()
    for title, table in tabulate_readers(result, terminal).items():
        say(f"{title}\n{table.text(width=terminal_width())}\n")
    say(tabulate_figures(result, terminal).text(width=terminal_width()))
    above = describe_durations(result), describe_answers(result)
    for line in summarize_notes(result, terminal, *above):
        print_prose(line)
    if unwritten:
        raise unwritten
    say(f"\nResult: {context.folder.path}")
    return EXIT_FAILED if report.invalid_reasons else 0


def list_asked(data: DataSet) -> dict[str, object]:
    """What the result keeps of the data set: which events were asked for."""
    kept = public_data(data)
    return {name: kept[name] for name in ("workload", "seed", "definition") if name in kept}


def choose_queries(load: Load, session: Session) -> Load:
    """The load with the queries that the command line names, or else the target."""
    if load.queries is not None:
        return load
    return load.model_copy(update={"queries": session.queries})


def _list_measured(report: Report) -> dict[str, object]:
    """The result's fields for what was asked: each execution, or figures of a run ended by the clock."""
    if report.read is None:
        runs = report.queries or []
        return {"runs": runs, "summary": summarize_queries(runs)}
    return {"runs": [], "reads": [report.read], "summary": summarize_reads([report.read])}
