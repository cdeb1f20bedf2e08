"""PostgreSQL, and databases with its protocol: CockroachDB, YugabyteDB SQL.

How requests are sent
---------------------
libpq, through psycopg 3's C binding, connects, prepares and queries (`kit/libpq`). Events bypass it, each
request in one round trip, except over TLS, which uses its functions (`kit/libpq_pipeline`): otherwise a
driver's own overhead would be measured with the database. Single inserts, and those of `transaction`, are
prepared statements with binary values. All dialects get the same: each documents the extended protocol, COPY
and binary values. `prepared_statements=false` is for proxies.

With `client=official` (psycopg2) and `client=psycopg3`, a driver sends events: see `official`.

Tags in a separate table (`tags=table`)
-----------------------------------------
The table has a primary key on `tags_id`, and its rows are stored by `INSERT … ON CONFLICT DO NOTHING`, which
may be repeated. Events' rows have no foreign key, which would cost a look-up for each. Queries join the names
to their results by id.

Each event is stored exactly once, however a connection dies
-----------------------------------------------------------
A request is one transaction (a single statement, or BEGIN … COMMIT where it needs several), so it is stored
as a whole or not at all. After an error, it is only unknown whether a transaction without an answer was
committed: with a pipeline, there may be several on one connection. After a lost connection, `recover`
therefore

1. waits until the old connection's backend is gone (ending it if necessary), so that it can't commit anything
   later, and
2. looks up each such request's last event by its natural key (device or its id, time, sequence number): if it
   is found, the request counts as stored; if not, it is sent again.

Without failures this needs no extra statement. It works for each key mode:

* `client`: the key is made from the event, so a second copy is impossible, and the look-up uses the primary
  key's index.
* `sql`, `db`, `uuid`, `none`: the database would accept a second copy under a new key; only the look-up
  prevents it. It reads the table, unless `primary_key_constraint` is the natural key or an index serves the
  look-up: slow on a large table, but only after a lost connection.

Serialization failures (40001) and deadlocks (40P01) leave nothing behind: the whole request is sent again.
(CockroachDB's savepoints would save the BEGIN, but cost two more statements in each successful transaction.)

These cases are not covered. A server may lose acknowledged transactions (a crash with `synchronous_commit` or
`fsync` off, a failover to a lagging replica); the count after the run shows it. Behind a proxy that gives
each transaction another server connection (PgBouncer in transaction mode), the old transaction may not have
ended before the look-up. The same holds if the old connection's node lives but can't be reached: on
YugabyteDB at its own address, on CockroachDB by the other nodes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

from numpy.typing import NDArray

from ...conditions import Condition
from ...contract import PrimaryKey, Storage
from ...encoding.columns import KEY_COLUMN, quote_name
from ...encoding.postgres_rows import TYPE_OIDS, value_rows
from ...errors import OptionError, SimulatorError
from ...workloads.drawing import BoundQueries, BoundQuery
from ...workloads.own_schema import serves_newest
from ...workloads.queries import Query
from ...workloads.schema import ID, NAME_BYTES, Column, ColumnType
from ..base import Ageing, Capabilities, Client, Durability, Encoding, Job, OwnSchema, Support
from ..kit.module import MARK, IndexedModule
from ..kit.own_tables import own_schema_lacks
from ..kit.sql_module import SqlModule
from ..kit.sql_queries import Newest, SqlDialect, compile_query, quote_text
from .dialects import DIALECTS, NEWEST, Dialect, DialectName, dialect_of
from .encoding import CLIENTS, MODES, PostgresEncoder, PostgresOptions, ServerOptions, check_copy
from .queries import PostgresAsker
from .server import (
    VERSION,
    Session,
    ask_index_sizes,
    check_encoding,
    check_row,
    create_partitions,
    describe,
    list_bounds,
    list_older,
    list_statements,
    name_partitions,
    read_storage,
)
from .writer import PostgresWriter

_COLUMN_TYPES = {
    ColumnType.TIMESTAMP_MS: "bigint",
    ColumnType.INT64: "bigint",
    # CockroachDB's integer has 64 bits.
    ColumnType.INT32: "int4",
    ColumnType.FLOAT32: "real",
    ColumnType.FLOAT64: "double precision",
    ColumnType.BOOL: "boolean",
    ColumnType.TEXT: "varchar",
    ColumnType.JSON: "jsonb",
}

# https://www.postgresql.org/docs/current/limits.html, including `id`.
_RIGHTS = (
    "SELECT current_schema(), has_schema_privilege(current_schema(), 'CREATE'),"
    " current_setting('transaction_read_only')"
)
_SYSTEM_COLUMNS = frozenset({"tableoid", "xmin", "cmin", "xmax", "cmax", "ctid"})
"""https://www.postgresql.org/docs/current/ddl-system-columns.html"""
_MOST_COLUMNS = 1600 - 1

