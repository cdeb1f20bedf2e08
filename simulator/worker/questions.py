"""A reader's queries: some are always the same, some are drawn for each execution. The first answer to each
is kept for checking."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from contextlib import ExitStack, contextmanager
from functools import partial
from math import inf
from typing import Any

from ..contract import GivenAnswer, Go, WorkerAnswers
from ..errors import SimulatorError
from ..modules.base import AnyModule
from ..modules.sending import Asker, Received
from ..oracle.answers import Malformed, describe_answer, normalize
from ..workloads.base import SHARING_WORKERS, Workload
from ..workloads.drawing import (
    BoundQueries,
    BoundQuery,
    Stored,
    bind,
    draw,
    draw_block,
    find_row_count,
)
from ..workloads.queries import Query
from ..workloads.schema import Schema
from .feed import CLOSED_STEP_S, Stock, encoding_thread, make_in_thread

_FIRST_DRAWN, _MOST_DRAWN = 16, 512
"""How many executions are drawn at once, at first and later. For a single one numpy would cost as much as for
a hundred, some 0.1 ms."""

_DRAWN_AHEAD = 4096
"""The same in a thread, which delays what is due meanwhile."""

_AT_ONCE = 16
"""How many queries of a closed loop are encoded at once while the database answers another."""


class _Drawn:
    """A query with drawn parameters, and its requests made ahead of time."""

    def __init__(self, query: Query, stored: Stored, reader: int, asker: Asker) -> None:
        self.query = query
        self.rows = find_row_count(query, stored)
        """How many rows a right answer has, if known."""
        self.generate_s = 0.0
        """CPU time spent on drawing."""
        self._stored, self._reader, self._encode = stored, reader, asker.encode
        self._next = 0
        self.open_stock(None)

    def open_stock(self, thread: Executor | None) -> None:
        """Begin to make requests. `thread` draws the parameters of an open loop's."""
        if thread is None:
            draw = partial(self._draw_next, _MOST_DRAWN)
            self.stock = Stock(iter(draw, None), self._encode, 1, _AT_ONCE, CLOSED_STEP_S)
        else:
            draw = partial(self._draw_next, _DRAWN_AHEAD)
            self.stock = Stock(make_in_thread(thread, draw), self._encode)

    def _draw_next(self, most: int) -> BoundQueries:
        began_s = time.thread_time()
        count = min(max(self._next, _FIRST_DRAWN), most)
        bounds = draw_block(self.query, self._stored, self._reader, self._next, count)
        self._next += count
        self.generate_s += time.thread_time() - began_s
        return bounds


