"""How PostgreSQL and its relatives are asked."""

from __future__ import annotations

from ...workloads.base import Schema
from ...workloads.queries import Bound
from ..shared.sql_queries import Newest, SqlDialect, compile_query

TUNED = "-tuned"
"""Ends the name of a query that says the same in a way that only pays with `create_indices`."""

NEWEST = {"newest-per-device": Newest.WINDOW}
"""What is asked otherwise than by DISTINCT ON: without an index on device and time, that sorts all events."""


def compile_statement(bound: Bound, schema: Schema, dialect: SqlDialect) -> str:
    """The statement that asks what is bound."""
    newest = NEWEST.get(bound.query.name, Newest.DIALECT)
    return compile_query(bound, schema, dialect, newest)