_NUMBERED = (PrimaryKey.SQL, PrimaryKey.DB)
_KEYS_OF_TYPE: Mapping[str | None, Sequence[PrimaryKey]] = {
    "bigint": _NUMBERED,
    "int4": _NUMBERED,
    "varchar": (PrimaryKey.CLIENT,),
    "uuid": (PrimaryKey.UUID,),
    None: (PrimaryKey.NONE,),
}
"""The kinds of key that an `id` of this type can be; None: there is no such column."""

_TYPE_NAMES = {TYPE_OIDS[kind]: name for kind, name in _COLUMN_TYPES.items()}
_TYPE_NAMES |= {2950: "uuid", 25: "text", 1700: "numeric", 1184: "timestamptz", 1114: "timestamp"}
_COLUMNS = (
    "SELECT attname, atttypid FROM pg_attribute"
    " WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped"
)
"""A table's columns and their types."""

_PARTITIONS = (
    "SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid"
    " WHERE i.inhparent = %s::regclass"
)
"""The partitions of a table."""

_ORDERED_OTHERWISE = (
    "SELECT attrelid::regclass::text, attname FROM pg_attribute JOIN pg_collation c ON c.oid = attcollation"
    " WHERE attrelid = to_regclass(%s) AND attname = ANY(%s) AND collname <> 'C'"
    " AND NOT (collname = 'default' AND 'B' < 'a')"
)
"""A table's columns whose texts aren't sorted by their bytes."""

_LIMITED = (
    "SELECT attname, CASE WHEN atttypid IN (1042, 1043) AND atttypmod > 4 THEN atttypmod - 4 END,"
    " attnotnull, atthasdef OR attidentity <> '' FROM pg_attribute"
    " WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped"
)
"""A table's columns, with the maximum length, whether each row must have a value, and whether there is a
default."""

_OWN_COLUMNS = (KEY_COLUMN, "rowid")
"""The second is CockroachDB's, for a table without a key:
https://www.cockroachlabs.com/docs/stable/primary-key"""

_DEVICES_AT_ONCE = 1000
"""Rows per INSERT into the tags' table."""


