"""Options of targets on CrateDB, and requests to its HTTP endpoint: a statement with arguments for one row,
for many, or by column.

https://cratedb.com/docs/crate/reference/en/latest/interfaces/http.html
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np
import orjson
from numpy.typing import NDArray
from pydantic import Field, field_validator

from ...conditions import ACCESS, Condition
from ...contract import Load, PrimaryKey
from ...encoding.columns import TEXTS, bounds, client_keys, escape_json, quote_name, text_format
from ...encoding.rows import TextFormat, format_rows, format_singles
from ...errors import OptionError
from ...workloads.schema import Column, ColumnType, EventBlock, Schema
from ..kit.exactly_once import TablePart
from ..kit.http import basic_auth
from ..kit.official import sent_columns
from ..kit.options import IN_FLIGHT_MEANING, EndpointOptions
from ..options import PAYLOAD, InsertMode, Job, among, choose_mode
from ..sending import Encoder, Request, deal_in_turn, deal_rows

MAX_BATCH = 20_000
MODES = (InsertMode.BULK, InsertMode.UNNEST, InsertMode.SINGLE)


class CratedbOptions(EndpointOptions):
    """Options of targets with `module: cratedb`."""

    DEFAULT_PORT: ClassVar[int | None] = 4200
    EXAMPLE_URL: ClassVar[str] = "http://cratedb.example:4200"
    LOGIN: ClassVar[str] = "user and password"
    IN_FLIGHT: ClassVar[str | None] = "concurrent_requests"

    insert_mode: Annotated[InsertMode | None, among(*MODES), Condition.BATCH, PAYLOAD] = Field(
        None,
        description="how events are sent: bulk (bulk arguments, default with --batch), unnest,"
        " single (default without --batch)",
    )
    user: Annotated[str, Condition.NONE, ACCESS] = Field(
        "crate", min_length=1, description="user name"
    )
    password: str | None = Field(None, repr=False, description="the user's password")
    default_schema: Annotated[str, Condition.NONE] = Field(
        "doc", pattern=r"^[a-z_][a-z0-9_]*$", description="schema of the tables"
    )
    shards: Annotated[int | None, Condition.REPLICATION] = Field(
        None, ge=1, le=1024, description="shards per table (default: the server's)"
    )
    replicas: Annotated[str | None, Condition.REPLICATION] = Field(
        None,
        pattern=r"^\d+(-(\d+|all))?$",
        description="copies of each shard: a number or a range like 0-1 (default: the server's)",
    )
    concurrent_requests: Annotated[int, Condition.CLIENT] = Field(
        1, ge=1, le=1024, description=IN_FLIGHT_MEANING
    )

    @field_validator("replicas", mode="before")
    @classmethod
    def _number(cls, value: object) -> object:
        return str(value) if isinstance(value, int) and not isinstance(value, bool) else value

    def mode(self, load: Load) -> InsertMode:
        if load.batch > MAX_BATCH:
            raise OptionError(f"--batch may be at most {MAX_BATCH:,} with CrateDB")
        return choose_mode(
            "insert_mode", self.insert_mode, load, InsertMode.SINGLE, InsertMode.BULK
        )

    def login(self) -> dict[str, str]:
        return {"authorization": basic_auth(self.user, self.password or "")}


@dataclass(slots=True)
class Part(TablePart):
    """One statement, ready to send."""

    body: bytes
    encoder: StatementEncoder

    def cut(self, positions: Sequence[int], payload: Request) -> None:
        first = payload.last + 1 - payload.events
        rows = [first + self.rows[position] for position in positions]
        self.body = self.encoder.encode_rows(self.table, payload.block, rows)


def is_object(schema: Schema, column: Column) -> bool:
    """Whether a column is stored as an object; a column for any JSON is stored as text."""
    return column.type is ColumnType.JSON and column.name == schema.device


def _is_quoted(schema: Schema, column: Column) -> bool:
    is_text = column.type in TEXTS
    return is_text and not is_object(schema, column)


def json_format(schema: Schema) -> TextFormat:
    """JSON in which documents are texts, except one that is stored as an object."""

    def form(column: Column) -> bytes:
        return b'"%b"' if _is_quoted(schema, column) else text_format(column)

    def prepare(column: Column, values: NDArray[Any]) -> NDArray[Any]:
        return escape_json(values) if _is_quoted(schema, column) else values

    return TextFormat(form, prepare, b"null")


def join_forms(forms: Sequence[bytes]) -> bytes:
    """The %-format of a row's arguments."""
    return b"[" + b",".join(forms) + b"]"


