"""Requests that store documents in ArangoDB: arrays for the document API, JSON lines for imports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from ...contract import PrimaryKey
from ...encoding.columns import bounds, client_keys
from ...encoding.rows import (
    JSON_FORMAT,
    format_requests,
    format_rows,
    format_singles,
    json_columns,
    json_object_format,
)
from ...workloads.schema import ID, EventBlock, Schema
from ..kit import exactly_once
from ..options import InsertMode, Job
from ..sending import Encoder, Payload, deal_block, deal_in_turn

# What stands between documents. No document has a line break: within strings they are escaped.
_SEPARATORS = {
    InsertMode.DOCUMENT: b",\n",
    InsertMode.IMPORT: b"\n",
    InsertMode.SINGLE: b"\n",
}


@dataclass(slots=True)
class Request(exactly_once.Request):
    """One request to one collection."""

    method: InsertMode
    body: bytes

    def cut(self, positions: Sequence[int], payload: Payload) -> None:
        separator = _SEPARATORS[self.method]
        array = self.method is InsertMode.DOCUMENT
        documents = (self.body[1:-1] if array else self.body).split(separator)
        body = separator.join(documents[position] for position in positions)
        self.body = b"[" + body + b"]" if array else body


def encode_devices(schema: Schema, rows: Mapping[str, NDArray[Any]]) -> bytes:
    """Documents of the tags' collection, whose keys are the ids, for the import API."""
    columns = schema.tags_row
    form = b'{"_key":"%d",' + json_object_format(columns)[1:]
    return format_rows(form, b"\n", [rows[ID], *JSON_FORMAT.write(columns, rows, {})])


class DocumentEncoder(Encoder):
    """Encodes for one method. A payload's data: a `Request` for each collection that gets some."""

    def __init__(self, job: Job, method: InsertMode) -> None:
        super().__init__(job)
        self.method = method
        self._tables = len(job.table_names)
        self._client_key = job.load.primary_key is PrimaryKey.CLIENT
        self._row = json_object_format(job.schema.row)
        if self._client_key:
            self._row = b'{"_key":"%b",' + self._row[1:]

    def encode(self, block: EventBlock) -> list[Payload]:
        size = self.size
        spans = bounds(len(block), size)
        if self._tables == 1 or size == 1:
            requests = [[request] for request in self._requests(block, size)]
        else:
            requests = [self._dealt(block.part(*span)) for span in spans]
        return [
            Payload(data, stop - start, block, stop - 1)
            for data, (start, stop) in zip(requests, spans, strict=True)
        ]

    def _requests(self, block: EventBlock, size: int) -> list[Request]:
        """All events to one table; single events are dealt to the tables in turn."""
        spans = bounds(len(block), size)
        tables = deal_in_turn(block, range(self._tables))
        return [
            Request(range(stop - start), self.method, body, table=tables[start])
            for body, (start, stop) in zip(self._bodies(block, size), spans, strict=True)
        ]

    def _dealt(self, block: EventBlock) -> list[Request]:
        """One payload for several tables."""
        requests = []
        for share, part in deal_block(block, self._tables):
            (body,) = self._bodies(part, len(part))
            requests.append(Request(share.rows, self.method, body, table=share.table))
        return requests

    def _bodies(self, block: EventBlock, size: int) -> list[bytes]:
        columns = json_columns(block)
        if self._client_key:
            columns.insert(0, client_keys(block))
        separator = _SEPARATORS[self.method]
        if self.method is InsertMode.SINGLE:
            return format_singles(self._row, columns)
        bodies = format_requests(self._row, separator, columns, size)
        if self.method is InsertMode.DOCUMENT:
            return [b"[" + body + b"]" for body in bodies]
        return bodies
