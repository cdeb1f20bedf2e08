"""Checks whether the answers that readers got are right."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from math import inf
from typing import Any

from ..contract import Answers, GivenAnswer, GroupResult, WorkerAnswers, WrongAnswer
from ..machine import free_memory_bytes
from ..modules.base import AnyModule
from ..modules.own_statements import find_own_statement
from ..workloads.drawing import BoundQuery, Stored
from .answers import answer_all, compare_columns, estimate_memory, find_needed
from .survey import RecognizedEvents

MOST_EVENTS = 100_000_000
"""The most events generated for right answers: that takes a minute of CPU."""

_MOST_WORK = 10 * MOST_EVENTS
"""The most events examined, each counted once for every query it is examined for."""

MOST_VALUES = 2_000_000
"""The most values of answers kept, over all readers: equal answers are kept once."""

_MEMORY_SHARE = 0.5
"""The share of the free memory that right answers may take while they are computed."""

_MOST_NAMED = 3
"""The most devices named in one text."""

_log = logging.getLogger(__name__)


@dataclass
class _AnswerToCheck:
    """The same answer to the same execution of a query, from all readers that got it."""

    query: str
    bound: BoundQuery
    columns: Sequence[Sequence[Any]]
    malformed: str | None
    workers: list[int] = field(default_factory=list)


class Checker:
    """The answers of one run."""

    def __init__(self, module: AnyModule) -> None:
        self._module = module
        self._given: dict[tuple[str, BoundQuery], list[_AnswerToCheck]] = {}
        self._left = MOST_VALUES
        self._left_out = Answers(checked=0)
        """Answers that were known to stay unchecked when they came."""
        self._found = self._left_out

    def add(self, message: WorkerAnswers) -> None:
        """Take the answers of one reader."""
        for query, reason in message.unchecked.items():
            self._leave(query, reason)
        for answer in message.answers:
            self._add(message.worker, answer)

    def _add(self, worker: int, answer: GivenAnswer) -> None:
        description = self._module.describe_query(answer.query)
        assert description is not None, answer.query
        devices = None if answer.devices is None else tuple(answer.devices)
        bound = BoundQuery(description, devices, answer.start_ms, answer.end_ms)
        same_question = self._given.setdefault((answer.query, bound), [])
        for earlier in same_question:
            if earlier.columns == answer.columns and earlier.malformed == answer.malformed:
                earlier.workers.append(worker)
                return
        values = sum(map(len, answer.columns))
        if values > self._left:
            self._leave(answer.query, f"no more than {MOST_VALUES:,} values of answers are kept")
            return
        self._left -= values
        same_question.append(
            _AnswerToCheck(answer.query, bound, answer.columns, answer.malformed, [worker])
        )

    def give_up_worker(self, worker: int, reason: str) -> None:
        """Note that a reader hasn't handed in its answers, and never will."""
        for query in self._module.choose_queries():
            self._leave(query, f"worker {worker}: {reason}")

    def check(
        self,
        events: RecognizedEvents | str,
        frontier_ms: int | None = None,
        note: Callable[[int, int], object] = lambda done, total: None,
        kept_from_ms: int | None = None,
    ) -> Answers:
        """Compare all answers with the right ones. `events`: the stored events, or why they aren't known.
        `frontier_ms`: events were added from this time on; None: none were. `note` is called with how many
        events have been generated, and of how many. `kept_from_ms`: events before this were being deleted."""
        self._found = self._left_out.model_copy(deep=True)
        answers = [answer for same in self._given.values() for answer in same]
        if isinstance(events, str):
            for answer in answers:
                self._leave(answer.query, events, len(answer.workers))
            return self._found
        stored = Stored(events.workload, events.parts)
        answers = self._choose(answers, stored, frontier_ms, kept_from_ms)
        bounds = list(dict.fromkeys(answer.bound for answer in answers if answer.malformed is None))
        total = sum(map(len, find_needed(bounds, stored)))
        exactness = self._module.CAPABILITIES.exactness
        answered = answer_all(bounds, stored, lambda done: note(done, total), exactness)
        right = dict(zip(bounds, answered, strict=True))
        for answer in answers:
            self._found.checked += len(answer.workers)
            difference = answer.malformed or compare_columns(right[answer.bound], answer.columns)
            if difference:
                if find_own_statement(self._module.own_names, answer.bound.query) is not None:
                    difference += " (using the workload's own statement)"
                _log.error("query %s: wrong answer: %s", answer.query, difference)
                self._found.wrong.append(
                    WrongAnswer(
                        query=answer.query,
                        workers=sorted(answer.workers),
                        parameters=describe_parameters(answer.bound),
                        difference=difference,
                    )
                )
        return self._found

    def give_up(self, reason: str) -> Answers:
        """The result if checking failed: nothing was checked."""
        return self.check(reason)

    def _choose(
        self,
        answers: Sequence[_AnswerToCheck],
        stored: Stored,
        frontier_ms: int | None,
        kept_from_ms: int | None,
    ) -> list[_AnswerToCheck]:
        """The answers that can be checked at a reasonable cost; those about few events first."""
        free = free_memory_bytes()
        memory = _MEMORY_SHARE * free if free is not None else inf
        costs: list[tuple[int, _AnswerToCheck]] = []
        for answer in answers:
            bound, reason = answer.bound, None
            if frontier_ms is not None and (bound.end_ms is None or bound.end_ms > frontier_ms):
                reason = "rows were being added during the query"
            elif kept_from_ms is not None and (bound.start_ms or 0) < kept_from_ms:
                reason = "rows in its window were being deleted during the query"
            if reason:
                self._leave(answer.query, reason, len(answer.workers))
            else:
                costs.append((sum(map(len, find_needed([bound], stored))), answer))
        chosen: list[_AnswerToCheck] = []
        work = 0
        for cost, answer in sorted(costs, key=lambda pair: pair[0]):
            work += cost
            needed_bytes = estimate_memory(answer.bound, stored)
            reason = None
            if needed_bytes > memory:
                devices = f"{stored.device_count:,} devices"
                reason = f"right answers for {devices} need more memory than the collector has"
            else:
                memory -= needed_bytes
                if cost > MOST_EVENTS or work > _MOST_WORK:
                    reason = f"right answers are computed from at most {MOST_EVENTS:,} events"
            if reason:
                self._leave(answer.query, reason, len(answer.workers))
            else:
                chosen.append(answer)
        return chosen

    def _leave(self, query: str, reason: str, answers: int = 1) -> None:
        self._found.unchecked += answers
        queries = self._found.reasons.setdefault(reason, [])
        if query not in queries:
            queries.append(query)


def describe_parameters(bound: BoundQuery) -> str:
    """Devices and window, in words."""
    devices = "all devices"
    if bound.devices is not None:
        devices = ", ".join(bound.devices[:_MOST_NAMED])
        if len(bound.devices) > _MOST_NAMED:
            devices += f" and {len(bound.devices) - _MOST_NAMED} more"
    if bound.start_ms is None or bound.end_ms is None:
        return f"{devices}, all time"
    start, end = (
        datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds")
        for ms in (bound.start_ms, bound.end_ms)
    )
    return f"{devices}, from {start} to before {end}"


def add_answers(readers: GroupResult, answers: Answers) -> None:
    """Add the outcome of checking to the readers' result. Wrong answers make it invalid."""
    readers.answers = answers
    for query in dict.fromkeys(answer.query for answer in answers.wrong):
        wrong = [answer for answer in answers.wrong if answer.query == query]
        others = sum(len(answer.workers) for answer in wrong) - 1
        more = f" (and {others} more wrong answers)" if others else ""
        first = wrong[0]
        readers.invalid_reasons.append(
            f"query {query} gave a wrong answer to worker {first.workers[0]}"
            f" ({first.parameters}): {first.difference}{more}"
        )
