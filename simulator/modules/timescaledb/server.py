"""What the extension tells of itself and of its hypertables, and what they take on disk."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...contract import Storage
from ...errors import SimulatorError
from ..base import Job
from ..postgres.dialects import Dialect
from ..postgres.server import Session, add_up, ask_size, code_of

_NO_SUCH_SETTING = "42704"

APACHE = "apache"
"""The licence without the columnstore, among others:
https://www.tigerdata.com/docs/about/latest/timescaledb-editions/"""

CREATE_EXTENSION = "CREATE EXTENSION IF NOT EXISTS timescaledb"


def install_extension(session: Session) -> None:
    """Make the extension in this database, if it isn't there; SimulatorError with a remedy if that
    can't be done."""
    if read_version(session) is not None:
        return
    try:
        session.execute(CREATE_EXTENSION)
    except SimulatorError as error:
        raise SimulatorError(
            f"the database has no extension timescaledb, and it can't be made: {error}; install"
            " TimescaleDB on the server with shared_preload_libraries=timescaledb, and let a user who"
            " may do so run CREATE EXTENSION timescaledb in this database"
        ) from error


def read_version(session: Session) -> str | None:
    """The extension's version; None if this database hasn't got it."""
    rows = session.ask("SELECT extversion FROM pg_extension WHERE extname = 'timescaledb'")
    return rows[0][0] if rows else None


def read_licence(session: Session) -> str | None:
    """`timescale` (Community edition) or `apache`; None if this version has no such setting."""
    try:
        return str(session.ask("SHOW timescaledb.license")[0][0])
    except SimulatorError as error:
        if code_of(error) == _NO_SUCH_SETTING:
            return None
        raise


def read_intervals(session: Session, job: Job) -> dict[str, int]:
    """The job's tables that are hypertables -> ms of event time in a chunk."""
    rows = session.ask(
        "SELECT hypertable_name, integer_interval FROM timescaledb_information.dimensions"
        " WHERE hypertable_schema = current_schema() AND hypertable_name = ANY(%s)"
        " AND dimension_number = 1",
        [job.table_names],
    )
    return dict(rows)


def describe_hypertables(session: Session, job: Job) -> dict[str, Any]:
    """How the job's tables are stored; what isn't there is left out."""
    columnstore = session.ask(
        "SELECT DISTINCT compression_enabled FROM timescaledb_information.hypertables"
        " WHERE hypertable_schema = current_schema() AND hypertable_name = ANY(%s) ORDER BY 1",
        [job.table_names],
    )
    settings: dict[str, list[Any]] = {
        "timescaledb.license": [licence] if (licence := read_licence(session)) else [],
        "chunk_time_interval": sorted(set(read_intervals(session, job).values())),
        "columnstore": [enabled for (enabled,) in columnstore],
    }
    # Tables that differ are the exception.
    return {
        name: values[0] if len(values) == 1 else values
        for name, values in settings.items()
        if values
    }


# https://www.tigerdata.com/docs/api/latest/hypertable/hypertable_detailed_size/
_SIZES = (
    "SELECT sum(total_bytes), sum(index_bytes), 1 FROM hypertable_detailed_size({text}::regclass)"
)
_SOURCE = (
    "hypertable_detailed_size: the chunks' files, compressed ones at their compressed size, with"
    " TOAST and indexes; without the write-ahead log"
)


def read_hypertables(session: Session, tables: Sequence[str], plain: Sequence[str]) -> Storage:
    """The sum over hypertables and `plain` tables."""
    sizes = [ask_size(session, _SIZES, table) for table in tables]
    sizes += [ask_size(session, Dialect.STORAGE, table) for table in plain]
    return add_up(sizes, _SOURCE, Dialect.ALLOCATION)
