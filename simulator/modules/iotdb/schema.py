"""A workload's schema in IoTDB: columns of tables, measurements of the tree, names and paths, and the
statements that create, count and delete events.

In the tree model, a device is a path, `root.<database>.<table>.<device>`, and a column is a measurement of
it. All measurements of a device are aligned: they share its times. The path only identifies the device, as
IoTDB's documentation advises ("Only include unique identifiers in the path",
https://iotdb.apache.org/UserGuide/latest/Background-knowledge/Data-Model-and-Terminology_apache.html). The
name is enough for that, so tags are measurements, stored with each event (`tags=row`). If they were levels of
the path, a query about one device would have to know them or search for them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...encoding.columns import digits, octets_of
from ...errors import OptionError
from ...workloads.schema import ID, Column, ColumnType, EventBlock, Schema, Tags
from .thrift import write_text


class Model(StrEnum):
    """The data model: tables, or the tree of paths."""

    TABLE = "table"
    """As rows of tables."""
    TREE = "tree"
    """As points of timeseries, which are leaves of a tree."""


TIME = "time"
"""The name of every table's time column."""

TYPES: Mapping[ColumnType, str] = {
    ColumnType.TIMESTAMP_MS: "TIMESTAMP",
    ColumnType.INT64: "INT64",
    ColumnType.INT32: "INT32",
    ColumnType.FLOAT32: "FLOAT",
    ColumnType.FLOAT64: "DOUBLE",
    ColumnType.BOOL: "BOOLEAN",
    ColumnType.TEXT: "STRING",
    ColumnType.JSON: "STRING",
}
_CODES = {
    "BOOLEAN": 0, "INT32": 1, "INT64": 2, "FLOAT": 3, "DOUBLE": 4, "TIMESTAMP": 8, "STRING": 11,
}  # fmt: skip

LEVEL = 2
"""The level of a table in a path of the tree; root is 0."""

_ID_DIGITS = 11
_ILLEGAL = ("time", "timestamp")
"""No measurement can have this name, in any case."""
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NODE = re.compile(r"`(?:[^`]|``)*`|[^.]+")
_MOST_PATHS = 100_000
"""How many devices' paths are cached, about ten megabytes."""


_DEVICES = 16
"""How many devices are in the table that makes regions."""


@dataclass(frozen=True)
class Layout:
    """The statements of a model. {database}: as in the server's lists; {table}: a table's name, or path, in
    the form for statements."""

    create: str
    interval: str
    """What follows it for {} ms in one partition of time."""
    tables: str
    drop: tuple[str, ...]
    count: str
    """Counts a table's events in one row, or in several. {value}: a column that each event has."""
    delete: str
    probe: tuple[str, ...]
    """Store something for many devices."""


TABLES = Layout(
    create='CREATE DATABASE IF NOT EXISTS "{database}"',
    interval=" WITH (time_partition_interval={})",
    tables='SHOW TABLES FROM "{database}"',
    # Otherwise late rows appear in the next table of that name (2.0.1).
    drop=("DELETE FROM {table}", "DROP TABLE {table}"),
    count="SELECT count({value}) FROM {table}",
    delete="DELETE FROM {table} WHERE time < {}",
    probe=(
        f"CREATE TABLE IF NOT EXISTS {{table}} ({TIME} TIMESTAMP TIME, name STRING TAG, value INT32 FIELD)",
        f"INSERT INTO {{table}}({TIME}, name, value) VALUES "
        + ", ".join(f"(0, '{number}', 0)" for number in range(_DEVICES)),
    ),
)
TREE = Layout(
    create="CREATE DATABASE {database}",
    interval=" WITH TIME_PARTITION_INTERVAL={}",
    tables="SHOW CHILD PATHS {database}",
    drop=("DELETE TIMESERIES {table}.**",),
    count=f"SELECT count({{value}}) FROM {{table}}.* GROUP BY LEVEL = {LEVEL}",
    delete="DELETE FROM {table}.** WHERE time < {}",
    probe=tuple(
        f"INSERT INTO {{table}}.d{number}(timestamp, v) ALIGNED VALUES (0, 0)"
        for number in range(_DEVICES)
    ),
)
"""Only the database is created beforehand: a device's timeseries come with its first event, with the tablet's
types, and without events there is no table.

An event without any value is not stored at all (2.0.1), so one measurement must never be missing. It serves
to count events.
"""


class TableColumn(NamedTuple):
    """A column of a table, other than the time."""

    name: str
    column: Column
    is_tag: bool
    """Whether it helps to identify the device."""
    is_device: bool
    """Whether its values are the devices' names instead of those of the events' column."""
    is_of_device: bool
    """Whether it follows from the device's name alone."""

    @property
    def type(self) -> str:
        """The type's name in SQL."""
        return TYPES[self.column.type]

    @property
    def code(self) -> int:
        """The type's code in requests."""
        return _CODES[self.type]

    def take(self, block: EventBlock) -> NDArray[Any]:
        """Its values in a block."""
        if not self.is_device:
            return block.columns[self.name]
        is_id = self.name == ID and block.schema.tags is Tags.TABLE
        return _spell_ids(block.device_ids) if is_id else block.devices


