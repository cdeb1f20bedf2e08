"""Inserts by the vendor's driver: `client=official` and `client=execute_concurrent`.

* `official`: prepared INSERTs, in a BatchStatement for each request, whose events are of one device, as the
  lean path's; or alone, by `execute`.
* `execute_concurrent`: the events of a request by `execute_concurrent_with_args`, 100 at once (its default).

Values that are missing are UNSET_VALUE, as the driver's documentation advises: None would be a tombstone.

https://docs.datastax.com/en/developer/python-driver/latest/api/cassandra/concurrent/
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from cassandra.cluster import EXEC_PROFILE_DEFAULT, Session
from cassandra.concurrent import execute_concurrent
from cassandra.query import UNSET_VALUE, BatchStatement, PreparedStatement
from cassandra.query import BatchType as DriverBatchType

from ...contract import PrimaryKey
from ...encoding.columns import bounds
from ...workloads.schema import EventBlock
from .._base.official import list_columns
from .._base.tables import number_tables
from ..base import Job
from ..sending import Encoder, Payload, limit_wait
from .encoding import BatchType, CassandraEncoder, sort_by_device
from .options import EXECUTE_CONCURRENT, CassandraOptions, InsertMode
from .server import ERRORS
from .writer import SessionWriter


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
        # Its timeout is that of queries.
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


def make_writer(lean: CassandraEncoder, options: CassandraOptions, job: Job) -> OfficialWriter:
    """A writer by the way that the options name; `lean`: the encoder of the same requests."""
    by_device = lean.batched and options.client != EXECUTE_CONCURRENT
    statements = lean.insert_statements(options.keyspace)
    return OfficialWriter(RowsEncoder(lean, job, by_device), statements, options, job)
