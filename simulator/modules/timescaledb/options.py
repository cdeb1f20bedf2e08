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
        description=f"ms of event time in one chunk of the hypertable (default: {DAY_MS:,}, a day;"
        " existing tables keep theirs)",
    )
    columnstore: Annotated[bool, Condition.SCHEMA] = Field(
        False,
        description="enable the columnstore (compression) for the tables, by device and newest"
        " time, and convert all chunks to it before the queries",
    )
