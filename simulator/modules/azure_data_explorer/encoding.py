"""CSV for Azure Data Explorer, compressed, built from the schema: any workload's columns will do.

https://learn.microsoft.com/azure/data-explorer/ingestion-supported-formats (RFC 4180)
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from ...encoding.columns import TEXTS, bounds, escape, iso_times, text_format
from ...encoding.rows import TextFormat, format_rows
from ...workloads.schema import ID, Column, ColumnType, EventBlock, Schema
from ..base import Job
from ..kit.http_connection import compress
from ..sending import Encoder, Payload, deal_block, make_payloads

_ESCAPES = ((b'"', b'""'),)

COMMAND_BYTES = 500_000
"""The most CSV in one command."""


MAPPING = "iot_benchmark"
"""Name of the tables' ingestion mapping."""


@dataclass(slots=True)
class Part:
    """Events that go into one table: as CSV, compressed where that isn't the client's part, and its `size` in
    bytes before."""

    table: str
    body: bytes
    size: int
    block: EventBlock
    in_doubt: bool = False
    """Whether it may be stored although nobody said so."""


def _form(column: Column) -> bytes:
    if column.type in TEXTS:
        return b'"%b"'
    return b"%b" if column.type is ColumnType.TIMESTAMP_MS else text_format(column)


def _prepare(column: Column, values: NDArray[Any]) -> NDArray[Any]:
    if column.type in TEXTS:
        return escape(values, _ESCAPES)
    return iso_times(values) if column.type is ColumnType.TIMESTAMP_MS else values


# An empty field is null, but for a string, which has no null.
_FORMAT = TextFormat(_form, _prepare, b"")


def _row_form(columns: Sequence[Column]) -> bytes:
    return b",".join(_FORMAT.list_forms(columns))


def encode_devices(schema: Schema, rows: Mapping[str, NDArray[Any]]) -> list[bytes]:
    """CSV of rows of the tags' table, in parts that a command can hold."""
    columns = schema.tags_row
    count = len(rows[ID])
    text = format_rows(_row_form(columns), b"\n", _FORMAT.write(columns, rows, {}))
    if len(text) <= COMMAND_BYTES or count < 2:
        return [text]
    halves = (slice(count // 2), slice(count // 2, count))
    return [
        part
        for half in halves
        for part in encode_devices(schema, {name: rows[name][half] for name in rows})
    ]


class CsvEncoder(Encoder):
    """A payload's data: a deque of `Part`, one per table."""

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        self._schema = job.schema
        self._tables = job.table_names
        self._row = _row_form(job.schema.row)

    def encode(self, block: EventBlock) -> list[Payload]:
        spans = bounds(len(block), self.size)
        return make_payloads([self._parts(block.part(*span)) for span in spans], block, self.size)

    def _parts(self, block: EventBlock) -> deque[Part]:
        parts: deque[Part] = deque()
        for share, events in deal_block(block, len(self._tables)):
            columns = _FORMAT.write(self._schema.row, events.row_columns, events.missing)
            text = format_rows(self._row, b"\n", columns)
            parts.append(Part(self._tables[share.table], compress(text), len(text), events))
        return parts
