"""Options of targets on ArangoDB, and requests that store documents: arrays for the document API, JSON lines
for imports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar
from urllib.parse import quote

from numpy.typing import NDArray
from pydantic import Field

from ...conditions import ACCESS, Condition
from ...contract import CommaList, Load, PrimaryKey
from ...encoding.columns import bounds, client_keys
from ...encoding.rows import (
    JSON_FORMAT,
    format_requests,
    format_rows,
    format_singles,
    json_columns,
    json_object_format,
)
from ...workloads.schema import ID, EventBlock, Schema
from ..kit import exactly_once
from ..kit.http import basic_auth
from ..kit.module import IndexOptions
from ..kit.options import EndpointOptions, InFlightOptions
from ..options import PAYLOAD, InsertMode, Job, among, choose_mode
from ..sending import Encoder, Request, deal_block, deal_in_turn

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
        """The first part of the path of each of the database's requests."""
        return f"/_db/{quote(self.database, safe='')}"

    def mode(self, load: Load) -> InsertMode:
        return choose_mode(
            "insert_method", self.insert_method, load, InsertMode.SINGLE, InsertMode.DOCUMENT
        )

    def login(self) -> dict[str, str]:
        return {"authorization": basic_auth(self.username, self.password)}


# The separator between documents. No document has a line break: strings escape them.
_SEPARATORS = {
    InsertMode.DOCUMENT: b",\n",
    InsertMode.IMPORT: b"\n",
    InsertMode.SINGLE: b"\n",
}


@dataclass(slots=True)
class Documents(exactly_once.TablePart):
    """One request to one collection."""

    method: InsertMode
    body: bytes

    def cut(self, positions: Sequence[int], payload: Request) -> None:
        separator = _SEPARATORS[self.method]
        array = self.method is InsertMode.DOCUMENT
        documents = (self.body[1:-1] if array else self.body).split(separator)
        body = separator.join(documents[position] for position in positions)
        self.body = b"[" + body + b"]" if array else body


def encode_devices(schema: Schema, rows: Mapping[str, NDArray[Any]]) -> bytes:
    """Documents of the tags' collection, whose keys are the ids, for the import API."""
    columns = schema.tags_row
    form = b'{"_key":"%d",' + json_object_format(columns)[1:]
    return format_rows(form, b"\n", [rows[ID], *JSON_FORMAT.write(columns, rows, {})])


class DocumentEncoder(Encoder):
    """Encodes for one method. A payload's data: a `Documents` for each collection that gets events."""

    def __init__(self, job: Job, method: InsertMode) -> None:
        super().__init__(job)
        self.method = method
        self._tables = len(job.table_names)
        self._client_key = job.load.primary_key is PrimaryKey.CLIENT
        self._row = json_object_format(job.schema.row)
        if self._client_key:
            self._row = b'{"_key":"%b",' + self._row[1:]

    def encode(self, block: EventBlock) -> list[Request]:
        size = self.size
        spans = bounds(len(block), size)
        if self._tables == 1 or size == 1:
            requests = [[request] for request in self._requests(block, size)]
        else:
            requests = [
                [
                    Documents(
                        share.rows, self.method, self._bodies(part, len(part))[0], table=share.table
                    )
                    for share, part in deal_block(block.part(*span), self._tables)
                ]
                for span in spans
            ]
        return [
            Request(data, stop - start, block, stop - 1)
            for data, (start, stop) in zip(requests, spans, strict=True)
        ]

    def _requests(self, block: EventBlock, size: int) -> list[Documents]:
        """All events go to one table; single events are dealt to the tables in turn."""
        spans = bounds(len(block), size)
        tables = deal_in_turn(block, range(self._tables))
        return [
            Documents(range(stop - start), self.method, body, table=tables[start])
            for body, (start, stop) in zip(self._bodies(block, size), spans, strict=True)
        ]

    def _bodies(self, block: EventBlock, size: int) -> list[bytes]:
        columns = json_columns(block)
        if self._client_key:
            columns.insert(0, client_keys(block))
        separator = _SEPARATORS[self.method]
        if self.method is InsertMode.SINGLE:
            return format_singles(self._row, columns)
        bodies = format_requests(self._row, separator, columns, size)
        if self.method is InsertMode.DOCUMENT:
            return [b"[" + body + b"]" for body in bodies]
        return bodies
