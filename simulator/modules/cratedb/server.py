"""Requests to the nodes of a CrateDB, what its errors mean, what it tells of itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson

from ...errors import Retryable, SimulatorError, one_line
from .._base.errors import insert_command, lost_table, missing_table, stored_by_earlier_run
from .._base.http import (
    Answer,
    HttpPool,
    NoAnswer,
    Probe,
    basic_auth,
    interpret_no_answer,
    parse_body,
)
from .._base.options import TRUST_REMEDY
from ..base import Job
from .options import CratedbOptions

_CONNECT_S = 5.0

# https://cratedb.com/docs/crate/reference/en/latest/interfaces/http.html#error-codes
_UNKNOWN_RELATION, _UNKNOWN_SCHEMA = 4041, 4045
DUPLICATE_KEY = 4091
_UNAUTHORIZED, _TOO_LARGE, _TOO_MANY_REQUESTS = 401, 413, 429
BAD_REQUEST, SERVER_ERROR = 400, 500
_NOT_AUTHORIZED, _MISSING_PRIVILEGE = 4010, 4011
_SHARD_UNKNOWN = 4040
"""Of a shard that a node has no longer, or not yet: `IllegalIndexShardStateException`, for one."""
_UNKNOWN_NODE = "Unknown node: "
"""Comes as a syntax error (4000) while the node that was asked doesn't know yet that another has left."""
# What a node says whose queue of writes is full, or that is out of memory for now.
_OVERLOADED = ("EsRejectedExecutionException", "rejected execution", "CircuitBreakingException")
# Comes as an internal error, which it is not.
_OUT_OF_RANGE = "exceeds allowed range for column"


class Connection:
    """The nodes in turn: requests in, answers out, errors translated.

    Not by CrateDB's client: its cursors encode each value, and send a request whose fate is unknown to
    the next node; the HTTP layer below them takes several times the CPU of ours.
    """

    def __init__(self, options: CratedbOptions, job: Job) -> None:
        """Connects to nothing yet.

        Raises SimulatorError if `ca_certs`, or a header, can't be used.
        """
        self._options = options
        self._job = job
        self._expects_tables = False
        headers = {
            "user-agent": f"iot-benchmark {job.run_id}",
            "authorization": basic_auth(options.user, options.password or ""),
            "default-schema": options.default_schema,
            "accept": "application/json",
            "content-type": "application/json",
        }
        self._pool = HttpPool(
            options.endpoint,
            options.DEFAULT_PORT,
            headers,
            options.request_timeout_s,
            options.make_tls_context(),
            job.stamps_arrivals,
        )

    def check(self) -> None:
        """Connect to all nodes; SimulatorError with a remedy if none lets us in."""
        failure: Retryable | None = None
        failures = 0
        for _ in self._options.endpoint:
            try:
                self.ask("SELECT 1", timeout_s=min(_CONNECT_S, self._options.request_timeout_s))
            except Retryable as error:
                failure = error
                failures += 1
        if failures == len(self._options.endpoint):
            raise SimulatorError(
                f"can't connect to CrateDB at {failure}; check that the server runs and that"
                " endpoint names it"
            ) from failure

    def expect_tables(self) -> None:
        """From now on the job's tables are there: a node that doesn't know them has not yet taken over what
        the others know. That takes seconds after it has answered `GET /` with 200, and named the master."""
        self._expects_tables = True
        question = {
            "stmt": "SELECT count(*) FROM information_schema.tables"
            " WHERE table_schema = ? AND table_name = ?",
            "args": [self._options.default_schema, self._job.table_names[0]],
        }
        self._pool.probe = Probe("POST", "/_sql", orjson.dumps(question), _is_known)

    def close(self) -> None:
        """Close all connections."""
        self._pool.close()

    def send(self, body: bytes, timeout_s: float | None = None) -> tuple[int, bytes]:
        """A request: the answer's status and body, whatever they are; Retryable if there is none."""
        try:
            answer = self._pool.request("POST", "/_sql", body, timeout_s=timeout_s)
        except NoAnswer as error:
            raise interpret_no_answer(
                error, "CrateDB", self._options.server, TRUST_REMEDY
            ) from error
        return answer.status, answer.body

    def ask(
        self, statement: str, values: Sequence[Any] = (), timeout_s: float | None = None
    ) -> list[tuple[Any, ...]]:
        """All rows of a statement's answer; Retryable or SimulatorError if there is none."""
        question: dict[str, Any] = {"stmt": statement}
        if values:
            question["args"] = values
        status, body = self.send(orjson.dumps(question), timeout_s)
        answer = parse_body(body)
        if status >= BAD_REQUEST:
            raise self.explain(status, answer)
        return [tuple(row) for row in answer["rows"]]

    def store_missing(self, body: bytes) -> None:
        """Store rows by bulk arguments, but for those that are there; Retryable or SimulatorError if one
        isn't stored for another reason."""
        status, content = self.send(body)
        answer = parse_body(content)
        if status >= BAD_REQUEST:
            raise self.explain(status, answer)
        for result in answer["results"]:
            code, _ = reason(result)
            if result["rowcount"] < 0 and code != DUPLICATE_KEY:
                raise self.explain(SERVER_ERROR, result)

    def explain(self, status: int, answer: Any) -> Retryable | SimulatorError:
        """What an answer, or one row's result in it, means that is an error."""
        code, message = reason(answer)
        text = f"CrateDB at {self._options.server}: {code or status} {message}"
        if status == _UNAUTHORIZED or code == _NOT_AUTHORIZED:
            return SimulatorError(f"{text}; check user and password")
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
        if status >= SERVER_ERROR or _comes_of_a_change(code, message):
            return Retryable("unavailable", text)
        return SimulatorError(text)

    @property
    def _grant(self) -> str:
        schema, user = self._options.default_schema, self._options.user
        return f"GRANT DQL, DML, DDL ON SCHEMA {schema} TO {user}"

    def _explain_missing(self, text: str) -> Retryable | SimulatorError:
        """Of tables that its user may not use, CrateDB says that there are none:
        https://github.com/crate/crate/pull/7182"""
        if self._expects_tables:
            return lost_table(text)
        if self._may_use_schema():
            return missing_table(text, self._job)
        return SimulatorError(
            f"{text}; the user {self._options.user} has no privileges there, as far as one can see: as"
            f" the user crate, {self._grant}; if there is no table, run insert first"
            f" ({insert_command(self._job)})"
        )

    def _may_use_schema(self) -> bool:
        """Whether there is a schema that the user has privileges on; False from a CrateDB before 5.0,
        which can't be asked."""
        question = "SELECT has_schema_privilege(?, 'USAGE')"
        body = {"stmt": question, "args": [self._options.default_schema]}
        try:
            status, answer = self.send(orjson.dumps(body))
        except Retryable:
            return False
        return status < BAD_REQUEST and parse_body(answer)["rows"] == [[True]]

    def lists_jobs(self) -> bool:
        """Whether the server keeps the list of running statements (stats.enabled): the question
        would be on it."""
        return self.ask("SELECT count(*) FROM sys.jobs") != [(0,)]


