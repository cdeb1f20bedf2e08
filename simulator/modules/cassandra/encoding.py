"""Bodies of CQL's binary protocol: BATCH and EXECUTE of prepared INSERTs, as bytes.

Binding rows and handing them to the driver costs 4 to 5 µs an event, more than sending them. So the values of
all rows come from one numpy record array. The formats (sections 4.1.6 and 4.1.7):
https://github.com/apache/cassandra/blob/trunk/doc/native_protocol_v5.spec
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, field_validator, model_validator

from ...conditions import ACCESS, Condition
from ...contract import MIB, Allocation, CommaList, Load, PrimaryKey
from ...encoding.binary_rows import BinaryRows
from ...encoding.columns import KEY_COLUMN, Columns, bounds, client_keys, number_names, quote_name
from ...errors import OptionError
from ...workloads.schema import Column, ColumnType, EventBlock
from ..base import Durability, Job, Needed
from ..kit.options import (
    IN_FLIGHT_MEANING,
    BatchOptions,
    HostList,
    LoginOptions,
    TlsOptions,
    join_address,
)
from ..options import PAYLOAD, InsertMode
from ..sending import Encoder, Request, number_tables

MAX_BATCH = 65_535
"""Statements in a BATCH: the protocol has 16 bits for their number."""

# A batch holds events of one device, so enough events must be sorted at once to fill a batch for each device:
# as many as memory allows (a temperature event takes about 70 bytes).
_MAX_UNIT_EVENTS = 262_144

# The length of a missing value (section 3, [value]): not NULL (-1), which would be stored as a tombstone.
_NOT_SET = -2

_PREPARED = b"\x01"
_WITH_VALUES = 0x01
_INT_FLAGS_SINCE = 5


class BatchType(StrEnum):
    """How the coordinator treats a batch."""

    UNLOGGED = "unlogged"
    LOGGED = "logged"
    """Written to the batch log first, so it is applied as a whole even over several partitions; with one
    partition it has no cost and no benefit."""

    @property
    def code(self) -> bytes:
        """As in the protocol."""
        return b"\x01" if self is BatchType.UNLOGGED else b"\x00"


# https://github.com/apache/cassandra/blob/trunk/doc/native_protocol_v5.spec, section 3
CONSISTENCY_CODES = {
    "ONE": 1, "TWO": 2, "THREE": 3, "QUORUM": 4, "ALL": 5,
    "LOCAL_QUORUM": 6, "EACH_QUORUM": 7, "LOCAL_ONE": 10,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Prepared:
    """The server's ids of a prepared statement."""

    statement_id: bytes
    metadata_id: bytes
    """The id of the result, which an INSERT doesn't have; needed since protocol version 5."""
    columns: Sequence[Any] = field(default=(), compare=False)
    """The columns of its rows, which the driver needs to decode them."""


# As long as real ones, to measure encoding without a server.
_NOT_PREPARED = Prepared(bytes(16), bytes(16))


class Insert(NamedTuple):
    """The body of a BATCH or EXECUTE. `partition` is the value of its partition key."""

    body: bytes
    partition: bytes


