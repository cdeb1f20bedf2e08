"""What tables take on disk, as PostgreSQL and its relatives tell it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...contract import Allocation, Storage
from .._base.sql_queries import quote_name, quote_text
from .dialects import Dialect
from .server import Session


def read_storage(session: Session, dialect: Dialect, tables: Sequence[str]) -> Storage:
    """The sum over the tables, by the dialect's own statement."""
    return add_up(
        [ask_size(session, dialect.STORAGE, table) for table in tables],
        dialect.STORED,
        dialect.ALLOCATION,
    )


def ask_size(session: Session, statement: str, table: str) -> Sequence[Any]:
    """What a statement says of a table: bytes in all, bytes of indexes or None, copies."""
    name = quote_name(table)
    return session.ask(statement.format(name=name, text=quote_text(name)))[0]


def add_up(sizes: Sequence[Sequence[Any]], source: str, allocation: Allocation) -> Storage:
    """Tables' sizes together: bytes in all, bytes of indexes or None, copies in them. `allocation`: of
    each table."""
    total = sum(int(size) for size, _, _ in sizes)
    indexes = [int(size) for _, size, _ in sizes if size is not None]
    index = sum(indexes) if len(indexes) == len(sizes) else None
    return Storage(
        total_bytes=total,
        data_bytes=None if index is None else total - index,
        index_bytes=index,
        copies=max(int(copies) for _, _, copies in sizes),
        allocation=allocation.model_copy(update={"unit_bytes": allocation.unit_bytes * len(sizes)}),
        source=source,
    )
