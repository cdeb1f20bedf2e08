"""Options of targets with `module: cassandra`."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, ClassVar, Literal

from pydantic import Field, field_validator, model_validator

from ...conditions import ACCESS, Condition
from ...contract import MIB, Allocation, CommaList, Load
from ...encoding.columns import quote_name
from ...errors import OptionError
from ..base import OfficialClient
from ..kit.options import (
    IN_FLIGHT_MEANING,
    BatchOptions,
    HostList,
    LoginOptions,
    TlsOptions,
    join_address,
)
from ..options import PAYLOAD, InsertMode
from .encoding import MAX_BATCH, BatchType

ALLOCATION = Allocation(
    unit_bytes=MIB, cause="Cassandra reports sizes in whole MiB per node and table"
)
"""The allocation of a table on a node."""

Consistency = Literal[
    "ONE", "TWO", "THREE", "QUORUM", "ALL", "LOCAL_QUORUM", "EACH_QUORUM", "LOCAL_ONE"
]


class Flavor(StrEnum):
    """Whose CQL it is."""

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
_WRITER = f"{__package__}.official:DriverWriter"
_ASKER = f"{__package__}.official:DriverAsker"

CLIENTS = {
    "official": OfficialClient(
        ("cassandra-driver",),
        {
            InsertMode.BATCH: "cassandra-driver's BatchStatement of prepared INSERTs",
            InsertMode.SINGLE: "cassandra-driver's execute of a prepared INSERT",
        },
        in_flight=True,
        writer=_WRITER,
        asker=_ASKER,
    ),
    EXECUTE_CONCURRENT: OfficialClient(
        ("cassandra-driver",),
        {InsertMode.BATCH: "cassandra-driver's execute_concurrent of prepared INSERTs"},
        in_flight=True,
        writer=_WRITER,
        asker=_ASKER,
    ),
}
"""What the option `client` can be."""


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
        min_length=1, description="nodes to connect to first, separated by commas"
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
        description="number of parts in which all events are counted or scanned",
    )
    flavor: Flavor = Field(Flavor.CASSANDRA, description="cassandra or ycql")
    tablets: Annotated[int | None, Condition.REPLICATION] = Field(
        None, ge=1, description="tablets of a table (flavor ycql; default: the server's choice)"
    )

    @field_validator("protocol_version", mode="before")
    @classmethod
    def _read_number(cls, value: object) -> object:
        # On a command line it is a text, which a Literal does not take for a number.
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
        """A table as statements name it."""
        return f"{quote_name(self.keyspace)}.{quote_name(table)}"

    @property
    def needed_replicas(self) -> int:
        """How many copies of a row must answer for the consistency level."""
        level, copies = self.consistency_level, self.replication_factor
        if "QUORUM" in level:
            return copies // 2 + 1
        return {"TWO": 2, "THREE": 3, "ALL": copies}.get(level, 1)

    @property
    def replication(self) -> dict[str, str]:
        """The keyspace's replication, but for the data center's name with NetworkTopologyStrategy."""
        factor = str(self.replication_factor)
        return {"class": self.replication_strategy.value, "replication_factor": factor}