def _comes_of_a_change(code: int, message: str) -> bool:
    """Whether an error can come of nodes that leave or join. 5000 and more are CrateDB's codes of server
    errors, also of a row in an answer with status 200; codes of five digits extend those of four."""
    kind = int(str(code)[:4])
    return kind >= 5000 or code == _SHARD_UNKNOWN or _UNKNOWN_NODE in message


def _is_known(answer: Answer) -> bool:
    """Whether the answer to the probe counts the table."""
    return answer.status < BAD_REQUEST and parse_body(answer.body)["rows"] == [[1]]


def reason(answer: Any) -> tuple[int, str]:
    """Code (0: none) and message of an error, or of a row that was refused."""
    error = answer
    if isinstance(answer, dict):
        error = answer.get("error", answer.get("error_message", answer))
    if isinstance(error, dict) and "message" in error:
        return int(error.get("code", 0)), one_line(error["message"])
    text = one_line(error, 300)
    # Older servers give a row's error as text alone.
    return (DUPLICATE_KEY if "DuplicateKeyException" in text else 0), text


def describe(connection: Connection, schema: str, table: str) -> dict[str, Any]:
    """Version and number of the nodes, and the settings of a table that change a result."""
    nodes = connection.ask("SELECT version['number'] FROM sys.nodes ORDER BY 1")
    settings: dict[str, Any] = {"nodes": len(nodes)}
    found = connection.ask(
        "SELECT number_of_shards, number_of_replicas, settings['refresh_interval'],"
        " settings['translog']['durability'], settings['translog']['sync_interval'],"
        " settings['codec'] FROM information_schema.tables"
        " WHERE table_schema = ? AND table_name = ?",
        [schema, table],
    )
    names = (
        "number_of_shards", "number_of_replicas", "refresh_interval", "translog.durability",
        "translog.sync_interval", "codec",
    )  # fmt: skip
    for row in found:
        settings |= dict(zip(names, row, strict=True))
    return {"version": f"CrateDB {nodes[0][0]}", "settings": settings}
