"""Requests to QuestDB over HTTP: what its errors mean, and what it tells of itself."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlencode

import numpy as np

from ...errors import Retryable, SimulatorError, one_line
from .._base.errors import connection_lost, missing_table, unreachable
from .._base.http import (
    CONNECT_TIMEOUT_S,
    Answer,
    HttpPool,
    NoAnswer,
    basic_auth,
    interpret_no_answer,
    parse_body,
)
from .._base.options import TRUST_REMEDY
from .._base.sql_queries import quote_text
from ..base import Job
from .lines import PRECISION
from .options import QuestdbOptions

WRITE_TARGET = f"/write?precision={PRECISION}"
"""Where lines are posted to."""
BINARY_VERSION = 2
"""Of the line protocol: the first with binary floats."""

_APPLIED_POLL_S = 0.01

_SETTINGS = (
    "cairo.commit.mode", "cairo.o3.max.lag", "cairo.max.uncommitted.rows", "cairo.wal.max.lag.size",
    "cairo.wal.max.lag.txn.count", "cairo.wal.segment.rollover.row.count",
    "cairo.writer.data.append.page.size", "cairo.o3.partition.split.min.size", "shared.worker.count",
    "wal.apply.worker.count", "http.worker.count", "pg.worker.count", "ram.usage.limit.percent",
)  # fmt: skip


class Connection:
    """Requests in, answers out, errors translated."""

    def __init__(self, options: QuestdbOptions, job: Job) -> None:
        """Connects to nothing yet. SimulatorError if `ca_certs`, or a header, can't be used."""
        self._options = options
        self._job = job
        headers = {"user-agent": f"iot-benchmark {job.run_id}"}
        if options.token is not None:
            headers["authorization"] = f"Bearer {options.token}"
        elif options.username is not None:
            headers["authorization"] = basic_auth(options.username, options.password or "")
        self._pool = HttpPool(
            options.endpoint,
            options.DEFAULT_PORT,
            headers,
            options.request_timeout_s,
            options.make_tls_context(),
            job.stamps_arrivals,
        )

    def check(self) -> None:
        """Connect; SimulatorError with a remedy if that fails."""
        try:
            self.ask("SELECT 1", min(CONNECT_TIMEOUT_S, self._options.request_timeout_s))
        except Retryable as error:
            raise unreachable("QuestDB", error) from error

    def close(self) -> None:
        """Close all connections."""
        self._pool.close()

    def write(self, body: bytes) -> None:
        """One write request; Retryable if it may be sent again."""
        answer = self._request("POST", WRITE_TARGET, body)
        if answer.status != 204:
            raise self._explain(answer)

    def ask(self, statement: str, timeout_s: float | None = None) -> list[tuple[Any, ...]]:
        """All rows of a statement's answer, times in ms since 1970; Retryable or SimulatorError."""
        timeout_s = timeout_s or self._options.query_timeout_s
        target = f"/exec?{urlencode({'query': statement})}"
        limits = {"statement-timeout": str(round(timeout_s * 1000))}
        answer = self._request("GET", target, b"", limits, timeout_s)
        if answer.status >= 300:
            raise self._explain(answer)
        found = parse_body(answer.body)
        if not isinstance(found, dict):
            raise self._explain(answer)
        if "error" in found:
            # It came up when the first rows were on the way.
            raise self._explain_refusal(one_line(found["error"]))
        return _read_rows(found)

    def supports(self, version: int) -> bool:
        """Whether the server takes lines of that version of the protocol."""
        answer = self._request("GET", "/settings", b"", timeout_s=CONNECT_TIMEOUT_S)
        found = parse_body(answer.body)
        config = found.get("config", {}) if isinstance(found, dict) else {}
        return version in config.get("line.proto.support.versions", [1])

    def await_applied(self, tables: Sequence[str]) -> None:
        """Wait until all that was acknowledged so far can be queried.

        Raises SimulatorError if the server has given up on a table, or takes longer than
        `database_timeout_s`.
        """
        names = ", ".join(map(quote_text, tables))
        question = (
            "SELECT name, suspended, writerTxn, sequencerTxn, errorMessage FROM wal_tables()"
            f" WHERE name IN ({names})"
        )
        deadline = time.monotonic() + self._options.database_timeout_s
        targets: dict[str, int] | None = None
        while True:
            found = self.ask(question)
            for name, suspended, *_, reason in found:
                if suspended:
                    raise SimulatorError(
                        f"QuestDB at {self._options.server} has suspended table {name}"
                        f" ({one_line(reason) or 'it does not say why'}): events are in its log alone;"
                        f" remove the cause, and ALTER TABLE {name} RESUME WAL"
                    )
            if targets is None:
                # Others may go on writing.
                targets = {name: sequenced for name, _, _, sequenced, _ in found}
            if all(applied >= targets.get(name, 0) for name, _, applied, _, _ in found):
                return
            if time.monotonic() > deadline:
                raise SimulatorError(
                    f"QuestDB at {self._options.server} has not applied the log of"
                    f" {', '.join(tables)} after {self._options.database_timeout_s:g} s: see its own"
                    " log, or give it more by database_timeout_s"
                )
            # The server has no event for it.
            time.sleep(_APPLIED_POLL_S)

    def _request(
        self,
        method: str,
        target: str,
        body: bytes,
        headers: dict[str, str] | None = None,
        timeout_s: float | None = None,
    ) -> Answer:
        try:
            return self._pool.request(method, target, body, headers, timeout_s)
        except NoAnswer as error:
            raise interpret_no_answer(
                error, "QuestDB", self._options.server, TRUST_REMEDY
            ) from error

    def _explain(self, answer: Answer) -> Retryable | SimulatorError:
        """What an answer means that is no success."""
        found = parse_body(answer.body)
        said = found.get("error", found.get("message", found)) if isinstance(found, dict) else found
        text = one_line(said, 500)
        where = f"QuestDB at {self._options.server}"
        status = answer.status
        if status in (401, 403):
            return SimulatorError(
                f"{where} refused the login ({text}): check username and password, or token"
            )
        if status == 413:
            return SimulatorError(f"{where}: {text}; use a smaller --batch")
        if status == 429:
            return Retryable("too_many_requests", f"{status}: {text}")
        if status >= 500:
            return Retryable("unavailable", f"{status}: {text}")
        if status < 400 or status == 404 or not isinstance(found, dict):
            return SimulatorError(
                f"{where} answered by {status} ({text}): check that endpoint names QuestDB's HTTP server"
            )
        return self._explain_refusal(text)

    def _explain_refusal(self, text: str) -> Retryable | SimulatorError:
        where = f"QuestDB at {self._options.server}"
        if "table does not exist" in text or "table is dropped" in text:
            return missing_table(f"{where}: {text}", self._job)
        if "cached query plan cannot be used" in text:
            # The table was made anew between the statement's compilation and its execution.
            return connection_lost(text)
        return SimulatorError(f"{where} refused a request: {text}")


