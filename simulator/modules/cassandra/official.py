"""The vendor's driver: `client=official` and `client=execute_concurrent`. Inserts are sent

* `official`: as prepared INSERTs, in one BatchStatement per request, with the events of one device, as on the
  lean path; or singly, with `execute`.
* `execute_concurrent`: the events of a request with `execute_concurrent_with_args`, 100 at once (its
  default).

Both query in the same way: a prepared statement with `execute`, or with `execute_concurrent_with_args` for
several rows of parameters. Rows are named tuples, the driver's default.

Missing values are UNSET_VALUE, as the driver's documentation advises: None would be a tombstone.

https://docs.datastax.com/en/developer/python-driver/latest/api/cassandra/concurrent/
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

from cassandra.cluster import EXEC_PROFILE_DEFAULT
from cassandra.concurrent import execute_concurrent, execute_concurrent_with_args
from cassandra.query import UNSET_VALUE, BatchStatement, named_tuple_factory
from cassandra.query import BatchType as DriverBatchType

from ...contract import PrimaryKey
from ...encoding.columns import bounds
from ...errors import Retryable, SimulatorError
from ...workloads.schema import EventBlock
from ..base import AnyModule
from ..kit.official import ClientAsker, OfficialWriter, list_columns
from ..kit.series import Row
from ..options import InsertMode
from ..sending import Encoder, Request, Rows, carry_out, number_tables
from ..waiting import limit_wait
from .encoding import EXECUTE_CONCURRENT, BatchType, CassandraEncoder, sort_by_device
from .queries import Parts, Plan, Selection
from .server import AT_ONCE, ERRORS, ClusterSession, is_late

if TYPE_CHECKING:
    from . import Cassandra

Event = tuple[int, Sequence[Any]]
"""The number of a table, and the values of its INSERT."""


class RowsEncoder(Encoder):
    """A payload's data: a list of `Event`, of one device unless each is sent singly."""

    overlaps = False

    def __init__(self, module: AnyModule, by_device: bool) -> None:
        super().__init__(module.job)
        lean = module.encoder(module.options, module.job)
        assert isinstance(lean, CassandraEncoder)
        self.lean = lean
        self._by_device = by_device
        self.unit_events = lean.unit_events if by_device else 0

    def encode(self, block: EventBlock) -> list[Request]:
        tables, spans = number_tables(block, len(self.job.table_names)), [(0, len(block))]
        if self._by_device:
            block, order, spans = sort_by_device(block)
            tables = tables[order]
        names, values = self.lean.values(block)
        keys = []
        if self.job.load.primary_key is PrimaryKey.UUID:
            keys = [[uuid.UUID(bytes=octets) for octets in values[names[0].name].tolist()]]
            names = names[1:]
        columns = list_columns(names, values, block.missing)
        for column, own in zip(names, columns, strict=True):
            if column.name in block.missing:
                own[:] = [UNSET_VALUE if value is None else value for value in own]
        events = list(zip(tables.tolist(), zip(*keys, *columns, strict=True), strict=True))
        return [
            Request(events[start:stop], stop - start, block, stop - 1)
            for first, end in spans
            for start, stop in ((first + a, first + b) for a, b in bounds(end - first, self.size))
        ]


class DriverWriter(OfficialWriter[ClusterSession]):
    """Sends payloads of `RowsEncoder` through the driver's session."""

    encoder: RowsEncoder

    def __init__(self, module: Cassandra) -> None:
        self._options = options = module.options
        self._is_concurrent = options.client == EXECUTE_CONCURRENT
        self._is_batch = module.mode is InsertMode.BATCH
        super().__init__(module)
        self._statements = self.encoder.lean.insert_statements(options.name_table)
        self._prepared: list[Any] = []
        self._profile: Any = None

    def make_encoder(self, module: AnyModule) -> RowsEncoder:
        return RowsEncoder(module, self._is_batch and not self._is_concurrent)

    def make_client(self) -> Any:
        session = self.connection
        # The session's timeout is for queries.
        self._profile = session.driver.execution_profile_clone_update(
            EXEC_PROFILE_DEFAULT, request_timeout=self._options.request_timeout
        )
        try:
            self._prepared = [session.prepare(statement) for statement in self._statements]
        except ERRORS as error:
            raise session.refuse(error) from error
        session.expects_tables = True
        return session.driver

    def close_client(self, client: Any) -> None:
        """The connection owns it."""

    def insert(self, data: Sequence[Event]) -> None:
        profile = self._profile
        profile.request_timeout = limit_wait(self._options.request_timeout)
        bound = [(self._prepared[table], values) for table, values in data]
        if self._is_concurrent:
            execute_concurrent(self.client, bound, execution_profile=profile)
        elif self._is_batch:
            logged = self._options.batch_type is BatchType.LOGGED
            kind = DriverBatchType.LOGGED if logged else DriverBatchType.UNLOGGED
            batch = BatchStatement(batch_type=kind)
            for statement, values in bound:
                batch.add(statement, values)
            self.client.execute(batch, execution_profile=profile)
        else:
            [(statement, values)] = bound
            self.client.execute(statement, values, execution_profile=profile)

    def explain(self, error: Exception) -> Retryable | SimulatorError | None:
        return self.connection.translate(error) if isinstance(error, ERRORS) else None

    def recover(self, payload: Request) -> bool:
        self.connection.await_node()
        return False


class DriverAsker(ClientAsker[ClusterSession]):
    """Sends the queries of `Cassandra.compile` through the driver's session, which queries in flight share,
    with the driver's default form of rows."""

    module: Cassandra

    def make_client(self) -> Any:
        return self.connection.driver.execution_profile_clone_update(
            EXEC_PROFILE_DEFAULT, row_factory=named_tuple_factory
        )

    def close_client(self, client: Any) -> None:
        """The connection owns the session."""

    def execute(self, client: Any, statement: Selection | Plan) -> Rows:
        if isinstance(statement, Plan):
            steps = self.module.begin(statement)
            return carry_out(steps, lambda step: self._ask(client, step))
        parts = self._ask(client, statement)
        return list(chain.from_iterable(part or () for part in parts))

    def explain(self, error: Exception) -> Retryable | SimulatorError | None:
        return self.connection.translate(error) if isinstance(error, ERRORS) else None

    def recover(self, request: Request) -> bool:
        self.connection.await_node()
        return False

    def _ask(self, profile: Any, step: Selection) -> Parts:
        """The rows of a statement for each row of parameters; None where the server timed out, if that is
        allowed."""
        statement, parameters, may_be_late = step
        driver, prepared = self.connection.driver, self.connection.prepare(statement.text)
        answers: list[Any]
        if len(parameters) == 1:
            try:
                answers = [driver.execute(prepared, parameters[0], execution_profile=profile)]
            except ERRORS as error:
                answers = [error]
        else:
            results = execute_concurrent_with_args(
                driver,
                prepared,
                parameters,
                AT_ONCE,
                raise_on_first_error=not may_be_late,
                execution_profile=profile,
            )
            answers = [answer.result_or_exc for answer in results]
        return [_take(answer, may_be_late) for answer in answers]


def _take(answer: Any, may_be_late: bool) -> list[Row] | None:
    """The rows that the driver has; None if the server timed out and that is allowed. Raises all other
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
