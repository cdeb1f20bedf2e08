"""How events are stored, and lines over HTTP (ILP), built from the schema of any workload.

    events,device_id=w00000d000000 sequence_number=7i,temperature=21.50 1704067203150

Symbols follow the table's name; all else except the time follows a space. Missing values are left out. In the
binary format (version 2 of the protocol), a float is two equals signs, a byte for its type, and its eight
bytes: QuestDB has no other binary column. Integers, times, texts and truth values are text in all versions.
The protocol for whole columns (QWP) isn't supported here: QuestDB 9.3.4 answers it with 404.

https://questdb.com/docs/ingestion/ilp/advanced-settings/

Devices' names and ids, and texts that describe them, are symbols: QuestDB stores each text once, and a number
in the rows. A boolean is never NULL, so a nullable column of truth values is an INT: 1, 0 or NULL. The NULL
of an INT or LONG is its smallest number, which therefore can't be stored.
"""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum
from typing import Annotated, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from ...conditions import ACCESS, Condition
from ...contract import CommaList, Load, PrimaryKey, Tables
from ...encoding.columns import KEY_COLUMN, TEXTS, bounds, client_keys, escape, text_format
from ...encoding.rows import format_lines, text_form, text_values
from ...errors import OptionError, SimulatorError
from ...workloads.schema import FLOATS, ID, Column, ColumnType, EventBlock, Schema
from ..kit.libpq import ConnectionString, list_secrets, parse_dsn, public_dsn
from ..kit.options import EndpointOptions, InFlightOptions, LoginOptions
from ..options import PAYLOAD, InsertMode, Job, among, choose_mode
from ..postgres.encoding import PostgresOptions
from ..sending import Encoder, Request, deal_in_turn, wrap_requests


class LineFormat(StrEnum):
    """How floats are written."""

    TEXT = "text"
    BINARY = "binary"


MODES = (InsertMode.BATCH, InsertMode.SINGLE, InsertMode.TRANSACTION, InsertMode.STATEMENT)
PGWIRE = (InsertMode.TRANSACTION, InsertMode.STATEMENT)
"""The modes that use PostgreSQL's protocol."""


class Partition(StrEnum):
    """The time that one partition of a table covers."""

    HOUR = "hour"
    DAY = "day"
    WEEK = "week"
    MONTH = "month"
    YEAR = "year"

    @property
    def hours(self) -> int:
        """Its length in hours; for a month and a year, the calendar's mean."""
        return {"hour": 1, "day": 24, "week": 168, "month": 730, "year": 8766}[self]


class QuestdbOptions(EndpointOptions, LoginOptions, InFlightOptions):
    """Options of targets with `module: questdb`."""

    DEFAULT_PORT: ClassVar[int | None] = 9000
    EXAMPLE_URL: ClassVar[str] = "http://questdb.example:9000"
    LOGIN: ClassVar[str] = "username and password, or token"

    insert_mode: Annotated[InsertMode | None, among(*MODES), Condition.BATCH, PAYLOAD] = Field(
        None,
        description="how events are sent: batch (lines over HTTP, default with --batch), transaction "
        "(PGWire, a commit per batch), single (a line over HTTP, default without --batch), statement "
        "(PGWire, a commit per event)",
    )
    line_format: Annotated[LineFormat, Condition.BATCH, PAYLOAD] = Field(
        LineFormat.TEXT,
        description="format of lines over HTTP: text, or binary, which sends floats as they are"
        " stored (version 2 of the protocol, QuestDB 9 and later)",
    )
    table_prefix: Annotated[str, Condition.NONE, PAYLOAD] = Field(
        "",
        pattern=r"^\w*$",
        description="prefix of the tables' names, since a server has one database",
    )
    endpoint: Annotated[CommaList, Condition.NONE, ACCESS] = Field(
        min_length=1, max_length=1, description="URL of the server, e.g. http://questdb:9000"
    )
    token: str | None = Field(
        None, repr=False, description="token of a service account, instead of username and password"
    )
    connection_string: Annotated[ConnectionString | None, Condition.NONE, ACCESS] = Field(
        None,
        repr=False,
        description="libpq connection string or URL, for queries, which use HTTP without it, and"
        " for insert_mode transaction and statement; if it has no password, the"
        " option password is used",
    )
    partition_by: Annotated[Partition, Condition.SCHEMA] = Field(
        Partition.DAY, description="period of one partition: hour, day, week, month or year"
    )
    o3_max_lag: Annotated[str | None, Condition.DATABASE] = Field(
        None,
        pattern=r"^\d+(us|s|m|h|d)$",
        description="o3MaxLag of the tables, such as 10s or 5m (default: the server's)",
    )
    max_uncommitted_rows: Annotated[int | None, Condition.DATABASE] = Field(
        None, ge=1, description="maxUncommittedRows of the tables (default: the server's)"
    )
    index_devices: Annotated[bool, Condition.SCHEMA] = Field(
        False, description="index the column of the devices' names or ids"
    )
    connections: Annotated[int | None, Condition.CLIENT] = Field(
        None,
        ge=1,
        description="PGWire connections of each worker; if fewer than its requests in flight, each is "
        "pipelined (default: one per request in flight)",
    )
    query_timeout_s: Annotated[float, Condition.NONE] = Field(
        3600, gt=0, description="how long a query may take"
    )

    @model_validator(mode="after")
    def _check_one_login(self) -> Self:
        if self.token is not None and self.username is not None:
            raise ValueError("give a token, or username and password")
        return self

    def name_tables(self, job: Job) -> Job:
        """The job with tables of these names."""
        schema = job.schema
        if schema.table.startswith(self.table_prefix):
            return job
        return replace(job, schema=replace(schema, table=self.table_prefix + schema.table))

    def mode(self, load: Load) -> InsertMode:
        statement = self.insert_mode is InsertMode.STATEMENT
        single = InsertMode.STATEMENT if statement else InsertMode.SINGLE
        return choose_mode("insert_mode", self.insert_mode, load, single, InsertMode.BATCH)

    def for_prefill(self) -> Self:
        return super().for_prefill().model_copy(update={"insert_mode": InsertMode.BATCH})

    def login(self) -> dict[str, str]:
        if self.token is not None:
            return {"authorization": f"Bearer {self.token}"}
        return super().login()

    def pgwire(self, purpose: str) -> PostgresOptions:
        """The options of connections over PGWire; OptionError without a connection string, naming the purpose
        that needs it."""
        if self.connection_string is None:
            raise OptionError(
                f"{purpose} needs the option connection_string"
                " (host=questdb port=8812 dbname=qdb user=admin)"
            )
        names = parse_dsn(self.connection_string)
        return PostgresOptions(
            client="psycopg3",  # for queries with client=official
            connection_string=self.connection_string,
            password=None if "password" in names else self.password,
            connections=self.connections,
            request_timeout_s=self.request_timeout_s,
            query_timeout_s=self.query_timeout_s,
            max_retries=self.max_retries,
        )

    def secrets(self) -> list[str]:
        secrets = [secret for secret in (self.password, self.token) if secret]
        if self.connection_string is not None:
            secrets += list_secrets(self.connection_string)
        return secrets

    def public(self) -> dict[str, Any]:
        shown = super().public()
        if self.connection_string is not None:
            shown["connection_string"] = public_dsn(self.connection_string)
        return shown


