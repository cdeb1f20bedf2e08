"""Microsoft's clients: azure-kusto-ingest sends with `ingest_from_stream`, queued or streaming depending on
`batch`; azure-kusto-data queries with `execute_query`, and receives compressed answers.

The client compresses the CSV itself. It sends a message with an unknown outcome to up to three queues, so its
events may be stored twice, which the count after the run shows. If it gives up, the run ends.

https://learn.microsoft.com/azure/data-explorer/python-ingest-data
https://learn.microsoft.com/kusto/api/get-started/app-basic-query
"""

from __future__ import annotations

import csv
from collections import deque
from io import BytesIO, StringIO
from typing import TYPE_CHECKING, Any

from azure.kusto.data import KustoClient
from azure.kusto.data.data_format import DataFormat
from azure.kusto.data.exceptions import KustoClientError, KustoError

from ...encoding.columns import bounds
from ...errors import Retryable, SimulatorError, one_line
from ...workloads.schema import ColumnType, EventBlock
from ..base import AnyModule
from ..kit.http_database import SHOWN
from ..kit.official import ClientAsker, ClientWriter, OfficialEncoder, list_columns
from ..sending import Rows, deal_block
from .ingestion import MAPPING, Part, report_unclear
from .queries import Compiled
from .server import Connection, PartsWriter

if TYPE_CHECKING:
    pass


class LinesEncoder(OfficialEncoder):
    """A payload's data: a deque of `Part`, one per table, with CSV as the standard library writes it."""

    def make_requests(self, block: EventBlock) -> list[deque[Part]]:
        tables = self.job.table_names
        return [
            deque(
                Part(tables[share.table], body := _write_lines(part), len(body), part)
                for share, part in deal_block(block.part(*span), len(tables))
            )
            for span in bounds(len(block), self.size)
        ]


def _write_lines(block: EventBlock) -> bytes:
    schema = block.schema
    columns = list_columns(schema.row, block.row_columns, block.missing)
    for column, values in zip(schema.row, columns, strict=True):
        # As the service writes them, not as Python does.
        if column.type is ColumnType.TIMESTAMP_MS:
            times = block.row_columns[column.name].astype("datetime64[ms]").tolist()
            values[:] = [
                None if value is None else f"{time.isoformat()}Z"
                for time, value in zip(times, values, strict=True)
            ]
        elif column.type is ColumnType.BOOL:
            values[:] = [None if value is None else str(value).lower() for value in values]
    text = StringIO()
    csv.writer(text).writerows(zip(*columns, strict=True))
    return text.getvalue().encode()


class OfficialWriter(ClientWriter[Connection], PartsWriter):
    """Sends payloads of `LinesEncoder` through the ingestion clients."""

    def make_encoder(self, module: AnyModule) -> LinesEncoder:
        return LinesEncoder(module.job)

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


class OfficialAdxAsker(ClientAsker[Connection]):
    """Queries with `KustoClient.execute_query`."""

    def make_client(self) -> Any:
        return KustoClient(self.connection.describe_place(self.connection.options.kusto_uri))

    def execute(self, client: Any, statement: Compiled) -> Rows:
        connection = self.connection
        answer = client.execute_query(
            connection.options.kusto_db, statement.text, connection.properties
        )
        if answer.errors_count:
            raise SimulatorError(one_line("; ".join(answer.get_exceptions()), SHOWN))
        return statement.read([row.to_list() for row in answer.primary_results[0]])

    def explain(self, error: Exception) -> Retryable | SimulatorError | None:
        return self.connection.interpret(error) if isinstance(error, KustoError) else None
