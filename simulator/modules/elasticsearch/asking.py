"""Asks Elasticsearch and OpenSearch: by searches, into whose bodies parameters are put; hits and groups are
counted where they stand in an answer. With `client=official` the vendor's client asks by its `search`.

A query of several pages is several searches, one after the other. An answer counts as none if it isn't
of all shards, or if the server gave up the rest of it.

https://www.elastic.co/docs/reference/elasticsearch/rest-apis/paginate-search-results#search-after
https://www.elastic.co/docs/reference/aggregations/search-aggregations-bucket-composite-aggregation#_pagination
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from ...errors import Retryable, SimulatorError
from ...workloads.drawing import BoundQueries
from ..asking import Received, Rows
from ..kit.http import HttpRequest
from ..kit.http_asking import Conversation, HttpAsker, read_json
from ..kit.official import ClientAsker
from ..kit.sql_queries import Template, make_template
from ..own_statements import JSON_LITERALS
from .paging import Pages, ParsedPage, Plan, Question, ScannedPage, Statement
from .server import Connection, find_target
from .writing import explain_error, make_client

if TYPE_CHECKING:
    from . import Elasticsearch


class SearchRequest(NamedTuple):
    """A query's first search, ready to be sent, and how to go on. It begins as a `HttpRequest`."""

    method: str
    target: str
    body: bytes
    headers: Mapping[str, str]
    begin: int
    """How many bytes of the body say which events it is about."""
    plan: Plan


class ElasticsearchAsker(HttpAsker[Connection]):
    """Asks what `Elasticsearch.compile` gives. Receives a plan, and its pages."""

    module: Elasticsearch

    def __init__(self, module: Elasticsearch, in_flight: int) -> None:
        super().__init__(module, in_flight)
        self._target = find_target(module.options.index(module.job.schema.table))
        self._headers = Connection.name_requests(module.job)
        self._made: dict[str, tuple[Template, Plan]] = {}
        """The template and the plan of each query."""

    def encode(self, bounds: BoundQueries) -> Sequence[SearchRequest]:
        name = bounds.query.name
        if name not in self._made:
            compiled = self.module.compile
            template = make_template(
                bounds, lambda bound: compiled(bound).begin.decode(), JSON_LITERALS
            )
            # Parameters stand nowhere else.
            self._made[name] = template, compiled(bounds[0]).plan
        template, plan = self._made[name]
        filled = template.fill(bounds, JSON_LITERALS.text, JSON_LITERALS.instant)
        return [self._make_request(begin.encode(), plan) for begin in filled]

    def encode_statement(self, statement: Statement) -> SearchRequest:
        return self._make_request(statement.begin, statement.plan)

    def _make_request(self, begin: bytes, plan: Plan) -> SearchRequest:
        body = begin + plan.tail
        return SearchRequest("POST", self._target, body, self._headers, len(begin), plan)

    def converse(self, request: SearchRequest) -> Conversation:
        method, target, body, headers, begin, plan = request
        pages = Pages(body[:begin], plan)
        while body:
            answer = yield HttpRequest(method, target, body, headers)
            body = pages.add(ScannedPage(self.database.check_whole(answer)))
        return Received(pages.rows, pages.size, (pages.plan, pages.contents))

    def decode(self, received: Received) -> Rows:
        plan, bodies = received.data
        return read_rows(plan, [read_json(body) for body in bodies])


def read_rows(plan: Plan, answers: Sequence[Any]) -> Rows:
    """The rows of parsed pages; SimulatorError if they aren't what was asked for."""
    try:
        return plan.read(answers)
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise SimulatorError(f"unreadable answer: it has no {error}") from error


class OfficialElasticsearchAsker(ClientAsker[Connection]):
    """Asks by the client's `search`."""

    _errors: tuple[type[Exception], ...] = ()
    """The client's own errors."""

    def make_client(self) -> Any:
        client = make_client(self.connection.options)
        self._errors = client.errors
        own, named = client.name(self.connection.name, self.connection.options.request_timeout_s)
        search = partial(
            own.search,
            index=self.module.options.index(self.module.job.schema.table),
            request_cache=False,
            allow_partial_search_results=False,
            **named,
        )
        return client, search

    def close_client(self, client: Any) -> None:
        client[0].close()

    def encode_statement(self, statement: Statement) -> tuple[bytes, Plan, Question]:
        # The first search, as an application has it.
        question = orjson.loads(statement.begin + statement.plan.tail)
        return statement.begin, statement.plan, question

    def ask(self, client: Any, statement: tuple[bytes, Plan, Question]) -> Rows:
        _, search = client
        begin, plan, question = statement
        pages = Pages(begin, plan)
        while True:
            response = search(body=question)
            answer = getattr(response, "body", response)
            self.connection.check_shards(answer)
            following = pages.add(ParsedPage(answer))
            if not following:
                return read_rows(pages.plan, pages.contents)
            question = orjson.loads(following)

    def explain(self, error: Exception) -> Retryable | SimulatorError | None:
        return explain_error(self.connection, error) if isinstance(error, self._errors) else None