TYPES = {
    ColumnType.TIMESTAMP_MS: "TIMESTAMP",
    ColumnType.INT64: "LONG",
    ColumnType.INT32: "INT",
    ColumnType.FLOAT32: "FLOAT",
    ColumnType.FLOAT64: "DOUBLE",
    ColumnType.BOOL: "BOOLEAN",
    ColumnType.TEXT: "VARCHAR",
    ColumnType.JSON: "VARCHAR",
}
"""https://questdb.com/docs/query/datatypes/overview/"""

INT32_RANGE = (-(2**31) + 1, 2**31 - 1)
INT64_RANGE = (-(2**63) + 1, 2**63 - 1)
_LEAST = {ColumnType.INT32: INT32_RANGE[0], ColumnType.INT64: INT64_RANGE[0]}

STORED_AT = "_stored_at"
"""The time of the rows of the tags' table, the same for all: deduplication needs one."""


def is_symbol(schema: Schema, column: Column) -> bool:
    """Whether a column is stored as symbols."""
    if column.name == ID:
        return True
    return column.type in TEXTS and (column.tag or column.name == schema.device)


def as_sent(column: Column) -> Column:
    """The column in the form in which its values are sent."""
    if column.type is ColumnType.BOOL and column.nullable:
        return Column(column.name, ColumnType.INT32, nullable=True)
    return column


def type_of(schema: Schema, column: Column) -> str:
    """The column's type in a table."""
    return "SYMBOL" if is_symbol(schema, column) else TYPES[as_sent(column).type]


def describe_tags(schema: Schema) -> Schema:
    """The tags' table, as a schema whose events are devices."""
    columns = (*schema.tags_row, Column(STORED_AT, ColumnType.TIMESTAMP_MS))
    key = (STORED_AT, ID)
    return Schema(schema.tags_table, columns, STORED_AT, schema.device, key)


def find_sent_values(column: Column, block: EventBlock) -> NDArray[np.generic]:
    """A column's values in the form of `as_sent`; SimulatorError if one can't be stored."""
    values: NDArray[np.generic] = block.row_columns[column.name]
    if as_sent(column).type is not column.type:
        return values.astype(np.int32)
    least = _LEAST.get(column.type)
    if least is not None and len(values) and int(values.min()) < least:
        raise SimulatorError(
            f"column {column.name}: QuestDB's {TYPES[column.type]} can store no number below"
            f" {least}: {least - 1} means no value"
        )
    return values


# --- lines -----------------------------------------------------------------------------------------

PRECISION = "ms"

# Characters that would end a symbol or a name; the backslash first.
_SYMBOL_ESCAPES = tuple((mark, b"\\" + mark) for mark in (b"\\", b",", b"=", b" ", b"\n", b"\r"))
_STRING_ESCAPES = tuple((mark, b"\\" + mark) for mark in (b"\\", b'"', b"\n"))

