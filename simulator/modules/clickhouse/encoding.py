"""Options of targets on ClickHouse, and requests to it: an INSERT's rows in the Native format, and its token.

A block is the numbers of its columns and rows, then each column: name, type, values. Values of fixed length
follow one another, little-endian, as in numpy; a text follows its length; a Nullable column begins with a map
of missing values. So all values are encoded once, and a request consists of slices.

https://clickhouse.com/docs/interfaces/formats/Native
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import accumulate, count
from typing import Annotated, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from ...conditions import ACCESS, Condition
from ...contract import PrimaryKey
from ...encoding.columns import bounds, is_constant, octets_of, with_client_key
from ...workloads.schema import Column, ColumnType, EventBlock, Schema
from ..kit.http import basic_auth
from ..kit.http_connection import compress as compress_gzip
from ..kit.options import BatchOptions, EndpointOptions, InFlightOptions
from ..options import PAYLOAD, Job
from ..sending import Encoder, Request, Share, deal_block


class Compression(StrEnum):
    """The compression of requests."""

    NONE = "none"
    LZ4 = "lz4"
    GZIP = "gzip"


class Codecs(StrEnum):
    """How columns are compressed on disk."""

    DEFAULT = "default"
    """As the server is configured: LZ4 by default."""
    ZSTD = "zstd"
    """ZSTD for every column."""
    SERIES = "series"
    """Suited to time series: Delta for times and integers, Gorilla for floats, then ZSTD."""


class Partition(StrEnum):
    """The time that one partition of a table covers."""

    NONE = "none"
    """Nothing: there is one partition."""
    MONTH = "month"
    WEEK = "week"
    DAY = "day"


class ClickhouseOptions(EndpointOptions, BatchOptions, InFlightOptions):
    """Options of targets with `module: clickhouse`."""

    DEFAULT_PORT: ClassVar[int | None] = 8123
    EXAMPLE_URL: ClassVar[str] = "http://clickhouse.example:8123"
    LOGIN: ClassVar[str] = "user and password"

    compression: Annotated[Compression, Condition.CLIENT, PAYLOAD] = Field(
        Compression.NONE,
        description="compress requests by lz4 or gzip: less traffic for more CPU at both ends (default:"
        " none)",
    )
    user: Annotated[str, Condition.NONE, ACCESS] = Field(
        "default", min_length=1, description="user name"
    )
    password: str | None = Field(None, repr=False, description="the user's password")
    database: Annotated[str, Condition.NONE] = Field(
        "default", min_length=1, description="database to use; created if it is missing"
    )
    query_timeout_s: Annotated[float, Condition.NONE] = Field(
        3600, gt=0, description="how long a query may take"
    )
    async_insert: Annotated[bool, Condition.BATCH] = Field(
        False,
        description="let the server collect inserts and store them together: for requests with few events",
    )
    wait_for_async_insert: Annotated[bool, Condition.DURABILITY] = Field(
        True,
        description="with async_insert: acknowledge inserts once they are stored; false: once"
        " received, when they may still be lost",
    )
    fsync_after_insert: Annotated[bool, Condition.DURABILITY] = Field(
        False, description="write each insert to disk before it is acknowledged"
    )
    deduplication_window: int = Field(
        100_000,
        ge=1,
        description="how many recent inserts into a table the server remembers, so that a repeated one is"
        " stored once",
    )
    partition: Annotated[Partition, Condition.SCHEMA] = Field(
        Partition.NONE,
        description="time span of one partition: month, week, day, or none (a single one)",
    )
    codecs: Annotated[Codecs, Condition.SCHEMA] = Field(
        Codecs.DEFAULT,
        description="how columns are compressed: default (the server's), zstd, or series (Delta"
        " or Gorilla, then ZSTD)",
    )
    low_cardinality: Annotated[bool, Condition.SCHEMA] = Field(
        True,
        description="store texts that describe devices as LowCardinality(String): for up to about"
        " 10,000 devices",
    )
    replicated: Annotated[bool, Condition.REPLICATION] = Field(
        False, description="ReplicatedMergeTree instead of MergeTree"
    )
    cluster: Annotated[str | None, Condition.REPLICATION] = Field(
        None,
        min_length=1,
        description="with replicated: create the tables on all nodes of this cluster, which must have a"
        " single shard",
    )
    insert_quorum: Annotated[int | None, Condition.REPLICATION] = Field(
        None,
        ge=2,
        description="with replicated: how many replicas must have an insert before it is acknowledged",
    )

    @model_validator(mode="after")
    def _check_replication(self) -> Self:
        if not self.replicated:
            if self.insert_quorum is not None:
                raise ValueError("insert_quorum goes with replicated=true")
            if len(self.endpoint) > 1:
                raise ValueError(
                    "several nodes have the same table only with replicated=true: name one endpoint"
                )
        if not self.async_insert and not self.wait_for_async_insert:
            raise ValueError("wait_for_async_insert goes with async_insert=true")
        return self

    def login(self) -> dict[str, str]:
        return {"authorization": basic_auth(self.user, self.password or "")}


# https://clickhouse.com/docs/sql-reference/data-types
TYPES = {
    ColumnType.TIMESTAMP_MS: "DateTime64(3, 'UTC')",
    ColumnType.INT64: "Int64",
    ColumnType.INT32: "Int32",
    ColumnType.FLOAT32: "Float32",
    ColumnType.FLOAT64: "Float64",
    ColumnType.BOOL: "Bool",
    ColumnType.TEXT: "String",
    ColumnType.JSON: "String",
}
"""The types in which columns are sent. The server converts them to the table's types."""

