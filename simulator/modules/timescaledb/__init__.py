"""TimescaleDB: the PostgreSQL module on hypertables.

`columnstore` needs TimescaleDB 2.18 or later, of the Community edition. The extension is created in the
database if it is missing, so the user needs that privilege.

Each event is stored exactly once in the same way as in the module `postgres`. A request in doubt is looked up
by device, time and sequence number: with the time, chunks of other times are skipped.

A unique index of a hypertable must contain its time column, so there is no primary key of `id` alone:
https://www.tigerdata.com/docs/use-timescale/latest/hypertables/hypertables-and-unique-indexes. `--primary-key
sql` gives each event an `id` from an identity column without a constraint, `none` (and a run without the
option, as in the reference) no `id` at all; `primary_key_constraint` can add one, such as `PRIMARY KEY (id,
timestamp)`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Annotated, Any, ClassVar

from pydantic import Field

from ...conditions import Condition
from ...contract import PrimaryKey, Storage
from ...encoding.columns import quote_name
from ...errors import OptionError, SimulatorError
from ...workloads.queries import Query
from ...workloads.schema import ID, Tags
from ..base import Ageing, Job, OwnSchema, Support, support_keys
from ..kit.sql_queries import Newest, quote_text
from ..postgres import Postgres
from ..postgres.dialects import Dialect
from ..postgres.encoding import PostgresEncoder, ServerOptions
from ..postgres.server import Session, add_up, ask_size, code_of

_NO_SUCH_SETTING = "42704"

_APACHE = "apache"
"""The licence without the columnstore, among others:
https://www.tigerdata.com/docs/about/latest/timescaledb-editions/"""

_CREATE_EXTENSION = "CREATE EXTENSION IF NOT EXISTS timescaledb"

_DAY_MS = 86_400_000

# https://www.tigerdata.com/docs/api/latest/hypertable/hypertable_detailed_size/
_SIZES = (
    "SELECT sum(total_bytes), sum(index_bytes), 1 FROM hypertable_detailed_size({text}::regclass)"
)
# https://www.tigerdata.com/docs/api/latest/hypertable/hypertable_index_size/
_INDEX_SIZES = (
    "SELECT c.relname, hypertable_index_size(c.oid::regclass) FROM pg_index"
    " JOIN pg_class c ON c.oid = indexrelid WHERE indrelid = {text}::regclass"
)
_SOURCE = (
    "hypertable_detailed_size: the chunks' files, compressed ones at their compressed size, with"
    " TOAST and indexes; without the write-ahead log"
)


class TimescaleOptions(ServerOptions):
    """Options of targets with `module: timescaledb`."""

    chunk_time_interval: Annotated[int | None, Condition.SCHEMA] = Field(
        None,
        ge=1,
        description=f"ms of event time in one chunk of the hypertable (default: {_DAY_MS:,}, a day;"
        " existing tables keep theirs)",
    )
    columnstore: Annotated[bool, Condition.SCHEMA] = Field(
        False,
        description="enable the columnstore (compression) for the tables, by device and newest"
        " time, and convert all chunks to it before the queries",
    )


