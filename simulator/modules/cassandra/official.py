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

import numpy as np
from cassandra.cluster import EXEC_PROFILE_DEFAULT
from cassandra.concurrent import execute_concurrent
from cassandra.query import UNSET_VALUE, BatchStatement, PreparedStatement
from cassandra.query import BatchType as DriverBatchType

from ...contract import PrimaryKey
from ...encoding.columns import bounds
from ...errors import SimulatorError
from ...workloads.events import EventBlock
from .._base.official import list_columns
from .._base.sql_queries import quote_name
from .._base.tables import number_tables
from ..base import Job
from ..sending import Encoder, Payload, Writer
from ..waiting import limit_wait
from .encoding import BatchType, CassandraEncoder
from .errors import ERRORS, translate
from .options import EXECUTE_CONCURRENT, CassandraOptions, InsertMode
from .server import ClusterSession


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
        tables = number_tables(block, len(self._job.table_names))
        order = np.argsort(block.devices, kind="stable") if self._by_device else None
        if order is not None:
            block, tables = block.choose(order), tables[order]
        events = list(map(Event, tables.tolist(), self._list_values(block)))
        return [
            Payload(events[start:stop], stop - start, block, stop - 1)
            for first, end in self._list_spans(block)
            for start, stop in ((first + a, first + b) for a, b in bounds(end - first, batch or 1))
        ]

    def _list_spans(self, block: EventBlock) -> list[tuple[int, int]]:
        """[start, end) of each device's events."""
        if not self._by_device:
            return [(0, len(block))]
        ends = [*(np.flatnonzero(block.devices[1:] != block.devices[:-1]) + 1).tolist(), len(block)]
        return list(zip([0, *ends], ends, strict=False))

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


class OfficialWriter(Writer):
    """Sends what `RowsEncoder` makes, by the driver's session."""

    def __init__(
        self, encoder: RowsEncoder, columns: Sequence[str], options: CassandraOptions, job: Job
    ) -> None:
        super().__init__(encoder)
        self.max_in_flight = options.in_flight(job.load)
        self._columns = columns
        self._options = options
        self._job = job
        self._session: ClusterSession | None = None
        self._statements: list[PreparedStatement] = []
        self._profile: Any = None

    def open(self) -> None:
        session = ClusterSession(self._options, self._job)
        self._session = session
        # Its timeout is that of queries.
        self._profile = session.driver.execution_profile_clone_update(
            EXEC_PROFILE_DEFAULT, request_timeout=self._options.request_timeout
        )
        keyspace = quote_name(self._options.keyspace)
        names = ", ".join(map(quote_name, self._columns))
        marks = ", ".join("?" for _ in self._columns)
        try:
            self._statements = [
                session.prepare(
                    f"INSERT INTO {keyspace}.{quote_name(table)} ({names}) VALUES ({marks})"
                )
                for table in self._job.table_names
            ]
        except ERRORS as error:
            # While connecting nothing is tried again.
            meaning = translate(error, self._options, self._job)
            raise SimulatorError(str(meaning)) from error
        session.expects_tables = True

    def close(self) -> None:
        if self._session is not None:
            self._session.close()
            self._session = None

    def send(self, payload: Payload) -> int:
        session = self._session
        assert session is not None
        try:
            self._send(session, payload.data)
        except ERRORS as error:
            raise session.translate(error) from error
        return payload.events

    def _send(self, session: ClusterSession, events: Sequence[Event]) -> None:
        profile = self._profile
        profile.request_timeout = limit_wait(self._options.request_timeout)
        if self._options.client == EXECUTE_CONCURRENT:
            execute_concurrent(
                session.driver,
                [(self._statements[event.table], event.values) for event in events],
                execution_profile=profile,
            )
        elif self._options.mode(self._job.load.batch) is InsertMode.BATCH:
            logged = self._options.batch_type is BatchType.LOGGED
            kind = DriverBatchType.LOGGED if logged else DriverBatchType.UNLOGGED
            batch = BatchStatement(batch_type=kind)
            for event in events:
                batch.add(self._statements[event.table], event.values)
            session.driver.execute(batch, execution_profile=profile)
        else:
            [event] = events
            session.driver.execute(
                self._statements[event.table], event.values, execution_profile=profile
            )

    def recover(self, payload: Payload) -> bool:
        assert self._session is not None
        self._session.await_node()
        return False


def make_writer(lean: CassandraEncoder, options: CassandraOptions, job: Job) -> OfficialWriter:
    """A writer by the way that the options name; `lean`: the encoder of the same requests."""
    by_device = lean.batched and options.client != EXECUTE_CONCURRENT
    return OfficialWriter(RowsEncoder(lean, job, by_device), lean.columns, options, job)
