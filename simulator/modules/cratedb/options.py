"""Options of targets on CrateDB."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field, field_validator

from ...conditions import ACCESS, Condition
from ...contract import Load
from ...errors import OptionError
from ..base import OfficialClient
from ..kit.http import basic_auth
from ..kit.options import IN_FLIGHT_MEANING, EndpointOptions
from ..options import PAYLOAD, InsertMode, among, choose_mode

MAX_BATCH = 20_000
MODES = (InsertMode.BULK, InsertMode.UNNEST, InsertMode.SINGLE)

CLIENTS = {
    "official": OfficialClient(
        ("crate",),
        {
            InsertMode.BULK: "crate's executemany",
            InsertMode.UNNEST: "crate's execute of INSERT … UNNEST",
            InsertMode.SINGLE: "crate's execute",
        },
        in_flight=True,
        writer=f"{__package__}.writing:OfficialCratedbWriter",
        asker=f"{__package__}.asking:OfficialCratedbAsker",
    )
}
"""What the option `client` can be."""


class CratedbOptions(EndpointOptions):
    """Options of targets with `module: cratedb`."""

    DEFAULT_PORT: ClassVar[int | None] = 4200
    EXAMPLE_URL: ClassVar[str] = "http://cratedb.example:4200"
    LOGIN: ClassVar[str] = "user and password"
    IN_FLIGHT: ClassVar[str | None] = "concurrent_requests"

    insert_mode: Annotated[InsertMode | None, among(*MODES), Condition.BATCH, PAYLOAD] = Field(
        None,
        description="how events are sent: bulk (bulk arguments, default with --batch), unnest,"
        " single (default without --batch)",
    )
    user: Annotated[str, Condition.NONE, ACCESS] = Field(
        "crate", min_length=1, description="user name"
    )
    password: str | None = Field(None, repr=False, description="the user's password")
    default_schema: Annotated[str, Condition.NONE] = Field(
        "doc", pattern=r"^[a-z_][a-z0-9_]*$", description="schema of the tables"
    )
    shards: Annotated[int | None, Condition.REPLICATION] = Field(
        None, ge=1, le=1024, description="shards per table (default: the server's)"
    )
    replicas: Annotated[str | None, Condition.REPLICATION] = Field(
        None,
        pattern=r"^\d+(-(\d+|all))?$",
        description="copies of each shard: a number or a range like 0-1 (default: the server's)",
    )
    concurrent_requests: Annotated[int, Condition.CLIENT] = Field(
        1, ge=1, le=1024, description=IN_FLIGHT_MEANING
    )

    @field_validator("replicas", mode="before")
    @classmethod
    def _number(cls, value: object) -> object:
        return str(value) if isinstance(value, int) and not isinstance(value, bool) else value

    def mode(self, load: Load) -> InsertMode:
        if load.batch > MAX_BATCH:
            raise OptionError(f"--batch may be at most {MAX_BATCH:,} with CrateDB")
        return choose_mode(
            "insert_mode", self.insert_mode, load, InsertMode.SINGLE, InsertMode.BULK
        )

    def login(self) -> dict[str, str]:
        return {"authorization": basic_auth(self.user, self.password or "")}
