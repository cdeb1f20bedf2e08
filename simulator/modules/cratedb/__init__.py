"""CrateDB, over its HTTP endpoint.

Each event is stored exactly once, however a connection or a node dies
---------------------------------------------------------------------
CrateDB has no transactions: each row of a request is stored or refused on its own, and the answer says which
(by the rows' counts; for UNNEST only how many). After an error, the outcome of the request is unknown. The
writer therefore waits a second, then until all earlier INSERTs have ended (sys.jobs), makes their rows
visible (REFRESH TABLE), looks up the request's events by their natural keys, and sends only the missing ones
again. With a key from the client, a second copy of a row is impossible. Without one, a run is refused if the
server keeps no list of running statements (stats.enabled).

When a node dies, another node may repeat its part of a request by itself, and find that the rows already
exist. So a reported duplicate is looked up as well, although this client sent it only once. Only before a
writer's first acknowledged request does it mean that an earlier run stored the event; later, the count after
the run shows such events.

While nodes leave and join, CrateDB answers with errors that only sound final: `Unknown node` as a syntax
error (4000), a recovering shard as not found (4040), and, from a node that has answered `GET /` with 200 and
named its master, the run's table as unknown (4041, for ten seconds after a restart of all three nodes). They
are retried. So if a table is dropped during a run, this is only reported after the retries or the patience
have run out.

One case is not covered without a key from the client: a node that received the request but did not begin it
for a second, or a proxy in between, may begin it later. The count after the run shows such copies. The same
goes for `client=official`: CrateDB's client repeats a request by itself if its connection was reset (see
`official`).

Tags in a separate table (`tags=table`) have `tags_id` as their primary key. Existing rows are kept (`ON
CONFLICT DO NOTHING`), so storing tags may be repeated.

Queries use `date_bin` (4.7 and later), and for the newest events `max_by` (5.2 and later).

The size on disk is that of the segments of all shards and replicas (`sys.segments`), after a flush, without
the translog. Compaction merges each shard into one segment (`OPTIMIZE TABLE`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from numpy.typing import NDArray

from ...conditions import Condition
from ...contract import MIB, Allocation, Level, PrimaryKey, Storage
from ...encoding.columns import KEY_COLUMN, quote_name
from ...errors import SimulatorError
from ...workloads.queries import Percentiles, Shape
from ...workloads.schema import Column, ColumnType, Schema
from ..base import (
    Ageing,
    Capabilities,
    Client,
    Durability,
    Encoding,
    Job,
    Needed,
    OwnSchema,
    Support,
    support_keys,
)
from ..kit.http_connection import HttpRequest
from ..kit.http_database import SqlAsker, read_json
from ..kit.module import QUERY_REMEDY, MissingTable, nothing_to_query
from ..kit.sql_module import SqlModule
from ..kit.sql_queries import NewestByFunction, Template, quote_text
from ..options import LEAN, InsertMode
from ..own_statements import quote_json
from ..sending import Received, Rows
from .encoding import MODES, CratedbOptions, StatementEncoder, encode_devices, is_object
from .server import DUPLICATE_KEY, SERVER_ERROR, Connection, count_copies, reason

if TYPE_CHECKING:
    pass

_UNITS_MS = (("hours", 3_600_000), ("minutes", 60_000), ("seconds", 1000))


# https://cratedb.com/docs/crate/reference/en/latest/interfaces/http.html#parameter-substitution
class CratedbDialect(NewestByFunction):
    """https://cratedb.com/docs/crate/reference/en/latest/sql/statements/select.html"""

    NEWEST = "max_by"
    """Since CrateDB 5.2."""
    SHAPES = frozenset(Shape) - {Shape.PATH}
    # https://cratedb.com/docs/crate/reference/en/latest/general/builtins/aggregation.html#percentile
    PERCENTILES = Percentiles("t-digests", rank_error=0.01)

    def device(self, schema: Schema) -> str:
        column, path = quote_name(schema.device), schema.device_path
        return f"{column}[{quote_text(path)}]" if path else column

    def bucket(self, time: str, every_ms: int) -> str:
        # The origin 0 is 1970. https://cratedb.com/docs/crate/reference/en/latest/general/builtins/scalar-functions.html#date-bin
        whole = ((unit, ms) for unit, ms in _UNITS_MS if every_ms % ms == 0)
        unit, ms = next(whole, ("", 0))
        span = f"{every_ms // ms} {unit}" if ms else f"{every_ms / 1000:.3f} seconds"
        return f"date_bin('{span}'::INTERVAL, {time}, 0)"

    def percentile(self, column: Column, percent: float) -> str:
        return f"percentile({self.read(column)}, {percent / 100:g})"