def list_statements(job: Job, mode: InsertMode) -> list[str]:
    """The INSERT into each table."""
    columns = sent_columns(job)
    names, marks = ", ".join(map(quote_name, columns)), ", ".join("?" * len(columns))
    values = f"VALUES ({marks})"
    if mode is InsertMode.UNNEST:
        values = f"(SELECT * FROM UNNEST({marks}))"
    return [f"INSERT INTO {quote_name(table)} ({names}) {values}" for table in job.table_names]


def encode_devices(schema: Schema, rows: Mapping[str, NDArray[Any]]) -> bytes:
    """A request that stores rows of the tags' table, except existing ones."""
    columns = schema.tags_row
    names = ", ".join(quote_name(column.name) for column in columns)
    marks = ", ".join("?" * len(columns))
    statement = (
        f"INSERT INTO {quote_name(schema.tags_table)} ({names}) VALUES ({marks})"
        " ON CONFLICT DO NOTHING"
    )
    row = json_format(schema)
    arguments = format_rows(join_forms(row.list_forms(columns)), b",", row.write(columns, rows, {}))
    return b'{"stmt":%b,"bulk_args":[%b]}' % (orjson.dumps(statement), arguments)


class StatementEncoder(Encoder):
    """Encodes in one insert mode. A payload's data: a list of `Part`, one for each table."""

    def __init__(self, job: Job, mode: InsertMode) -> None:
        super().__init__(job)
        self.mode = mode
        self._tables = job.table_names
        self._client_key = job.load.primary_key is PrimaryKey.CLIENT
        formats = json_format(job.schema).list_forms(job.schema.row)
        if self._client_key:
            formats.insert(0, b'"%b"')
        self._formats = formats
        self._row = join_forms(formats)
        self._begins = [
            b'{"stmt":' + orjson.dumps(statement) for statement in list_statements(job, mode)
        ]

    def encode(self, block: EventBlock) -> list[Request]:
        columns = self._columns(block)
        if self.mode is InsertMode.SINGLE:
            return self._encode_singles(block, columns)
        payloads = []
        count = len(self._tables)
        for start, stop in bounds(len(block), self.size):
            parts = []
            for share in deal_rows(block, start, stop, count):
                rows = share.rows
                values = [column[rows.start : rows.stop : rows.step] for column in columns]
                sent = range(rows.start - start, stop - start, count)
                parts.append(Part(sent, self._body(share.table, values), self, table=share.table))
            payloads.append(Request(parts, stop - start, block, stop - 1))
        return payloads

    def _encode_singles(self, block: EventBlock, columns: Sequence[NDArray[Any]]) -> list[Request]:
        rows = format_singles(self._row, columns)
        tables = deal_in_turn(block, range(len(self._tables)))
        return [
            Request(
                [Part((0,), b'%b,"args":%b}' % (self._begins[table], row), self, table=table)],
                1,
                block,
                place,
            )
            for place, (table, row) in enumerate(zip(tables, rows, strict=True))
        ]

    def encode_rows(self, table: int, block: EventBlock, rows: Sequence[int]) -> bytes:
        """A request with only these rows of a block."""
        return self._body(table, self._columns(block.choose(np.array(rows))))

    def _columns(self, block: EventBlock) -> list[NDArray[Any]]:
        schema = block.schema
        columns = json_format(schema).write(schema.row, block.row_columns, block.missing)
        if self._client_key:
            columns.insert(0, client_keys(block))
        return columns

    def _body(self, table: int, columns: Sequence[NDArray[Any]]) -> bytes:
        """The body of a request of many rows."""
        begin = self._begins[table]
        if self.mode is InsertMode.BULK:
            return b'%b,"bulk_args":[%b]}' % (begin, format_rows(self._row, b",", columns))
        lists = [
            b"[" + format_rows(form, b",", [values]) + b"]"
            for form, values in zip(self._formats, columns, strict=True)
        ]
        return b'%b,"args":[%b]}' % (begin, b",".join(lists))
