"""Events as JSON objects, one on a line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson
from numpy.typing import NDArray

from ..workloads.schema import Column, ColumnType, EventBlock
from .columns import escape, escape_json, text_format
from .rows import TextFormat

NULL = b"null"


def _form(column: Column) -> bytes:
    form = text_format(column)
    return b'"' + form + b'"' if column.type is ColumnType.TEXT else form


def _prepare(column: Column, values: NDArray[Any]) -> NDArray[Any]:
    if column.type is ColumnType.TEXT:
        return escape_json(values)
    if column.type is ColumnType.JSON:
        # Line breaks mean nothing outside of strings, and within strings they are escaped.
        return escape(values, ((b"\n", b" "), (b"\r", b" ")))
    return values


JSON_FORMAT = TextFormat(_form, _prepare, NULL)


def json_object_format(columns: Sequence[Column]) -> bytes:
    """The %-format of an object with the columns as members, on one line.

    Takes the columns as `json_columns` gives them.
    """
    members = [
        orjson.dumps(column.name).replace(b"%", b"%%") + b":" + form
        for column, form in zip(columns, JSON_FORMAT.list_forms(columns), strict=True)
    ]
    return b"{" + b",".join(members) + b"}"


def json_columns(block: EventBlock) -> list[NDArray[Any]]:
    """The columns of the events' rows, in order, as `json_object_format` takes them; `null` where a value
    is missing."""
    return JSON_FORMAT.write(block.schema.row, block.row_columns, block.missing)
