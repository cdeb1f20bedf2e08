"""Asks VictoriaMetrics: by one request, or one after the other for the parts of a window's time."""

from __future__ import annotations

import re
from collections.abc import Generator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING
from urllib.parse import quote_plus

from ...errors import SimulatorError
from ...workloads.drawing import BoundQueries, BoundQuery
from ...workloads.queries import Every
from ..asking import Received, Rows, explain_length, most_answer_bytes
from ..kit.http import HttpRequest
from ..kit.http_asking import Conversation, HttpAsker
from ..kit.sql_queries import Template
from .forms import (
    FORM_HEADERS,
    Form,
    check_answer,
    has_series,
    write_choice,
    write_form,
    write_seconds,
)
from .queries import Question
from .server import Connection

if TYPE_CHECKING:
    from . import Victoriametrics


FormsRequest = tuple[Question, Sequence[bytes]]
"""A question, and the bodies of its first requests."""

# As they stand in a request's body.
_NAME, _START, _END = "PLACEOFDEVICE%dEND", "PLACEOFSTART", "PLACEOFEND"
_MARK = re.compile("(PLACEOF(?:DEVICE[0-9]+END|START|END))")


class VictoriaMetricsAsker(HttpAsker[Connection]):
    """Asks what `Victoriametrics.compile` gives. Receives the question, its requests and their answers."""

    module: Victoriametrics

    def __init__(self, module: Victoriametrics, in_flight: int) -> None:
        super().__init__(module, in_flight, module.options.query_timeout_s)
        self._made: dict[tuple[str, int, int], tuple[Question, Template]] = {}
        """For each query, by its name, the length of its window, and its devices' number: a question by which
        all its answers are read, and the request."""

    def encode(self, bounds: BoundQueries) -> Sequence[FormsRequest]:
        # Which requests buckets of time take depends on the window's place.
        if any(isinstance(part, Every) for part in bounds.query.per):
            return [self.encode_statement(self.module.compile(bound)) for bound in bounds]
        first = bounds[0]
        span_ms = (first.end_ms or 0) - (first.start_ms or 0)
        key = bounds.query.name, span_ms, len(first.devices or ())
        if key not in self._made:
            self._made[key] = self.module.compile(first), self._make_template(first)
        question, template = self._made[key]
        several = template.devices > 1
        # The end is excluded.
        lasts = bounds if bounds.end_ms is None else replace(bounds, end_ms=bounds.end_ms - 1)
        filled = template.fill(
            lasts, lambda name: quote_plus(write_choice(name, several)), write_seconds
        )
        return [(question, [body.encode()]) for body in filled]

    def _make_template(self, bound: BoundQuery) -> Template:
        """The body of the only request, with places for devices and for the window's ends."""
        count = len(bound.devices or ())
        names = tuple(_NAME % number for number in range(count))
        [form] = self.module.compile(replace(bound, devices=names or None)).forms
        fields = dict(form.fields)
        if bound.end_ms is not None:
            marks = {"start": _START, "end": _END, "time": _END}
            fields |= {name: mark for name, mark in marks.items() if name in fields}
        numbers = {name: number for number, name in enumerate(names)}
        numbers |= {_START: count, _END: count + 1}
        pieces = _MARK.split(write_form(form._replace(fields=fields)).decode())
        return Template(tuple(pieces[::2]), tuple(numbers[mark] for mark in pieces[1::2]), count)

    def encode_statement(self, statement: Question) -> FormsRequest:
        return statement, [write_form(form) for form in statement.forms]

    def converse(self, request: FormsRequest) -> Conversation:
        question, bodies = request
        forms = question.forms
        answers = yield from self._ask_all(forms, bodies)
        if question.spreads:
            forms = question.spread(answers[0])
            answers = yield from self._ask_all(forms, [write_form(form) for form in forms])
        if not any(map(has_series, answers)):
            # Series that aren't there are no error to the server.
            self.module.require_events(self.database)
        size = sum(map(len, answers))
        return Received(question.count(forms, answers), size, (question, forms, answers))

    def _ask_all(
        self, forms: Sequence[Form], bodies: Sequence[bytes]
    ) -> Generator[HttpRequest, bytes, list[bytes]]:
        """The answers, one after the other."""
        answers: list[bytes] = []
        size = 0
        for form, body in zip(forms, bodies, strict=True):
            answer = yield HttpRequest("POST", form.path, body, FORM_HEADERS)
            check_answer(form, answer, self.database.place)
            answers.append(answer)
            size += len(answer)
            if size > most_answer_bytes():
                raise explain_length(size)
        return answers

    def decode(self, received: Received) -> Rows:
        question, forms, answers = received.data
        try:
            rows: Rows = question.read(forms, answers)
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise SimulatorError(f"unreadable answer: {error!r}") from error
        return rows
