"""Requests that store documents in Elasticsearch or OpenSearch: bulk bodies and single documents."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import quote

import numpy as np

from ...contract import PrimaryKey
from ...encoding.columns import bounds, client_keys
from ...encoding.rows import format_requests, format_rows, json_columns, json_object_format
from ...workloads.schema import EventBlock
from ..kit import exactly_once
from ..options import InsertMode, Job
from ..sending import Encoder, Request, deal_in_turn

_BULK_PARAMETERS = (
    "require_alias=true&filter_path=errors,items.*.status,items.*.error.type,items.*.error.reason"
)
_SINGLE_PARAMETERS = "require_alias=true&filter_path=result,error.type,error.reason"


@dataclass(slots=True)
class Documents(exactly_once.TablePart):
    """One request, ready to send. `name`: by which the server lists it while at work on it."""

    method: str
    target: str
    body: bytes

    def cut(self, positions: Sequence[int], payload: Request) -> None:
        lines = self.body.split(b"\n")
        # Each event has a line for the action and a line for the document.
        pairs = (lines[2 * position : 2 * position + 2] for position in positions)
        self.body = b"".join(b"%b\n%b\n" % (action, document) for action, document in pairs)


class DocumentEncoder(Encoder):
    """Encodes in one insert mode. A payload's data: a list of one `Documents`. The client's keys become the
    documents' ids. Documents are only created, never replaced."""

    def __init__(self, job: Job, mode: InsertMode, aliases: Sequence[str]) -> None:
        """`aliases`: for writing to the job's tables, in their order."""
        super().__init__(job)
        self.mode = mode
        self._aliases = [alias.encode() for alias in aliases]
        self._client_key = job.load.primary_key is PrimaryKey.CLIENT
        self._document = json_object_format(job.schema.columns) + b"\n"

    def encode(self, block: EventBlock) -> list[Request]:
        requests = self._bulks(block) if self.mode is InsertMode.BULK else self._singles(block)
        return [
            Request([request], stop - start, block, stop - 1)
            for request, (start, stop) in zip(requests, bounds(len(block), self.size), strict=True)
        ]

    def _bulks(self, block: EventBlock) -> list[Documents]:
        columns, size = json_columns(block), self.size
        meta = []
        if self._client_key:
            meta.append(b'"_id":"%b"')
            columns.insert(0, client_keys(block))
        if len(self._aliases) == 1:
            target = f"/{quote(self._aliases[0])}/_bulk?{_BULK_PARAMETERS}"
        else:
            target = f"/_bulk?{_BULK_PARAMETERS}"
            meta.insert(0, b'"_index":"%b"')
            columns.insert(0, np.array(deal_in_turn(block, self._aliases)))
        # `index` without an id always creates a document.
        action = b"create" if self._client_key else b"index"
        row = b'{"%b":{%b}}\n' % (action, b",".join(meta)) + self._document
        return [
            Documents(range(stop - start), "POST", target, body)
            for body, (start, stop) in zip(
                format_requests(row, b"", columns, size), bounds(len(block), size), strict=True
            )
        ]

    def _singles(self, block: EventBlock) -> list[Documents]:
        documents = format_rows(self._document, b"", json_columns(block)).split(b"\n")[:-1]
        aliases = [quote(alias) for alias in deal_in_turn(block, self._aliases)]
        if not self._client_key:
            return [
                Documents((0,), "POST", f"/{alias}/_doc?{_SINGLE_PARAMETERS}", document)
                for alias, document in zip(aliases, documents, strict=True)
            ]
        keys = [quote(key, safe="") for key in client_keys(block).tolist()]
        return [
            Documents((0,), "PUT", f"/{alias}/_create/{key}?{_SINGLE_PARAMETERS}", document)
            for alias, key, document in zip(aliases, keys, documents, strict=True)
        ]
