"""What hypertables take on disk."""

from __future__ import annotations

from collections.abc import Sequence

from ...contract import Storage
from ..postgres.dialects import Dialect
from ..postgres.server import Session, add_up, ask_size

# https://www.tigerdata.com/docs/api/latest/hypertable/hypertable_detailed_size/
_SIZES = (
    "SELECT sum(total_bytes), sum(index_bytes), 1 FROM hypertable_detailed_size({text}::regclass)"
)
_SOURCE = (
    "hypertable_detailed_size: the chunks' files, compressed ones as they are, with TOAST and indexes;"
    " without the write-ahead log"
)


def read_hypertables(session: Session, tables: Sequence[str], plain: Sequence[str]) -> Storage:
    """The sum over hypertables and `plain` tables."""
    sizes = [ask_size(session, _SIZES, table) for table in tables]
    sizes += [ask_size(session, Dialect.STORAGE, table) for table in plain]
    return add_up(sizes, _SOURCE, Dialect.ALLOCATION)
