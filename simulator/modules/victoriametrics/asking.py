"""Asks VictoriaMetrics: by one request, or one after the other for the parts of a window's time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from ...errors import SimulatorError
from .._base.http_asking import AnyHttpAsker, HttpRequest
from ..asking import Received, Rows, explain_length, most_answer_bytes
from .forms import FORM_HEADERS, Form, check_answer, has_series, write_form
from .queries import Question
from .server import Connection

if TYPE_CHECKING:
    from . import Victoriametrics


class FormsRequest(NamedTuple):
    """A question, its first requests ready to be sent."""

    question: Question
    bodies: Sequence[bytes]


class VictoriaMetricsAsker(AnyHttpAsker[Connection]):
    """Asks what `Victoriametrics.compile` gives. What is received: the question, its requests and their
    answers."""

    module: Victoriametrics

    def __init__(self, module: Victoriametrics, in_flight: int) -> None:
        super().__init__(module, in_flight, module.options.query_timeout_s)

    def encode_statement(self, statement: Question) -> FormsRequest:
        return FormsRequest(statement, [write_form(form) for form in statement.forms])

    def send(self, request: FormsRequest) -> Received:
        question, bodies = request
        forms = question.forms
        answers = self._ask_all(forms, bodies)
        if question.spreads:
            forms = question.spread(answers[0])
            answers = self._ask_all(forms, [write_form(form) for form in forms])
        if not any(map(has_series, answers)):
            # Series that aren't there are no error to the server.
            self.module.require_events(self.database)
        size = sum(map(len, answers))
        return Received(question.count(forms, answers), size, (question, forms, answers))

    def _ask_all(self, forms: Sequence[Form], bodies: Sequence[bytes]) -> list[bytes]:
        """The answers, one after the other."""
        answers: list[bytes] = []
        size = 0
        for form, body in zip(forms, bodies, strict=True):
            answer = self.exchange(HttpRequest("POST", form.path, body, FORM_HEADERS)).body
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
            raise SimulatorError(f"an answer makes no sense: {error!r}") from error
        return rows
