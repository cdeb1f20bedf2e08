"""The vendor's driver: `client=official` and `client=execute_concurrent`. Inserts go

* `official`: as prepared INSERTs, in a BatchStatement for each request, whose events are of one device, as
  the lean path's; or alone, by `execute`.
* `execute_concurrent`: the events of a request by `execute_concurrent_with_args`, 100 at once (its default).

Questions are asked by both alike: a prepared statement by `execute`, or with several parameters by
`execute_concurrent_with_args`; all rows are named tuples, as is the driver's default.

Values that are missing are UNSET_VALUE, as the driver's documentation advises: None would be a tombstone.

https://docs.datastax.com/en/developer/python-driver/latest/api/cassandra/concurrent/
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

from cassandra.cluster import EXEC_PROFILE_DEFAULT, Session
from cassandra.concurrent import execute_concurrent, execute_concurrent_with_args
from cassandra.query import (
    UNSET_VALUE,
    BatchStatement,
    PreparedStatement,
    named_tuple_factory,
)
from cassandra.query import BatchType as DriverBatchType

from ...contract import PrimaryKey
from ...encoding.columns import bounds
from ...workloads.schema import EventBlock
from .._base.official import list_columns
from .._base.row_order import Row
from .._base.tables import number_tables
from ..asking import Asker, Received, Rows
from ..base import Job
from ..sending import Encoder, Payload, limit_wait, note_arrival
from .encoding import BatchType, CassandraEncoder, sort_by_device
from .options import EXECUTE_CONCURRENT, InsertMode
from .server import AT_ONCE, ERRORS, is_late
from .statements import Parts, Plan, Selection, Statement
from .writer import SessionWriter

if TYPE_CHECKING:
    from . import Cassandra


class Event(NamedTuple):
    """Values of an INSERT, and the number of its table."""

    table: int
    values: Sequence[Any]


class RowsEncoder(Encoder):
    """A payload's data: a list of `Event`, of one device unless they are sent each alone."""

    overlaps = False

    def __init__(self, lean: CassandraEncoder, job: Job, by_device: bool) -> None:
        self._lean = lean
        self._job = job
        self._by_device = by_device
        self.unit_events = lean.unit_events if by_device else 0

    def encode(self, block: EventBlock, batch: int) -> list[Payload]:
        tables, spans = number_tables(block, len(self._job.table_names)), [(0, len(block))]
        if self._by_device:
            block, order, spans = sort_by_device(block)
            tables = tables[order]
        events = list(map(Event, tables.tolist(), self._list_values(block)))
        return [
            Payload(events[start:stop], stop - start, block, stop - 1)
            for first, end in spans
            for start, stop in ((first + a, first + b) for a, b in bounds(end - first, batch or 1))
        ]

    def _list_values(self, block: EventBlock) -> Iterator[Sequence[Any]]:
        names, values = self._lean.values(block)
        keys = []
        if self._job.load.primary_key is PrimaryKey.UUID:
            keys = [[uuid.UUID(bytes=octets) for octets in values[names[0].name].tolist()]]
            names = names[1:]
        columns = list_columns(names, values, block.missing)
        for column, own in zip(names, columns, strict=True):
            if column.name in block.missing:
                own[:] = [UNSET_VALUE if value is None else value for value in own]
        return zip(*keys, *columns, strict=True)


