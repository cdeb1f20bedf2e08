"""Options of targets with `module: iotdb`."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, ClassVar

from pydantic import Field

from ...conditions import ACCESS, Condition
from ..kit.options import BatchOptions, HostList, InFlightOptions, TlsOptions, join_address
from ..options import PAYLOAD


class Model(StrEnum):
    """How a database sees its events."""

    TABLE = "table"
    """As rows of tables."""
    TREE = "tree"
    """As points of timeseries, which are leaves of a tree."""


class IotdbOptions(BatchOptions, InFlightOptions, TlsOptions):
    """How to reach the data nodes, and where to store."""

    ADDRESSES: ClassVar[str] = "host"

    model: Annotated[Model, Condition.SCHEMA, PAYLOAD] = Field(
        Model.TABLE,
        description="table (rows of tables) or tree (a path for each device, of aligned timeseries)",
    )
    database: Annotated[str, Condition.NONE, PAYLOAD] = Field(
        "benchmark",
        pattern=r"^[a-z_]\w{0,63}$",
        description="database, created if it is missing; root.<database> with model=tree",
    )
    host: Annotated[HostList, Condition.NONE, ACCESS] = Field(
        min_length=1, description="data nodes, separated by commas; connections go to them in turn"
    )
    port: Annotated[int, Condition.NONE, ACCESS] = Field(
        6667, ge=1, le=65535, description="port of all data nodes (dn_rpc_port)"
    )
    tls: Annotated[bool, Condition.CLIENT, ACCESS] = Field(
        False, description="encrypt the connections; set trust with ca_certs and verify_certs"
    )
    username: Annotated[str, Condition.NONE, ACCESS] = Field(
        "root", min_length=1, description="user name"
    )
    password: str = Field(min_length=1, repr=False, description="the user's password")
    time_partition_interval_s: Annotated[int | None, Condition.SCHEMA] = Field(
        None,
        ge=1,
        description="seconds of data in one partition of a new database (default: a week)",
    )
    request_timeout_s: Annotated[float, Condition.NONE] = Field(
        60, gt=0, description="seconds without an answer after which an insert is sent again"
    )
    query_timeout_s: Annotated[float, Condition.NONE] = Field(
        3600, gt=0, description="how long a query may take"
    )

    @property
    def servers(self) -> str:
        """host:port of the data nodes, for messages."""
        return ", ".join(join_address(host, self.port) for host in self.host)

    @property
    def place(self) -> str:
        """The database, as the server's lists name it."""
        return f"root.{self.database}" if self.model is Model.TREE else self.database
