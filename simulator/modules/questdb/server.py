"""Requests to QuestDB over HTTP, the meaning of its errors, its description, and the size on disk.

The size on disk is that of the partitions, since `table_storage()` includes the table's write-ahead log,
which is purged some time after it was applied.

https://questdb.com/docs/query/functions/meta/#table_partitions
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote_plus

import numpy as np

from ...contract import Allocation, Level, Storage
from ...encoding.columns import quote_name
from ...errors import Retryable, SimulatorError, one_line
from ..kit.exactly_once import ConnectedWriter
from ..kit.http import CONNECT_TIMEOUT_S, parse_body
from ..kit.http_answer import Answer
from ..kit.http_database import HttpDatabase
from ..kit.module import connection_lost, missing_table
from ..kit.sql_queries import quote_text
from ..sending import Request
from .encoding import PRECISION, LineFormat, QuestdbOptions

_log = logging.getLogger(__name__)

WRITE_TARGET = f"/write?precision={PRECISION}"
"""The path for lines."""
ASK_TARGET = "/exec?query="
"""The path for statements, followed by one."""
BINARY_VERSION = 2
"""The first version of the line protocol with binary floats."""

# https://questdb.com/docs/configuration/http-server/
_HEAD_BUFFER_BYTES = 64_448
_SHORT_BYTES = 1500
"""Statements up to this length are short enough for every server; and this much is left for headers."""

_APPLIED_POLL_S = 0.01

_SETTINGS = (
    "cairo.commit.mode", "cairo.o3.max.lag", "cairo.max.uncommitted.rows", "cairo.wal.max.lag.size",
    "cairo.wal.max.lag.txn.count", "cairo.wal.segment.rollover.row.count",
    "cairo.writer.data.append.page.size", "cairo.o3.partition.split.min.size", "shared.worker.count",
    "wal.apply.worker.count", "http.worker.count", "pg.worker.count", "ram.usage.limit.percent",
)  # fmt: skip

# Space that the operating system gives to files that no longer grow.
_PAGE_BYTES = 4096
_ENOUGH_PARTITIONS = 4
# With this many of a table, some fill up in a run's first half, and more in its second.
ALLOCATION = Allocation(
    unit_bytes=8 * 16 * 1024**2, cause="QuestDB allocates 16 MiB at a time for each column"
)
"""The default, https://questdb.com/docs/configuration/cairo-engine/, for a table of eight columns."""
_SOURCE = (
    "table_partitions(): files of all partitions, where rows and indexes share files; {active:,}"
    " of these bytes are in the newest partition, whose files grow by whole pages ahead of the"
    " rows; without write-ahead log and symbol tables"
)


