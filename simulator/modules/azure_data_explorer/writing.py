"""Sends CSV to Azure Data Explorer, each event once, or ends the run: by the lean path, and by
azure-kusto-ingest (`client=official`): `ingest_from_stream`, queued or streaming as `batch` says.

The client compresses the CSV itself. Queued, it tries up to three queues with a message whose fate is
unknown: such events may be stored twice, which the count after the run shows; what it gives up on ends the
run.

https://learn.microsoft.com/azure/data-explorer/python-ingest-data
"""

from __future__ import annotations

import csv
import time
from abc import abstractmethod
from collections import deque
from io import BytesIO, StringIO
from typing import TYPE_CHECKING, Any

from azure.kusto.data.data_format import DataFormat
from azure.kusto.data.exceptions import KustoClientError

from ...encoding.columns import bounds
from ...errors import Retryable
from ...workloads.schema import Column, ColumnType, EventBlock
from ..kit.connected import ConnectedWriter
from ..kit.errors import CONNECTION_LOST
from ..kit.official import ClientWriter, OfficialEncoder, list_columns
from ..kit.tables import deal_block
from ..sending import Encoder, Payload
from .encoding import MAPPING, Part
from .ingestion import report_unclear
from .options import STREAMED_VISIBLE_S
from .queries import select_stored
from .server import Connection

if TYPE_CHECKING:
    from . import AzureDataExplorer

_UNCLEAR = (CONNECTION_LOST, "timeout")
"""Kinds of errors after which a request may be stored."""

# Nothing tells when streamed events have arrived, so they are looked for again and again.
_LOOK_INTERVAL_S = 0.5


class PartsWriter(ConnectedWriter[Connection]):
    """Sends payloads with a deque of `Part`: a request per table."""

    def __init__(self, encoder: Encoder, module: AzureDataExplorer) -> None:
        super().__init__(encoder, module)
        self.is_queued = module.options.batch

    @abstractmethod
    def ingest(self, part: Part) -> None:
        """Have a part queued, or stored."""

    def send(self, payload: Payload) -> int:
        # What was acknowledged is not sent again when another table's request fails.
        while payload.data:
            part: Part = payload.data[0]
            # Here and not in `recover`, which other requests in flight would have to wait for.
            if not part.in_doubt or not self._is_stored(part):
                part.in_doubt = False
                try:
                    self.ingest(part)
                except Retryable as error:
                    # With a queue, what may have been queued ends the run.
                    part.in_doubt = not self.is_queued and error.kind in _UNCLEAR
                    raise
            payload.data.popleft()
        return payload.events

    def _is_stored(self, part: Part) -> bool:
        """Whether the part's last event is stored: a request is stored as a whole or not at all."""
        query = select_stored(part.table, part.block)
        deadline = time.monotonic() + STREAMED_VISIBLE_S
        while True:
            if self.connection.ask(query)[0][0]:
                return True
            if time.monotonic() > deadline:
                return False
            time.sleep(_LOOK_INTERVAL_S)


class AdxWriter(PartsWriter):
    """Sends payloads of `CsvEncoder`."""

    def open(self) -> None:
        super().open()
        connection = self.connection
        connection.reach(connection.open_queue if self.is_queued else connection.log_in)

    def ingest(self, part: Part) -> None:
        if self.is_queued:
            self.connection.enqueue(part.table, part.body, part.size)
        else:
            self.connection.stream(part.table, part.body)


# --- by the clients -------------------------------------------------------------------------------


class LinesEncoder(OfficialEncoder):
    """A payload's data: a deque of `Part`, one per table, with CSV as the standard library writes it."""

    def _requests(self, block: EventBlock, size: int) -> list[deque[Part]]:
        return [self._deal(block.part(*span)) for span in bounds(len(block), size)]

    def _deal(self, block: EventBlock) -> deque[Part]:
        tables = self._job.table_names
        return deque(
            Part(tables[share.table], body := _write_lines(part), len(body), part)
            for share, part in deal_block(block, len(tables))
        )


def _write_lines(block: EventBlock) -> bytes:
    schema = block.schema
    columns = list_columns(schema.row, block.row_columns, block.missing)
    for column, values in zip(schema.row, columns, strict=True):
        values[:] = _list_fields(column, block, values)
    text = StringIO()
    csv.writer(text).writerows(zip(*columns, strict=True))
    return text.getvalue().encode()


def _list_fields(column: Column, block: EventBlock, values: list[Any]) -> list[Any]:
    """A column's values, times and truth values as the service and not as Python writes them."""
    if column.type is ColumnType.TIMESTAMP_MS:
        times = block.row_columns[column.name].astype("datetime64[ms]").tolist()
        return [
            None if value is None else f"{time.isoformat()}Z"
            for time, value in zip(times, values, strict=True)
        ]
    if column.type is ColumnType.BOOL:
        return [None if value is None else str(value).lower() for value in values]
    return values


class OfficialWriter(ClientWriter[Connection], PartsWriter):
    """Sends payloads of `LinesEncoder` by the ingestion clients."""

    def __init__(self, module: AzureDataExplorer, batch: int) -> None:
        super().__init__(LinesEncoder(module.job), module)

    def make_client(self) -> Any:
        from azure.kusto.ingest import KustoStreamingIngestClient, QueuedIngestClient

        options = self.connection.options
        kind, uri = (
            (QueuedIngestClient, options.ingest_uri)
            if self.is_queued
            else (KustoStreamingIngestClient, options.kusto_uri)
        )
        return kind(self.connection.describe_place(uri), auto_correct_endpoint=False)

    def ingest(self, part: Part) -> None:
        uri = self.connection.options.ingest_uri if self.is_queued else None
        self.connection.call(self._ingest, part, uri=uri)

    def _ingest(self, part: Part) -> None:
        from azure.kusto.ingest import IngestionProperties, StreamDescriptor

        properties = IngestionProperties(
            self.connection.options.kusto_db,
            part.table,
            data_format=DataFormat.CSV,
            ingestion_mapping_reference=MAPPING,
            ingestion_mapping_kind=DataFormat.CSV.ingestion_mapping_kind,
        )
        try:
            self.client.ingest_from_stream(StreamDescriptor(BytesIO(part.body)), properties)
        except KustoClientError as error:
            if self.is_queued:
                raise report_unclear(str(error)) from error
            raise
