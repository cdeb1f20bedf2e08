"""Statements asked with many values at once, and how tables are cut into parts that are asked one by one."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

from cassandra import ReadFailure, ReadTimeout
from cassandra.concurrent import execute_concurrent_with_args

from .errors import ERRORS
from .server import ClusterSession

AT_ONCE = 16
"""Statements of one query that are under way at once."""

_FIRST_TOKEN, _TOKENS = -(2**63), 2**64

Row = tuple[Any, ...]
Values = Sequence[Sequence[Any]]
"""What a statement is asked with, one after the other."""


class Reader:
    """Asks prepared statements, as an application would that has several of a kind to ask."""

    def __init__(self, connect: Callable[[], ClusterSession]) -> None:
        """`connect`: the session, once a node answers; Retryable if none does."""
        self._connect = connect

    @property
    def release(self) -> tuple[int, int]:
        """The server's version, as (5, 0)."""
        return self._connect().release

    def ask(self, statement: str, values: Values) -> list[list[Row]]:
        """The rows with each of `values`, in their order."""
        session = self._connect()
        try:
            return [list(answer) for answer in _execute(session, statement, values, True)]
        except ERRORS as error:
            raise session.translate(error) from error

    def ask_in_time(self, statement: str, values: Values) -> list[list[Row] | None]:
        """The rows with each of `values`; None where the server took too long."""
        session = self._connect()
        try:
            return [take_rows(answer) for answer in _execute(session, statement, values, False)]
        except ERRORS as error:
            raise session.translate(error) from error


def _execute(
    session: ClusterSession, statement: str, values: Values, must_succeed: bool
) -> Sequence[Any]:
    """What the driver has for each of `values`: rows or, unless they must succeed, an exception."""
    if not values:
        return []
    prepared = session.prepare(statement)
    if len(values) == 1:
        # It needs none of what the driver keeps for many.
        try:
            return [session.driver.execute(prepared, values[0])]
        except ERRORS as error:
            if must_succeed:
                raise
            return [error]
    answers = execute_concurrent_with_args(
        session.driver, prepared, values, AT_ONCE, raise_on_first_error=must_succeed
    )
    return [answer.result_or_exc for answer in answers]


def take_rows(answer: Any) -> list[Row] | None:
    """The rows, or None if the server took too long; raises what else went wrong.

    A replica that gives up a read says so by a failure for no reason, the coordinator by a timeout.
    """
    try:
        if isinstance(answer, Exception):
            raise answer
        # Further pages are fetched here.
        return list(answer)
    except (ReadTimeout, ReadFailure):
        return None


def cut_ring(count: int) -> list[tuple[int, int]]:
    """The token ring in `count` parts: first and last token of each."""
    begins = [_FIRST_TOKEN + part * _TOKENS // count for part in range(count + 1)]
    return [(begin, after - 1) for begin, after in itertools.pairwise(begins)]


def cut_time(first: int, last: int, count: int) -> list[tuple[int, int]]:
    """The times from `first` to `last` in `count` parts, or as many as there are: ends of each."""
    count = min(count, last - first + 1)
    begins = [first + part * (last - first + 1) // count for part in range(count + 1)]
    return [(begin, after - 1) for begin, after in itertools.pairwise(begins)]


def cut_buckets(first: int, last: int, every_ms: int) -> list[tuple[int, int]]:
    """The times from `first` to `last` in the buckets of time that they are in: ends of each."""
    begins = range(first - first % every_ms, last + 1, every_ms)
    return [(max(first, begin), min(last, begin + every_ms - 1)) for begin in begins]