class Postgres(
    SqlModule[ServerOptions, Session],
    IndexedModule[ServerOptions],
):
    """Any server with PostgreSQL's protocol."""

    name = "postgres"
    PACKAGES = ("psycopg", "psycopg-binary")
    options_model: type[ServerOptions] = PostgresOptions
    OLDEST: ClassVar[Mapping[str, str]] = {
        dialect.PRODUCT: dialect.OLDEST for dialect in DIALECTS.values()
    }
    CONDITIONS: ClassVar[Mapping[str, Condition]] = {
        "fsync": Condition.DURABILITY,
        "synchronous_commit": Condition.DURABILITY,
        "full_page_writes": Condition.DURABILITY,
        "wal_level": Condition.DURABILITY,
        "yb_disable_transactional_writes": Condition.DURABILITY,
        "synchronous_standby_names": Condition.REPLICATION,
        "zone_configuration": Condition.REPLICATION,
        "tablet_servers": Condition.REPLICATION,
    }
    CLIENTS: ClassVar[Mapping[str, Client]] = CLIENTS
    CAPABILITIES = Capabilities(
        ageing=Ageing("partitions by range of time, detached and dropped whole"),
        durability=Dialect.DURABILITY,
        allocation=Dialect.ALLOCATION,
        insert_modes=dict.fromkeys(MODES, Support.FULL),
        primary_keys=dict.fromkeys(PrimaryKey, Support.FULL),
        shapes=SqlDialect.SHAPES,
        dialects=(DialectName.COCKROACHDB, DialectName.YUGABYTEDB),
        statements="SQL",
        own_schema=OwnSchema("SQL", options=("tablets", "colocation")),
        indices=Support.FULL,
        column_types=_COLUMN_TYPES,
        most_columns=_MOST_COLUMNS,
        system_columns=_SYSTEM_COLUMNS,
        not_finite=True,
        in_flight=dict.fromkeys(MODES, Support.FULL),
        tags_table=Support.FULL,
    )
    ENCODINGS = (
        Encoding("copy binary", {"insert_mode": "copy", "copy_format": "binary"}),
        Encoding("copy text", {"insert_mode": "copy", "copy_format": "text"}),
        Encoding("values_lists", {"insert_mode": "values_lists"}),
        Encoding("transaction", {"insert_mode": "transaction"}),
        Encoding("single", {"insert_mode": "single"}, batched=False),
    )

    ELSEWHERE = "another database or search_path"
    TYPES = _COLUMN_TYPES
    OWN_COLUMNS = _OWN_COLUMNS
    # The schema in which tables are created and dropped. A partition has the owner of its table.
    MARKS = (
        "SELECT c.relname, obj_description(coalesce(i.inhparent, c.oid), 'pg_class'),"
        " c.relkind IN ('r', 'p') FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
        " LEFT JOIN pg_inherits i ON i.inhrelid = c.oid"
        " WHERE n.nspname = current_schema() AND c.relname IN ({names})"
    )
    TIME_ORDER: ClassVar[str] = "ASC"
    """The order of the time in the indexes."""
    TIME_INDEX: ClassVar[bool] = False
    """Whether every table has an index on time alone."""
    KEY_CONSTRAINT: ClassVar[str | None] = "PRIMARY KEY (id)"
    """The key of a table with an `id`, unless the options name another."""

    def __init__(self, options: ServerOptions, job: Job) -> None:
        super().__init__(options, job)
        options.table_suffix()
        self.dialect = options.find_dialect()
        """The server's dialect."""
        if self.dialect.MOST_ROW_BYTES is not None:
            check_row(job.schema, self.dialect.MOST_ROW_BYTES)
        if job.retention is not None and self.dialect.NO_PARTITIONS is not None:
            raise OptionError(
                f"dialect {self.dialect.name} can't do --retention: {self.dialect.NO_PARTITIONS}"
            )
        check_copy(options, job)

    def list_own_names(self) -> list[str]:
        return [self.options.find_dialect().name, *super().list_own_names()]

    @classmethod
    def encoder(cls, options: ServerOptions, job: Job) -> PostgresEncoder:
        return PostgresEncoder(
            job,
            options.mode(job.load),
            options.copy_format,
            prepared=options.prepared_statements,
            copy_is_atomic=options.find_dialect().COPY_IS_ATOMIC,
        )

    def connect(self) -> Session:
        session = Session(self.options, self.job, self.dialect)
        session.open()
        return session

    def execute(self, statement: str) -> None:
        self.connection.execute(statement)

    @contextmanager
    def lock(self) -> Iterator[None]:
        with self.connection.lock():
            yield

    def check(self) -> None:
        [(schema, may_create, read_only)] = self.connection.ask(_RIGHTS)
        if read_only == "on":
            raise SimulatorError(
                "the server is read-only for this session: connect to the primary, and check"
                " default_transaction_read_only"
            )
        if not may_create:
            where = f"schema {schema}" if schema else "any schema of its search_path"
            raise SimulatorError(
                f"the user may not create tables in {where}: GRANT CREATE ON SCHEMA"
                f" {quote_name(schema or 'public')} TO the user, or set search_path"
            )

    # --- tables -----------------------------------------------------------------------------------

    def prepare(self) -> None:
        for statement in self._create_extensions():
            self.execute(statement)
        super().prepare()

    def describe_schema(self) -> list[str]:
        return [*self._create_extensions(), *self.make_statements()]

    def _create_extensions(self) -> list[str]:
        """The statements that create the extensions from the options."""
        return [
            f"CREATE EXTENSION IF NOT EXISTS {quote_name(extension)}"
            for extension in self.options.install_extensions
        ]

    @property
    def needed_names(self) -> list[str]:
        bounds = self._list_bounds()
        parts = [name for table in self.job.table_names for name in name_partitions(table, bounds)]
        return [*self.tables, *parts]

    def create_tables(self, there: Collection[str] = ()) -> list[str]:
        statements, bounds = [], self._list_bounds()
        for table in self.tables:
            statements.append(self.create_table(table))
            if table not in there:
                statements += self.mark_table(table)
            if bounds and table in self.job.table_names:
                statements += create_partitions(table, bounds)
        return statements

    def mark_table(self, table: str) -> list[str]:
        return [f"COMMENT ON TABLE {quote_name(table)} IS {quote_text(MARK)}"]

    def define_columns(self, table: str) -> list[str]:
        """The definitions of a table's columns, and its constraint."""
        schema, load = self.job.schema, self.job.load
        if table in self.job.tags_tables:
            return [*map(self.define, schema.tags_row), f"PRIMARY KEY ({quote_name(ID)})"]
        key_types = {
            PrimaryKey.SQL: "bigint GENERATED ALWAYS AS IDENTITY "
            f"(START WITH 1 CACHE {load.batch or 100})",
            PrimaryKey.DB: "serial",
            PrimaryKey.CLIENT: "varchar",
            PrimaryKey.UUID: "uuid NOT NULL DEFAULT gen_random_uuid()",
        }
        key_type = key_types.get(load.primary_key)
        columns = list(map(self.define, schema.row))
        constraint = self.options.primary_key_constraint
        if key_type:
            columns.insert(0, f"{KEY_COLUMN} {key_type}")
            key = self.KEY_CONSTRAINT
            if key is not None and self.job.retention is not None:
                # The key of a partitioned table includes the partition column.
                key = f"PRIMARY KEY (id, {quote_name(schema.time)})"
            constraint = constraint or key
        return [*columns, constraint] if constraint else columns

    def finish_table(self, table: str) -> str:
        if table in self.job.tags_tables:
            return ""
        time = quote_name(self.job.schema.time)
        ranges = f" PARTITION BY RANGE ({time})" if self._list_bounds() else ""
        return ranges + self.options.table_suffix()

    def _list_bounds(self) -> list[int]:
        """The bounds of partitions for dropping older events; none without a retention."""
        retention = self.job.retention
        return [] if retention is None else list_bounds(retention, self.job.schema.epoch_ms)

    def delete_older(self, before_ms: int) -> None:
        for table in self.job.table_names:
            partitions = self.connection.ask(_PARTITIONS, [quote_name(table)])
            for name in list_older(table, [name for (name,) in partitions], before_ms):
                if self.dialect.DETACH is not None:
                    detach = self.dialect.DETACH.format(
                        table=quote_name(table), partition=quote_name(name)
                    )
                    self.execute(detach)
                self.execute(f"DROP TABLE {quote_name(name)}")

    def check_server(self) -> None:
        check_encoding(self.connection, self.job.schema)

    def type_of(self, column: Column) -> str:
        is_text = column.type is ColumnType.TEXT
        return super().type_of(column) + (self.dialect.SQL.COLLATION if is_text else "")

    def check_columns(self, tables: Sequence[str], remedy: str) -> None:
        super().check_columns(tables, remedy)
        if collation := self.dialect.SQL.COLLATION:
            for table in [*tables, *self.job.tags_tables]:
                values = [quote_name(table), list(self.expect_columns(table))]
                for owner, column in self.connection.ask(_ORDERED_OTHERWISE, values):
                    raise SimulatorError(
                        f"table {table} sorts texts by locale, not by bytes as other databases do:"
                        f" ALTER TABLE {owner} ALTER {quote_name(column)} TYPE varchar{collation}, or run"
                        " insert without --no-clean"
                    )

    def holds(self, actual: str, expected: str) -> bool:
        # The same except for the name. https://www.postgresql.org/docs/current/datatype-character.html
        return super().holds("varchar" if actual == "text" else actual, expected)

    def check_own_tables(self) -> None:
        for table in self.tables:
            is_tags = table in self.job.tags_tables
            columns = self.job.schema.tags_row if is_tags else self.job.schema.row
            needed = {column.name: column for column in columns}
            if self.dialect.SQL.COLLATION:
                values = [quote_name(table), list(needed)]
                for _, name in self.connection.ask(_ORDERED_OTHERWISE, values):
                    remedy = f"write{self.dialect.SQL.COLLATION} behind its type"
                    raise own_schema_lacks(f"{name} in the order of a locale: {remedy}", is_tags)
            for name, length, never_null, has_default in self.connection.ask(
                _LIMITED, [quote_name(table)]
            ):
                column = needed.get(name)
                if never_null and (column.nullable if column else not has_default):
                    what = f"{name} as NOT NULL, and events may have no value for it"
                    raise own_schema_lacks(what, is_tags)
                longest = max(map(len, column.texts), default=0) if column else 0
                if name == self.job.schema.device:
                    longest = NAME_BYTES
                if length is not None and length < longest:
                    what = f"{name} for {length} characters, and events have {longest} there"
                    raise own_schema_lacks(what, is_tags)

    def check_tables(self) -> None:
        """SimulatorError if an existing table has another kind of key than the options ask for."""
        key = self.job.load.primary_key
        if self.own_tables or any(column.name == KEY_COLUMN for column in self.job.schema.row):
            return
        for table in self.job.table_names:
            fitting = _KEYS_OF_TYPE.get(self.read_columns(table).get(KEY_COLUMN), ())
            if key not in fitting:
                remedy = " or ".join(f"--primary-key {kind}" for kind in fitting)
                raise SimulatorError(
                    f"table {table} was created with a different primary key than --primary-key {key}:"
                    f" run without --no-clean{remedy and f', or with {remedy}'}"
                )

    def read_columns(self, table: str) -> Mapping[str, str]:
        rows = self.connection.ask(_COLUMNS, [quote_name(table)])
        return {name: _TYPE_NAMES.get(kind, f"of type {kind}") for name, kind in rows}

    def expect_columns(self, table: str) -> Mapping[str, str]:
        schema = self.job.schema
        columns = schema.tags_row if table in self.job.tags_tables else schema.row
        return {column.name: self.TYPES[column.type] for column in columns}

    def prepare_queries(self) -> None:
        super().prepare_queries()
        if self.is_indexed:
            self._analyze()

    # --- indexes ----------------------------------------------------------------------------------

    @property
    def is_indexed(self) -> bool:
        """Whether an index on device and time serves queries."""
        return self.options.is_indexed or serves_newest(self.own_tables, self.job.schema)

    def _analyze(self) -> None:
        for table in self.tables:
            self.execute(f"ANALYZE {quote_name(table)}")

    @property
    def index_names(self) -> Mapping[str, str]:
        """Name -> statement of each index."""
        schema = self.job.schema
        if self.own_tables:
            return {}
        there = [(schema.time,)] if self.TIME_INDEX else []
        indexes = {name: names for name, names in schema.indexes.items() if names not in there}
        return list_statements(
            schema, indexes, self.job.table_names, self.dialect.SQL, self.TIME_ORDER
        )

    def describe_indexes(self) -> list[str]:
        return list(self.index_names.values())

    def create_indexes(self, names: Collection[str]) -> None:
        for name, statement in self.index_names.items():
            if name in names:
                self.execute(statement)
        self._analyze()

    def drop_indexes(self, names: Collection[str]) -> None:
        for name in names:
            self.execute(f"DROP INDEX IF EXISTS {quote_name(name)}")

    def list_indexes(self) -> Mapping[str, str]:
        rows = self.connection.ask(
            "SELECT indexname, tablename, indexdef FROM pg_indexes WHERE schemaname = current_schema()"
            " AND tablename = ANY(%s) ORDER BY tablename, indexname",
            [self.tables],
        )
        return {name: f"{table} {text.partition(' USING ')[2]}" for name, table, text in rows}

    # --- tags and figures -------------------------------------------------------------------------

    def store_devices(self, rows: Iterable[Mapping[str, NDArray[Any]]]) -> None:
        schema = self.job.schema
        names = ", ".join(quote_name(column.name) for column in schema.tags_row)
        insert = f"INSERT INTO {quote_name(schema.tags_table)} ({names}) VALUES "
        for columns in rows:
            for values in value_rows((schema.tags_row, columns), _DEVICES_AT_ONCE, b"", b","):
                self.execute(f"{insert}{values.decode()} ON CONFLICT DO NOTHING")

    def storage(self) -> Storage:
        storage, texts, sizes = self.storage_during(), self.list_indexes(), {}
        for table in self.tables:
            statement = self.choose_index_sizes(table)
            for name, size in ask_index_sizes(self.connection, statement, table).items():
                sizes[texts.get(name, f"{table} {name}")] = size
        return storage.model_copy(update={"indexes": sizes})

    def choose_index_sizes(self, table: str) -> str:
        """The statement for the size of each index of a table, as `Dialect.INDEX_SIZES`."""
        return self.dialect.INDEX_SIZES

    def storage_during(self) -> Storage:
        return read_storage(
            self.connection, self.dialect, self.tables, self.job.retention is not None
        )  # the files are as long as they are: there is nothing to flush

    def compact(self) -> bool:
        statement = self.dialect.COMPACTION
        if statement is None:
            return False
        for table in self.tables:
            self.execute(f"{statement} {quote_name(table)}")
        return True

    def server_info(self) -> dict[str, Any]:
        return describe(self.connection, self.dialect)

    @classmethod
    def find_durability(cls, version: str) -> Durability:
        return DIALECTS[dialect_of(version) or DialectName.POSTGRESQL].DURABILITY

    def read_versions(self) -> Mapping[str, str]:
        [(text,)] = self.connection.ask(VERSION)
        dialect = self.dialect
        return (
            {dialect.PRODUCT: dialect.find_version(text)}
            if dialect_of(text) is dialect.name
            else {}
        )

    # --- queries ----------------------------------------------------------------------------------

    def compile(self, bound: BoundQuery) -> str:
        newest = self.choose_newest() or NEWEST.get(bound.query.name, Newest.DIALECT)
        return compile_query(bound, self.job.schema, self.dialect.SQL, newest)

    @property
    def query_dialect(self) -> SqlDialect:
        return self.dialect.SQL

    def plans_anew(self, bounds: BoundQueries) -> bool:
        """Whether a query is sent as text each time, as for a window over all devices. After five executions
        of a prepared statement, PostgreSQL has one plan for windows of any length, and assumes that they
        select 0.5 % of the events: it sorted 500,000 where a hash would do. A new plan takes 0.1 ms. With
        only an index on time, it read all of a window even for one device."""
        if bounds.query.window is None:
            return False
        return bounds.devices is None or self.reads_window_by_time(bounds.query)

    def choose_newest(self) -> Newest | None:
        """How to select each device's newest event; None: as in `NEWEST`."""
        dialect = self.dialect
        return dialect.INDEXED_NEWEST if self.is_indexed else dialect.PLAIN_NEWEST

    def reads_window_by_time(self, query: Query) -> bool:
        """Whether a plan for all windows may read those of some devices with an index on time alone."""
        return False


def make_writer(module: Postgres) -> PostgresWriter:
    """A writer for the lean path."""
    encoder = module.encoder(module.options, module.job)
    return PostgresWriter(encoder, module.options, module.job, module.dialect)


def make_asker(module: Postgres, in_flight: int) -> PostgresAsker:
    """An asker for the lean path."""
    return PostgresAsker(module, in_flight, module.options, module.dialect, module.plans_anew)
