"""TimescaleDB: the PostgreSQL module on hypertables.

Needs TimescaleDB 2.13 or later in the database (`create_hypertable` with a dimension), 2.18 or later
for `columnstore`.

A unique index of a hypertable must contain its time column, so there is no primary key of `id`
alone: https://www.tigerdata.com/docs/use-timescale/latest/hypertables/hypertables-and-unique-indexes.
`--primary-key sql` gives each event an `id` from an identity column without a constraint, `none` (and
a run that asks for nothing, as in the reference) no `id` at all; `primary_key_constraint` can add one,
such as `PRIMARY KEY (id, timestamp)`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import psycopg2
from pydantic import Field

from ...contract import PrimaryKey
from ...errors import SimulatorError
from ..base import Job, Support
from ..postgres import EncodingOptions, Postgres, ServerOptions
from ..postgres.encoding import PostgresEncoder
from ..shared.sql import quoted

_NO_SUCH_FUNCTION = "42883"

# SkipScan jumps from device to device in the index on device and newest time:
# https://www.tigerdata.com/docs/build/data-management/query-data/skipscan
_TUNED_QUERIES = {
    "newest-per-device-tuned": """
        SELECT DISTINCT ON (device_id) device_id, temperature
        FROM events ORDER BY device_id, "timestamp" DESC""",
}


class TimescaleOptions(ServerOptions):
    """Options of targets with `module: timescaledb`."""

    chunk_time_interval: int = Field(
        86_400_000, ge=1, description="ms of event time that a chunk of the hypertable holds"
    )
    columnstore: bool = Field(
        False,
        description="make the tables for the columnstore (compression), by device and newest time, "
        "and convert all chunks to it before the queries",
    )


class Timescaledb(Postgres):
    """PostgreSQL with the extension timescaledb."""

    name = "timescaledb"
    options_model = TimescaleOptions
    encoding_options_model = EncodingOptions
    CAPABILITIES = replace(
        Postgres.CAPABILITIES,
        primary_keys={
            PrimaryKey.SQL: Support.FULL,
            PrimaryKey.DB: Support.UNSUPPORTED,
            PrimaryKey.CLIENT: Support.UNSUPPORTED,
            PrimaryKey.UUID: Support.UNSUPPORTED,
            PrimaryKey.NONE: Support.FULL,
        },
        queries=dict.fromkeys([*Postgres.QUERIES, *_TUNED_QUERIES], Support.FULL),
    )
    QUERIES: ClassVar[Mapping[str, str]] = {**Postgres.QUERIES, **_TUNED_QUERIES}
    TIME_ORDER = "DESC"
    KEY_CONSTRAINT = None

    options: TimescaleOptions

    def __init__(self, options: TimescaleOptions, job: Job) -> None:
        super().__init__(options, _without_key(job))

    @classmethod
    def encoder(cls, options: EncodingOptions, job: Job, batch: int) -> PostgresEncoder:
        return super().encoder(options, _without_key(job), batch)

    def prepare(self) -> None:
        super().prepare()
        for table in self.job.table_names:
            self._make_hypertable(table)

    def _make_hypertable(self, table: str) -> None:
        """https://www.tigerdata.com/docs/reference/timescaledb/hypertables/create_hypertable"""
        schema = self.job.schema
        try:
            self._ask(
                "SELECT * FROM create_hypertable(%s::regclass, by_range(%s, %s::bigint),"
                " if_not_exists => TRUE)",
                [quoted(table), schema.time, self.options.chunk_time_interval],
            )
        except SimulatorError as error:
            cause = error.__cause__
            if isinstance(cause, psycopg2.Error) and cause.pgcode == _NO_SUCH_FUNCTION:
                raise SimulatorError(
                    "the database has no TimescaleDB of version 2.13 or later: install it there,"
                    " then set install_extensions=timescaledb"
                ) from error
            raise
        if self.options.columnstore:
            # https://www.tigerdata.com/docs/api/latest/hypercore/alter_table/
            by_device = (
                "" if schema.device_path else f" timescaledb.segmentby = '{quoted(schema.device)}',"
            )
            self._do(
                f"ALTER TABLE {quoted(table)} SET (timescaledb.enable_columnstore = true,{by_device}"
                f" timescaledb.orderby = '{quoted(schema.time)} DESC')"
            )

    def prepare_queries(self) -> None:
        super().prepare_queries()
        if not self.options.columnstore:
            return
        table = quoted(self.job.schema.table)
        for (chunk,) in self._ask("SELECT show_chunks(%s::regclass)::text", [table]):
            # https://www.tigerdata.com/docs/reference/timescaledb/hypercore/convert_to_columnstore
            self._ask("CALL convert_to_columnstore(%s::regclass)", [chunk])

    def server_info(self) -> dict[str, Any]:
        info = super().server_info()
        rows = self._ask("SELECT extversion FROM pg_extension WHERE extname = 'timescaledb'")
        info["version"] += f"; TimescaleDB {rows[0][0] if rows else 'of unknown version'}"
        return info


def _without_key(job: Job) -> Job:
    """The job without a primary key that a hypertable can't have."""
    if Timescaledb.CAPABILITIES.primary_keys[job.load.primary_key] is Support.FULL:
        return job
    return replace(job, load=job.load.model_copy(update={"primary_key": PrimaryKey.NONE}))
