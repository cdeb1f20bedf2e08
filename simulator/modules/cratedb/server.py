"""Requests to the nodes of a CrateDB cluster, the meaning of its errors, and its writers."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import orjson

from ...encoding.columns import quote_name
from ...errors import Retryable, SimulatorError, one_line
from ..base import Job
from ..kit.exactly_once import SettlingWriter, Span, TablePart, Wanted, keep_refused
from ..kit.http import Probe, parse_body
from ..kit.http_answer import Answer
from ..kit.http_database import HttpDatabase
from ..kit.module import (
    connection_lost,
    insert_command,
    lost_table,
    missing_table,
    stored_by_earlier_run,
)
from ..options import InsertMode
from ..sending import Request
from ..waiting import limit_wait
from .encoding import CratedbOptions, Part, StatementEncoder

# https://cratedb.com/docs/crate/reference/en/latest/interfaces/http.html#error-codes
_UNKNOWN_RELATION, _UNKNOWN_SCHEMA = 4041, 4045
DUPLICATE_KEY = 4091
_UNAUTHORIZED, _TOO_LARGE, _TOO_MANY_REQUESTS = 401, 413, 429
BAD_REQUEST, SERVER_ERROR = 400, 500
_NOT_AUTHORIZED, _MISSING_PRIVILEGE = 4010, 4011
_SHARD_UNKNOWN = 4040
"""A node no longer has a shard, or not yet: `IllegalIndexShardStateException`, for one."""
_UNKNOWN_NODE = "Unknown node: "
"""Reported as a syntax error (4000) while the node hasn't learnt yet that another has left."""
# Sent by a node whose write queue is full, or that is out of memory for now.
_OVERLOADED = ("EsRejectedExecutionException", "rejected execution", "CircuitBreakingException")
# Reported as an internal error, which it isn't.
_OUT_OF_RANGE = "exceeds allowed range for column"


