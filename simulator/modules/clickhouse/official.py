"""Inserts by clickhouse-connect, as its documentation has it for many into one table: `client=official`.

One `insert` with an InsertContext for each request, with the client's defaults: rows of Python values, of
which it makes the Native format, compressed by LZ4. It sends a request again by itself when a connection
ends; here the loop does, and counts it, so the client is given a pool that says of no failure that it was
that. Tokens are those of the lean path.

https://clickhouse.com/docs/integrations/language-clients/python/advanced-inserting
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from ...encoding.columns import bounds
from ...errors import Retryable, one_line
from ...workloads.events import EventBlock
from .._base.errors import connection_lost, unreachable
from .._base.http import CONNECT_TIMEOUT_S, Answer
from .._base.official import OfficialEncoder, list_rows
from .._base.tables import deal_block
from ..base import Job
from ..sending import Payload, Writer
from ..waiting import limit_wait
from .encoding import sent_columns
from .options import ClickhouseOptions
from .server import Connection

if TYPE_CHECKING:
    from clickhouse_connect.driver.client import Client
    from urllib3 import PoolManager


@dataclass(slots=True)
class Rows:
    """What one table gets of a request."""

    table: int
    rows: list[tuple[Any, ...]]
    token: str
    is_stored: bool = False


class RowsEncoder(OfficialEncoder):
    """A payload's data: a list of `Rows`."""

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        self._prefix = f"{uuid.uuid4().hex}-"
        self._numbers = count()

    def _requests(self, block: EventBlock, size: int) -> Sequence[list[Rows]]:
        tables = len(self._job.table_names)
        return [
            [
                Rows(
                    share.table, list_rows(part, self._job), f"{self._prefix}{next(self._numbers)}"
                )
                for share, part in deal_block(block.part(start, stop), tables)
            ]
            for start, stop in bounds(len(block), size)
        ]


class OfficialWriter(Writer):
    """Sends what `RowsEncoder` makes by a client."""

    def __init__(self, options: ClickhouseOptions, job: Job) -> None:
        super().__init__(RowsEncoder(job))
        self._options = options
        self._job = job
        self._connection: Connection | None = None
        """Tells what an error means."""
        self._pool: PoolManager | None = None
        self._client: Client | None = None
        self._contexts: dict[int, Any] = {}
        """Of each table."""

    def open(self) -> None:
        connection = Connection(self._options, self._job)
        connection.check()
        self._connection = connection
        try:
            self._pool = _make_pool(self._options, connection)
            self._client = _connect(self._options, self._job, self._pool)
        except Retryable as error:
            raise unreachable("ClickHouse", error) from error

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None
        if self._pool is not None:
            self._pool.clear()
            self._pool = None
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def send(self, payload: Payload) -> int:
        assert self._client is not None
        for part in payload.data:
            if not part.is_stored:
                context = self._contexts.get(part.table) or self._make_context(part.table)
                context.settings["insert_deduplication_token"] = part.token
                self._client.insert(context=context, data=part.rows)
                part.is_stored = True
        return payload.events

    def _make_context(self, table: int) -> Any:
        assert self._client is not None
        assert self._connection is not None
        job = self._job
        context = self._client.create_insert_context(
            job.table_names[table],
            sent_columns(job.schema, job.load.primary_key),
            settings=dict(self._connection.insert_settings),
        )
        self._contexts[table] = context
        return context


def _make_pool(options: ClickhouseOptions, connection: Connection) -> PoolManager:
    """What the client sends requests by."""
    import urllib3
    from urllib3.exceptions import HTTPError, ReadTimeoutError

    class Pool(urllib3.PoolManager):
        """Tells what failures mean in the tool's words, which the client leaves alone."""

        def request(self, *args: Any, **kwargs: Any) -> Any:
            kwargs["timeout"] = urllib3.Timeout(
                connect=CONNECT_TIMEOUT_S, read=limit_wait(options.request_timeout_s)
            )
            try:
                answer = super().request(*args, **kwargs)
            except ReadTimeoutError as error:
                raise Retryable("timeout", f"{options.server}: {one_line(error)}") from error
            except HTTPError as error:
                raise connection_lost(f"{options.server}: {one_line(error)}") from error
            if answer.status != 200:
                headers = [
                    (name.encode(), value.encode()) for name, value in answer.headers.items()
                ]
                raise connection.explain(Answer(answer.status, answer.data, headers))
            return answer

    return Pool(ssl_context=options.make_tls_context())


def _connect(options: ClickhouseOptions, job: Job, pool: PoolManager) -> Client:
    """A client of the first node. Raises Retryable or SimulatorError."""
    import clickhouse_connect

    parts = urlsplit(options.endpoint[0])
    return clickhouse_connect.get_client(
        interface=parts.scheme,
        host=parts.hostname,
        port=parts.port or options.DEFAULT_PORT,
        username=options.user,
        password=options.password or "",
        database=options.database,
        proxy_path=parts.path,
        client_name=f"iot-benchmark {job.run_id}",
        send_receive_timeout=round(options.request_timeout_s) or 1,
        pool_mgr=pool,
    )


def make_writer(options: ClickhouseOptions, job: Job) -> OfficialWriter:
    """A writer by the vendor's client."""
    return OfficialWriter(options, job)