def connect(options: QuestdbOptions, job: Job) -> Connection:
    """A connection to a server that has let us in; SimulatorError with its name and a remedy if not."""
    connection = Connection(options, job)
    try:
        connection.check()
    except SimulatorError:
        connection.close()
        raise
    return connection


def _read_rows(answer: dict[str, Any]) -> list[tuple[Any, ...]]:
    rows = answer.get("dataset", [])
    times = [
        place
        for place, column in enumerate(answer.get("columns", []))
        if column["type"] in ("TIMESTAMP", "TIMESTAMP_NS")
    ]
    if not times or not rows:
        return list(map(tuple, rows))
    columns: list[Sequence[Any]] = list(zip(*rows, strict=True))
    for place in times:
        columns[place] = _read_times(columns[place])
    return list(zip(*columns, strict=True))


def _read_times(texts: Sequence[str | None]) -> list[int | None]:
    """Texts like 2024-01-01T00:00:00.000000Z in ms since 1970."""
    stamps = np.array([text and text[:-1] for text in texts], dtype="datetime64[ms]")
    numbers: list[int] = stamps.astype(np.int64).tolist()
    return [None if text is None else number for text, number in zip(texts, numbers, strict=True)]


def describe(connection: Connection, table: str) -> dict[str, Any]:
    """The server's version, and settings of it and of a table that change a result."""
    [(build,)] = connection.ask("SELECT build()")
    version = re.search(r"QuestDB [^,]+", build)
    names = ", ".join(map(quote_text, _SETTINGS))
    try:
        rows = connection.ask(
            f"SELECT property_path, value FROM (SHOW PARAMETERS) WHERE property_path IN ({names})"
        )
        settings: dict[str, Any] = {str(name): value for name, value in rows}
    except SimulatorError:
        # Not everybody may see them.
        settings = {"parameters": "not shown to this user"}
    found = connection.ask(
        "SELECT partitionBy, dedup, o3MaxLag, maxUncommittedRows FROM tables()"
        f" WHERE table_name = {quote_text(table)}"
    )
    for row in found:
        names_of_table = ("partition_by", "dedup", "o3MaxLag_us", "maxUncommittedRows")
        settings |= dict(zip(names_of_table, row, strict=True))
    return {"version": version[0] if version else build, "settings": settings}
