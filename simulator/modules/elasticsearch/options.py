"""Options of targets with `module: elasticsearch`."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Annotated, ClassVar, Self

from pydantic import Field, model_validator

from ...conditions import ACCESS, Condition
from ...contract import MIB, Allocation, CommaList, Load
from ..base import OfficialClient
from ..kit.options import EndpointOptions, InFlightOptions, LoginOptions
from ..options import PAYLOAD, InsertMode, among, choose_mode


class Flavor(StrEnum):
    """What kind of server it is."""

    ELASTICSEARCH = "elasticsearch"
    OPENSEARCH = "opensearch"


# https://www.elastic.co/docs/reference/elasticsearch/index-settings/merge: floor_segment
ALLOCATION = Allocation(
    unit_bytes=2 * MIB, cause="small segments, below 2 MB, are merged before others"
)
"""The allocation of a shard."""

WRITE = "-write"
"""Ends the name of the alias by which a table is written to."""

STREAMING_BULK = "streaming_bulk"

_PACKAGES = ("elasticsearch", "opensearch-py")
_WRITER = f"{__package__}.official:OfficialWriter"
CLIENTS = {
    "official": OfficialClient(
        _PACKAGES,
        {InsertMode.BULK: "the client's helpers.bulk", InsertMode.SINGLE: "the client's index"},
        in_flight=True,
        writer=_WRITER,
        asker=f"{__package__}.official:OfficialElasticsearchAsker",
    ),
    STREAMING_BULK: OfficialClient(
        _PACKAGES,
        {InsertMode.BULK: "the client's helpers.streaming_bulk"},
        in_flight=True,
        writer=_WRITER,
    ),
}
"""What the option `client` can be."""


MODES = (InsertMode.BULK, InsertMode.SINGLE)


class ElasticsearchOptions(EndpointOptions, LoginOptions, InFlightOptions):
    """Options of targets with `module: elasticsearch`."""

    DEFAULT_PORT: ClassVar[int] = 9200
    EXAMPLE_URL: ClassVar[str] = "https://elastic.example:9200"
    LOGIN: ClassVar[str] = "username and password, or api_key"

    insert_mode: Annotated[InsertMode | None, among(*MODES), Condition.BATCH, PAYLOAD] = Field(
        None,
        description="how events are sent: bulk (default with --batch), single (default without)",
    )
    index_prefix: Annotated[str, Condition.NONE, PAYLOAD] = Field(
        "",
        pattern=r"^([a-z0-9][a-z0-9._-]{0,99})?$",
        description="prefix of the names of the indices",
    )
    endpoint: Annotated[CommaList, Condition.NONE, ACCESS] = Field(
        min_length=1,
        description="the nodes' URLs, separated by commas: http[s]://HOST[:9200][/PATH]",
    )
    flavor: Flavor = Field(Flavor.ELASTICSEARCH, description="elasticsearch or opensearch")
    api_key: str | None = Field(
        None, repr=False, description="encoded API key, instead of username and password"
    )
    shards: Annotated[int | None, Condition.REPLICATION] = Field(
        None, ge=1, le=1024, description="primary shards per index (default: the server's)"
    )
    replicas: Annotated[int | None, Condition.REPLICATION] = Field(
        None, ge=0, le=20, description="copies of each shard (default: the server's)"
    )
    refresh_interval: Annotated[str | None, Condition.DURABILITY] = Field(
        None,
        pattern=r"^(-1|[0-9]+(ms|s|m|h))$",
        description=(
            "how soon documents become visible to searches, e.g. 30s, -1: never (default: the"
            " server's)"
        ),
    )

    @model_validator(mode="after")
    def _check_one_login(self) -> Self:
        if self.username is not None and self.api_key is not None:
            raise ValueError("give either username and password or api_key")
        return self

    def login(self) -> dict[str, str]:
        if self.api_key is not None:
            return {"authorization": f"ApiKey {self.api_key}"}
        return super().login()

    def mode(self, load: Load) -> InsertMode:
        return choose_mode(
            "insert_mode", self.insert_mode, load, InsertMode.SINGLE, InsertMode.BULK
        )

    def index(self, table: str) -> str:
        """The index that is a table."""
        return self.index_prefix + table

    def join_indices(self, tables: Iterable[str]) -> str:
        """The indices of tables, as a request names them."""
        return ",".join(map(self.index, tables))

    def alias(self, table: str) -> str:
        """The alias by which a table is written to."""
        return f"{self.index_prefix}{table}{WRITE}"
