"""What a module makes and sends for a workload, for whoever asks and for results. Nothing is connected to."""

from __future__ import annotations

from collections.abc import Sequence

from simulator.contract import DataSet, Load
from simulator.errors import OptionError
from simulator.modules.base import AnyModule, Job
from simulator.modules.indexes import CreateIndices, IndexedModule
from simulator.modules.own_statements import find_own_statement
from simulator.oracle.stored import Stored, StoredPart
from simulator.workloads.base import Workload
from simulator.workloads.drawing import BoundQuery, bind, draw
from simulator.workloads.queries import Query

from ..errors import ConfigError
from ..results.statements import SentStatements
from .session import Session

EVENTS = 100_000_000
"""So many are taken to be stored, by one worker, where parameters are drawn: they are those of the first
execution of the first reader."""

_WHEN = {
    CreateIndices.BEFORE: "made with the tables",
    CreateIndices.AFTER: "made when the events are loaded",
}


def keep_statements(session: Session, data: DataSet, readers: Load | None) -> list[SentStatements]:
    """What the result of a command keeps of it: the schema, and of readers their queries. Nothing where that
    can't be known before the run."""
    try:
        kept = collect_statements(*make_module(session, data, readers or Load()))
    except (OptionError, ConfigError):
        return []
    return [part.shorten() for part in kept if readers is not None or part.query is None]


def make_module(session: Session, data: DataSet, load: Load) -> tuple[AnyModule, Workload]:
    """The session's module with such a job, and the workload; OptionError or ConfigError if there is none."""
    options = session.workload_options.model_dump()
    workload = session.workload.kind(data.seed, **options)
    job = Job(workload.schema, load, target=session.target.name)
    return session.module(session.assume_options(), job), workload


def collect_statements(module: AnyModule, workload: Workload) -> list[SentStatements]:
    """The schema, and each query of the workload with its statement, or why it can't be asked. OptionError if
    the module's job names a query that there isn't, or the module can't ask."""
    try:
        made = module.describe_schema() or ["nothing is made before the events"]
    except OptionError as error:
        made = [str(error)]
    found = [SentStatements(title="Schema", lines=made)]
    if isinstance(module, IndexedModule) and module.options.is_indexed:
        title = f"Indexes, {_WHEN[module.options.create_indices]}"
        found.append(SentStatements(title=title, lines=module.describe_indexes()))
    stored = Stored(workload, [StoredPart(0, 0, EVENTS)])
    chosen = module.job.load.queries
    if chosen is not None:
        module.choose_queries()
    return found + [
        _describe_query(module, query, stored)
        for query in module.job.schema.descriptions
        if chosen is None or query.name in chosen
    ]


def _describe_query(module: AnyModule, query: Query, stored: Stored) -> SentStatements:
    own = find_own_statement(type(module), query) is not None
    name = f"Query {query.name}, the workload's own statement" if own else f"Query {query.name}"
    return SentStatements(
        title=f"{name}: {query.about}" if query.about else name,
        lines=[_describe_statement(module, query, stored)],
        query=query.name,
        own=own,
    )


def _describe_statement(module: AnyModule, query: Query, stored: Stored) -> str:
    if not module.can_ask(query):
        return module.explain_query(query.name, _list_askable(module))
    try:
        return module.describe_statement(module.make_statement(_bind(query, stored)))
    except OptionError as error:
        return str(error)


def _list_askable(module: AnyModule) -> Sequence[str]:
    return [one.name for one in module.job.schema.descriptions if module.can_ask(one)]


def _bind(query: Query, stored: Stored) -> BoundQuery:
    return draw(query, stored, 0, 0) if query.is_drawn else bind(query, stored.epoch_ms)