class CassandraEncoder(Encoder):
    """Encodes batches of one partition each, or single inserts. A payload's data: an `Insert`. A partition is
    a device, over all tables: within a keyspace, rows with the same partition key are one mutation,
    written and acknowledged as a whole, whichever tables they go to."""

    def __init__(
        self, job: Job, batch_type: BatchType, consistency: str, device_spread: int
    ) -> None:
        super().__init__(job)
        batch = job.load.batch
        self._batch_type = batch_type
        self._consistency = struct.pack("!H", CONSISTENCY_CODES[consistency])
        self.batched = batch > 0
        self.unit_events = min(batch * device_spread, _MAX_UNIT_EVENTS)
        texts = [KEY_COLUMN] if has_key_column(job) else []
        texts += [job.schema.device_path] if job.schema.device_path else []
        added = [Column(name, ColumnType.TEXT) for name in texts]
        self._columns = [*added, *job.schema.columns]
        self.columns = [column.name for column in self._columns]
        """The columns of the INSERT, in order."""
        self.use_statements([_NOT_PREPARED] * len(job.table_names), _INT_FLAGS_SINCE)

    def use_statements(self, statements: Sequence[Prepared], protocol_version: int) -> None:
        """Set the server's ids of the INSERT into each table."""
        self._statements = statements
        self._protocol_version = protocol_version

    def insert_statements(self, name_table: Callable[[str], str]) -> list[str]:
        """The INSERT into each table, to be prepared."""
        columns = self.columns
        names, marks = ", ".join(map(quote_name, columns)), ", ".join("?" for _ in columns)
        return [
            f"INSERT INTO {name_table(table)} ({names}) VALUES ({marks})"
            for table in self.job.table_names
        ]

    def encode(self, block: EventBlock) -> list[Request]:
        if not self.batched:
            bodies = self._rows(block, block, slice(None)).singles()
            singles = enumerate(zip(bodies, block.devices.tolist(), strict=True))
            return [
                Request(Insert(body, partition), 1, block, row)
                for row, (body, partition) in singles
            ]
        dealt = block
        block, order, spans = sort_by_device(dealt)
        rows = self._rows(block, dealt, order)
        trailer = self._consistency + _pack_flags(0, self._protocol_version)
        payloads = []
        for begin, end in spans:
            partition = block.devices[begin].item()
            for start, stop in bounds(end - begin, self.size):
                first, last = begin + start, begin + stop
                head = self._batch_type.code + struct.pack("!H", last - first)
                body = rows.join(first, last, head, trailer)
                payloads.append(Request(Insert(body, partition), last - first, block, last - 1))
        return payloads

    def _rows(
        self, block: EventBlock, dealt: EventBlock, order: NDArray[np.intp] | slice
    ) -> BinaryRows:
        """The events' rows, each beginning with its table's statement. `dealt`: the block as dealt to tables;
        `order`: its rows in `block`."""
        version, count = self._protocol_version, len(self.columns)
        prefixes = [
            b"".join((_PREPARED, _short_bytes(name.statement_id), struct.pack("!H", count)))
            if self.batched
            else begin_execute(name, self._consistency, _WITH_VALUES, count, version)
            for name in self._statements
        ]
        prefix: bytes | NDArray[np.void] = prefixes[0]
        if len(prefixes) > 1:
            tables = number_tables(dealt, len(prefixes))[order]
            prefix = np.frombuffer(b"".join(prefixes), dtype=f"V{len(prefixes[0])}")[tables]
        return BinaryRows(
            self.values(block), prefix, missing=block.missing, missing_length=_NOT_SET
        )

    def values(self, block: EventBlock) -> Columns:
        """The columns of the INSERT and their values."""
        values = dict(block.columns)
        if block.schema.device_path:
            values[block.schema.device_path] = block.devices
        if has_key_column(self.job):
            by_client = self.job.load.primary_key is PrimaryKey.CLIENT
            values[KEY_COLUMN] = client_keys(block) if by_client else random_uuids(len(block))
        return self._columns, values


def sort_by_device(
    block: EventBlock,
) -> tuple[EventBlock, NDArray[np.intp] | slice, list[tuple[int, int]]]:
    """The events by device, their rows in the block, and [begin, end) of each device's events."""
    names, kinds = number_names(block.devices)
    if kinds == 1:
        return block, slice(None), [(0, len(block))]
    order = np.argsort(names, kind="stable")
    names = names[order]
    begins = np.flatnonzero(names[1:] != names[:-1]) + 1
    ends = [*begins.tolist(), len(block)]
    return block.choose(order), order, list(zip([0, *ends], ends, strict=False))


def has_key_column(job: Job) -> bool:
    """Whether the tables have a key column besides the events' columns."""
    return job.load.primary_key in (PrimaryKey.CLIENT, PrimaryKey.UUID)


def random_uuids(count: int) -> NDArray[np.void]:
    """UUIDs of version 4 as bytes (RFC 9562, section 5.4)."""
    octets = np.random.default_rng().integers(0, 256, (count, 16), dtype=np.uint8)
    octets[:, 6] = octets[:, 6] & 0x0F | 0x40
    octets[:, 8] = octets[:, 8] & 0x3F | 0x80
    return octets.view("V16").reshape(count)