def list_columns(schema: Schema) -> list[TableColumn]:
    """The columns of a schema's table without the time. The device's name is a tag, and so is each text that
    describes the device. A device named in a document gets a column of its own."""
    if schema.tags is Tags.TABLE:
        # An id identifies the device, and identifiers are texts.
        tag = TableColumn(ID, Column(ID, ColumnType.TEXT), True, True, True)
        return [
            tag if column.name == ID else TableColumn(column.name, column, False, False, False)
            for column in schema.row
            if column.name != schema.time
        ]
    columns = []
    if schema.device_path:
        device = Column(schema.device_path, ColumnType.TEXT)
        columns.append(TableColumn(schema.device_path, device, True, True, True))
    for column in schema.columns:
        if column.name == schema.time:
            continue
        is_device = column.name == schema.device and not schema.device_path
        is_tag = is_device or (column.tag and column.type is ColumnType.TEXT)
        is_of_device = column.tag or column.name == schema.device
        columns.append(TableColumn(column.name, column, is_tag, is_device, is_of_device))
    return columns


def check_names(schema: Schema) -> None:
    """OptionError if two columns would have the same name, since IoTDB has no capital letters in names."""
    seen = {TIME: schema.time}
    for column in list_columns(schema):
        other = seen.setdefault(column.name.lower(), column.name)
        if other != column.name or column.name.lower() == TIME:
            raise OptionError(
                f"module iotdb can't distinguish the columns {other} and {column.name}: IoTDB"
                f" names have no capital letters, and the time column is called {TIME}"
            )


# --- tags in a separate table ---------------------------------------------------------------------


def describe_tags(schema: Schema) -> Schema:
    """The tags' table, as a schema whose events are devices; all have the same time."""
    names = [Column(schema.device_path, ColumnType.TEXT)] if schema.device_path else []
    tags = [replace(column, tag=False) for column in schema.tags_row if column.name != ID]
    columns = (Column(ID, ColumnType.TEXT), *names, *tags, Column(TIME, ColumnType.TIMESTAMP_MS))
    return Schema(schema.tags_table, columns, TIME, ID, (ID, TIME))


def make_tags(schema: Schema, columns: Mapping[str, NDArray[Any]]) -> EventBlock:
    """Rows of the tags' table, given as in `Schema.tags_row`, as events of `describe_tags`."""
    ids = _spell_ids(columns[ID])
    all_columns = {**columns, ID: ids, TIME: np.zeros(len(ids), dtype=np.int64)}
    if schema.device_path:
        names = np.insert(octets_of(ids), (0, 5), [ord("w"), ord("d")], axis=1)
        all_columns[schema.device_path] = names.view(f"S{names.shape[1]}")[:, 0]
    return EventBlock(describe_tags(schema), 0, 0, all_columns, ids)


def _spell_ids(ids: NDArray[np.int64]) -> NDArray[np.bytes_]:
    return digits(ids, _ID_DIGITS).view(f"S{_ID_DIGITS}")[:, 0]


# --- the tree -------------------------------------------------------------------------------------


def list_measurements(schema: Schema) -> list[TableColumn]:
    """The columns that are measurements: all but the time and the device's name, including a document that
    names the device."""
    return [column for column in list_columns(schema) if not column.is_device]


def find_steady(schema: Schema) -> str:
    """A measurement that each event has, a number if possible; OptionError if there is none."""
    steady = [column for column in list_measurements(schema) if not column.column.nullable]
    if not steady:
        raise OptionError(
            "model=tree can't store events without a value, and this workload may have some: use"
            " model=table"
        )
    return next((column.name for column in steady if column.column.is_number), steady[0].name)


def check_measurements(schema: Schema) -> None:
    """OptionError if a schema's events can't be stored in the tree."""
    if schema.tags is Tags.TABLE:
        raise OptionError(
            "model=tree has no joins, which tags=table needs: use tags=row, or model=table"
        )
    find_steady(schema)
    for column in list_measurements(schema):
        if column.name.lower() in _ILLEGAL:
            raise OptionError(
                f"model=tree can't have a measurement called {column.name}: use model=table, or"
                " rename the column"
            )


def quote(name: str) -> str:
    """A name in a statement of the tree, quoted where a plain one is a keyword."""
    return "`" + name.replace("`", "``") + "`"


def write_node(name: str) -> str:
    """A name in a path outside of statements: quoted if it must be."""
    return name if _PLAIN.fullmatch(name) else quote(name)


def split_path(path: str) -> list[str]:
    """The names in a path from the server."""
    if "`" not in path:
        return path.split(".")
    nodes = _NODE.findall(path)
    return [n[1:-1].replace("``", "`") if n.startswith("`") else n for n in nodes]


def name_table(database: str, table: str) -> str:
    """The path above a table's devices."""
    return f"root.{database}.{write_node(table)}"


class Paths(dict[bytes, bytes]):
    """Name of a device -> its path below a table, after its length. Paths are created on use."""

    def __init__(self, table: str) -> None:
        """`table`: the table's path."""
        super().__init__()
        self._table = table

    def __missing__(self, device: bytes) -> bytes:
        if len(self) >= _MOST_PATHS:
            self.clear()
        path = self[device] = write_text(f"{self._table}.{write_node(device.decode())}")
        return path