class Connection(HttpDatabase[QuestdbOptions]):
    """Lines, and statements."""

    SYSTEM = "QuestDB"

    _most_bytes: int | None = None
    """The maximum length of an escaped statement, once known."""

    def ping(self, timeout_s: float) -> None:
        self.ask("SELECT 1", timeout_s)

    def write(self, body: bytes) -> None:
        """Send a write request; Retryable if it may be sent again."""
        self.fetch("POST", WRITE_TARGET, body, expected=(204,))

    def ask(self, statement: str, timeout_s: float | None = None) -> list[tuple[Any, ...]]:
        """All rows of a statement's answer, times in ms since 1970; Retryable or SimulatorError."""
        timeout_s = timeout_s or self.options.query_timeout_s
        target = self.target(quote_plus(statement))
        answer = self.fetch("GET", target, b"", limit_time(timeout_s), timeout_s)
        reply = self.parse(answer)
        if not isinstance(reply, dict):
            raise self.explain(answer)
        if "error" in reply:
            # An error that occurred after the first rows were sent.
            raise self.explain_refusal(one_line(reply["error"], 500))
        return read_rows(reply)

    def target(self, escaped: str) -> str:
        """The target for a statement; SimulatorError if the server would close the connection because of its
        length, without an answer."""
        if len(escaped) > _SHORT_BYTES:
            most = self._most_bytes or self._read_most_bytes()
            if len(escaped) > most:
                raise SimulatorError(
                    f"a statement has {len(escaped):,} bytes in a URL, of which {self.place} takes {most:,}:"
                    " set connection_string, so that queries don't use URLs, or raise"
                    " http.request.header.buffer.size"
                )
        return ASK_TARGET + escaped

    def _read_most_bytes(self) -> int:
        """The maximum length of an escaped statement. The server keeps it twice, raw and parsed."""
        buffer_bytes = _HEAD_BUFFER_BYTES
        try:
            [(buffer_bytes,)] = self.ask(
                "SELECT value::int FROM (SHOW PARAMETERS)"
                " WHERE property_path = 'http.request.header.buffer.size'"
            )
        except (SimulatorError, ValueError):
            _log.debug("the server doesn't tell how long requests may be")
        self._most_bytes = buffer_bytes // 2 - _SHORT_BYTES
        return self._most_bytes

    def supports(self, version: int) -> bool:
        """Whether the server accepts lines in that version of the protocol."""
        answer = self.request("GET", "/settings", timeout_s=CONNECT_TIMEOUT_S)
        settings = parse_body(answer.body)
        config = settings.get("config", {}) if isinstance(settings, dict) else {}
        return version in config.get("line.proto.support.versions", [1])

    def await_applied(self, tables: Sequence[str]) -> None:
        """Wait until everything acknowledged so far can be queried.

        Raises SimulatorError if the server has given up on a table, or takes longer than
        `database_timeout_s`.
        """
        names = ", ".join(map(quote_text, tables))
        question = (
            "SELECT name, suspended, writerTxn, sequencerTxn, errorMessage FROM wal_tables()"
            f" WHERE name IN ({names})"
        )
        deadline = time.monotonic() + self.options.database_timeout_s
        targets: dict[str, int] | None = None
        while True:
            rows = self.ask(question)
            for name, suspended, *_, reason in rows:
                if suspended:
                    raise SimulatorError(
                        f"{self.place} has suspended table {name}"
                        f" ({one_line(reason) or 'no reason given'}): its events are only in the"
                        f" log; remove the cause, then ALTER TABLE {name} RESUME WAL"
                    )
            if targets is None:
                # Others may continue to write.
                targets = {name: sequenced for name, _, _, sequenced, _ in rows}
            if all(applied >= targets.get(name, 0) for name, _, applied, _, _ in rows):
                return
            if time.monotonic() > deadline:
                raise SimulatorError(
                    f"{self.place} has not applied the log of {', '.join(tables)} after"
                    f" {self.options.database_timeout_s:g} s: see the server's log, or raise"
                    " database_timeout_s"
                )
            # The server has no event for it.
            time.sleep(_APPLIED_POLL_S)

    # --- errors -----------------------------------------------------------------------------------

    def explain(self, answer: Answer) -> Retryable | SimulatorError:
        reply, status = parse_body(answer.body), answer.status
        is_own = isinstance(reply, dict)
        reason = reply.get("error", reply.get("message", reply)) if is_own else reply
        text = one_line(reason, 500)
        if status in (401, 403, 413, 429) or status >= 500:
            kind = "unavailable" if status >= 500 else None
            return self.explain_status(answer, f"{self.place}: {status} {text}", kind)
        if status < 400 or status == 404 or not is_own:
            return SimulatorError(
                f"{self.place} answered with {status} ({text}): check that endpoint names"
                " QuestDB's HTTP server"
            )
        return self.explain_refusal(text)

    def explain_refusal(self, text: str) -> Retryable | SimulatorError:
        """What QuestDB's message about a statement means."""
        if "table does not exist" in text or "table is dropped" in text:
            return missing_table(f"{self.place}: {text}", self.job)
        if "cached query plan cannot be used" in text:
            # The table was recreated between the statement's compilation and its execution.
            return connection_lost(text)
        return SimulatorError(f"{self.place} refused a request: {text}")

    # --- the server's description -----------------------------------------------------------------

    def describe(self, table: str) -> dict[str, Any]:
        """The server's version, and settings of the server and of a table that affect a result."""
        [(build,)] = self.ask("SELECT build()")
        version = re.search(r"QuestDB [^,]+", build)
        names = ", ".join(map(quote_text, _SETTINGS))
        try:
            rows = self.ask(
                f"SELECT property_path, value FROM (SHOW PARAMETERS) WHERE property_path IN ({names})"
            )
            settings: dict[str, Any] = {str(name): value for name, value in rows}
        except SimulatorError:
            # Not every user may see them.
            settings = {"parameters": "not shown to this user"}
        tables = self.ask(
            "SELECT partitionBy, dedup, o3MaxLag, maxUncommittedRows FROM tables()"
            f" WHERE table_name = {quote_text(table)}"
        )
        for row in tables:
            names_of_table = ("partition_by", "dedup", "o3MaxLag_us", "maxUncommittedRows")
            settings |= dict(zip(names_of_table, row, strict=True))
        return {"version": version[0] if version else build, "settings": settings}

    def read_storage(self) -> Storage:
        """All partitions of the run's tables.

        Growth is taken from all but the newest partition of each table: older ones are truncated to their
        events' length. Raises SimulatorError, Retryable.
        """
        tables, plain = self.job.table_names, self.job.tags_tables
        hours = self.options.partition_by.hours
        total = newest = full_rows = full = files = rows = 0
        span_hours = 0.0
        for table in (*tables, *plain):
            partitions = self.ask(
                "SELECT active, sum(diskSize), sum(numRows), min(minTimestamp), max(maxTimestamp)"
                f" FROM table_partitions({quote_text(table)}) GROUP BY 1"
            )
            for active, size, count, first, last in partitions:
                total += int(size)
                newest += int(size) * active
                if table not in plain:
                    rows += int(count)
                    full += 0 if active else int(size)
                    full_rows += 0 if active else int(count)
                    # A partition that has just been opened has neither time (seen occasionally with 9.3.4).
                    if first is not None and last is not None:
                        span_hours += (last - first) / 3_600_000
            files += len(self.ask(f"SHOW COLUMNS FROM {quote_name(table)}"))
        if not total:
            raise SimulatorError(f"QuestDB lists no partitions of {', '.join(tables)}")
        cause = (
            f"QuestDB allocates {newest / 1e6:,.1f} MB ahead for the newest partition, so growth"
            " shows only in earlier partitions"
        )
        per_partition = round(rows / span_hours * hours) if span_hours else None
        return Storage(
            total_bytes=total,
            level=Level(size_bytes=full, events=full_rows),
            allocation=Allocation(
                unit_bytes=files * _PAGE_BYTES,
                cause=cause,
                enough_events=per_partition and _ENOUGH_PARTITIONS * per_partition * len(tables),
            ),
            source=_SOURCE.format(active=newest),
        )

    def squash_partitions(self, tables: Sequence[str]) -> None:
        """Join partitions that late events have split, remove the replaced ones, and wait for both."""
        for table in tables:
            self.ask(f"ALTER TABLE {quote_name(table)} SQUASH PARTITIONS")
        self.await_applied(tables)
        for table in tables:
            self.ask(f"VACUUM TABLE {quote_name(table)}")


def limit_time(timeout_s: float) -> dict[str, str]:
    """The header with a statement's time limit."""
    return {"statement-timeout": str(round(timeout_s * 1000))}


def read_rows(answer: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    """The rows of a statement's answer, times in ms since 1970."""
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
        # Converts texts like 2024-01-01T00:00:00.000000Z to ms since 1970.
        texts = columns[place]
        stamps = np.array([text and text[:-1] for text in texts], dtype="datetime64[ms]")
        numbers: list[int] = stamps.astype(np.int64).tolist()
        columns[place] = [
            None if text is None else number for text, number in zip(texts, numbers, strict=True)
        ]
    return list(zip(*columns, strict=True))


class LineWriter(ConnectedWriter[Connection]):
    """Sends payloads of `LineEncoder`; with several threads if several may be in flight."""

    def open(self) -> None:
        super().open()
        options = self.connection.options
        is_binary = options.line_format is LineFormat.BINARY
        if is_binary and not self.connection.supports(BINARY_VERSION):
            raise SimulatorError(
                f"QuestDB at {options.server} takes no binary lines, which need version 9: use"
                " line_format=text"
            )

    def send(self, payload: Request) -> int:
        self.connection.write(payload.data)
        return payload.events
