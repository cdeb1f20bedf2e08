"""Options of targets with `module: clickhouse`."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, ClassVar, Self

from pydantic import Field, model_validator

from ...conditions import ACCESS, Condition
from ..base import OfficialClient
from ..kit.http import basic_auth
from ..kit.options import BatchOptions, EndpointOptions, InFlightOptions
from ..options import PAYLOAD, InsertMode


class Compression(StrEnum):
    """What requests are compressed by."""

    NONE = "none"
    LZ4 = "lz4"
    GZIP = "gzip"


class Codecs(StrEnum):
    """How columns are compressed on disk."""

    DEFAULT = "default"
    """As the server is configured: LZ4 unless somebody has changed it."""
    ZSTD = "zstd"
    """ZSTD for every column."""
    SERIES = "series"
    """What suits series: Delta for times and whole numbers, Gorilla for floats, ZSTD behind them."""


class Partition(StrEnum):
    """What a partition of a table holds."""

    NONE = "none"
    """All events: there is one partition."""
    MONTH = "month"
    WEEK = "week"
    DAY = "day"


CLIENTS = {
    "official": OfficialClient(
        ("clickhouse-connect",),
        {
            InsertMode.BATCH: "clickhouse-connect's insert of rows with an InsertContext",
            InsertMode.SINGLE: "the same with one row",
        },
        writer=f"{__package__}.writing:OfficialClickhouseWriter",
        asker=f"{__package__}.asking:OfficialClickhouseAsker",
    )
}
"""What the option `client` can be. A client's session takes one request at a time."""


class ClickhouseOptions(EndpointOptions, BatchOptions, InFlightOptions):
    """Options of targets with `module: clickhouse`."""

    DEFAULT_PORT: ClassVar[int | None] = 8123
    EXAMPLE_URL: ClassVar[str] = "http://clickhouse.example:8123"
    LOGIN: ClassVar[str] = "user and password"

    compression: Annotated[Compression, Condition.CLIENT, PAYLOAD] = Field(
        Compression.NONE,
        description="compress requests by lz4 or gzip: less traffic for more CPU at both ends (default:"
        " none)",
    )
    user: Annotated[str, Condition.NONE, ACCESS] = Field(
        "default", min_length=1, description="user name"
    )
    password: str | None = Field(None, repr=False, description="the user's password")
    database: Annotated[str, Condition.NONE] = Field(
        "default", min_length=1, description="database to use; created if it is missing"
    )
    query_timeout_s: Annotated[float, Condition.NONE] = Field(
        3600, gt=0, description="how long a query may take"
    )
    async_insert: Annotated[bool, Condition.BATCH] = Field(
        False,
        description="let the server collect inserts and store them together: for requests of few events",
    )
    wait_for_async_insert: Annotated[bool, Condition.DURABILITY] = Field(
        True,
        description="with async_insert: acknowledge inserts once they are stored; false: once"
        " received, when they may still be lost",
    )
    fsync_after_insert: Annotated[bool, Condition.DURABILITY] = Field(
        False, description="write each insert to disk before it is acknowledged"
    )
    deduplication_window: int = Field(
        100_000,
        ge=1,
        description="how many of the last inserts into a table are remembered, so that a repeated"
        " one is stored once",
    )
    partition: Annotated[Partition, Condition.SCHEMA] = Field(
        Partition.NONE,
        description="period of the events in one partition: month, week, day, or none: one for all",
    )
    codecs: Annotated[Codecs, Condition.SCHEMA] = Field(
        Codecs.DEFAULT,
        description="how columns are compressed: default (the server's), zstd, or series (Delta"
        " or Gorilla, then ZSTD)",
    )
    low_cardinality: Annotated[bool, Condition.SCHEMA] = Field(
        True,
        description="store texts that describe devices as LowCardinality(String): for up to about"
        " 10,000 devices",
    )
    replicated: Annotated[bool, Condition.REPLICATION] = Field(
        False, description="ReplicatedMergeTree instead of MergeTree"
    )
    cluster: Annotated[str | None, Condition.REPLICATION] = Field(
        None,
        min_length=1,
        description="with replicated: make the tables on all nodes of this cluster, which must be of one"
        " shard",
    )
    insert_quorum: Annotated[int | None, Condition.REPLICATION] = Field(
        None,
        ge=2,
        description="with replicated: how many replicas must have an insert before it is acknowledged",
    )

    @model_validator(mode="after")
    def _check_replication(self) -> Self:
        if not self.replicated:
            if self.insert_quorum is not None:
                raise ValueError("insert_quorum goes with replicated=true")
            if len(self.endpoint) > 1:
                raise ValueError(
                    "several nodes have the same table only with replicated=true: name one endpoint"
                )
        if not self.async_insert and not self.wait_for_async_insert:
            raise ValueError("wait_for_async_insert goes with async_insert=true")
        return self

    def login(self) -> dict[str, str]:
        return {"authorization": basic_auth(self.user, self.password or "")}
