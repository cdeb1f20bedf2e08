"""Asks InfluxDB in Flux, for annotated CSV; rows are counted by its lines. With `client=official`
influxdb-client asks by its query API, which decodes each answer into records.

https://docs.influxdata.com/influxdb/v2/query-data/execute-queries/influx-api/
https://docs.influxdata.com/influxdb/v2/api-guide/client-libraries/python/#query-data-from-influxdb-with-python
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from influxdb_client.client.flux_csv_parser import FluxQueryException
from influxdb_client.client.flux_table import FluxTable
from influxdb_client.client.query_api import QueryApi

from ...errors import Retryable, SimulatorError, one_line
from ...workloads.drawing import BoundQueries
from ..asking import Received, Rows
from ..kit.http import HttpRequest
from ..kit.http_asking import Conversation, HttpAsker
from ..kit.official import ClientAsker
from ..kit.sql_queries import Template, make_template
from ..own_statements import Literals
from .flux import Question, Result, count_lines, parse_results, quote_text, read_text, write_time
from .server import Connection, make_question, name_query_target

if TYPE_CHECKING:
    from . import Influxdb


FluxRequest = tuple[Question, HttpRequest]
"""A question, which counts and reads the answer, and its request. Another execution's question will do if it
`is_scanned`."""

_LITERALS = Literals(quote_text, write_time)


class InfluxAsker(HttpAsker[Connection]):
    """Asks what `Influxdb.compile` gives. Receives the question, and its answers."""

    module: Influxdb

    def __init__(self, module: Influxdb, in_flight: int) -> None:
        super().__init__(module, in_flight, module.options.query_timeout_s)
        self._target = name_query_target(module.options)
        self._made: dict[str, tuple[Question, Template]] = {}
        """The question and template of each query whose executions are read alike."""

    def encode(self, bounds: BoundQueries) -> Sequence[FluxRequest]:
        name = bounds.query.name
        if name not in self._made:
            question = self.module.compile(bounds[0])
            if not question.is_scanned:
                return [self.encode_statement(self.module.compile(bound)) for bound in bounds]
            template = make_template(
                bounds, lambda bound: self.module.compile(bound).text, _LITERALS
            )
            self._made[name] = question, template
        question, template = self._made[name]
        filled = template.fill(bounds, quote_text, write_time)
        return [(question, make_question(self._target, text)) for text in filled]

    def encode_statement(self, statement: Question) -> FluxRequest:
        return statement, make_question(self._target, statement.text)

    def converse(self, request: FluxRequest) -> Conversation:
        question, http = request
        bodies = [(yield http)]
        lines = count_lines(bodies[0], question.counted)
        if question.is_scanned:
            return Received(question.count(lines), len(bodies[0]), (question, bodies))
        missing = question.find_missing(_parse(question, bodies[0]))
        if missing is not None:
            bodies.append((yield make_question(self._target, missing)))
            count_lines(bodies[1], None)
        rows = len(_read(question, bodies))
        return Received(rows, sum(map(len, bodies)), (question, bodies))

    def decode(self, received: Received) -> Rows:
        return _read(*received.data)


def _read(question: Question, bodies: Sequence[bytes]) -> Rows:
    """The rows of answers; SimulatorError if they don't have the form of one."""
    return question.read([_parse(question, body) for body in bodies])


def _parse(question: Question, body: bytes) -> list[Result]:
    try:
        return list(parse_results(body.decode(), question.columns))
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise SimulatorError(f"unreadable answer of InfluxDB: {error!r}") from error


class OfficialInfluxAsker(ClientAsker[Connection]):
    """Asks by `QueryApi.query`."""

    def make_client(self) -> QueryApi:
        return self.connection.client.query_api()

    def close_client(self, client: QueryApi) -> None:
        """It has no connection of its own."""

    def ask(self, client: QueryApi, statement: Question) -> Rows:
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
    """What `parse_results` gives, from the client's records."""
    for table in tables:
        kinds = {column.label: column.data_type for column in table.columns}
        typed = [(name, kinds.get(name)) for name in columns]
        for record in table.records:
            values = record.values
            yield (
                values["result"],
                tuple([_convert(values.get(name), kind) for name, kind in typed]),
            )


def _convert(value: Any, kind: str | None) -> Any:
    """A value of the client's as `parse_results` has it."""
    if kind == "string":
        return read_text(value or "")
    return round(value.timestamp() * 1000) if isinstance(value, datetime) else value
