"""Line protocol, built from the schema: any workload's columns will do.

    events,device_id=w00000d000000 sequence_number=7i,temperature=21.50 1704067203150

The device is a tag, since tags say which series a point belongs to and are indexed; with
`Schema.device_path`, every key of its document is one. So are columns that describe the device
(`Column.tag`): they follow from its name, so they add no series. All else is a field, but for the time,
in milliseconds. https://docs.influxdata.com/influxdb/v2/reference/syntax/line-protocol/
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from ...contract import Tables
from ...encoding.columns import TEXTS, escape, is_constant, octets_of, text_format
from ...encoding.rows import format_lines, text_form, text_values
from ...errors import OptionError, SimulatorError
from ...workloads.schema import Column, ColumnType, EventBlock, Schema
from ..base import Job
from ..kit.http_connection import compress
from ..kit.labels import Labels, field_columns, tag_columns
from ..kit.tables import deal_in_turn
from ..sending import Encoder, Payload, make_payloads

PRECISION = "ms"

# Each character of a tag or a name that would end it.
_TAG_ESCAPES = ((b",", b"\\,"), (b"=", b"\\="), (b" ", b"\\ "))
_STRING_ESCAPES = ((b"\\", b"\\\\"), (b'"', b'\\"'))
_INTEGERS = (ColumnType.INT32, ColumnType.INT64, ColumnType.TIMESTAMP_MS)


def escape_name(name: str) -> bytes:
    """The name of a measurement, tag or field, escaped."""
    return _escape_tag(name.encode())


def _escape_tag(text: bytes) -> bytes:
    for old, new in _TAG_ESCAPES:
        text = text.replace(old, new)
    return text


def _literal(name: str) -> bytes:
    """The escaped name within a %-format."""
    return escape_name(name).replace(b"%", b"%%")


class LineEncoder(Encoder):
    """Payloads are bodies of write requests: bytes, compressed if asked for."""

    def __init__(self, job: Job, compressed: bool) -> None:
        self._schema = job.schema
        self._compressed = compressed
        self._fields = field_columns(job.schema)
        if all(column.nullable for column in self._fields):
            raise OptionError(
                "InfluxDB needs a column besides time, device and tags that is never missing"
            )
        self._tags = _order_tags(job.schema)
        self._labels = {
            column.name: Labels(column) for column in self._tags if column.type not in TEXTS
        }
        self._forms = [self._field_form(column) for column in self._fields]
        self._measurements = [escape_name(name) for name in job.table_names]
        name = b"%b" if job.load.tables is Tables.MULTIPLE else _literal(job.schema.table)
        tags = b"".join(map(self._tag_form, self._tags))
        self._line = name + tags + b" " + self._fields_format() + b" %d"

    def _tag_form(self, column: Column) -> bytes:
        if column.name != self._schema.device:
            # The tag's begin with the comma, and its value: both are gone where there is none.
            return b"%b%b"
        # A set of tags brings its own comma.
        return b"%b" if self._schema.device_path else b"," + _literal(column.name) + b"=%b"

    def _fields_format(self) -> bytes:
        parts = map(text_form, self._fields, self._forms)
        return b"".join(parts).removeprefix(b",")

    @staticmethod
    def _field_form(column: Column) -> bytes:
        """A field with the comma before it, which is gone with the field."""
        value = text_format(column)
        if column.type in TEXTS:
            value = b'"' + value + b'"'
        elif column.type in _INTEGERS:
            value += b"i"
        return b"," + _literal(column.name) + b"=" + value

    def encode(self, block: EventBlock, batch: int) -> list[Payload]:
        lines = format_lines(self._line, self._columns(block), batch)
        return make_payloads(map(compress, lines) if self._compressed else lines, block, batch)

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
        if column.name != self._schema.device:
            return self._describe_device(column, block.columns[column.name])
        if not self._schema.device_path:
            return [escape(block.devices, _TAG_ESCAPES)]
        documents = block.columns[column.name]
        different = documents[:1] if is_constant(documents) else documents
        tags = [tag_set(text) for text in different.tolist()]
        return [np.broadcast_to(tags, documents.shape)]

    def _describe_device(self, column: Column, values: NDArray[Any]) -> list[NDArray[Any]]:
        """The begin of each tag, and its value."""
        begin = np.broadcast_to(b"," + escape_name(column.name) + b"=", values.shape)
        if column.name in self._labels:
            return [begin, self._labels[column.name].write(values)]
        content = values.tobytes()
        if b"\n" in content or b"\\" in content:
            for text in np.unique(values).tolist():
                _check_tag(column.name, text)
        empty = octets_of(values)[:, 0] == 0
        if empty.any():
            begin = np.where(empty, b"", begin)
        return [begin, escape(values, _TAG_ESCAPES)]


def _order_tags(schema: Schema) -> list[Column]:
    """All tags in the order of their names, as the server wants them most; a document stays in front."""
    device, tags = schema.column(schema.device), tag_columns(schema)
    if schema.device_path:
        return [device, *tags]
    return sorted([device, *tags], key=lambda column: column.name)


def _check_tag(name: str, text: bytes) -> None:
    """SimulatorError if the protocol has no way to write the text."""
    if b"\n" in text or text.endswith(b"\\"):
        raise SimulatorError(f"tag {name}: InfluxDB accepts no line break and no final backslash")


@lru_cache(maxsize=65_536)
def tag_set(document: bytes) -> bytes:
    """A JSON object as tags: sorted by name, as the server wants them most, each behind a comma.

    Kept, since the events of a device share one document.
    """
    parts = []
    for name, value in sorted(orjson.loads(document).items()):
        text = value.encode() if isinstance(value, str) else orjson.dumps(value)
        _check_tag(name, text)
        # An empty tag is the same as none.
        if text:
            parts.append(b"," + escape_name(name) + b"=" + _escape_tag(text))
    return b"".join(parts)