_END = re.compile(rb'\],"rowcount":(\d+),"duration":[\d.Ee+-]+\}\s*\Z')
"""The end of an answer. Quotes within a text would be escaped."""
_END_BYTES = 96


class CratedbAsker(SqlAsker[Connection]):
    """Sends the queries of `Cratedb.compile`, with a statement's parameters as its arguments."""

    def __init__(self, module: Cratedb, in_flight: int) -> None:
        super().__init__(module, module.DIALECT, in_flight)

    def prepare(self, template: Template) -> Template:
        begin = '{"stmt":"' + self.escape("?".join(template.parts)) + '"'
        count = len(template.places)
        if not count:
            return Template((begin + "}",), (), template.devices)
        parts = (begin + ',"args":[', *[","] * (count - 1), "]}")
        return Template(parts, template.places, template.devices)

    def write_text(self, text: str) -> str:
        return quote_json(text)

    def write_instant(self, time_ms: int) -> str:
        return str(time_ms)

    def make_request(self, escaped: str) -> HttpRequest:
        return HttpRequest("POST", "/_sql", escaped.encode())

    def count_rows(self, body: bytes) -> int:
        if match := _END.search(body, max(0, len(body) - _END_BYTES)):
            return int(match[1])
        # JSON has no fixed order.
        return int(read_json(body, "rowcount"))

    def decode(self, received: Received) -> Rows:
        return [tuple(row) for row in read_json(received.data, "rows")]


# https://cratedb.com/docs/crate/reference/en/latest/general/ddl/data-types.html
_COLUMN_TYPES = {
    ColumnType.TIMESTAMP_MS: "TIMESTAMP WITH TIME ZONE",
    ColumnType.INT64: "BIGINT",
    ColumnType.INT32: "INTEGER",
    ColumnType.FLOAT32: "REAL",
    ColumnType.FLOAT64: "DOUBLE PRECISION",
    ColumnType.BOOL: "BOOLEAN",
    ColumnType.TEXT: "TEXT",
    # An object accepts no arrays and no single values.
    ColumnType.JSON: "TEXT",
}

_SIZE = "SELECT sum(size), sum(num_docs) FROM sys.segments WHERE table_schema = ? AND table_name = ANY(?)"
_SHARDS = (
    'SELECT "primary", count(*) FROM sys.shards'
    " WHERE schema_name = ? AND table_name = ANY(?) AND state = 'STARTED' GROUP BY 1"
)
# TieredMergePolicy's floor for segments: CrateDB leaves it at 2 MB.
ALLOCATION = Allocation(
    unit_bytes=2 * MIB, cause="small segments, below 2 MB, are merged before others"
)
"""The allocation of a shard."""
_SOURCE = (
    "sys.segments, after a flush: Lucene's files of all shards and replicas, where rows and"
    " indexes share files; without the translog"
)

_STEP = "retention_step"
"""The partition column, with a retention."""


def _count_places(settings: Mapping[str, Any]) -> int | None:
    """The copies for which there is a node; for a range, such as `0-1`, as many as possible."""
    most, nodes = str(settings.get("number_of_replicas")).rpartition("-")[2], settings.get("nodes")
    if not isinstance(nodes, int):
        return None
    return min(nodes, 1 + int(most)) if most.isdigit() else nodes if most == "all" else None


