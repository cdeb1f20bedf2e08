"""What a reader asks: queries that are always the same, and those that are drawn for each execution; and the
first answer to each, which is kept to be checked."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from ..contract import GivenAnswer, Go, WorkerAnswers
from ..errors import SimulatorError
from ..modules.base import AnyModule
from ..modules.sending import Asker, Received
from ..oracle.answers import Malformed, describe_answer, normalize
from ..workloads.base import SHARING_WORKERS, Workload
from ..workloads.drawing import BoundQuery, Stored, bind, draw, draw_block, find_row_count
from ..workloads.queries import Query
from ..workloads.schema import Schema
from .schedule import lower_priority
from .writing import short_switch_interval

_FIRST_AT_ONCE, _MOST_AT_ONCE = 16, 512
_AT_ONCE_S = 0.003
"""How many requests are made at once, or as many as take this much CPU time. For a single one, numpy would
cost as much as for a hundred, some 0.3 ms."""


@dataclass
class _Drawn:
    """A query whose parameters are drawn, and the requests that are made of it ahead of time."""

    query: Query
    rows: int | None
    """How many rows each right answer has, if that is known."""
    ready: deque[Any] = field(default_factory=deque)
    late: Iterator[Any] = field(default_factory=lambda: iter(()))
    """Requests that are drawn, and may be encoded when they are asked for."""
    made: int = 0
    at_once: int = _FIRST_AT_ONCE
    more: Future[None] | None = None
    """The work of the thread that makes more requests."""

    def encode_next(self) -> None:
        """Have a request ready, if one is drawn."""
        if not self.ready:
            self.ready.extend(islice(self.late, 1))


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
        """`go`: which events are stored; `reader`: the reader's number, which parameters depend on; `redraw`:
        each execution has parameters of its own; `chance`: as `Stored` takes it. OptionError as from
        `Module.queries`."""
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
        self._thread: ThreadPoolExecutor | None = None
        self._encodes_late = redraw
        self._drawn: dict[str, _Drawn] = {}
        if drawn:
            if go.sharing_workers is not None:
                workload = workload.remake(**{SHARING_WORKERS: go.sharing_workers})
            stored = self._stored = Stored(workload, go.stored, go.before_ms, chance)
            self._drawn = {
                name: _Drawn(query, find_row_count(query, stored)) for name, query in drawn.items()
            }

    @contextmanager
    def feed(self, punctual: bool = False) -> Iterator[None]:
        """Get ready to be asked: make the first requests of each query, outside of the measured window.
        `punctual`: requests are due by the clock, so a thread makes more of them meanwhile."""
        self._encodes_late = self._redraw and not punctual
        if self._stored is not None and any(drawn.query.instant for drawn in self._drawn.values()):
            self._stored.prepare_events()
        for drawn in self._drawn.values():
            self._make_more(drawn)
        if not punctual or not self._redraw or not self._drawn:
            yield
            return
        with (
            short_switch_interval(),
            ThreadPoolExecutor(1, "encode", lower_priority) as self._thread,
        ):
            yield
        self._thread = None

    def make(self, name: str) -> Any:
        """The request for the next execution of a query."""
        if name in self._fixed:
            return self._fixed[name]
        drawn = self._drawn[name]
        ready = drawn.ready
        if not self._redraw:
            return ready[0]
        if self._thread is not None and len(ready) < drawn.at_once:
            more = self._request_more(self._thread, drawn)
            while not ready:
                # That may have been the block before, all of which was asked before the thread was done.
                more.result()
                more = self._request_more(self._thread, drawn)
        elif not ready:
            drawn.encode_next()
            if not ready:
                self._make_more(drawn)
                drawn.encode_next()
        return ready.popleft()

    def encode_next(self, name: str) -> None:
        """Encode the next request of a query, if it is drawn: a matter of some µs, while another question is
        under way."""
        if name in self._drawn:
            self._drawn[name].encode_next()

    def _request_more(self, thread: ThreadPoolExecutor, drawn: _Drawn) -> Future[None]:
        """Have a thread make more, unless one is at work on that already; returns its work."""
        if drawn.more is None or drawn.more.done():
            drawn.more = thread.submit(self._make_more, drawn)
        return drawn.more

    def _make_more(self, drawn: _Drawn) -> None:
        assert self._stored is not None
        began_s = time.thread_time()
        count = drawn.at_once if self._redraw else 1
        bounds = draw_block(drawn.query, self._stored, self._reader, drawn.made, count)
        encoded = self._asker.encode(bounds)
        if self._encodes_late:
            # More is drawn when the last of these was asked for.
            drawn.late = iter(encoded)
        else:
            drawn.ready.extend(encoded)
        drawn.made += count
        each_s = (time.thread_time() - began_s) / count
        drawn.at_once = max(1, min(2 * count, int(_AT_ONCE_S / each_s), _MOST_AT_ONCE))

    def find_shortfall(self, name: str, rows: int) -> str | None:
        """What is wrong with an answer of so many rows, where that can be known without decoding it."""
        drawn = self._drawn.get(name)
        if drawn is None or drawn.rows is None or drawn.rows == rows:
            return None
        return f"the answer has {rows:,} rows instead of {drawn.rows:,}"

    def decode(self, received: Received) -> Sequence[Sequence[Any]]:
        """The rows of an answer; SimulatorError if it is not in the form of one."""
        return self._asker.decode(received)

    def width(self, name: str) -> int:
        """How many values a row of an answer has; 1 if the query isn't described."""
        description = self._module.describe_query(name)
        return description.width if description else 1

    def bind(self, name: str, execution: int) -> BoundQuery | None:
        """The query that an execution asked, with its parameters; None if it isn't described."""
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
"""How many values of answers a reader keeps: with the Python objects that they become, 50 MB at most."""
_KEPT_BYTES = 100_000_000
"""How long answers may be as they came, for the same reason."""


class FirstAnswers:
    """The first answers of one reader, as they came. Keeping one costs next to nothing, so it is done between
    two questions."""

    def __init__(self, questions: Questions, wanted: bool) -> None:
        """Answers are kept only if they are `wanted`."""
        self._questions = questions
        self._kept: dict[str, tuple[int, Received]] = {}
        self._too_long: list[str] = []
        self._left, self._left_bytes = KEPT_VALUES, _KEPT_BYTES
        self._missing = set(questions.names) if wanted else set()

    def note(self, name: str, execution: int, received: Received) -> None:
        """Take an answer to a query; the first one is kept."""
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
        """All answers that are kept, decoded. They are forgotten then."""
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
