"""influxdb-client: writes points with its write API, synchronously (`client=official`) or in the background
(`client=batching`), and queries with its query API, which decodes each answer into records.

Batching collects points in the background and sends them when it has --batch of them, or after a second (its
default). Here, a request is one call with --batch points, and ends when all are acknowledged.

https://docs.influxdata.com/influxdb/v2/api-guide/client-libraries/python/
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from datetime import datetime
from operator import add
from typing import TYPE_CHECKING, Any

from influxdb_client.client.flux_csv_parser import FluxQueryException
from influxdb_client.client.flux_table import FluxTable
from influxdb_client.client.query_api import QueryApi
from influxdb_client.client.write.point import Point
from influxdb_client.client.write_api import SYNCHRONOUS, WriteApi, WriteOptions
from influxdb_client.domain.write_precision import WritePrecision

from ...encoding.columns import TEXTS, bounds
from ...errors import Retryable, SimulatorError, one_line
from ...workloads.schema import EventBlock
from ..base import AnyModule, Job
from ..kit.official import ClientAsker, OfficialEncoder, OfficialWriter, list_columns
from ..kit.series import field_columns, label, read_labels, tag_columns
from ..sending import Rows, deal_in_turn
from ..waiting import limit_wait
from .flux import Question, Result, read_text
from .server import OWN_ERRORS, Connection

if TYPE_CHECKING:
    from . import Influxdb


Points = tuple[list[Point], int]
"""Points, and their number of lines: a text may have line breaks, which are kept."""


class PointsEncoder(OfficialEncoder):
    """A payload's data: a `Points`."""

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        self._fields = field_columns(job.schema)
        self._tags = tag_columns(job.schema)

    def make_requests(self, block: EventBlock) -> Sequence[Points]:
        schema = block.schema
        names = deal_in_turn(block, self.job.table_names)
        times = block.columns[schema.time].tolist()
        fields = list_columns(self._fields, block.columns, block.missing)
        points = [
            Point(name).time(time, WritePrecision.MS)
            for name, time in zip(names, times, strict=True)
        ]
        for column, values in zip(self._fields, fields, strict=True):
            for point, value in zip(points, values, strict=True):
                if value is not None:
                    point.field(column.name, value)
        if schema.device_path:
            documents = map(read_labels, block.columns[schema.device].tolist())
            for point, document in zip(points, documents, strict=True):
                for key, text in document.items():
                    point.tag(key, text)
        else:
            for point, device in zip(points, block.devices.tolist(), strict=True):
                point.tag(schema.device, device.decode())
        for column in self._tags:
            own = block.columns[column.name]
            is_text = column.type in TEXTS
            labels = own.tolist() if is_text else [label(column, value) for value in own]
            for point, text in zip(points, labels, strict=True):
                point.tag(column.name, text.decode())
        # The number of line breaks in each event's texts; empty if there are none.
        breaks: list[int] = []
        for column, values in zip(self._fields, fields, strict=True):
            if column.type in TEXTS and b"\n" in block.columns[column.name].tobytes():
                counts = [value.count("\n") if value else 0 for value in values]
                breaks = list(map(add, breaks, counts)) if breaks else counts
        return [
            (points[start:stop], stop - start + sum(breaks[start:stop]))
            for start, stop in bounds(len(block), self.size)
        ]


class PointsWriter(OfficialWriter[Connection]):
    """Writes points, and waits until they are acknowledged."""

    client: WriteApi

    def make_encoder(self, module: AnyModule) -> PointsEncoder:
        return PointsEncoder(module.job)

    def make_client(self) -> WriteApi:
        return self.connection.client.write_api(write_options=SYNCHRONOUS)

    def insert(self, data: Points) -> None:
        connection = self.connection
        options = connection.options
        limit_s = limit_wait(options.request_timeout_s)
        write = self.client.write
        connection.ask(write, options.bucket, options.org, data[0], timeout_s=limit_s)

    def explain(self, error: Exception) -> Retryable | SimulatorError | None:
        return self.connection.explain_client(error) if isinstance(error, OWN_ERRORS) else None


class BatchingWriter(PointsWriter):
    """Uses the API that writes in the background: callbacks report the outcome of points."""

    def __init__(self, module: Influxdb) -> None:
        super().__init__(module)
        self._heard = threading.Condition()
        self._left = 0
        """Lines of the request in flight without a reported outcome."""
        self._failure: Exception | None = None

    def make_client(self) -> WriteApi:
        # The loop retries, and counts it.
        options = WriteOptions(batch_size=self.job.load.batch, max_retries=0)
        return self.connection.client.write_api(
            write_options=options,
            success_callback=lambda _, lines: self._note(lines, None),
            error_callback=lambda _, lines, error: self._note(lines, error),
        )

    def _note(self, lines: Any, failure: Exception | None) -> None:
        count = (lines if isinstance(lines, bytes) else lines.encode()).count(b"\n") + 1
        with self._heard:
            self._left -= count
            self._failure = self._failure or failure
            self._heard.notify_all()

    def insert(self, data: Points) -> None:
        self._left, self._failure = data[1], None
        super().insert(data)
        limit_s = limit_wait(self.connection.options.request_timeout_s)
        with self._heard:
            heard = self._heard.wait_for(lambda: self._left <= 0, limit_s)
            if self._failure is not None:
                raise self._failure
        if not heard:
            raise Retryable("timeout", f"no reply about points within {limit_s:g} s")


class OfficialInfluxAsker(ClientAsker[Connection]):
    """Queries with `QueryApi.query`."""

    def make_client(self) -> QueryApi:
        return self.connection.client.query_api()

    def close_client(self, client: QueryApi) -> None:
        """It has no connection of its own."""

    def execute(self, client: QueryApi, statement: Question) -> Rows:
        answers = [self._query(client, statement, statement.text)]
        missing = statement.find_missing(answers[0])
        if missing is not None:
            answers.append(self._query(client, statement, missing))
        return statement.read(answers)

    def _query(self, client: QueryApi, question: Question, text: str) -> list[Result]:
        timeout_s = self.connection.options.query_timeout_s
        tables = self.connection.ask(client.query, text, timeout_s=timeout_s)
        return list(read_tables(tables, question.columns))

    def explain(self, error: Exception) -> Retryable | SimulatorError | None:
        if isinstance(error, FluxQueryException):
            return SimulatorError(f"InfluxDB aborted a query: {one_line(error, 500)}")
        return None


def read_tables(tables: Sequence[FluxTable], columns: Sequence[str]) -> Iterator[Result]:
    """As `parse_results`, from the client's records."""
    for table in tables:
        kinds = {column.label: column.data_type for column in table.columns}
        typed = [(name, kinds.get(name)) for name in columns]
        for record in table.records:
            values = record.values
            row = []
            for name, kind in typed:
                value = values.get(name)
                if kind == "string":
                    value = read_text(value or "")
                elif isinstance(value, datetime):
                    value = round(value.timestamp() * 1000)
                row.append(value)
            yield values["result"], tuple(row)