_DOUBLE = b"=\x10"
"""After the equals sign: a double follows, lowest byte first."""
_HOLE = b"\xfd"
"""Placeholder for a byte of a double until all lines are built. It never occurs in UTF-8."""


def _literal(name: str) -> bytes:
    """The escaped name within a %-format."""
    text = name.encode()
    for old, new in _SYMBOL_ESCAPES:
        text = text.replace(old, new)
    return text.replace(b"%", b"%%")


class LineEncoder(Encoder):
    """Payloads are bodies of write requests: bytes."""

    def __init__(self, job: Job, line_format: LineFormat) -> None:
        super().__init__(job)
        schema = job.schema
        self._schema = schema
        self._client_key = job.load.primary_key is PrimaryKey.CLIENT
        self._symbols = [column for column in schema.row if is_symbol(schema, column)]
        fields = [
            column
            for column in schema.row
            if not is_symbol(schema, column) and column.name != schema.time
        ]
        # A nullable field has its own comma, so something must precede it.
        self._fields = sorted(fields, key=lambda column: column.nullable)
        self._is_binary = line_format is LineFormat.BINARY
        self._forms = [self._write_form(column) for column in self._fields]
        self._doubles = [column for column in self._fields if self._has_hole(column)]
        self._tables = [table.encode() for table in job.table_names]
        name = b"%b" if job.load.tables is Tables.MULTIPLE else _literal(schema.table)
        symbols = b"".join(
            b",%b=%b" % (_literal(column.name), text_format(column)) for column in self._symbols
        )
        parts = [b',%b="%%b"' % _literal(KEY_COLUMN) if self._client_key else b""]
        parts += [
            form if self._has_hole(column) and not column.nullable else text_form(column, form)
            for column, form in zip(self._fields, self._forms, strict=True)
        ]
        self._line = name + symbols + b" " + b"".join(parts).removeprefix(b",") + b" %d"

    def _has_hole(self, column: Column) -> bool:
        """Whether a column's values are filled in after all lines are built."""
        return self._is_binary and column.type in FLOATS

    def _write_form(self, column: Column) -> bytes:
        """A field with its leading comma, which is omitted with the field."""
        name = b"," + _literal(column.name) + b"="
        if self._has_hole(column):
            return name + _DOUBLE + 8 * _HOLE
        sent = as_sent(column)
        value = text_format(sent)
        if sent.type in TEXTS:
            return name + b'"' + value + b'"'
        if sent.type is ColumnType.TIMESTAMP_MS:
            # In microseconds.
            return name + value + b"000t"
        if sent.type in (ColumnType.INT32, ColumnType.INT64):
            return name + value + b"i"
        return name + value

    def encode(self, block: EventBlock) -> list[Request]:
        lines = format_lines(self._line, self._columns(block), self.job.load.batch)
        if self._doubles:
            lines = self._fill_holes(lines, bounds(len(block), self.size), block)
        return wrap_requests(lines, block, self.size)

    def _columns(self, block: EventBlock) -> list[NDArray[Any]]:
        values = block.row_columns
        columns: list[NDArray[Any]] = [
            escape(values[column.name], _SYMBOL_ESCAPES)
            if column.type in TEXTS
            else values[column.name]
            for column in self._symbols
        ]
        if len(self._tables) > 1:
            columns.insert(0, np.array(deal_in_turn(block, self._tables)))
        if self._client_key:
            columns.append(escape(client_keys(block), _STRING_ESCAPES))
        for column, form in zip(self._fields, self._forms, strict=True):
            missing = block.missing.get(column.name)
            if self._has_hole(column):
                if column.nullable:
                    whole = np.full(len(block), form.replace(b"%%", b"%"))
                    columns.append(whole if missing is None else np.where(missing, b"", whole))
                continue
            sent: NDArray[Any] = find_sent_values(column, block)
            if column.type in TEXTS:
                sent = escape(sent, _STRING_ESCAPES)
            columns.append(text_values(as_sent(column), form, sent, missing, b""))
        columns.append(values[self._schema.time])
        return columns

    def _fill_holes(
        self, lines: list[bytes], spans: list[tuple[int, int]], block: EventBlock
    ) -> list[bytes]:
        """The lines with each row's doubles in their places."""
        values, names = block.row_columns, [column.name for column in self._doubles]
        doubles = np.empty((len(block), len(names)), dtype="<f8")
        present = None
        for place, name in enumerate(names):
            doubles[:, place] = values[name]
            missing = block.missing.get(name)
            if missing is not None and missing.any():
                if present is None:
                    present = np.ones(doubles.shape, dtype=bool)
                present[:, place] = ~missing
        bodies = []
        for body, (start, stop) in zip(lines, spans, strict=True):
            rows = doubles[start:stop]
            filling = rows if present is None else rows[present[start:stop]]
            octets = np.frombuffer(body, dtype=np.uint8).copy()
            octets[octets == _HOLE[0]] = filling.reshape(-1).view(np.uint8)
            bodies.append(octets.tobytes())
        return bodies