class Timescaledb(Postgres):
    """PostgreSQL with the extension timescaledb."""

    name = "timescaledb"
    options_model = TimescaleOptions
    OLDEST: ClassVar[Mapping[str, str]] = {
        Dialect.PRODUCT: Dialect.OLDEST,
        # create_hypertable with by_range: see `_convert_table`
        "TimescaleDB": "2.13",
    }
    UPGRADE = "run ALTER EXTENSION timescaledb UPDATE, or install a newer version on the server"
    CAPABILITIES = replace(
        Postgres.CAPABILITIES,
        primary_keys=support_keys(PrimaryKey.NONE, PrimaryKey.SQL),
        ageing=Ageing("drop_chunks, with chunks as long as a step"),
        dialects=(),
        own_schema=OwnSchema("SQL", ages=True),
    )
    TIME_ORDER = "DESC"
    # https://www.tigerdata.com/docs/api/latest/hypertable/create_hypertable/: `create_default_indexes`
    TIME_INDEX = True
    KEY_CONSTRAINT = None

    options: TimescaleOptions

    def __init__(self, options: TimescaleOptions, job: Job) -> None:
        super().__init__(options, _without_key(job))
        interval_ms, retention = options.chunk_time_interval, job.retention
        if retention is not None and interval_ms and retention.step_ms % interval_ms:
            raise OptionError(
                f"chunk_time_interval={interval_ms} doesn't divide the steps of --retention,"
                f" {retention.step_ms} ms: leave it out"
            )

    @classmethod
    def encoder(cls, options: ServerOptions, job: Job) -> PostgresEncoder:
        return super().encoder(options, _without_key(job))

    def prepare(self) -> None:
        # Before anything is dropped.
        if _read_version(self.connection) is None:
            try:
                self.execute(_CREATE_EXTENSION)
            except SimulatorError as error:
                raise SimulatorError(
                    f"the database has no extension timescaledb, and it can't be created: {error}; install"
                    " TimescaleDB on the server with shared_preload_libraries=timescaledb, and let a"
                    " privileged user run CREATE EXTENSION timescaledb in this database"
                ) from error
        if self.options.columnstore and _read_licence(self.connection) == _APACHE:
            raise SimulatorError(
                "columnstore=true needs TimescaleDB's Community edition, and this server's"
                " timescaledb.license is apache: leave columnstore out, or set the licence to timescale"
            )
        if not self.job.clean:
            requested = self.options.chunk_time_interval
            for table, interval in _read_intervals(self.connection, self.job).items():
                if requested not in (None, interval):
                    raise SimulatorError(
                        f"table {table} has chunk_time_interval={interval}, not {requested}: run without"
                        " --no-clean, or leave the option out"
                    )
        super().prepare()

    def describe_schema(self) -> list[str]:
        return [_CREATE_EXTENSION, *super().describe_schema()]

    def make_statements(self, there: Collection[str] = ()) -> list[str]:
        statements = super().make_statements(there)
        for table in self.job.table_names:
            statements.append(self._convert_table(table))
            statements += self._enable_columnstore(table)
        return statements

    def _convert_table(self, table: str) -> str:
        """https://www.tigerdata.com/docs/reference/timescaledb/hypertables/create_hypertable"""
        own_ms = self.job.retention.step_ms if self.job.retention else _DAY_MS
        interval_ms = self.options.chunk_time_interval or own_ms
        return (
            f"SELECT * FROM create_hypertable({quote_text(quote_name(table))}::regclass,"
            f" by_range({quote_text(self.job.schema.time)}, {interval_ms}::bigint), if_not_exists => TRUE)"
        )

    def _enable_columnstore(self, table: str) -> list[str]:
        """https://www.tigerdata.com/docs/api/latest/hypercore/alter_table/. No statement without
        `columnstore`."""
        if not self.options.columnstore:
            return []
        schema = self.job.schema
        apart = schema.tags is Tags.TABLE
        by_device = (
            ""
            if schema.device_path and not apart
            else f" timescaledb.segmentby = '{quote_name(ID if apart else schema.device)}',"
        )
        statement = (
            f"ALTER TABLE {quote_name(table)} SET (timescaledb.enable_columnstore = true,{by_device}"
            f" timescaledb.orderby = '{quote_name(schema.time)} DESC')"
        )
        return [statement]

    def _list_bounds(self) -> list[int]:
        return []  # chunks are made as events come

    def delete_older(self, before_ms: int) -> None:
        """https://www.tigerdata.com/docs/api/latest/hypertable/drop_chunks"""
        for table in self.job.table_names:
            self.connection.ask(
                "SELECT drop_chunks(%s::regclass, older_than => %s::bigint)",
                [quote_name(table), before_ms],
            )

    def prepare_queries(self) -> None:
        super().prepare_queries()
        if self.options.columnstore:
            self._convert_chunks(self.job.schema.table)

    def _convert_chunks(self, table: str) -> None:
        """https://www.tigerdata.com/docs/reference/timescaledb/hypercore/convert_to_columnstore"""
        self.claim_tables()
        name = quote_name(table)
        for (chunk,) in self.connection.ask("SELECT show_chunks(%s::regclass)::text", [name]):
            self.connection.ask("CALL convert_to_columnstore(%s::regclass)", [chunk])

    def choose_newest(self) -> Newest | None:
        if self.is_indexed:
            # SkipScan jumps from device to device in the index on device and newest time.
            # https://www.tigerdata.com/docs/build/data-management/query-data/skipscan
            return Newest.DIALECT
        # The columnstore has each device's events together: 7 ms, and 77 with the join
        # (docs/measurements/plans.md).
        return None if self.options.columnstore else super().choose_newest()

    def reads_window_by_time(self, query: Query) -> bool:
        # A hypertable always has an index on time, and in the columnstore none. One on device and time is
        # used instead, but not with a condition on a value.
        if self.options.columnstore:
            return False
        return not self.is_indexed or query.where is not None

    def choose_index_sizes(self, table: str) -> str:
        return _INDEX_SIZES if table in self.job.table_names else super().choose_index_sizes(table)

    def storage_during(self) -> Storage:
        # The tags' table is a plain one.
        sizes = [
            ask_size(
                self.connection, _SIZES if table in self.job.table_names else Dialect.STORAGE, table
            )
            for table in self.tables
        ]
        return add_up(sizes, _SOURCE, Dialect.ALLOCATION)

    def compact(self) -> bool:
        if not self.options.columnstore:
            return super().compact()
        for table in self.job.table_names:
            self._convert_chunks(table)
        return True

    def server_info(self) -> dict[str, Any]:
        info = super().server_info()
        version = _read_version(self.connection)
        info["version"] += f"; TimescaleDB {version or 'not installed'}"
        if version is not None:
            columnstore = self.connection.ask(
                "SELECT DISTINCT compression_enabled FROM timescaledb_information.hypertables"
                " WHERE hypertable_schema = current_schema() AND hypertable_name = ANY(%s) ORDER BY 1",
                [self.job.table_names],
            )
            licence = _read_licence(self.connection)
            settings: dict[str, list[Any]] = {
                "timescaledb.license": [licence] if licence else [],
                "chunk_time_interval": sorted(
                    set(_read_intervals(self.connection, self.job).values())
                ),
                "columnstore": [enabled for (enabled,) in columnstore],
            }
            # Tables that differ are the exception.
            info["settings"] |= {
                name: values[0] if len(values) == 1 else values
                for name, values in settings.items()
                if values
            }
        return info

    def read_versions(self) -> Mapping[str, str]:
        # An extension created by the first run has the version installed on the server.
        rows = self.connection.ask(
            "SELECT coalesce(installed_version, default_version) FROM pg_available_extensions"
            " WHERE name = 'timescaledb'"
        )
        own = {"TimescaleDB": rows[0][0]} if rows else {}
        return {**super().read_versions(), **own}