class Questions:
    """The queries of one reader as requests, made in blocks before they are due."""

    def __init__(
        self,
        module: AnyModule,
        asker: Asker,
        workload: Workload,
        go: Go,
        reader: int,
        redraw: bool = True,
        chance: int | None = None,
    ) -> None:
        """`go`: which events are stored. `reader`: its number, on which the parameters depend. `redraw`: each
        execution has its own parameters. `chance`: as for `Stored`. OptionError as from `Module.queries`."""
        self._module = module
        self._asker = asker
        self._redraw = redraw
        self._reader = reader
        self._fixed = {
            name: asker.encode_statement(statement) for name, statement in module.queries().items()
        }
        drawn = module.drawn_queries()
        self.names = module.choose_queries() if drawn else list(self._fixed)
        self._stored: Stored | None = None
        self._drawn: dict[str, _Drawn] = {}
        if drawn:
            if go.sharing_workers is not None:
                workload = workload.remake(**{SHARING_WORKERS: go.sharing_workers})
            stored = self._stored = Stored(workload, go.stored, go.before_ms, chance)
            self._drawn = {
                name: _Drawn(query, stored, reader, asker) for name, query in drawn.items()
            }

    @contextmanager
    def feed(self, punctual: bool = False) -> Iterator[None]:
        """Make the first requests of each query, before the measured window. `punctual`: requests are due by
        the clock, so `make_ahead` keeps more of them ready, from parameters drawn in a thread."""
        if self._stored is not None and any(drawn.query.instant for drawn in self._drawn.values()):
            self._stored.prepare_events()
        with ExitStack() as stack:
            thread = None
            if punctual and self._redraw:
                thread = stack.enter_context(encoding_thread(punctual))
            for name, drawn in self._drawn.items():
                drawn.open_stock(thread)
                while drawn.stock.make_ahead():
                    pass
                if not self._redraw:
                    self._fixed[name] = drawn.stock.take()
            yield

    def make(self, name: str) -> Any:
        """The request for the next execution of a query."""
        fixed = self._fixed.get(name)
        return self._drawn[name].stock.take() if fixed is None else fixed

    def make_ahead(self, until: float = inf) -> bool:
        """Make some requests if too few are ready and there is time until `until`. Returns whether it did."""
        return any(drawn.stock.make_ahead(until) for drawn in self._drawn.values())

    @property
    def generate_s(self) -> float:
        """CPU time spent on drawing parameters."""
        return sum(drawn.generate_s for drawn in self._drawn.values())

    @property
    def encode_s(self) -> float:
        """CPU time spent on encoding requests."""
        return sum(drawn.stock.encode_s for drawn in self._drawn.values())

    def forget_costs(self) -> None:
        """Count CPU time from here on: the warm-up is over."""
        for drawn in self._drawn.values():
            drawn.generate_s = drawn.stock.encode_s = 0.0

    def find_shortfall(self, name: str, rows: int) -> str | None:
        """What is wrong with an answer of `rows` rows, as far as that shows without decoding it."""
        drawn = self._drawn.get(name)
        if drawn is None or drawn.rows is None or drawn.rows == rows:
            return None
        return f"the answer has {rows:,} rows instead of {drawn.rows:,}"

    def decode(self, received: Received) -> Sequence[Sequence[Any]]:
        """The rows of an answer. SimulatorError if it is malformed."""
        return self._asker.decode(received)

    def width(self, name: str) -> int:
        """How many values each row of an answer has; 1 if the query isn't described."""
        description = self._module.describe_query(name)
        return description.width if description else 1

    def bind(self, name: str, execution: int) -> BoundQuery | None:
        """The query of an execution with its parameters; None if it isn't described."""
        if name in self._drawn:
            assert self._stored is not None
            drawn = execution if self._redraw else 0
            return draw(self._drawn[name].query, self._stored, self._reader, drawn)
        description = self._module.describe_query(name)
        if description is None or description.is_drawn:
            return None
        return bind(description, self._module.job.schema.epoch_ms)


# The first answer that a reader gets to each query, kept to be checked.

KEPT_VALUES = 500_000
"""How many values of answers a reader keeps: 50 MB as Python objects, at most."""
_KEPT_BYTES = 100_000_000
"""How many bytes of undecoded answers a reader keeps, for the same reason."""


class FirstAnswers:
    """The first answers of one reader, undecoded. Keeping one costs next to nothing, so it happens between
    two queries."""

    def __init__(self, questions: Questions, wanted: bool) -> None:
        """Answers are kept only if `wanted`."""
        self._questions = questions
        self._kept: dict[str, tuple[int, Received]] = {}
        self._too_long: list[str] = []
        self._left, self._left_bytes = KEPT_VALUES, _KEPT_BYTES
        self._missing = set(questions.names) if wanted else set()

    def note(self, name: str, execution: int, received: Received) -> None:
        """Take an answer to a query; only the first one is kept."""
        if name not in self._missing:
            return
        self._missing.discard(name)
        values = received.rows * self._questions.width(name)
        if values > self._left or received.bytes > self._left_bytes:
            self._too_long.append(name)
            return
        self._left -= values
        self._left_bytes -= received.bytes
        self._kept[name] = execution, received

    def hand_in(self, worker: int, schema: Schema) -> WorkerAnswers:
        """Return all kept answers, decoded, and forget them."""
        reason = f"answers of more than {KEPT_VALUES:,} values are too long to keep"
        answers = WorkerAnswers(
            worker=worker, answers=[], unchecked=dict.fromkeys(self._too_long, reason)
        )
        for name in list(self._kept):
            execution, received = self._kept.pop(name)
            bound = self._questions.bind(name, execution)
            if bound is None:
                answers.unchecked[name] = "no description of the right answer"
            else:
                answers.answers.append(self._give(name, bound, received, schema))
        return answers

    def _give(
        self, name: str, bound: BoundQuery, received: Received, schema: Schema
    ) -> GivenAnswer:
        answer = GivenAnswer(
            query=name,
            devices=None if bound.devices is None else list(bound.devices),
            start_ms=bound.start_ms,
            end_ms=bound.end_ms,
        )
        kinds = [kind for _, kind in describe_answer(bound.query, schema)]
        try:
            answer.columns = normalize(kinds, self._questions.decode(received))
        except (Malformed, SimulatorError) as error:
            answer.malformed = str(error)
        return answer
