"""The work of `query`: one run of all queries, its result, its table."""

from __future__ import annotations

import sys

from simulator.contract import DataSet, Load, Role

from .errors import EXIT_FAILED, RunFailed
from .output import say
from .plan import check_query, public_fields
from .results.model import Result
from .results.place import format_workers
from .results.statistics import summarize_queries
from .session import Request, open_session, tool_environment
from .show.notes import list_notes
from .show.progress import make_display
from .show.stored import tabulate_figures
from .show.tables import describe_durations
from .signals import Interrupts


def run_queries(load: Load, data: DataSet, request: Request, interrupts: Interrupts) -> int:
    """Ask all queries; the exit status."""
    session = open_session(request)
    load = load.model_copy(update={"queries": session.queries})
    data = data.model_copy(update={"workload_options": session.workload_options})
    check_query(load, data, session.module, session.options)

    with session.start("query", interrupts) as running, make_display("queries") as display:
        display.begin(f"{format_workers(load.workers)}, {load.runs} runs")
        settings = running.make_settings(data, load)
        running.executor.check_capacity([load.workers])
        try:
            with running.series("queries", [settings]) as series:
                report = series.run(settings, request.timeout_s, display.update)
        except RunFailed:
            running.folder.keep_logs()
            raise
        runs = report.queries or []
        display.end("done" if not report.invalid_reasons else "done, not all valid")
        with interrupts.shield():
            result = Result(
                command="query",
                target=session.target.name,
                module=session.target.module,
                executor=session.executor,
                started_at=running.started_at,
                cost_per_hour=session.target.cost_per_hour,
                options={
                    "workers": load.workers,
                    **public_fields(load, Role.READ),
                    "workload": data.workload,
                    "timeout_s": request.timeout_s,
                    "module": session.public_options(),
                },
                environment={"tool": tool_environment(), "kubernetes": None, **report.environment},
                fill_level=report.fill_level,
                overlap=report.overlap,
                began_at=report.began_at,
                ended_at=report.ended_at,
                machines=report.machines,
                invalid_reasons=report.invalid_reasons,
                phases_s=report.phases_s,
                runs=runs,
                summary=summarize_queries(runs),
            )
            unwritten = None
            try:
                running.folder.write(result, request.json_file)
            except RunFailed as error:
                unwritten = error
    terminal = sys.stdout.isatty()
    say(tabulate_figures(result, terminal).text())
    say(describe_durations(result.fill_level))
    for line in list_notes(result, terminal):
        say(line)
    if unwritten:
        raise unwritten
    say(f"\nResult: {running.folder.path}")
    return EXIT_FAILED if report.invalid_reasons else 0