def _without_key(job: Job) -> Job:
    """The job without a primary key that a hypertable can't have."""
    if Timescaledb.CAPABILITIES.primary_keys[job.load.primary_key] is Support.FULL:
        return job
    return job.change(primary_key=PrimaryKey.NONE)


# --- the extension's description of itself and of its hypertables -----------------------------------


def _read_version(session: Session) -> str | None:
    """The extension's version; None if this database doesn't have it."""
    rows = session.ask("SELECT extversion FROM pg_extension WHERE extname = 'timescaledb'")
    return rows[0][0] if rows else None


def _read_licence(session: Session) -> str | None:
    """`timescale` (Community edition) or `apache`; None if this version has no such setting."""
    try:
        return str(session.ask("SHOW timescaledb.license")[0][0])
    except SimulatorError as error:
        if code_of(error) == _NO_SUCH_SETTING:
            return None
        raise


def _read_intervals(session: Session, job: Job) -> dict[str, int]:
    """The job's tables that are hypertables -> ms of event time in a chunk."""
    rows = session.ask(
        "SELECT hypertable_name, integer_interval FROM timescaledb_information.dimensions"
        " WHERE hypertable_schema = current_schema() AND hypertable_name = ANY(%s)"
        " AND dimension_number = 1",
        [job.table_names],
    )
    return dict(rows)
