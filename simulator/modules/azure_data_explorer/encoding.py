"""CSV for Azure Data Explorer, compressed, built from the schema: any workload's columns will do.

https://learn.microsoft.com/azure/data-explorer/ingestion-supported-formats (RFC 4180)
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from enum import StrEnum

from ...encoding import bounds, escape, iso_times, text_format
from ...rows import format_rows, text_form, text_values
from ...workloads.base import ColumnType, EventBlock
from ..base import Job
from ..sending import Encoder, Payload
from ..shared.compression import compress
from ..shared.tables import deal_block

_QUOTED = (ColumnType.TEXT, ColumnType.JSON)
_ESCAPES = ((b'"', b'""'),)


class InsertMode(StrEnum):
    """How events are sent."""

    QUEUED = "queued"
    """A blob, and a message that names it in a queue: stored later, with others."""
    STREAMING = "streaming"
    """A request, answered when its events are stored."""


@dataclass(frozen=True, slots=True)
class Part:
    """What goes into one table: compressed CSV, its `size` in bytes before, and its last event."""

    table: str
    body: bytes
    size: int
    device: str
    time_ms: int


class CsvEncoder(Encoder):
    """A payload's data: a deque of `Part`, one per table."""

    def __init__(self, job: Job) -> None:
        self._schema = job.schema
        self._tables = job.table_names
        self._forms = []
        for column in job.schema.columns:
            if column.type in _QUOTED:
                self._forms.append(b'"%b"')
            elif column.type is ColumnType.TIMESTAMP_MS:
                self._forms.append(b"%b")
            else:
                self._forms.append(text_format(column))
        self._row = b",".join(map(text_form, job.schema.columns, self._forms))

    def encode(self, block: EventBlock, batch: int) -> list[Payload]:
        return [
            Payload(self._parts(block.part(start, stop)), stop - start, block, stop - 1)
            for start, stop in bounds(len(block), batch or 1)
        ]

    def _parts(self, block: EventBlock) -> deque[Part]:
        return deque(
            self._part(self._tables[share.table], part)
            for share, part in deal_block(block, len(self._tables))
        )

    def _part(self, table: str, block: EventBlock) -> Part:
        columns = []
        for column, form in zip(self._schema.columns, self._forms, strict=True):
            values = block.columns[column.name]
            if column.type in _QUOTED:
                values = escape(values, _ESCAPES)
            elif column.type is ColumnType.TIMESTAMP_MS:
                values = iso_times(values)
            # An empty field is null, but for a string, which has no null.
            missing = block.missing.get(column.name)
            columns.append(text_values(column, form, values, missing, b""))
        text = format_rows(self._row, b"\n", columns)
        last = len(block) - 1
        return Part(
            table,
            compress(text),
            len(text),
            block.devices[last].decode(),
            int(block.columns[self._schema.time][last]),
        )
