"""Asks questions by sessions, one for each in flight, as a session has one statement at a time.

A statement is a call's bytes before it is due. Of an answer all blocks are received, whose heads have the
number of rows; rows are decoded to be checked, or as far as a `Computation` of the tree needs them to go on,
which is in the question's time.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ...workloads.drawing import BoundQueries, BoundQuery
from ..asking import Asker, Received, Rows, carry_out
from ..kit.row_order import Row
from ..kit.sql_queries import Template, make_template, quote_text
from ..own_statements import Literals
from ..sending import note_arrival
from .answers import Answer
from .connection import Question
from .options import Model
from .schema import quote
from .server import Server
from .tree_queries import Computation, Selection

if TYPE_CHECKING:
    from . import Iotdb


class IotdbAsker(Asker):
    """Asks what `Iotdb.compile` gives."""

    module: Iotdb

    def __init__(self, module: Iotdb, in_flight: int = 1) -> None:
        super().__init__(module, in_flight)
        self._server: Server | None = None
        self._templates: dict[str, tuple[Template, Selection | None]] = {}
        self._literals = Literals(quote if module.options.model is Model.TREE else quote_text, str)

    # --- requests

    def encode(self, bounds: BoundQueries) -> Iterable[Question | Computation]:
        name = bounds.query.name
        if name not in self._templates:
            first = self.module.make_statement(bounds[0])
            if isinstance(first, Computation):
                return super().encode(bounds)
            template = make_template(bounds, self._write, self._literals)
            self._templates[name] = template, first if isinstance(first, Selection) else None
        template, selection = self._templates[name]
        filled = template.fill(bounds, self._literals.text, self._literals.instant)
        return [Question(statement, selection) for statement in filled]

    def _write(self, bound: BoundQuery) -> str:
        """The statement of a question that has one."""
        return self.module.describe_statement(self.module.make_statement(bound))

    def encode_statement(self, statement: str | Selection | Computation) -> Question | Computation:
        if isinstance(statement, Selection):
            return Question(statement.text, statement)
        return Question(statement) if isinstance(statement, str) else statement

    # --- asking

    @property
    def server(self) -> Server:
        """What an open asker asks."""
        assert self._server is not None
        return self._server

    def open(self) -> None:
        self._server = self.module.connect()
        self._server.fill(self.max_in_flight)

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None

    def recover(self) -> None:
        self.server.restore()

    def send(self, request: Question | Computation) -> Received:
        if isinstance(request, Computation):
            return self._compute(request)
        answer, selection = self.server.fetch(request), request.selection
        rows = answer.rows if selection is None else selection.count(answer)
        return Received(rows, answer.bytes, (answer, selection))

    def _compute(self, computation: Computation) -> Received:
        size = 0

        def ask(statement: str) -> list[Row]:
            nonlocal size
            answer = self.server.fetch(Question(statement))
            size += answer.bytes
            return answer.read()

        rows = carry_out(computation.begin(), ask)
        note_arrival()
        return Received(len(rows), size, rows)

    def decode(self, received: Received) -> Rows:
        data: tuple[Answer, Selection | None] | list[Row] = received.data
        if isinstance(data, list):
            return data
        answer, selection = data
        rows = answer.read()
        return rows if selection is None else selection.read(rows)