class Cratedb(SqlModule[CratedbOptions, Connection]):
    """A CrateDB cluster."""

    name = "cratedb"
    options_model = CratedbOptions
    # `max_by`: https://cratedb.com/docs/crate/reference/en/latest/appendices/release-notes/5.2.0.html
    OLDEST: ClassVar[Mapping[str, str]] = {"CrateDB": "5.2"}
    CONDITIONS: ClassVar[Mapping[str, Condition]] = {
        "refresh_interval": Condition.DURABILITY,
        "translog.durability": Condition.DURABILITY,
        "translog.sync_interval": Condition.DURABILITY,
        "nodes": Condition.REPLICATION,
        "number_of_shards": Condition.REPLICATION,
        "number_of_replicas": Condition.REPLICATION,
    }
    CLIENTS: ClassVar[Mapping[str, Client]] = {
        LEAN: Client(f"{__name__}.server:CratedbWriter", f"{__name__}:CratedbAsker"),
        "official": Client(
            f"{__name__}.official:OfficialCratedbWriter",
            f"{__name__}.official:OfficialCratedbAsker",
            packages=("crate",),
            ways={
                InsertMode.BULK: "crate's executemany",
                InsertMode.UNNEST: "crate's execute of INSERT … UNNEST",
                InsertMode.SINGLE: "crate's execute",
            },
            in_flight=True,
        ),
    }
    CAPABILITIES = Capabilities(
        ageing=Ageing("partitions of a step's time, dropped whole"),
        # https://cratedb.com/docs/crate/reference/en/latest/sql/statements/create-table.html#translog-durability
        durability=Durability(
            {"translog.durability": Needed(("request",), "within {translog.sync_interval}")},
            count_places=_count_places,
        ),
        allocation=ALLOCATION,
        insert_modes=dict.fromkeys(MODES, Support.FULL),
        # There are no sequences, and its random keys aren't UUIDs.
        primary_keys=support_keys(PrimaryKey.NONE, PrimaryKey.CLIENT, PrimaryKey.DB),
        shapes=CratedbDialect.SHAPES,
        percentiles=CratedbDialect.PERCENTILES,
        statements="SQL",
        own_schema=OwnSchema("SQL", options=("shards", "replicas")),
        # Every column is indexed anyway.
        indices=Support.UNSUPPORTED,
        column_types=_COLUMN_TYPES,
        # The default of mapping.total_fields.limit is 1000, including `id`.
        most_columns=1000 - 1,
        in_flight=dict.fromkeys(MODES, Support.FULL),
        tags_table=Support.FULL,
        # Both ends mean NULL in sorting, and are refused since 5.9:
        # https://github.com/crate/crate/pull/16629
        int64_range=(-(2**63) + 1, 2**63 - 2),
    )
    ENCODINGS = (
        Encoding("bulk", {"insert_mode": "bulk"}),
        Encoding("unnest", {"insert_mode": "unnest"}),
        Encoding("single", {"insert_mode": "single"}, batched=False),
    )

    TYPES = _COLUMN_TYPES
    KEYS: ClassVar = {
        PrimaryKey.DB: "TEXT DEFAULT gen_random_text_uuid() PRIMARY KEY",
        PrimaryKey.CLIENT: "TEXT PRIMARY KEY",
    }
    DIALECT = CratedbDialect()
    COLUMNS = (
        "SELECT column_name, data_type FROM information_schema.columns"
        # Attributes of objects are listed, too.
        " WHERE table_schema = {place} AND table_name = {table} AND column_name NOT LIKE '%[%'"
    )
    # It has no comments.
    MARKS = (
        "SELECT table_name, NULL, table_type = 'BASE TABLE' FROM information_schema.tables"
        " WHERE table_schema = {place} AND table_name IN ({names})"
    )
    OWN_COLUMNS = (KEY_COLUMN, _STEP)
    ELSEWHERE = "another default_schema"

    @classmethod
    def encoder(cls, options: CratedbOptions, job: Job) -> StatementEncoder:
        return StatementEncoder(job, options.mode(job.load))

    def connect(self) -> Connection:
        return Connection.connect(self.options, self.job)

    # --- tables -----------------------------------------------------------------------------------

    @property
    def place(self) -> str:
        return self.options.default_schema

    def check_server(self) -> None:
        """SimulatorError unless the outcome of a request in doubt can be determined."""
        # The list would contain this query itself.
        by_client = self.job.load.primary_key is PrimaryKey.CLIENT
        if not by_client and self.ask("SELECT count(*) FROM sys.jobs") == [(0,)]:
            raise SimulatorError(
                f"CrateDB at {self.options.server} keeps no list of running statements (stats.enabled"
                " is false): after a lost connection, events could be stored twice; as the user"
                ' crate, SET GLOBAL "stats.enabled" = TRUE, or use --primary-key client'
            )

    def prepare(self) -> None:
        super().prepare()
        self.connection.expect_tables()

    def type_of(self, column: Column) -> str:
        schema = self.job.schema
        if is_object(schema, column):
            # A device may get more attributes besides its name.
            return f"OBJECT(DYNAMIC) AS ({quote_name(schema.device_path or '')} TEXT)"
        return _COLUMN_TYPES[column.type]

    def fits(self, actual: str, expected: str) -> bool:
        return super().fits(actual, expected.partition("(")[0])

    def define_columns(self, table: str) -> list[str]:
        columns = super().define_columns(table)
        retention = self.job.retention
        if table in self.job.tags_tables:
            columns[0] += " PRIMARY KEY"
        elif retention is not None:
            time = quote_name(self.job.schema.time)
            step = (
                f"{_STEP} BIGINT GENERATED ALWAYS AS (CAST({time} AS BIGINT) / {retention.step_ms})"
            )
            columns.append(step)
            if self.has_key(table):
                # In a partitioned table, a key includes the partition column.
                columns[0] = columns[0].removesuffix(" PRIMARY KEY")
                columns.append(f"PRIMARY KEY ({quote_name(KEY_COLUMN)}, {_STEP})")
        return columns

    def delete_older(self, before_ms: int) -> None:
        """A condition on the partition column alone drops whole partitions:
        https://cratedb.com/docs/crate/reference/en/latest/general/ddl/partitioned-tables.html#delete"""
        assert self.job.retention is not None
        first = before_ms // self.job.retention.step_ms
        for table in self.job.table_names:
            self.execute(f"DELETE FROM {quote_name(table)} WHERE {_STEP} < {first}")

    def finish_table(self, table: str) -> str:
        shards, replicas = self.options.shards, self.options.replicas
        clauses = "" if shards is None else f" CLUSTERED INTO {shards} SHARDS"
        if self.job.retention is not None and table not in self.job.tags_tables:
            clauses = f" PARTITIONED BY ({_STEP}){clauses}"
        return (
            clauses if replicas is None else f"{clauses} WITH (number_of_replicas = '{replicas}')"
        )

    def prepare_queries(self) -> None:
        schema = self.job.schema
        for table in (schema.table, *self.job.tags_tables):
            try:
                self.show_events(table)
            except MissingTable as error:
                raise nothing_to_query(table, self.job) from error
        self.check_columns([schema.table], QUERY_REMEDY)

    # --- tags, counting, figures ------------------------------------------------------------------

    def store_devices(self, rows: Iterable[Mapping[str, NDArray[Any]]]) -> None:
        schema = self.job.schema
        for columns in rows:
            answer = self.connection.fetch("POST", "/_sql", encode_devices(schema, columns))
            for result in self.connection.parse(answer, "results"):
                if result["rowcount"] < 0 and reason(result)[0] != DUPLICATE_KEY:
                    raise self.connection.interpret(SERVER_ERROR, result)
        # Queries that join tags find none before that.
        self.show_events(schema.tags_table)

    def show_events(self, table: str) -> None:
        self.ask(f"REFRESH TABLE {quote_name(table)}")

    def storage(self) -> Storage:
        # It flushes, and merges nothing, since no row was deleted.
        self._optimize("only_expunge_deletes = true")
        return self.storage_during()

    def storage_during(self) -> Storage:
        """Uses `sys.segments`, since the size in `sys.shards` may be 10 s old: each node caches it. Both
        cover only Lucene's files: the translog is separate (`translog_stats`), and a flush makes it
        superfluous.

        https://cratedb.com/docs/crate/reference/en/latest/admin/system-information.html#segments
        """
        values = [self.options.default_schema, self.tables]
        [(size, rows)] = self.connection.ask(_SIZE, values)
        shards = self.connection.ask(_SHARDS, values)
        copies = count_copies(shards)
        if not copies:
            raise SimulatorError(f"CrateDB lists no started shards of {', '.join(self.tables)}")
        return Storage(
            total_bytes=int(size or 0),
            copies=copies,
            level=Level(size_bytes=int(size or 0), events=int(rows or 0) // copies),
            allocation=ALLOCATION.times(sum(count for _, count in shards)),
            source=_SOURCE,
        )

    def compact(self) -> bool:
        self._optimize("max_num_segments = 1")
        return True

    def _optimize(self, how: str) -> None:
        """https://cratedb.com/docs/crate/reference/en/latest/sql/statements/optimize.html"""
        names = ", ".join(map(quote_name, self.tables))
        timeout_s = self.options.database_timeout_s
        self.connection.ask(f"OPTIMIZE TABLE {names} WITH ({how})", timeout_s=timeout_s)

    def server_info(self) -> dict[str, Any]:
        nodes = self.ask("SELECT version['number'] FROM sys.nodes ORDER BY 1")
        settings: dict[str, Any] = {"nodes": len(nodes)}
        rows = self.connection.ask(
            "SELECT number_of_shards, number_of_replicas, settings['refresh_interval'],"
            " settings['translog']['durability'], settings['translog']['sync_interval'],"
            " settings['codec'] FROM information_schema.tables"
            " WHERE table_schema = ? AND table_name = ?",
            [self.options.default_schema, self.job.table_names[0]],
        )
        names = (
            "number_of_shards", "number_of_replicas", "refresh_interval", "translog.durability",
            "translog.sync_interval", "codec",
        )  # fmt: skip
        for row in rows:
            settings |= dict(zip(names, row, strict=True))
        return {"version": f"CrateDB {nodes[0][0]}", "settings": settings}
