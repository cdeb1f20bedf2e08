"""What a module creates and sends for a workload, for users and for results. Connects to nothing."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeAlias

import numpy as np

from simulator.contract import DataSet, Load, StoredPart
from simulator.errors import OptionError
from simulator.modules.base import AnyModule, Job
from simulator.modules.kit.module import CreateIndices, IndexedModule
from simulator.modules.own_statements import find_own_statement
from simulator.workloads.base import Workload, device_ids
from simulator.workloads.drawing import BoundQuery, Stored, bind, draw
from simulator.workloads.queries import Query

from ...results.model import SentStatements
from ...system.errors import ConfigError
from .session import Session

EVENTS = 100_000_000
"""Parameters are drawn as if one worker had stored this many events. They are those of the first reader's
first execution."""

BindQuery: TypeAlias = Callable[[Query], BoundQuery]
"""Binds a query to the parameters of an execution."""

_WHEN = {
    CreateIndices.BEFORE: "created with the tables",
    CreateIndices.AFTER: "created when the events are loaded",
}


def keep_statements(session: Session, data: DataSet, readers: Load | None) -> list[SentStatements]:
    """The statements that a command's result keeps: the schema and the readers' queries. Empty if they can't
    be known before the run."""
    try:
        module, workload = make_module(session, data, readers or Load())
        parts = describe_tables(module)
        if readers is not None:
            queries = readers.queries or workload.schema.queries
            statements = describe_queries(module, partial(bind_first, workload))
            parts += [part for part in statements if part.query in queries]
    except (OptionError, ConfigError):
        return []
    return [part.shorten() for part in parts]


def make_module(session: Session, data: DataSet, load: Load) -> tuple[AnyModule, Workload]:
    """The session's module with such a job, and the workload. OptionError or ConfigError if there is none."""
    options = session.workload_options.model_dump()
    workload = session.workload.kind(data.seed, **options)
    job = Job(workload.schema, load, target=session.target.name)
    return session.module(session.assume_options(), job), workload


def collect_statements(module: AnyModule, workload: Workload) -> list[SentStatements]:
    """The schema, and each query of the workload with its statement or why it can't run. OptionError as in
    `describe_queries`."""
    stored = Stored(workload, [StoredPart(0, 0, EVENTS)])
    return describe_tables(module) + describe_queries(module, partial(draw_first, stored))


def describe_tables(module: AnyModule) -> list[SentStatements]:
    """The schema, and the indexes if there are any."""
    try:
        lines = module.describe_schema() or ["nothing is created before the events"]
    except OptionError as error:
        lines = [str(error)]
    own = bool(module.own_tables)
    title = "Schema, the workload's own" if own else "Schema"
    parts = [SentStatements(title=title, lines=lines, own=own)]
    if isinstance(module, IndexedModule) and module.options.is_indexed:
        title = f"Indexes, {_WHEN[module.options.create_indices]}"
        parts.append(SentStatements(title=title, lines=module.describe_indexes()))
    return parts


def describe_queries(module: AnyModule, bind_query: BindQuery) -> list[SentStatements]:
    """Each query that runs. OptionError if the module's job names an unknown query, or the module can't
    query."""
    chosen = module.job.load.queries
    if chosen is not None:
        module.choose_queries()
    return [
        _describe_query(module, query, bind_query)
        for query in module.job.schema.descriptions
        if chosen is None or query.name in chosen
    ]


def _describe_query(module: AnyModule, query: Query, bind_query: BindQuery) -> SentStatements:
    own = find_own_statement(module.own_names, query) is not None
    name = f"Query {query.name}, the workload's own statement" if own else f"Query {query.name}"
    if (
        (percentiles := module.CAPABILITIES.percentiles).estimate
        and query.ranked
        and module.can_ask(query)
    ):
        name += f" (percentiles are {percentiles})"
    return SentStatements(
        title=f"{name}: {query.about}" if query.about else name,
        lines=[_describe_statement(module, query, bind_query)],
        query=query.name,
        own=own,
    )


def _describe_statement(module: AnyModule, query: Query, bind_query: BindQuery) -> str:
    if not module.can_ask(query):
        askable = [other.name for other in module.job.schema.descriptions if module.can_ask(other)]
        return module.explain_query(query.name, askable)
    try:
        return module.describe_statement(module.make_statement(bind_query(query)))
    except OptionError as error:
        return str(error)


def draw_first(stored: Stored, query: Query) -> BoundQuery:
    """The query as the first reader's first execution."""
    return draw(query, stored, 0, 0) if query.is_drawn else bind(query, stored.epoch_ms)


def bind_first(workload: Workload, query: Query) -> BoundQuery:
    """The query for the first devices and the beginning of their time. Drawing parameters would require
    knowing what is stored, which takes up to 0.6 s before a command's first run."""
    devices = query.devices if isinstance(query.devices, tuple) else None
    if isinstance(query.devices, int):
        count = min(query.devices, workload.device_count(0))
        names = device_ids(0, np.arange(count, dtype=np.int64)).tolist()
        devices = tuple(name.decode() for name in names)
    epoch_ms = workload.schema.epoch_ms
    if query.window is None and not query.instant:
        return BoundQuery(query, devices)
    span_ms = query.window.span if query.window else 1
    return BoundQuery(query, devices, epoch_ms, epoch_ms + span_ms)
