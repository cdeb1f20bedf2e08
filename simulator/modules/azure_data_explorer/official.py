"""Ingestion by azure-kusto-ingest: `ingest_from_stream` of CSV, queued or streaming as `batch` says.

The client compresses the CSV itself. Queued, it tries up to three queues with a message whose fate is
unknown: such events may be stored twice, which the count after the run shows; what it gives up on ends the
run.

https://learn.microsoft.com/azure/data-explorer/python-ingest-data
"""

from __future__ import annotations

import csv
from collections import deque
from io import BytesIO, StringIO
from typing import Any

from azure.kusto.data.exceptions import KustoClientError, KustoError, KustoNetworkError

from ...encoding.columns import bounds
from ...errors import Retryable, SimulatorError
from ...workloads.events import EventBlock
from ...workloads.schema import Column, ColumnType
from .._base.official import OfficialEncoder, list_columns
from .._base.tables import deal_block
from ..base import Job
from .encoding import MAPPING, Part, make_part
from .ingestion import report_unclear
from .options import AdxOptions
from .server import Connection, connect
from .writer import AdxWriter


class LinesEncoder(OfficialEncoder):
    """A payload's data: a deque of `Part`, one per table, with CSV as the standard library writes it."""

    def _requests(self, block: EventBlock, size: int) -> list[deque[Part]]:
        return [self._deal(block.part(*span)) for span in bounds(len(block), size)]

    def _deal(self, block: EventBlock) -> deque[Part]:
        tables = self._job.table_names
        return deque(
            make_part(tables[share.table], part, body := _write_lines(part), len(body))
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
    """What the service knows otherwise than Python writes it: times and truth values."""
    if column.type is ColumnType.TIMESTAMP_MS:
        times = block.row_columns[column.name].astype("datetime64[ms]").tolist()
        return [
            None if value is None else f"{time.isoformat()}Z"
            for time, value in zip(times, values, strict=True)
        ]
    if column.type is ColumnType.BOOL:
        return [None if value is None else str(value).lower() for value in values]
    return values


class OfficialWriter(AdxWriter):
    """Sends payloads of `LinesEncoder` by the ingestion clients."""

    def __init__(self, encoder: LinesEncoder, options: AdxOptions, job: Job) -> None:
        super().__init__(encoder, options, job)
        self._client: Any = None

    def open(self) -> None:
        from azure.kusto.ingest import KustoStreamingIngestClient, QueuedIngestClient

        options = self._options
        self._connection = connect(options, self._job)
        kind, uri = (
            (QueuedIngestClient, options.ingest_uri)
            if options.batch
            else (KustoStreamingIngestClient, options.kusto_uri)
        )
        self._client = kind(self._connection.describe_place(uri), auto_correct_endpoint=False)

    def close(self) -> None:
        super().close()
        if self._client is not None:
            self._client.close()
            self._client = None

    def _enqueue(self, connection: Connection, part: Part) -> None:
        try:
            self._ingest(part)
        except KustoNetworkError as error:
            raise connection.interpret(error, self._options.ingest_uri) from error
        except KustoClientError as error:
            raise report_unclear(str(error)) from error
        except KustoError as error:
            raise connection.interpret(error, self._options.ingest_uri) from error

    def _put(self, connection: Connection, part: Part) -> None:
        try:
            self._ingest(part)
        except KustoError as error:
            meaning: Retryable | SimulatorError = connection.interpret(error)
            raise meaning from error

    def _ingest(self, part: Part) -> None:
        from azure.kusto.data.data_format import DataFormat
        from azure.kusto.ingest import IngestionProperties, StreamDescriptor

        properties = IngestionProperties(
            self._options.kusto_db,
            part.table,
            data_format=DataFormat.CSV,
            ingestion_mapping_reference=MAPPING,
            ingestion_mapping_kind=DataFormat.CSV.ingestion_mapping_kind,
        )
        self._client.ingest_from_stream(StreamDescriptor(BytesIO(part.body)), properties)


def make_writer(options: AdxOptions, job: Job) -> OfficialWriter:
    """A writer by the client."""
    return OfficialWriter(LinesEncoder(job), options, job)
