"""Tables of ClickHouse, as the options want them."""

from __future__ import annotations

from ...contract import PrimaryKey
from ...encoding.columns import KEY_COLUMN
from ...workloads.schema import Column, ColumnType, Schema
from ...workloads.tags import ID
from .._base.sql_queries import quote_name
from ..base import Job
from .native import TYPES
from .options import ClickhouseOptions, Codecs, Partition
from .queries import name_device

_PARTITIONS = {
    Partition.MONTH: "toYYYYMM({time})",
    Partition.WEEK: "toMonday({time})",
    Partition.DAY: "toYYYYMMDD({time})",
}

# https://clickhouse.com/docs/sql-reference/statements/create/table#specialized-codecs
_SERIES = {
    ColumnType.TIMESTAMP_MS: "Delta, ZSTD",
    ColumnType.INT64: "Delta, ZSTD",
    ColumnType.INT32: "Delta, ZSTD",
    ColumnType.FLOAT32: "Gorilla, ZSTD",
    ColumnType.FLOAT64: "Gorilla, ZSTD",
}

_KEYS = {
    PrimaryKey.CLIENT: "String",
    PrimaryKey.UUID: "UUID DEFAULT generateUUIDv4()",
}
"""The column of a key, if there is one: no unique one, as ClickHouse has none."""


class Tables:
    """The statements that make and change a run's tables."""

    def __init__(self, options: ClickhouseOptions, job: Job) -> None:
        self._options = options
        self._job = job
        cluster = options.cluster if options.replicated else None
        self._on_cluster = f" ON CLUSTER {quote_name(cluster)}" if cluster else ""

    def make_database(self) -> str:
        """Where there is none."""
        return (
            f"CREATE DATABASE IF NOT EXISTS {quote_name(self._options.database)}{self._on_cluster}"
        )

    def drop_database(self) -> str:
        """With all that is in it."""
        return (
            f"DROP DATABASE IF EXISTS {quote_name(self._options.database)}{self._on_cluster} SYNC"
        )

    def drop(self, table: str) -> str:
        """At once: else it would be kept for some minutes, and its disk with it."""
        return f"DROP TABLE IF EXISTS {self._name(table)}{self._on_cluster} SYNC"

    def make(self, table: str) -> str:
        """A table for events, if it isn't there."""
        schema = self._job.schema
        columns = [self._define(column) for column in schema.row]
        key = _KEYS.get(self._job.load.primary_key)
        if key is not None:
            columns.insert(0, f"{quote_name(KEY_COLUMN)} {key}{self._codec(ColumnType.TEXT)}")
        time = quote_name(schema.time)
        device = quote_name(ID) if schema.is_apart(schema.device) else name_device(schema)
        statement = f"{self._begin(table, columns)} {self._engine('MergeTree')}"
        if partition := _PARTITIONS.get(self._options.partition):
            statement += f" PARTITION BY {partition.format(time=time)}"
        settings = [self._window_setting]
        if self._options.fsync_after_insert:
            settings += ["fsync_after_insert = 1", "fsync_part_directory = 1"]
        return f"{statement} ORDER BY ({device}, {time}) SETTINGS {', '.join(settings)}"

    def make_tags(self) -> str:
        """The tags' table, if it isn't there. Rows of one id become one when parts are merged."""
        schema = self._job.schema
        columns = [self._define(column) for column in schema.tags_row]
        begin = self._begin(schema.tags_table, columns)
        return f"{begin} {self._engine('ReplacingMergeTree')} ORDER BY {quote_name(ID)}"

    def remember_inserts(self, table: str) -> str:
        """Have a table that was there before remember as many inserts as are asked for."""
        return f"ALTER TABLE {self._name(table)}{self._on_cluster} MODIFY SETTING {self._window_setting}"

    @property
    def _window_setting(self) -> str:
        kind = "replicated" if self._options.replicated else "non_replicated"
        return f"{kind}_deduplication_window = {self._options.deduplication_window}"

    def fetch_all(self, table: str) -> str:
        """Have replicas wait until they have what the others have."""
        return f"SYSTEM SYNC REPLICA{self._on_cluster} {self._name(table)}"

    def optimize(self, table: str) -> str:
        """Have all parts of a partition merged into one."""
        return f"OPTIMIZE TABLE {self._name(table)}{self._on_cluster} FINAL"

    def _name(self, table: str) -> str:
        return f"{quote_name(self._options.database)}.{quote_name(table)}"

    def _begin(self, table: str, columns: list[str]) -> str:
        return f"CREATE TABLE IF NOT EXISTS {self._name(table)}{self._on_cluster} ({', '.join(columns)})"

    def _engine(self, engine: str) -> str:
        # Without arguments, Keeper's path and the replica's name are those of the server's settings.
        return f"ENGINE = {'Replicated' if self._options.replicated else ''}{engine}"

    def _define(self, column: Column) -> str:
        """A column's definition."""
        schema = self._job.schema
        kind = column_type(schema, column, self._options.low_cardinality)
        codec = "" if kind.startswith("JSON") else self._codec(column.type)
        return f"{quote_name(column.name)} {kind}{codec}"

    def _codec(self, kind: ColumnType) -> str:
        codecs = self._options.codecs
        if codecs is Codecs.DEFAULT:
            return ""
        named = _SERIES.get(kind, "ZSTD") if codecs is Codecs.SERIES else "ZSTD"
        return f" CODEC({named})"


def column_type(schema: Schema, column: Column, low_cardinality: bool) -> str:
    """The type of a column in a table."""
    if column.name == schema.device and schema.device_path:
        return f"JSON({quote_name(schema.device_path)} String)"
    kind = TYPES[column.type]
    if column.nullable:
        kind = f"Nullable({kind})"
    describes = column.name == schema.device or column.tag
    if low_cardinality and column.type is ColumnType.TEXT and describes:
        return f"LowCardinality({kind})"
    return kind


def fits(found: str, kind: str) -> bool:
    """Whether a column of the type `found` holds values of this type as they are."""
    if kind.startswith("JSON("):
        # How it is written is the server's affair, and it may have more paths.
        return found.startswith("JSON")
    return found in (kind, f"LowCardinality({kind})")