_LITTLE_ENDIAN = {
    ColumnType.TIMESTAMP_MS: "<i8",
    ColumnType.INT64: "<i8",
    ColumnType.INT32: "<i4",
    ColumnType.FLOAT32: "<f4",
    ColumnType.FLOAT64: "<f8",
    ColumnType.BOOL: "?",
}

_JOINED_BYTES = 64
"""From this length on, joining texts of different lengths is faster than picking them from an array."""

_NO_BYTES = b""


def write_number(number: int) -> bytes:
    """A number of variable length: seven bits per byte, the lowest first (LEB128)."""
    octets = bytearray()
    while number > 0x7F:
        octets.append(number & 0x7F | 0x80)
        number >>= 7
    octets.append(number)
    return bytes(octets)


_NUMBERS = [write_number(number) for number in range(1 << 12)]


def _write_length(length: int) -> bytes:
    return _NUMBERS[length] if length < len(_NUMBERS) else write_number(length)


def write_text(text: bytes) -> bytes:
    """A text with its length."""
    return _write_length(len(text)) + text


# A column's values as bytes: `part` returns those of values [start, stop), which requests take.


class _Constant:
    """The same value in each row."""

    def __init__(self, value: bytes) -> None:
        self._value = value

    def part(self, start: int, stop: int) -> bytes:
        return self._value * (stop - start)


class _Fixed:
    """Values of equal length."""

    def __init__(self, octets: NDArray[np.uint8]) -> None:
        """`octets`: a row for each value."""
        self._width = octets.shape[1]
        self._octets = octets.reshape(-1).data

    def part(self, start: int, stop: int) -> memoryview:
        return self._octets[start * self._width : stop * self._width]


class _Varying:
    """Values of different lengths, one after another."""

    def __init__(self, octets: memoryview, begins: Sequence[int]) -> None:
        """`begins`: the start of each value, and the end of the last."""
        self._octets, self._begins = octets, begins

    def part(self, start: int, stop: int) -> memoryview:
        return self._octets[self._begins[start] : self._begins[stop]]


_Values = _Constant | _Fixed | _Varying


def _write_texts(data: NDArray[np.bytes_]) -> _Values:
    """Texts with their lengths."""
    if is_constant(data):
        return _Constant(write_text(data[0]))
    octets = octets_of(data)
    count, width = octets.shape
    if octets[:, -1].all():
        length = np.frombuffer(write_number(width), dtype=np.uint8)
        texts = np.empty((count, len(length) + width), dtype=np.uint8)
        texts[:, : len(length)] = length
        texts[:, len(length) :] = octets
        return _Fixed(texts)
    lengths = np.char.str_len(data)
    if width >= _JOINED_BYTES:
        parts = [_write_length(len(text)) + text for text in data.tolist()]
        begins = [0, *accumulate(map(len, parts))]
        return _Varying(memoryview(b"".join(parts)), begins)
    # Fewer than 128 bytes: the length takes one byte.
    padded = np.empty((count, width + 1), dtype=np.uint8)
    padded[:, 0] = lengths
    padded[:, 1:] = octets
    # No text has a NUL character, with which numpy pads texts.
    is_there = padded != 0
    is_there[:, 0] = True
    picked = np.compress(is_there.reshape(-1), padded.reshape(-1))
    return _Varying(picked.data, [0, *np.cumsum(lengths + 1).tolist()])


