"""How many events and values are stored: a database that keeps the values of an event apart may lose some of
them, and keep the others."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ..contract import Tables
from ..encoding.columns import bounds
from ..modules.base import AnyModule, connect_again
from ..workloads.drawing import bind
from ..workloads.queries import Aggregate, Function, Query

EVENTS = ""
"""Among columns: the events themselves, by whatever the module takes for their number."""

_AT_ONCE = 50
"""Columns that are counted by one question: VictoriaMetrics takes 16 KiB (-search.maxQueryLen)."""


def list_counted(module: AnyModule) -> list[str]:
    """What is counted and looked up: the events, and the columns whose values are kept apart."""
    return [EVENTS, *module.list_kept_apart()]


def count_of(name: str) -> Aggregate:
    """What counts one of these."""
    return Aggregate(function=Function.COUNT, column=name or None)


def count_values(module: AnyModule) -> dict[str, int]:
    """How many there are of each of these, in all tables together. Raises Retryable or SimulatorError."""
    module.make_visible()
    names = list_counted(module)
    counts = dict.fromkeys(names, 0)
    for part in open_tables(module):
        for start, stop in bounds(len(names), _AT_ONCE):
            asked = names[start:stop]
            query = Query(name="values", compute=tuple(map(count_of, asked)))
            [row] = part.fetch(part.compile(bind(query, module.job.schema.epoch_ms)))
            for name, count in zip(asked, row, strict=True):
                counts[name] += int(count)
    return counts


def open_tables(module: AnyModule) -> Iterator[AnyModule]:
    """The module for each table, as its queries are of a single one: several are opened in turn, after the
    given one. Raises Retryable if the database has gone away since then."""
    job = module.job
    if job.load.tables is Tables.SINGLE:
        yield module
        return
    load = job.load.model_copy(update={"tables": Tables.SINGLE})
    for name in job.table_names:
        schema = replace(job.schema, table=name, tags_of=job.schema.table)
        own = type(module)(module.options, replace(job, schema=schema, load=load))
        try:
            connect_again(own.open)
            yield own
        finally:
            own.close()
