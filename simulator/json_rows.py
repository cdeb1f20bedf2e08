"""Events as JSON objects, one on a line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson
from numpy.typing import NDArray

from .encoding import escape, escape_json, text_format
from .rows import text_form, text_values
from .workloads.base import Column, ColumnType, EventBlock

NULL = b"null"


def json_value_format(column: Column) -> bytes:
    """The %-format of a value, of those that `json_columns` gives."""
    return text_form(column, _form(column))


def _form(column: Column) -> bytes:
    form = text_format(column)
    return b'"' + form + b'"' if column.type is ColumnType.TEXT else form


def json_object_format(columns: Sequence[Column]) -> bytes:
    """The %-format of an object with the columns as members, on one line.

    Takes the columns as `json_columns` gives them.
    """
    members = [
        orjson.dumps(column.name).replace(b"%", b"%%") + b":" + json_value_format(column)
        for column in columns
    ]
    return b"{" + b",".join(members) + b"}"


def json_columns(block: EventBlock) -> list[NDArray[Any]]:
    """The block's columns in the schema's order as `json_object_format` takes them; `null` where a value
    is missing."""
    columns = []
    for column in block.schema.columns:
        values = block.columns[column.name]
        if column.type is ColumnType.TEXT:
            values = escape_json(values)
        elif column.type is ColumnType.JSON:
            # Line breaks mean nothing outside of strings, and within strings they are escaped.
            values = escape(values, ((b"\n", b" "), (b"\r", b" ")))
        missing = block.missing.get(column.name)
        columns.append(text_values(column, _form(column), values, missing, NULL))
    return columns
