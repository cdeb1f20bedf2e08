"""Options of targets on TimescaleDB."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from ...conditions import Condition
from ..postgres.options import ServerOptions

DAY_MS = 86_400_000


class TimescaleOptions(ServerOptions):
    """Options of targets with `module: timescaledb`."""

    chunk_time_interval: Annotated[int | None, Condition.SCHEMA] = Field(
        None,
        ge=1,
        description=f"ms of event time that a chunk of the hypertable holds (default: {DAY_MS:,}, a"
        " day; of tables that there are already: theirs)",
    )
    columnstore: Annotated[bool, Condition.SCHEMA] = Field(
        False,
        description="make the tables for the columnstore (compression), by device and newest time, "
        "and convert all chunks to it before the queries",
    )
