"""Inserts by CrateDB's client `crate`: `executemany` and `execute` of a cursor.

It compresses bodies from 8 kB on (its default). Its errors have no codes, so what they mean is read from
their texts. A request whose connection was reset, and with several endpoints any whose answer never came, it
sends again by itself: with a key of the client the second copy is refused and looked up; without one rows may
be stored twice, which the count after the run shows.

https://cratedb.com/docs/python/en/latest/query.html
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from ...contract import PrimaryKey
from ...encoding.columns import KEY_COLUMN, bounds, client_keys
from ...workloads.events import EventBlock
from .._base.errors import connection_lost
from .._base.official import OfficialEncoder, list_columns
from .._base.sql_queries import quote_name
from .._base.tables import deal_block
from ..base import Job
from ..sending import Payload
from ..waiting import limit_wait
from .encoding import InsertMode, TablePart, is_object
from .options import CratedbOptions
from .server import BAD_REQUEST, SERVER_ERROR
from .writer import RowWriter


@dataclass(slots=True)
class RowsPart(TablePart):
    """The values of one statement: a list for each event."""

    values: Sequence[Sequence[Any]]

    def cut(self, positions: Sequence[int], payload: Payload) -> None:
        self.values = [self.values[position] for position in positions]


class RowsEncoder(OfficialEncoder):
    """A payload's data: a list of `RowsPart`, one for each table."""

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        self._has_key = job.load.primary_key is PrimaryKey.CLIENT

    @property
    def columns(self) -> list[str]:
        """The columns of the INSERT, in order."""
        names = [column.name for column in self._job.schema.row]
        return [KEY_COLUMN, *names] if self._has_key else names

    def _requests(self, block: EventBlock, size: int) -> list[list[RowsPart]]:
        return [self._deal(block.part(*span)) for span in bounds(len(block), size)]

    def _deal(self, block: EventBlock) -> list[RowsPart]:
        return [
            RowsPart(share.rows, self._list_rows(part), table=share.table)
            for share, part in deal_block(block, len(self._job.table_names))
        ]

    def _list_rows(self, block: EventBlock) -> list[tuple[Any, ...]]:
        schema = block.schema
        columns = list_columns(schema.row, block.row_columns, block.missing)
        for column, values in zip(schema.row, columns, strict=True):
            if is_object(schema, column):
                values[:] = map(orjson.loads, values)
        if self._has_key:
            columns.insert(0, [key.decode() for key in client_keys(block).tolist()])
        return list(zip(*columns, strict=True))


class OfficialWriter(RowWriter):
    """Sends payloads of `RowsEncoder` by cursors of the client."""

    def __init__(
        self, encoder: RowsEncoder, options: CratedbOptions, job: Job, mode: InsertMode
    ) -> None:
        super().__init__(encoder, options, job)
        self._mode = mode
        names = ", ".join(map(quote_name, encoder.columns))
        marks = ", ".join("?" * len(encoder.columns))
        values = f"VALUES ({marks})"
        if mode is InsertMode.UNNEST:
            values = f"(SELECT * FROM UNNEST({marks}))"
        self._statements = [
            f"INSERT INTO {quote_name(table)} ({names}) {values}" for table in job.table_names
        ]
        self._client: Any = None
        self._errors: Any = None
        """The module with the client's."""

    def open(self) -> None:
        from crate.client import connect, exceptions

        # It checks who lets us in, with remedies.
        super().open()
        self._errors = exceptions
        options = self._options
        self._client = connect(
            options.endpoint,
            timeout=options.request_timeout_s,
            username=options.user,
            password=options.password,
            schema=options.default_schema,
            verify_ssl_cert=options.verify_certs,
            ca_cert=options.ca_certs,
            pool_size=max(10, self.max_in_flight),
        )
        for server in self._client.client.server_pool.values():
            server.request = _wrap_request(
                server.request, f"iot-benchmark {self._job.run_id}", options.request_timeout_s
            )

    def close(self) -> None:
        super().close()
        if self._client is not None:
            self._client.close()
            self._client = None

    def _send_part(self, part: RowsPart, payload: Payload) -> None:
        try:
            results = self._insert(part)
        except self._errors.ConnectionError as error:
            part.doubt()
            raise connection_lost(f"{self._options.server}: {error}") from error
        except self._errors.Error as error:
            text = str(error)
            status = SERVER_ERROR if "Server Error" in text else BAD_REQUEST
            meaning = self._judge(part, status, text)
            if meaning is not None or len(part.rows) > 1:
                part.doubt()
                raise meaning or connection_lost(text) from error
        else:
            if any(result["rowcount"] != 1 for result in results):
                self._sort_out(part, payload, results)
        part.rows = ()

    def _insert(self, part: RowsPart) -> Sequence[Mapping[str, Any]]:
        """What the client says of each row."""
        cursor = self._client.cursor()
        statement = self._statements[part.table]
        if self._mode is InsertMode.BULK:
            results: Sequence[Mapping[str, Any]] = cursor.executemany(statement, part.values)
            return results
        if self._mode is InsertMode.SINGLE:
            cursor.execute(statement, part.values[0])
        else:
            cursor.execute(statement, [list(column) for column in zip(*part.values, strict=True)])
        stored = cursor.rowcount
        return [{"rowcount": 1 if row < stored else -2} for row in range(len(part.rows))]


def _wrap_request(request: Callable[..., Any], name: str, timeout_s: float) -> Callable[..., Any]:
    """A server's `request` under a name by which an administrator knows the run, and within what is left of
    its patience."""

    def named(*args: Any, headers: Mapping[str, str] | None = None, **more: Any) -> Any:
        more["timeout"] = limit_wait(timeout_s)
        return request(*args, headers={**(headers or {}), "User-Agent": name}, **more)

    return named


def make_writer(options: CratedbOptions, job: Job, batch: int) -> OfficialWriter:
    """A writer by the client."""
    return OfficialWriter(RowsEncoder(job), options, job, options.mode(batch))