def begin_execute(
    statement: Prepared, consistency: bytes, flags: int, values: int, protocol_version: int
) -> bytes:
    """An EXECUTE up to its values; `values`: their number."""
    parts = [_short_bytes(statement.statement_id)]
    if protocol_version >= _INT_FLAGS_SINCE:
        parts.append(_short_bytes(statement.metadata_id))
    parts += [consistency, _pack_flags(flags, protocol_version), struct.pack("!H", values)]
    return b"".join(parts)


def _pack_flags(flags: int, protocol_version: int) -> bytes:
    return struct.pack("!I" if protocol_version >= _INT_FLAGS_SINCE else "!B", flags)


def _short_bytes(data: bytes) -> bytes:
    return struct.pack("!H", len(data)) + data


# --- options -----------------------------------------------------------------------------------------


ALLOCATION = Allocation(
    unit_bytes=MIB, cause="Cassandra reports sizes in whole MiB per node and table"
)
"""The allocation of a table on a node."""


def _count_places(settings: Mapping[str, Any]) -> int | None:
    """Replicas that have an event before it is acknowledged, by consistency level; `LOCAL_` counts those in
    one data center."""
    replication = settings.get("replication")
    values = replication.values() if isinstance(replication, Mapping) else ()
    texts = [str(value).partition("/")[0] for value in values]
    copies = [int(text) for text in texts if text.isdigit()]
    level = str(settings.get("consistency_level"))
    fixed = {"ONE": 1, "LOCAL_ONE": 1, "TWO": 2, "THREE": 3}
    if level in fixed or not copies or level == "None":
        return fixed.get(level)
    if level == "ALL":
        return sum(copies)
    if level == "EACH_QUORUM":
        return sum(number // 2 + 1 for number in copies)
    return (max(copies) if level == "LOCAL_QUORUM" else sum(copies)) // 2 + 1


# https://cassandra.apache.org/doc/stable/cassandra/configuration/cass_yaml_file.html#commitlog_sync
DURABILITY = Durability(
    {
        "commitlog_sync": Needed(("batch", "group"), "within {commitlog_sync_period}"),
        "durable_writes": Needed(("true",), "when its memtable is flushed"),
    },
    count_places=_count_places,
)
# https://docs.yugabyte.com/stable/reference/configuration/yb-tserver/#durable-wal-write
YCQL_DURABILITY = Durability(
    unknown="YugabyteDB's servers don't show durable_wal_write", count_places=lambda settings: None
)

Consistency = Literal[
    "ONE", "TWO", "THREE", "QUORUM", "ALL", "LOCAL_QUORUM", "EACH_QUORUM", "LOCAL_ONE"
]


class Flavor(StrEnum):
    """The server whose CQL is spoken."""

    CASSANDRA = "cassandra"
    YCQL = "ycql"
    """YugabyteDB's."""


class ReplicationStrategy(StrEnum):
    """Class of a keyspace's replication."""

    NETWORK = "NetworkTopologyStrategy"
    """`replication_factor` copies in the local data center."""
    SIMPLE = "SimpleStrategy"
    """Copies without regard to data centers and racks."""


EXECUTE_CONCURRENT = "execute_concurrent"


class CassandraOptions(BatchOptions, LoginOptions, TlsOptions):
    """Options of targets with `module: cassandra`."""

    IN_FLIGHT: ClassVar[str | None] = "max_sync_calls"
    ADDRESSES: ClassVar[str] = "contact_points"

    consistency_level: Annotated[Consistency, Condition.DURABILITY, PAYLOAD] = Field(
        "LOCAL_QUORUM", description="consistency level of writes (single and batch) and reads"
    )
    batch_type: Annotated[BatchType, Condition.BATCH, PAYLOAD] = Field(
        BatchType.UNLOGGED, description="unlogged or logged"
    )
    contact_points: Annotated[HostList, Condition.NONE, ACCESS] = Field(
        min_length=1, description="nodes to contact first, separated by commas"
    )
    port: Annotated[int, Condition.NONE, ACCESS] = Field(
        9042, ge=1, le=65535, description="port of all nodes"
    )
    local_datacenter: Annotated[str | None, Condition.NONE] = Field(
        None, description="data center to send requests to (default: that of the contact points)"
    )
    tls: Annotated[bool, Condition.CLIENT, ACCESS] = Field(
        False, description="encrypt the connections; set trust with ca_certs and verify_certs"
    )
    keyspace: Annotated[str, Condition.NONE] = Field(
        "benchmark", pattern=r"^\w{1,48}$", description="keyspace, created if it is missing"
    )
    replication_strategy: Annotated[ReplicationStrategy, Condition.REPLICATION] = Field(
        ReplicationStrategy.NETWORK,
        description="replication strategy of the keyspace, if it is created",
    )
    replication_factor: Annotated[int, Condition.REPLICATION] = Field(
        3, ge=1, description="copies of each row in one data center"
    )
    max_sync_calls: Annotated[int, Condition.CLIENT] = Field(
        1, ge=1, le=16_384, description=IN_FLIGHT_MEANING
    )
    request_timeout: Annotated[float, Condition.NONE] = Field(
        60, gt=0, description="seconds until an insert without an answer is retried"
    )
    query_timeout: Annotated[float, Condition.NONE] = Field(
        600, gt=0, description="seconds until a query without an answer fails"
    )
    connect_timeout: Annotated[float, Condition.NONE] = Field(
        10, gt=0, description="seconds without an answer until a node counts as unreachable"
    )
    protocol_version: Annotated[Literal[3, 4, 5] | None, Condition.CLIENT] = Field(
        None, description="version of the native protocol (default: 5; with flavor ycql 4)"
    )
    compaction: Annotated[CommaList | None, Condition.SCHEMA] = Field(
        None,
        description="class of the tables' compaction strategy, then its settings, e.g. "
        "TimeWindowCompactionStrategy, compaction_window_size=1 (default: the server's)",
    )
    scan_ranges: Annotated[int, Condition.CLIENT] = Field(
        32,
        ge=1,
        le=65_536,
        description="number of parts for counting or scanning all events",
    )
    flavor: Flavor = Field(Flavor.CASSANDRA, description="cassandra or ycql")
    tablets: Annotated[int | None, Condition.REPLICATION] = Field(
        None, ge=1, description="tablets of a table (flavor ycql; default: the server's choice)"
    )

    @field_validator("protocol_version", mode="before")
    @classmethod
    def _read_number(cls, value: object) -> object:
        # Command lines give a text, which a Literal doesn't accept as a number.
        return int(value) if isinstance(value, str) and value.isdigit() else value

    @field_validator("compaction")
    @classmethod
    def _check_settings(cls, value: list[str] | None) -> list[str] | None:
        if value and not all(part.count("=") == 1 for part in value[1:]):
            raise ValueError("must be a class, then settings as key=value")
        return value

    @model_validator(mode="after")
    def _check_flavor(self) -> CassandraOptions:
        if self.flavor is Flavor.YCQL and self.compaction:
            raise ValueError("compaction: YCQL has no compaction strategies")
        if self.flavor is not Flavor.YCQL and self.tablets:
            raise ValueError("tablets: only flavor ycql has tablets")
        return self

    def mode(self, load: Load) -> InsertMode:
        if load.batch > MAX_BATCH:
            raise OptionError(
                f"a batch of Cassandra has at most {MAX_BATCH} events, not {load.batch}"
            )
        return super().mode(load)

    @property
    def servers(self) -> str:
        """host:port of the contact points, for messages."""
        return ", ".join(join_address(point, self.port) for point in self.contact_points)

    def name_table(self, table: str) -> str:
        """A table's name in statements."""
        return f"{quote_name(self.keyspace)}.{quote_name(table)}"

    @property
    def needed_replicas(self) -> int:
        """How many copies of a row must answer at the consistency level."""
        level, copies = self.consistency_level, self.replication_factor
        if "QUORUM" in level:
            return copies // 2 + 1
        return {"TWO": 2, "THREE": 3, "ALL": copies}.get(level, 1)

    @property
    def replication(self) -> dict[str, str]:
        """The keyspace's replication, without the data center's name for NetworkTopologyStrategy."""
        factor = str(self.replication_factor)
        return {"class": self.replication_strategy.value, "replication_factor": factor}
