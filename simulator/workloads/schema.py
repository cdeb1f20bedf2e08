"""What a workload's events are made of: columns, and what they mean."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from .queries import Query
from .tags import ID, Tags

# 2024-01-01T00:00:00Z. Fixed, so that a run can be repeated to the byte on another day.
FIRST_TIMESTAMP_MS = 1_704_067_200_000


class ColumnType(StrEnum):
    """Type of a column; each module maps it to one of its database's types."""

    TIMESTAMP_MS = "timestamp_ms"
    """Milliseconds since 1970-01-01 UTC, in an int64 array."""
    INT64 = "int64"
    INT32 = "int32"
    FLOAT32 = "float32"
    FLOAT64 = "float64"
    BOOL = "bool"
    TEXT = "text"
    """UTF-8 in a bytes array (numpy `S`): no NUL characters."""
    JSON = "json"
    """A JSON document, as `TEXT`."""


NUMBERS = (ColumnType.INT64, ColumnType.INT32, ColumnType.FLOAT32, ColumnType.FLOAT64)
"""Types of numbers that can be measured and computed with."""


@dataclass(frozen=True)
class Column:
    """One column. `decimals` (FLOAT32 and FLOAT64 only) is the number of digits after the point that
    every database is sent, so that no database gets a longer payload than another."""

    name: str
    type: ColumnType
    decimals: int | None = None
    nullable: bool = False
    """Some events have no value: see `EventBlock.missing`. Never of the key, the time or the device."""
    tag: bool = False
    """It describes the device and follows from its name alone."""
    may_be_empty: bool = False
    """It's known that some of its texts are empty."""

    @property
    def is_number(self) -> bool:
        """Whether it can be measured and computed with."""
        return self.type in NUMBERS


@dataclass(frozen=True)
class Schema:
    """Columns of a workload's table and what they mean.

    `time` is the column of the event time, `device` the one that names the device (with
    `device_path`, the device is that key of the JSON column), and `key` names the columns that
    together identify an event (the natural key; with `device_path` the device counts, not the
    whole document).
    """

    table: str
    columns: tuple[Column, ...]
    time: str
    device: str
    key: tuple[str, ...]
    device_path: str | None = None
    queries: tuple[str, ...] = ()
    """Names of what is asked of the stored events unless others are named."""
    descriptions: tuple[Query, ...] = ()
    """All that can be asked, the queries that every workload with numbers has among them."""
    devices_per_worker: int = 1
    epoch_ms: int = FIRST_TIMESTAMP_MS
    """The first timestamp."""
    extra_json_keys: int = 0
    """Members of a JSON column that only the workload's options make."""
    tags: Tags = Tags.ROW
    """Where the device's name and the tags are stored."""
    tags_of: str | None = None
    """The table by whose name the tags' table is called; None: `table`."""

    def column(self, name: str) -> Column:
        """The column of that name; KeyError if there is none."""
        for column in self.columns:
            if column.name == name:
                return column
        raise KeyError(name)

    def is_apart(self, name: str) -> bool:
        """Whether a column is stored in the tags' table: the device's, or a tag."""
        return self._is_apart(self.column(name))

    def _is_apart(self, column: Column) -> bool:
        return self.tags is Tags.TABLE and (column.tag or column.name == self.device)

    @property
    def tags_table(self) -> str:
        """The table of the tags, if they have one of their own."""
        return f"{self.tags_of or self.table}_tags"

    @property
    def row(self) -> tuple[Column, ...]:
        """The columns of an event's row: with a tags' table, the id in the device's place."""
        return tuple(
            Column(ID, ColumnType.INT64) if self._is_apart(column) else column
            for column in self.columns
            if column.name == self.device or not self._is_apart(column)
        )

    @property
    def tags_row(self) -> tuple[Column, ...]:
        """The columns of a device's row in the tags' table."""
        return (Column(ID, ColumnType.INT64), *filter(self._is_apart, self.columns))

    @property
    def row_key(self) -> tuple[str, ...]:
        """The columns of `row` that together identify an event."""
        return tuple(ID if self.is_apart(name) else name for name in self.key)

    def description(self, name: str) -> Query | None:
        """The query of that name, or None."""
        return next((query for query in self.descriptions if query.name == name), None)

    @property
    def fields(self) -> list[str]:
        """The columns of measured numbers, in order."""
        return [
            column.name
            for column in self.columns
            if column.is_number and not column.tag and column.name not in self.key
        ]

    @property
    def metrics(self) -> int:
        """How many measured values an event has."""
        return len(self.fields)

    @property
    def sequence(self) -> str | None:
        """The key's INT64 column, which numbers a worker's events, or None."""
        return next((name for name in self.key if self.column(name).type is ColumnType.INT64), None)