class Connection(HttpDatabase[CratedbOptions]):
    """Statements in, answers out.

    It doesn't use CrateDB's client: its cursors encode each value, and send a request with an unknown outcome
    to the next node; its HTTP layer takes several times the CPU of ours.
    """

    SYSTEM = "CrateDB"

    def __init__(self, options: CratedbOptions, job: Job) -> None:
        json = "application/json"
        headers = {"default-schema": options.default_schema, "accept": json, "content-type": json}
        super().__init__(options, job, headers)
        self._expects_tables = False

    def ping(self, timeout_s: float) -> None:
        self.ask("SELECT 1", timeout_s=timeout_s)

    def expect_tables(self) -> None:
        """From now on, the job's tables exist: a node that doesn't know them hasn't caught up with the
        others. That takes seconds after the node has answered `GET /` with 200 and named the master."""
        self._expects_tables = True

        def is_known(answer: Answer) -> bool:
            return answer.status < BAD_REQUEST and parse_body(answer.body)["rows"] == [[1]]

        question = {
            "stmt": "SELECT count(*) FROM information_schema.tables"
            " WHERE table_schema = ? AND table_name = ?",
            "args": [self.options.default_schema, self.job.table_names[0]],
        }
        self.probe = Probe("POST", "/_sql", orjson.dumps(question), is_known)

    def send(self, body: bytes, timeout_s: float | None = None) -> Answer:
        """The answer to a request, whatever it says. Retryable if there is none."""
        return self.request("POST", "/_sql", body, timeout_s=timeout_s)

    def ask(
        self, statement: str, values: Sequence[Any] = (), timeout_s: float | None = None
    ) -> list[tuple[Any, ...]]:
        """All rows of a statement's answer; Retryable or SimulatorError if there is none."""
        question: dict[str, Any] = {"stmt": statement}
        if values:
            question["args"] = values
        answer = self.fetch("POST", "/_sql", orjson.dumps(question), timeout_s=timeout_s)
        return [tuple(row) for row in self.parse(answer, "rows")]

    # --- errors -----------------------------------------------------------------------------------

    def explain(self, answer: Answer) -> Retryable | SimulatorError:
        return self.interpret(answer.status, parse_body(answer.body))

    def interpret(self, status: int, answer: Any) -> Retryable | SimulatorError:
        """What an error means: a whole answer, or the result for one row."""
        code, message = reason(answer)
        text = f"{self.place}: {code or status} {message}"
        if status == _UNAUTHORIZED or code == _NOT_AUTHORIZED:
            return SimulatorError(f"{text}; check {self.options.LOGIN}")
        if code == _MISSING_PRIVILEGE:
            return SimulatorError(f"{text}; as the user crate, {self._grant}")
        if code in (_UNKNOWN_RELATION, _UNKNOWN_SCHEMA):
            return self._explain_missing(text)
        if code == DUPLICATE_KEY:
            return stored_by_earlier_run(text)
        if status == _TOO_LARGE:
            return SimulatorError(f"{text}; use a smaller --batch")
        if _OUT_OF_RANGE in message:
            return SimulatorError(text)
        if status == _TOO_MANY_REQUESTS or any(sign in message for sign in _OVERLOADED):
            return Retryable("too_many_requests", text)
        # Codes from 5000 are server errors, also for a row in an answer with status 200; those of five digits
        # extend those of four. The others come while nodes leave or join.
        is_servers = status >= SERVER_ERROR or int(str(code)[:4]) >= 5000
        if is_servers or code == _SHARD_UNKNOWN or _UNKNOWN_NODE in message:
            return Retryable("unavailable", text)
        return SimulatorError(text)

    @property
    def _grant(self) -> str:
        schema, user = self.options.default_schema, self.options.user
        return f"GRANT DQL, DML, DDL ON SCHEMA {schema} TO {user}"

    def _explain_missing(self, text: str) -> Retryable | SimulatorError:
        """To a user without privileges for them, CrateDB reports tables as missing:
        https://github.com/crate/crate/pull/7182"""
        if self._expects_tables:
            return lost_table(text)
        if self._may_use_schema():
            return missing_table(text, self.job)
        return SimulatorError(
            f"{text}; the user {self.options.user} seems to have no privileges there: as the user"
            f" crate, {self._grant}; if the table is missing, run insert first"
            f" ({insert_command(self.job)})"
        )

    def _may_use_schema(self) -> bool:
        """Whether the user has privileges for any schema; False for a CrateDB before 5.0, which can't be
        asked."""
        question = "SELECT has_schema_privilege(?, 'USAGE')"
        body = {"stmt": question, "args": [self.options.default_schema]}
        try:
            answer = self.send(orjson.dumps(body))
        except Retryable:
            return False
        return answer.status == 200 and parse_body(answer.body)["rows"] == [[True]]


def count_copies(shards: Sequence[tuple[bool, int]]) -> int:
    """Copies of each row, from the numbers of primary (true) shards and replicas; 0 without a primary."""
    counts = dict(shards)
    primaries = counts.get(True, 0)
    return round(sum(counts.values()) / primaries) if primaries else 0


def reason(answer: Any) -> tuple[int, str]:
    """Code (0: none) and message of an error, or of a refused row."""
    error = answer
    if isinstance(answer, dict):
        error = answer.get("error", answer.get("error_message", answer))
    if isinstance(error, dict) and "message" in error:
        return int(error.get("code", 0)), one_line(error["message"])
    text = one_line(error, 300)
    # Older servers report a row's error only as text.
    return (DUPLICATE_KEY if "DuplicateKeyException" in text else 0), text


_JOBS_END_S = 10.0
_JOBS_POLL_S = 0.05
# The time within which a node starts on a statement that it has received.
_SETTLE_S = 1.0
_STORED = b'"rowcount":1}'


