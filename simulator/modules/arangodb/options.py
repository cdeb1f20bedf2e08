"""Options of targets with `module: arangodb`."""

from __future__ import annotations

from typing import Annotated, ClassVar
from urllib.parse import quote

from pydantic import Field

from ...conditions import ACCESS, Condition
from ...contract import CommaList, Load
from ..base import OfficialClient
from ..kit.http import basic_auth
from ..kit.module import IndexOptions
from ..kit.options import EndpointOptions, InFlightOptions
from ..options import PAYLOAD, InsertMode, among, choose_mode

CLIENTS = {
    "official": OfficialClient(
        ("python-arango",),
        {
            InsertMode.DOCUMENT: "python-arango's insert_many",
            InsertMode.IMPORT: "python-arango's import_bulk",
            InsertMode.SINGLE: "python-arango's insert",
        },
        in_flight=True,
        writer=f"{__package__}.writing:OfficialWriter",
        asker=f"{__package__}.asking:OfficialArangoAsker",
    )
}
"""What the option `client` can be."""


MODES = (InsertMode.DOCUMENT, InsertMode.IMPORT, InsertMode.SINGLE)


class ArangoOptions(EndpointOptions, IndexOptions, InFlightOptions):
    """Options of targets with `module: arangodb`."""

    DEFAULT_PORT: ClassVar[int] = 8529
    EXAMPLE_URL: ClassVar[str] = "http://arangodb.example:8529"
    PATH_ALLOWED: ClassVar[bool] = False
    MODE: ClassVar[str] = "insert_method"

    insert_method: Annotated[InsertMode | None, among(*MODES), Condition.BATCH, PAYLOAD] = Field(
        None,
        description="how events are sent: document (default with --batch) or import, each by the"
        " API of that name; single (default without --batch)",
    )
    endpoint: Annotated[CommaList, Condition.NONE, ACCESS] = Field(
        min_length=1,
        description="URL of the server, or of a cluster's coordinators, separated by commas:"
        " http[s]://HOST[:8529]",
    )
    database: Annotated[str, Condition.NONE] = Field(
        "_system", min_length=1, description="an existing database"
    )
    username: Annotated[str, Condition.NONE, ACCESS] = Field("root", description="user name")
    password: str = Field("", repr=False, description="the user's password")
    replication_factor: Annotated[int, Condition.REPLICATION] = Field(
        1, ge=1, le=10, description="copies of each document (in a cluster)"
    )
    shard_count: Annotated[int | None, Condition.REPLICATION] = Field(
        None,
        ge=1,
        le=1000,
        description="shards per collection (in a cluster; default: the server's)",
    )
    sync: Annotated[bool, Condition.DURABILITY] = Field(
        False, description="acknowledge documents once they are on disk (waitForSync)"
    )

    @property
    def path(self) -> str:
        """What the targets of the database's requests begin with."""
        return f"/_db/{quote(self.database, safe='')}"

    def mode(self, load: Load) -> InsertMode:
        return choose_mode(
            "insert_method", self.insert_method, load, InsertMode.SINGLE, InsertMode.DOCUMENT
        )

    def login(self) -> dict[str, str]:
        return {"authorization": basic_auth(self.username, self.password)}
