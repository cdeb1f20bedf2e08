"""Options of targets with `module: questdb`."""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum
from typing import Annotated, Any, ClassVar, Self

from pydantic import Field, model_validator

from ...conditions import ACCESS, Condition
from ...contract import CommaList, Load
from ...errors import OptionError
from ..base import Job, OfficialClient
from ..kit.libpq import ConnectionString, list_secrets, parse_dsn, public_dsn
from ..kit.options import EndpointOptions, InFlightOptions, LoginOptions
from ..options import PAYLOAD, InsertMode, among, choose_mode
from ..postgres.options import PostgresOptions
from .encoding import LineFormat

MODES = (InsertMode.BATCH, InsertMode.SINGLE, InsertMode.TRANSACTION, InsertMode.STATEMENT)
PGWIRE = (InsertMode.TRANSACTION, InsertMode.STATEMENT)
"""The modes over PostgreSQL's protocol."""


class Partition(StrEnum):
    """How much time one partition of a table has."""

    HOUR = "hour"
    DAY = "day"
    WEEK = "week"
    MONTH = "month"
    YEAR = "year"

    @property
    def hours(self) -> int:
        """How many hours it has, a month and a year by the calendar's mean."""
        return {"hour": 1, "day": 24, "week": 168, "month": 730, "year": 8766}[self]


CLIENTS = {
    "official": OfficialClient(
        ("questdb",),
        dict.fromkeys((InsertMode.BATCH, InsertMode.SINGLE), "questdb's Sender.row and flush"),
        writer=f"{__package__}.writing:OfficialQuestdbWriter",
        asker=f"{__package__}.pgwire:OfficialQuestdbAsker",
    )
}
"""What the option `client` can be."""


class QuestdbOptions(EndpointOptions, LoginOptions, InFlightOptions):
    """Options of targets with `module: questdb`."""

    DEFAULT_PORT: ClassVar[int | None] = 9000
    EXAMPLE_URL: ClassVar[str] = "http://questdb.example:9000"
    LOGIN: ClassVar[str] = "username and password, or token"

    insert_mode: Annotated[InsertMode | None, among(*MODES), Condition.BATCH, PAYLOAD] = Field(
        None,
        description="how events are sent: batch (lines over HTTP, default with --batch), transaction "
        "(PGWire, a commit per batch), single (a line over HTTP, default without --batch), statement "
        "(PGWire, a commit per event)",
    )
    line_format: Annotated[LineFormat, Condition.BATCH, PAYLOAD] = Field(
        LineFormat.TEXT,
        description="format of lines over HTTP: text, or binary, which sends floats as they are"
        " stored (version 2 of the protocol, QuestDB 9 and later)",
    )
    table_prefix: Annotated[str, Condition.NONE, PAYLOAD] = Field(
        "",
        pattern=r"^\w*$",
        description="prefix of the tables' names, since a server has one database",
    )
    endpoint: Annotated[CommaList, Condition.NONE, ACCESS] = Field(
        min_length=1, max_length=1, description="URL of the server, e.g. http://questdb:9000"
    )
    token: str | None = Field(
        None, repr=False, description="token of a service account, instead of username and password"
    )
    connection_string: Annotated[ConnectionString | None, Condition.NONE, ACCESS] = Field(
        None,
        repr=False,
        description="libpq connection string or URL, for queries, which use HTTP without it, and"
        " for insert_mode transaction and statement; if it has no password, the"
        " option password is used",
    )
    partition_by: Annotated[Partition, Condition.SCHEMA] = Field(
        Partition.DAY, description="period of one partition: hour, day, week, month or year"
    )
    o3_max_lag: Annotated[str | None, Condition.DATABASE] = Field(
        None,
        pattern=r"^\d+(us|s|m|h|d)$",
        description="o3MaxLag of the tables, such as 10s or 5m (default: the server's)",
    )
    max_uncommitted_rows: Annotated[int | None, Condition.DATABASE] = Field(
        None, ge=1, description="maxUncommittedRows of the tables (default: the server's)"
    )
    index_devices: Annotated[bool, Condition.SCHEMA] = Field(
        False, description="index the column of the devices' names or ids"
    )
    connections: Annotated[int | None, Condition.CLIENT] = Field(
        None,
        ge=1,
        description="PGWire connections of each worker for its requests in flight; with fewer than "
        "those, each has a pipeline (default: one for each request in flight)",
    )
    query_timeout_s: Annotated[float, Condition.NONE] = Field(
        3600, gt=0, description="how long a query may take"
    )

    @model_validator(mode="after")
    def _check_one_login(self) -> Self:
        if self.token is not None and self.username is not None:
            raise ValueError("give a token, or username and password")
        return self

    def name_tables(self, job: Job) -> Job:
        """The job with tables of these names."""
        schema = job.schema
        if schema.table.startswith(self.table_prefix):
            return job
        return replace(job, schema=replace(schema, table=self.table_prefix + schema.table))

    def mode(self, load: Load) -> InsertMode:
        statement = self.insert_mode is InsertMode.STATEMENT
        single = InsertMode.STATEMENT if statement else InsertMode.SINGLE
        return choose_mode("insert_mode", self.insert_mode, load, single, InsertMode.BATCH)

    def for_prefill(self) -> Self:
        return super().for_prefill().model_copy(update={"insert_mode": InsertMode.BATCH})

    def login(self) -> dict[str, str]:
        if self.token is not None:
            return {"authorization": f"Bearer {self.token}"}
        return super().login()

    def pgwire(self, purpose: str) -> PostgresOptions:
        """The options of connections by PGWire; OptionError without a connection string, which the purpose
        needs."""
        if self.connection_string is None:
            raise OptionError(
                f"{purpose} needs the option connection_string"
                " (host=questdb port=8812 dbname=qdb user=admin)"
            )
        names = parse_dsn(self.connection_string)
        return PostgresOptions(
            client="psycopg3",  # for questions with client=official
            connection_string=self.connection_string,
            password=None if "password" in names else self.password,
            connections=self.connections,
            request_timeout_s=self.request_timeout_s,
            query_timeout_s=self.query_timeout_s,
            max_retries=self.max_retries,
        )

    def secrets(self) -> list[str]:
        secrets = [secret for secret in (self.password, self.token) if secret]
        if self.connection_string is not None:
            secrets += list_secrets(self.connection_string)
        return secrets

    def public(self) -> dict[str, Any]:
        shown = super().public()
        if self.connection_string is not None:
            shown["connection_string"] = public_dsn(self.connection_string)
        return shown
