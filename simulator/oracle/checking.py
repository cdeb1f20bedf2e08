"""Whether the answers that readers got are right."""

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
from ..workloads.drawing import BoundQuery
from .answers import answer_all, estimate_memory, find_needed
from .comparing import compare_columns
from .stored import Stored
from .survey import RecognizedEvents

MOST_EVENTS = 100_000_000
"""So many events are generated for right answers at most: that takes a minute of CPU."""

_MOST_WORK = 10 * MOST_EVENTS
"""And so many are looked at, each time that one is for one query counted."""

MOST_VALUES = 2_000_000
"""So many values of answers are kept at most, of all readers: equal answers once."""

_MEMORY_SHARE = 0.5
"""Of what memory is free, right answers may take so much while they are computed."""

_MOST_NAMED = 3
"""So many devices are named in one text."""

_log = logging.getLogger(__name__)


@dataclass
class _AnswerToCheck:
    """The same answer to the same question, whoever got it."""

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
        """What was known not to be checked when the answers came."""
        self._found = self._left_out

    def add(self, message: WorkerAnswers) -> None:
        """Take the answers of one reader."""
        for query, reason in message.unchecked.items():
            self._leave(query, reason)
        for one in message.answers:
            self._add(message.worker, one)

    def _add(self, worker: int, one: GivenAnswer) -> None:
        description = self._module.describe_query(one.query)
        assert description is not None, one.query
        devices = None if one.devices is None else tuple(one.devices)
        bound = BoundQuery(description, devices, one.start_ms, one.end_ms)
        same_question = self._given.setdefault((one.query, bound), [])
        for known in same_question:
            if known.columns == one.columns and known.malformed == one.malformed:
                known.workers.append(worker)
                return
        values = sum(map(len, one.columns))
        if values > self._left:
            self._leave(
                one.query,
                f"answers of more than {MOST_VALUES:,} values in all are too many to be kept",
            )
            return
        self._left -= values
        same_question.append(_AnswerToCheck(one.query, bound, one.columns, one.malformed, [worker]))

    def give_up_worker(self, worker: int, reason: str) -> None:
        """A reader hasn't handed in its answers, and never will."""
        queries = self._module.choose_queries()
        for query in queries:
            self._leave(query, f"worker {worker}: {reason}")

    def check(
        self,
        known: RecognizedEvents | str,
        frontier_ms: int | None = None,
        note: Callable[[int, int], object] = lambda done, total: None,
        kept_from_ms: int | None = None,
    ) -> Answers:
        """Compare all with the right ones.

        `known`: the stored events, or why they aren't known. `frontier_ms`: from this time on events were
        added meanwhile; None: none were. `note` is told how many events have been generated of how many.
        `kept_from_ms`: older events were being deleted.
        """
        self._found = self._left_out.model_copy(deep=True)
        given = [one for same in self._given.values() for one in same]
        if isinstance(known, str):
            for one in given:
                self._leave(one.query, known, len(one.workers))
            return self._found
        stored = Stored(known.workload, known.parts)
        given = self._choose(given, stored, frontier_ms, kept_from_ms)
        bounds = list(dict.fromkeys(one.bound for one in given if one.malformed is None))
        total = sum(one.stop - one.start for one in find_needed(bounds, stored))
        right = dict(
            zip(
                bounds,
                answer_all(
                    bounds,
                    stored,
                    lambda done: note(done, total),
                    self._module.CAPABILITIES.rounded,
                ),
                strict=True,
            )
        )
        for one in given:
            self._found.checked += len(one.workers)
            difference = one.malformed or compare_columns(right[one.bound], one.columns)
            if difference:
                if find_own_statement(type(self._module), one.bound.query) is not None:
                    difference += " (asked by the workload's own statement)"
                _log.error("query %s: wrong answer: %s", one.query, difference)
                self._found.wrong.append(
                    WrongAnswer(
                        query=one.query,
                        workers=sorted(one.workers),
                        parameters=describe_parameters(one.bound),
                        difference=difference,
                    )
                )
        return self._found

    def give_up(self, reason: str) -> Answers:
        """What there is to say if checking failed: nothing was checked."""
        return self.check(reason)

    def _choose(
        self,
        given: Sequence[_AnswerToCheck],
        stored: Stored,
        frontier_ms: int | None,
        kept_from_ms: int | None,
    ) -> list[_AnswerToCheck]:
        """Those that can be checked, and at a reasonable cost: those that ask for few events first."""
        free = free_memory_bytes()
        memory = _MEMORY_SHARE * free if free is not None else inf
        costs: list[tuple[int, _AnswerToCheck]] = []
        for one in given:
            if frontier_ms is not None and (
                one.bound.end_ms is None or one.bound.end_ms > frontier_ms
            ):
                self._leave(one.query, "rows were being added during the query", len(one.workers))
                continue
            if kept_from_ms is not None and (one.bound.start_ms or 0) < kept_from_ms:
                self._leave(one.query, "rows of its window were being deleted", len(one.workers))
                continue
            needed = find_needed([one.bound], stored)
            costs.append((sum(each.stop - each.start for each in needed), one))
        chosen: list[_AnswerToCheck] = []
        work = 0
        for cost, one in sorted(costs, key=lambda each: each[0]):
            work += cost
            needed_bytes = estimate_memory(one.bound, stored)
            if needed_bytes > memory:
                self._leave(
                    one.query,
                    f"right answers of {stored.device_count:,} devices take more memory than the"
                    " collector has",
                    len(one.workers),
                )
                continue
            memory -= needed_bytes
            if cost > MOST_EVENTS or work > _MOST_WORK:
                reason = f"right answers are computed of {MOST_EVENTS:,} events at most"
                self._leave(one.query, reason, len(one.workers))
            else:
                chosen.append(one)
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
    """Add what was checked to what readers measured. Wrong answers make it invalid."""
    readers.answers = answers
    for query in dict.fromkeys(one.query for one in answers.wrong):
        wrong = [one for one in answers.wrong if one.query == query]
        others = sum(len(one.workers) for one in wrong) - 1
        more = f" (and {others} more of its answers are wrong)" if others else ""
        first = wrong[0]
        readers.invalid_reasons.append(
            f"query {query} gave a wrong answer to worker {first.workers[0]}"
            f" ({first.parameters}): {first.difference}{more}"
        )