class RowWriter(SettlingWriter[Connection]):
    """Finds out the outcome of rows, however they are sent. Threads share it if several requests may be in
    flight."""

    def open(self) -> None:
        super().open()
        self.connection.expect_tables()

    def sort_out(
        self, request: TablePart, payload: Request, results: Sequence[Mapping[str, Any]]
    ) -> None:
        """Return if all rows are stored; otherwise raise the first refused row's error, with only the rows
        left in the request that may be sent again."""
        failure = keep_refused(request, payload, self._judge_rows(request, results))
        if failure is not None:
            request.doubt()
            raise failure

    def _judge_rows(
        self, request: TablePart, results: Sequence[Mapping[str, Any]]
    ) -> Iterator[Retryable | SimulatorError | None]:
        for result in results:
            code, message = reason(result)
            if result["rowcount"] == 1:
                yield None
            elif code or message:
                status = SERVER_ERROR if "error" not in result else BAD_REQUEST
                yield self.judge(request, status, result)
            else:
                yield Retryable("rows_refused", message)

    def judge(
        self, request: TablePart, status: int, answer: Any
    ) -> Retryable | SimulatorError | None:
        """The meaning of an error, of a statement or a row in it; None: the row is stored."""
        code, message = reason(answer)
        if code == DUPLICATE_KEY:
            if request.sent_before:
                return None
            if self.has_stored:
                # When the primary shard dies, a node sends its part of a request again, and meets the rows
                # that it had stored.
                return Retryable("duplicate_key", message)
        return self.connection.interpret(status, answer)

    def await_end(self, payload: Request) -> None:
        """Wait until no INSERT is running that could be the one whose answer was lost."""
        connection = self.connection
        # A node may have received it but not started. There is no event to wait for, neither for that nor for
        # the end of another connection's statement.
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
                raise connection_lost("the server is still processing the request")
            time.sleep(_JOBS_POLL_S)

    def show_events(self, request: TablePart) -> None:
        self.connection.ask(f"REFRESH TABLE {self._name_table(request)}")

    def _name_table(self, request: TablePart) -> str:
        return quote_name(self.job.table_names[request.table])

    def find(self, request: TablePart, wanted: Wanted) -> Collection[tuple[Any, ...]]:
        schema = self.job.schema
        fields = {
            name: f"{quote_name(name)}['{schema.device_path}']"
            if name == schema.device and schema.device_path
            else quote_name(name)
            for name in schema.row_key
        }
        conditions: list[str] = []
        values: list[Any] = []
        for name, sought in wanted.items():
            if isinstance(sought, Span):
                conditions.append(f"{fields[name]} BETWEEN ? AND ?")
                values += sought
            else:
                conditions.append(f"{fields[name]} = ANY(?)")
                values.append(sought)
        return self.connection.ask(
            f"SELECT {', '.join(fields.values())} FROM {self._name_table(request)}"
            f" WHERE {' AND '.join(conditions)}",
            values,
        )


class CratedbWriter(RowWriter):
    """Sends payloads of `StatementEncoder`."""

    encoder: StatementEncoder

    def send_request(self, request: Part, payload: Request) -> None:
        try:
            answer = self.connection.send(request.body)
        except Retryable:
            request.doubt()
            raise
        status, body = answer.status, answer.body
        if status >= BAD_REQUEST:
            problem = parse_body(body)
            meaning = self.judge(request, status, problem)
            if meaning is None and len(request.rows) == 1:
                return
            # Overload, too, may be reported after some rows were stored.
            request.doubt()
            raise meaning or Retryable("duplicate_key", reason(problem)[1])
        if self.encoder.mode is InsertMode.BULK:
            if body.count(_STORED) != len(request.rows):
                self.sort_out(request, payload, parse_body(body)["results"])
        elif (stored := parse_body(body)["rowcount"]) != len(request.rows):
            request.doubt()
            raise Retryable(
                "rows_refused", f"CrateDB stored {stored} of a request's {len(request.rows)} rows"
            )
