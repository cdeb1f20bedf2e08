"""Options of targets on TimescaleDB."""

from __future__ import annotations

from pydantic import Field

from ..postgres.options import ServerOptions

DAY_MS = 86_400_000


class TimescaleOptions(ServerOptions):
    """Options of targets with `module: timescaledb`."""

    chunk_time_interval: int | None = Field(
        None,
        ge=1,
        description=f"ms of event time that a chunk of the hypertable holds (default: {DAY_MS:,}, a"
        " day; of tables that there are already: theirs)",
    )
    columnstore: bool = Field(
        False,
        description="make the tables for the columnstore (compression), by device and newest time, "
        "and convert all chunks to it before the queries",
    )
