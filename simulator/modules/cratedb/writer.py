"""Sends statements, and finds out what became of one whose answer never came."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ...errors import Retryable, SimulatorError
from .._base.errors import connection_lost
from .._base.exactly_once import Span, Wanted, find_missing, keep_refused, settle
from .._base.http import parse_body
from .._base.sql_queries import quote_name
from ..base import Job
from ..sending import Encoder, Payload, Writer
from ..waiting import limit_wait
from .encoding import InsertMode, Part, StatementEncoder, TablePart
from .options import CratedbOptions
from .server import BAD_REQUEST, DUPLICATE_KEY, SERVER_ERROR, Connection, reason

_JOBS_END_S = 10.0
_JOBS_POLL_S = 0.05
# How soon a node begins with a statement that it has received.
_SETTLE_S = 1.0
_STORED = b'"rowcount":1}'


class RowWriter(Writer, ABC):
    """Knows what became of rows, however they are sent: a payload's data are requests with a `table`. Several
    threads share it if several may be in flight."""

    def __init__(self, encoder: Encoder, options: CratedbOptions, job: Job) -> None:
        super().__init__(encoder)
        self.max_in_flight = options.in_flight(job.load)
        self._options = options
        self._job = job
        self._connection: Connection | None = None
        self._has_stored = False
        """Whether an event of this writer has been acknowledged."""

    def open(self) -> None:
        connection = Connection(self._options, self._job)
        connection.check()
        connection.expect_tables()
        self._connection = connection

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def send(self, payload: Payload) -> int:
        if any(part.in_doubt for part in payload.data) and self.settle(payload):
            return payload.events
        for part in payload.data:
            if part.rows:
                self._send_part(part, payload)
        self._has_stored = True
        return payload.events

    @abstractmethod
    def _send_part(self, part: Any, payload: Payload) -> None:
        """Until all its rows are stored, or the first one's error."""

    def _sort_out(
        self, part: TablePart, payload: Payload, results: Sequence[Mapping[str, Any]]
    ) -> None:
        """Nothing, if all rows are stored; else the first refused one's error, with only those that
        may be sent again left in the part."""
        failure = keep_refused(part, payload, self._judge_rows(part, results))
        if failure is not None:
            part.doubt()
            raise failure

    def _judge_rows(
        self, part: TablePart, results: Sequence[Mapping[str, Any]]
    ) -> Iterator[Retryable | SimulatorError | None]:
        for result in results:
            code, message = reason(result)
            if result["rowcount"] == 1:
                yield None
            elif code or message:
                status = SERVER_ERROR if "error" not in result else BAD_REQUEST
                yield self._judge(part, status, result)
            else:
                yield Retryable("rows_refused", message)

    def _judge(
        self, part: TablePart, status: int, answer: Any
    ) -> Retryable | SimulatorError | None:
        """What an error, of a statement or of a row in it, means; None: the row is stored."""
        assert self._connection is not None
        code, message = reason(answer)
        if code == DUPLICATE_KEY:
            if part.sent_before:
                return None
            if self._has_stored:
                # A node sends its part of a request again when the primary shard dies, and meets
                # what that had stored.
                return Retryable("duplicate_key", message)
        return self._connection.explain(status, answer)

    def settle(self, payload: Payload) -> bool:
        """Find out what is stored of parts in doubt; whether nothing of them is left to be sent."""
        self._await_jobs()
        return settle(payload.data, payload, lambda part: self._find_missing(part, payload))

    def _await_jobs(self) -> None:
        """Wait until no INSERT runs that can be the one whose answer was lost."""
        connection = self._connection
        assert connection is not None
        # A node may have received it and not begun with it. There is no event to wait for, neither
        # for that nor for the end of another connection's statement.
        time.sleep(_SETTLE_S)
        [(now,)] = connection.ask("SELECT CURRENT_TIMESTAMP")
        deadline = time.monotonic() + limit_wait(_JOBS_END_S)
        while True:
            [(running,)] = connection.ask(
                "SELECT count(*) FROM sys.jobs WHERE stmt LIKE 'INSERT INTO%' AND started <= ?",
                [now],
            )
            if not running:
                return
            if time.monotonic() > deadline:
                raise connection_lost("the server is still at work on the request")
            time.sleep(_JOBS_POLL_S)

    def _find_missing(self, part: TablePart, payload: Payload) -> list[int]:
        """The positions of the part's rows that aren't stored."""
        connection, schema = self._connection, self._job.schema
        assert connection is not None
        table = quote_name(self._job.table_names[part.table])
        connection.ask(f"REFRESH TABLE {table}")
        fields = {
            name: f"{quote_name(name)}['{schema.device_path}']"
            if name == schema.device and schema.device_path
            else quote_name(name)
            for name in schema.row_key
        }

        def find(wanted: Wanted) -> list[tuple[Any, ...]]:
            conditions: list[str] = []
            values: list[Any] = []
            for name, sought in wanted.items():
                if isinstance(sought, Span):
                    conditions.append(f"{fields[name]} BETWEEN ? AND ?")
                    values += sought
                else:
                    conditions.append(f"{fields[name]} = ANY(?)")
                    values.append(sought)
            return connection.ask(
                f"SELECT {', '.join(fields.values())} FROM {table}"
                f" WHERE {' AND '.join(conditions)}",
                values,
            )

        return find_missing(part, payload, find)


class CratedbWriter(RowWriter):
    """Sends payloads of `StatementEncoder`."""

    encoder: StatementEncoder

    def _send_part(self, part: Part, payload: Payload) -> None:
        """Until all its rows are stored, or the first one's error."""
        connection = self._connection
        assert connection is not None
        try:
            status, body = connection.send(part.body)
        except Retryable:
            part.doubt()
            raise
        if status >= BAD_REQUEST:
            answer = parse_body(body)
            meaning = self._judge(part, status, answer)
            if meaning is None and len(part.rows) == 1:
                part.rows = ()
                return
            # Overload, too, may have come after a part of the rows was stored.
            part.doubt()
            raise meaning or Retryable("duplicate_key", reason(answer)[1])
        if self.encoder.mode is InsertMode.BULK:
            if body.count(_STORED) != len(part.rows):
                self._sort_out(part, payload, parse_body(body)["results"])
        elif (stored := parse_body(body)["rowcount"]) != len(part.rows):
            part.doubt()
            raise Retryable(
                "rows_refused", f"CrateDB stored {stored} of a request's {len(part.rows)} rows"
            )
        part.rows = ()
