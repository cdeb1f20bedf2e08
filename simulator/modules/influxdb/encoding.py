"""Line protocol, built from the schema of any workload.

    events,device_id=w00000d000000 sequence_number=7i,temperature=21.50 1704067203150

The device is a tag, since tags identify a point's series and are indexed; with `Schema.device_path`, every
key of its document is a tag. So are columns that describe the device (`Column.tag`): they follow from its
name, so they add no series. All other columns except the time, in milliseconds, are fields.
https://docs.influxdata.com/influxdb/v2/reference/syntax/line-protocol/
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...contract import Tables
from ...encoding.columns import TEXTS, escape, is_constant, octets_of, text_format
from ...encoding.rows import format_lines, text_form, text_values
from ...errors import SimulatorError
from ...workloads.schema import Column, ColumnType, EventBlock
from ..base import Job
from ..kit.http_connection import compress
from ..kit.series import Labels, field_columns, read_labels, tag_columns
from ..sending import Encoder, Request, deal_in_turn, wrap_requests

PRECISION = "ms"

# Characters that would end a tag or a name.
_TAG_ESCAPES = ((b",", b"\\,"), (b"=", b"\\="), (b" ", b"\\ "))
_STRING_ESCAPES = ((b"\\", b"\\\\"), (b'"', b'\\"'))
_INTEGERS = (ColumnType.INT32, ColumnType.INT64, ColumnType.TIMESTAMP_MS)


def _escape(text: str) -> bytes:
    """The name of a measurement, tag or field, or a tag's text."""
    escaped = text.encode()
    for old, new in _TAG_ESCAPES:
        escaped = escaped.replace(old, new)
    return escaped


def _literal(name: str) -> bytes:
    """The escaped name within a %-format."""
    return _escape(name).replace(b"%", b"%%")


class LineEncoder(Encoder):
    """Payloads are bodies of write requests: bytes, compressed if asked for."""

    def __init__(self, job: Job, compressed: bool) -> None:
        super().__init__(job)
        self._schema = schema = job.schema
        self._compressed = compressed
        self._fields = field_columns(schema)
        self._forms = []
        """Of each field, with its leading comma, which is omitted with the field."""
        for column in self._fields:
            value = text_format(column)
            if column.type in TEXTS:
                value = b'"' + value + b'"'
            elif column.type in _INTEGERS:
                value += b"i"
            self._forms.append(b"," + _literal(column.name) + b"=" + value)
        self._tags = [schema.column(schema.device), *tag_columns(schema)]
        # A set of tags, as from a document, stays in front and has its own comma.
        device = b"%b" if schema.device_path else b"," + _literal(schema.device) + b"=%b"
        if not schema.device_path:
            # Sorted by name, as the server prefers.
            self._tags.sort(key=lambda column: column.name)
        self._labels = {
            column.name: Labels(column) for column in self._tags if column.type not in TEXTS
        }
        self._measurements = [_escape(name) for name in job.table_names]
        name = b"%b" if job.load.tables is Tables.MULTIPLE else _literal(schema.table)
        # The previous part ends with the tag's name: both are omitted with the value.
        tags = [device if tag.name == schema.device else b"%b%b" for tag in self._tags]
        fields = b"".join(map(text_form, self._fields, self._forms)).removeprefix(b",")
        self._line = name + b"".join(tags) + b" " + fields + b" %d"

    def encode(self, block: EventBlock) -> list[Request]:
        lines = format_lines(self._line, self._columns(block), self.job.load.batch)
        return wrap_requests(map(compress, lines) if self._compressed else lines, block, self.size)

    def _columns(self, block: EventBlock) -> list[NDArray[Any]]:
        columns = [values for tag in self._tags for values in self._tag_values(tag, block)]
        for column, form in zip(self._fields, self._forms, strict=True):
            values = block.columns[column.name]
            if column.type in TEXTS:
                values = escape(values, _STRING_ESCAPES)
            columns.append(text_values(column, form, values, block.missing.get(column.name), b""))
        columns.append(block.columns[self._schema.time])
        if len(self._measurements) > 1:
            columns.insert(0, np.array(deal_in_turn(block, self._measurements)))
        return columns

    def _tag_values(self, column: Column, block: EventBlock) -> list[NDArray[Any]]:
        """The device, or the beginning of another tag and its value."""
        if column.name == self._schema.device:
            if not self._schema.device_path:
                return [escape(block.devices, _TAG_ESCAPES)]
            documents = block.columns[column.name]
            different = documents[:1] if is_constant(documents) else documents
            tags = [tag_set(text) for text in different.tolist()]
            return [np.broadcast_to(tags, documents.shape)]
        values = block.columns[column.name]
        begin = np.broadcast_to(b"," + _escape(column.name) + b"=", values.shape)
        if column.name in self._labels:
            return [begin, self._labels[column.name].write(values)]
        content = values.tobytes()
        if b"\n" in content or b"\\" in content:
            for text in np.unique(values).tolist():
                _check_tag(column.name, text.decode())
        empty = octets_of(values)[:, 0] == 0
        if empty.any():
            begin = np.where(empty, b"", begin)
        return [begin, escape(values, _TAG_ESCAPES)]


def _check_tag(name: str, text: str) -> None:
    """SimulatorError if the protocol can't represent the text."""
    if "\n" in text or text.endswith("\\"):
        raise SimulatorError(f"tag {name}: InfluxDB accepts no line break and no final backslash")


@lru_cache(maxsize=65_536)
def tag_set(document: bytes) -> bytes:
    """A JSON object as tags: sorted by name, as the server prefers, each after a comma. Cached, since the
    events of a device share one document."""
    parts = []
    for name, text in sorted(read_labels(document).items()):
        _check_tag(name, text)
        # An empty tag is the same as none.
        if text:
            parts.append(b"," + _escape(name) + b"=" + _escape(text))
    return b"".join(parts)
