"""Asks QuestDB by PGWire, PostgreSQL's protocol, which its vendor recommends for queries: by the lean path of
module postgres, each statement prepared once and answers binary, as asyncpg, pgx and Npgsql have them; and
with `client=official` by psycopg 3.

Over HTTP, QuestDB compiles each statement anew, and a number costs more to write. On one busy machine `point`
took 0.06 ms by PGWire and 0.5 ms over HTTP, an answer of 160,000 rows 40 ms and 95 ms (tenth percentiles).

https://questdb.com/docs/query/pgwire/python/
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, cast

from psycopg import pq

from ...workloads.drawing import BoundQueries, BoundQuery
from .._base.libpq_lines import Question as PreparedQuestion
from ..asking import Received, Rows
from ..base import Job
from ..postgres.asking import PostgresAsker
from ..postgres.official import Psycopg3Asker, Question
from ..postgres.options import PostgresOptions
from .queries import QuestdbDialect
from .statements import PgWire

if TYPE_CHECKING:
    from ..postgres import Postgres
    from . import Questdb


@dataclass(frozen=True)
class _Asked:
    """What PostgreSQL's askers need of a module."""

    module: Questdb
    options: PostgresOptions
    dialect: PgWire

    @property
    def job(self) -> Job:
        return self.module.job

    def make_statement(self, bound: BoundQuery) -> str:
        text: str = self.module.make_statement(bound)
        return text


def _view(module: Questdb) -> Postgres:
    dialect = PgWire(QuestdbDialect(module.job.schema))
    options = module.options.pgwire("PGWire")
    return cast("Postgres", _Asked(module, options, dialect))


def _in_us(bounds: BoundQueries) -> BoundQueries:
    """The bounds with times as QuestDB takes them for parameters: in µs since 1970."""
    if bounds.start_ms is None or bounds.end_ms is None:
        return bounds
    return replace(bounds, start_ms=bounds.start_ms * 1000, end_ms=bounds.end_ms * 1000)


def _read_times(rows: Rows) -> list[tuple[Any, ...]]:
    """The rows with times in ms since 1970."""
    return [
        tuple(
            round(value.replace(tzinfo=UTC).timestamp() * 1000)
            if isinstance(value, datetime)
            else value
            for value in row
        )
        for row in rows
    ]


class PgWireAsker(PostgresAsker):
    """Asks what `Questdb.compile` gives."""

    RESULTS = pq.Format.BINARY
    # QuestDB's plans don't depend on parameters.
    PLANS_ANEW = False

    def __init__(self, module: Questdb, in_flight: int) -> None:
        super().__init__(_view(module), in_flight)

    def encode(self, bounds: BoundQueries) -> Iterable[PreparedQuestion]:
        return super().encode(_in_us(bounds))

    def decode(self, received: Received) -> Rows:
        return _read_times(super().decode(received))


class OfficialQuestdbAsker(Psycopg3Asker):
    """Asks by psycopg 3."""

    def __init__(self, module: Questdb, in_flight: int) -> None:
        super().__init__(_view(module), in_flight)

    def encode(self, bounds: BoundQueries) -> Sequence[Question]:
        return super().encode(_in_us(bounds))

    def decode(self, received: Received) -> Rows:
        return _read_times(super().decode(received))
