"""Events as JSON objects, one on a line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from ..workloads.schema import Column, ColumnType, EventBlock
from .columns import escape, escape_json, text_format
from .rows import text_form, text_values

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
    """The columns of the events' rows, in order, as `json_object_format` takes them; `null` where a value
    is missing."""
    return write_json_columns(block.schema.row, block.row_columns, block.missing)


def write_json_columns(
    columns: Sequence[Column],
    values: Mapping[str, NDArray[Any]],
    missing: Mapping[str, NDArray[np.bool_]],
) -> list[NDArray[Any]]:
    """The same of other columns, with their values and where these are missing."""
    found = []
    for column in columns:
        own = values[column.name]
        if column.type is ColumnType.TEXT:
            own = escape_json(own)
        elif column.type is ColumnType.JSON:
            # Line breaks mean nothing outside of strings, and within strings they are escaped.
            own = escape(own, ((b"\n", b" "), (b"\r", b" ")))
        places = missing.get(column.name)
        found.append(text_values(column, _form(column), own, places, NULL))
    return found
