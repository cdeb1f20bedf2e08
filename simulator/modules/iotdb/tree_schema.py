"""What a schema's columns are in IoTDB's tree model."""

from __future__ import annotations

from ...errors import OptionError
from ...workloads.schema import Schema
from ...workloads.tags import Tags
from .encoding import TableColumn, list_columns

_ILLEGAL = ("time", "timestamp")
"""No measurement can be called so, with capitals or without."""


def list_measurements(schema: Schema) -> list[TableColumn]:
    """The columns that are measurements: all but the time and the device's name. A document that names
    the device is one."""
    return [column for column in list_columns(schema) if not column.is_device]


def find_steady(schema: Schema) -> str:
    """A measurement that each event has, a number if possible; OptionError if there is none."""
    steady = [one for one in list_measurements(schema) if not one.column.nullable]
    if not steady:
        raise OptionError(
            "model=tree stores no event without any value, and this workload may have some: use"
            " model=table"
        )
    return next((one.name for one in steady if one.column.is_number), steady[0].name)


def check_schema(schema: Schema) -> None:
    """OptionError if a schema's events can't be stored."""
    if schema.tags is Tags.TABLE:
        raise OptionError("model=tree has no joins, for tags=table: use tags=row, or model=table")
    find_steady(schema)
    for column in list_measurements(schema):
        if column.name.lower() in _ILLEGAL:
            raise OptionError(
                f"model=tree has no measurement called {column.name}: use model=table, or call the column"
                " something else"
            )