def _write_values(column: Column, data: NDArray[Any]) -> _Values:
    kind = _LITTLE_ENDIAN.get(column.type)
    if kind is None:
        return _write_texts(data)
    return _Fixed(octets_of(data.astype(kind, copy=False)))


class NativeBlock:
    """Rows, any span of which can become a block."""

    def __init__(
        self,
        columns: Sequence[Column],
        values: Mapping[str, NDArray[Any]],
        missing: Mapping[str, NDArray[np.bool_]],
    ) -> None:
        """`missing` as in `EventBlock`."""
        self._count = write_number(len(columns))
        self._parts: list[tuple[bytes, _Values]] = []
        """The bytes before the values, and the values."""
        for column in columns:
            data = values[column.name]
            kind = TYPES[column.type]
            head = write_text(column.name.encode())
            if not column.nullable:
                self._parts.append((head + write_text(kind.encode()), _write_values(column, data)))
                continue
            head += write_text(f"Nullable({kind})".encode())
            mask = missing.get(column.name)
            if mask is None:
                self._parts.append((head, _Constant(b"\0")))
            else:
                self._parts.append((head, _Fixed(octets_of(mask))))
            self._parts.append((_NO_BYTES, _write_values(column, data)))

    def join(self, start: int, stop: int) -> bytes:
        """Rows [start, stop) as one block."""
        pieces: list[bytes | memoryview] = [self._count, write_number(stop - start)]
        for head, values in self._parts:
            pieces.append(head)
            pieces.append(values.part(start, stop))
        return b"".join(pieces)


# --- requests --------------------------------------------------------------------------------------


@dataclass(slots=True)
class Part:
    """One INSERT: the events of a payload that go to one table."""

    table: int
    body: bytes
    token: str
    """The server stores one INSERT per token."""
    is_stored: bool = False


def make_tokens() -> Iterator[str]:
    """Unique tokens of INSERTs: no other run, earlier or concurrent, makes the same."""
    prefix = uuid.uuid4().hex
    return (f"{prefix}-{number}" for number in count())


class NativeEncoder(Encoder):
    """A payload's data: a list of `Part`, one for each table."""

    def __init__(self, job: Job, compression: Compression) -> None:
        super().__init__(job)
        self._tables = len(job.table_names)
        self._client_key = job.load.primary_key is PrimaryKey.CLIENT
        self._compression = compression
        self._tokens = make_tokens()

    def encode(self, block: EventBlock) -> list[Request]:
        shares = [(share, self._take(part)) for share, part in deal_block(block, self._tables)]
        payloads = []
        for start, stop in bounds(len(block), self.size):
            parts = []
            for share, rows in shares:
                first, last = _locate(share, start), _locate(share, stop)
                if first < last:
                    body = compress(rows.join(first, last), self._compression)
                    parts.append(Part(share.table, body, next(self._tokens)))
            payloads.append(Request(parts, stop - start, block, stop - 1))
        return payloads

    def _take(self, block: EventBlock) -> NativeBlock:
        columns: tuple[Sequence[Column], Mapping[str, NDArray[Any]]] = (
            with_client_key(block) if self._client_key else (block.schema.row, block.row_columns)
        )
        return NativeBlock(*columns, block.missing)


def _locate(share: Share, row: int) -> int:
    """How many of a table's rows precede a row of the block."""
    rows = share.rows
    return max(0, -(-(row - rows.start) // rows.step))


def compress(body: bytes, compression: Compression) -> bytes:
    """The body in the form to send."""
    if compression is Compression.GZIP:
        return compress_gzip(body)
    if compression is Compression.LZ4:
        # Only needed if it is asked for.
        import lz4.frame

        compressed: bytes = lz4.frame.compress(body)
        return compressed
    return body


def encode_devices(schema: Schema, rows: Mapping[str, NDArray[Any]]) -> bytes:
    """Rows of the tags' table."""
    columns = schema.tags_row
    return NativeBlock(columns, rows, {}).join(0, len(rows[columns[0].name]))
