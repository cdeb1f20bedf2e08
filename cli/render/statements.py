"""What a module makes and sends for a workload, as text. Nothing is connected to."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import indent

from simulator.errors import OptionError
from simulator.modules.base import AnyModule
from simulator.modules.indexes import CreateIndices, IndexedModule
from simulator.oracle.stored import Stored, StoredPart
from simulator.workloads.base import Workload
from simulator.workloads.drawing import BoundQuery, bind, draw
from simulator.workloads.queries import Query

EVENTS = 100_000_000
"""So many are taken to be stored, by one worker, where parameters are drawn: they are those of the first
execution of the first reader."""

_WHEN = {
    CreateIndices.BEFORE: "made with the tables",
    CreateIndices.AFTER: "made when the events are loaded",
}


def describe_statements(module: AnyModule, workload: Workload) -> str:
    """The schema, and each query of the workload with its statement, or why it can't be asked. OptionError if
    the module's job names a query that there isn't, or the module can't ask."""
    target, schema = module.job.target, module.job.schema
    try:
        made = module.describe_schema() or ["nothing is made before the events"]
    except OptionError as error:
        made = [str(error)]
    heading = f"Target {target}, module {module.name}, workload {workload.name}: schema"
    parts = [_head(heading, made)]
    if isinstance(module, IndexedModule) and module.options.is_indexed:
        when = _WHEN[module.options.create_indices]
        parts.append(_head(f"Indexes, {when}", module.describe_indexes()))
    stored = Stored(workload, [StoredPart(0, 0, EVENTS)])
    chosen = module.job.load.queries
    if chosen is not None:
        module.choose_queries()
    parts += [
        _describe_query(module, query, stored)
        for query in schema.descriptions
        if chosen is None or query.name in chosen
    ]
    return "\n\n".join(parts)


def _head(heading: str, texts: Sequence[str]) -> str:
    return "\n".join([heading, *(indent(text, "  ") for text in texts)])


def _describe_query(module: AnyModule, query: Query, stored: Stored) -> str:
    heading = f"Query {query.name}: {query.about}" if query.about else f"Query {query.name}"
    schema, shapes = module.job.schema, frozenset(module.CAPABILITIES.shapes)
    if not query.shapes(schema) <= shapes:
        askable = [one.name for one in schema.descriptions if one.shapes(schema) <= shapes]
        return _head(heading, [module.explain_query(query.name, askable)])
    try:
        bound = _bind(query, stored)
        return _head(heading, [module.describe_statement(module.compile(bound))])
    except OptionError as error:
        return _head(heading, [str(error)])


def _bind(query: Query, stored: Stored) -> BoundQuery:
    return draw(query, stored, 0, 0) if query.is_drawn else bind(query, stored.epoch_ms)