class OfficialWriter(SessionWriter):
    """Sends what `RowsEncoder` makes, by the driver's session."""

    _prepared: Sequence[PreparedStatement]
    _profile: Any

    def _prepare(self) -> None:
        # The session's timeout is that of queries.
        self._profile = self.session.driver.execution_profile_clone_update(
            EXEC_PROFILE_DEFAULT, request_timeout=self._options.request_timeout
        )
        self._prepared = [self.session.prepare(statement) for statement in self._statements]
        self.session.expects_tables = True

    def send(self, payload: Payload) -> int:
        try:
            self._send(self.session.driver, payload.data)
        except ERRORS as error:
            raise self.session.translate(error) from error
        return payload.events

    def _send(self, driver: Session, events: Sequence[Event]) -> None:
        profile = self._profile
        profile.request_timeout = limit_wait(self._options.request_timeout)
        bound = [(self._prepared[event.table], event.values) for event in events]
        if self._options.client == EXECUTE_CONCURRENT:
            execute_concurrent(driver, bound, execution_profile=profile)
        elif self._options.mode(self._job.load.batch) is InsertMode.BATCH:
            logged = self._options.batch_type is BatchType.LOGGED
            kind = DriverBatchType.LOGGED if logged else DriverBatchType.UNLOGGED
            batch = BatchStatement(batch_type=kind)
            for statement, values in bound:
                batch.add(statement, values)
            driver.execute(batch, execution_profile=profile)
        else:
            [(statement, values)] = bound
            driver.execute(statement, values, execution_profile=profile)

    def recover(self, payload: Payload) -> bool:
        self.session.await_node()
        return False


def make_writer(module: Cassandra, batch: int) -> OfficialWriter:
    """A writer that sends as the options say."""
    options, job = module.options, module.job
    lean = module.encoder(options, job, batch)
    by_device = lean.batched and options.client != EXECUTE_CONCURRENT
    statements = lean.insert_statements(options.keyspace)
    return OfficialWriter(RowsEncoder(lean, job, by_device), statements, options, job)


class OfficialAsker(Asker):
    """Asks what `Cassandra.compile` gives by the driver's session, which several in flight share."""

    module: Cassandra

    def __init__(self, module: Cassandra, in_flight: int = 1) -> None:
        super().__init__(module, in_flight)
        self._profile: Any = None

    def open(self) -> None:
        self._profile = self.module.session.driver.execution_profile_clone_update(
            EXEC_PROFILE_DEFAULT, row_factory=named_tuple_factory
        )

    def close(self) -> None:
        """The session is the module's."""

    def recover(self) -> None:
        self.module.connection.await_node()

    def encode_statement(self, statement: Selection | Plan) -> Selection | Plan:
        return statement

    def send(self, request: Selection | Plan) -> Received:
        try:
            if isinstance(request, Selection):
                parts = self._ask(request.statement, request.parameters, may_be_late=False)
                rows = list(chain.from_iterable(part or () for part in parts))
            else:
                rows = self._carry_out(request)
        except ERRORS as error:
            raise self.module.connection.translate(error) from error
        note_arrival()
        return Received(len(rows), 0, rows)

    def _carry_out(self, plan: Plan) -> list[Row]:
        steps = self.module.begin(plan)
        try:
            step = next(steps)
            while True:
                step = steps.send(self._ask(*step))
        except StopIteration as end:
            rows: list[Row] = end.value
            return rows

    def _ask(self, statement: Statement, parameters: Sequence[Row], may_be_late: bool) -> Parts:
        """The rows of a statement with each of `parameters`; None where it is too late, if it may be."""
        driver, prepared = self.module.session.driver, self.module.session.prepare(statement.text)
        answers: list[Any]
        if len(parameters) == 1:
            try:
                answers = [driver.execute(prepared, parameters[0], execution_profile=self._profile)]
            except ERRORS as error:
                answers = [error]
        else:
            results = execute_concurrent_with_args(
                driver,
                prepared,
                parameters,
                AT_ONCE,
                raise_on_first_error=not may_be_late,
                execution_profile=self._profile,
            )
            answers = [answer.result_or_exc for answer in results]
        return [_take(answer, may_be_late) for answer in answers]

    def decode(self, received: Received) -> Rows:
        rows: Rows = received.data
        return rows


def _take(answer: Any, may_be_late: bool) -> list[Row] | None:
    """The rows that the driver has; None if it took the server too long, and may. Raises all other
    errors."""
    try:
        if isinstance(answer, Exception):
            raise answer
        # Further pages are fetched here.
        return list(answer)
    except ERRORS as error:
        if may_be_late and is_late(error):
            return None
        raise
