"""Requests to ClickHouse: an INSERT's rows in the Native format, and what tells it from all other INSERTs."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

from numpy.typing import NDArray

from ...contract import PrimaryKey
from ...encoding.columns import KEY_COLUMN, bounds, with_client_key
from ...workloads.events import EventBlock
from ...workloads.schema import Column, Schema
from .._base.http_connection import compress as compress_gzip
from .._base.tables import Share, deal_block
from ..base import Job
from ..sending import Encoder, Payload
from .native import NativeBlock
from .options import Compression


@dataclass(slots=True)
class Part:
    """One INSERT: those of a payload's events that go to one table."""

    table: int
    body: bytes
    token: str
    """The server stores one INSERT of each token."""
    is_stored: bool = False


def sent_columns(schema: Schema, key: PrimaryKey) -> list[str]:
    """Names of the columns that are sent; a key that the server makes isn't."""
    names = [column.name for column in schema.row]
    return [KEY_COLUMN, *names] if key is PrimaryKey.CLIENT else names


class NativeEncoder(Encoder):
    """A payload's data: a list of `Part`, one for each table."""

    def __init__(self, job: Job, compression: Compression) -> None:
        self._tables = len(job.table_names)
        self._client_key = job.load.primary_key is PrimaryKey.CLIENT
        self._compression = compression
        # No other encoder, of this run or of one before, makes the same tokens.
        self._prefix = f"{uuid.uuid4().hex}-"
        self._numbers = count()

    def encode(self, block: EventBlock, batch: int) -> list[Payload]:
        shares = [(share, self._take(part)) for share, part in deal_block(block, self._tables)]
        payloads = []
        for start, stop in bounds(len(block), batch or 1):
            parts = []
            for share, rows in shares:
                first, last = _locate(share, start), _locate(share, stop)
                if first < last:
                    parts.append(self._make_part(share.table, rows.join(first, last)))
            payloads.append(Payload(parts, stop - start, block, stop - 1))
        return payloads

    def _take(self, block: EventBlock) -> NativeBlock:
        columns: tuple[Sequence[Column], Mapping[str, NDArray[Any]]] = (
            with_client_key(block) if self._client_key else (block.schema.row, block.row_columns)
        )
        return NativeBlock(*columns, block.missing)

    def _make_part(self, table: int, body: bytes) -> Part:
        return Part(
            table, compress(body, self._compression), f"{self._prefix}{next(self._numbers)}"
        )


def _locate(share: Share, row: int) -> int:
    """How many of a table's rows come before a row of the block."""
    rows = share.rows
    return max(0, -(-(row - rows.start) // rows.step))


def compress(body: bytes, compression: Compression) -> bytes:
    """The body as it is sent."""
    if compression is Compression.GZIP:
        return compress_gzip(body)
    if compression is Compression.LZ4:
        # Only who asks for it needs the package.
        import lz4.frame

        compressed: bytes = lz4.frame.compress(body)
        return compressed
    return body


def encode_devices(schema: Schema, rows: Mapping[str, NDArray[Any]]) -> bytes:
    """Rows of the tags' table."""
    columns = schema.tags_row
    return NativeBlock(columns, rows, {}).join(0, len(rows[columns[0].name]))
