"""Lines by the package `questdb` (`client=official`).

The client builds rows one by one, with a flush per request, as in its documentation without data frames
(which need pandas and pyarrow). HTTP is set explicitly: QuestDB up to 9.3 answers the client's default since
version 6 (QWP) with 404.

https://py-questdb-client.readthedocs.io/en/latest/sender.html
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from ...contract import PrimaryKey
from ...encoding.columns import KEY_COLUMN, bounds, client_keys
from ...errors import OptionError, Retryable, SimulatorError, one_line
from ...workloads.schema import ColumnType, EventBlock
from ..base import AnyModule, Job
from ..kit.module import connection_lost
from ..kit.official import OfficialEncoder, OfficialWriter, list_columns
from ..kit.options import bracket
from ..sending import deal_in_turn
from ..waiting import limit_wait
from .encoding import as_sent, find_sent_values, is_symbol
from .server import Connection

_REFUSED = '"code":"invalid"'
"""QuestDB's text for lines that it will never accept. The client reports no status."""


# --- the vendor's client --------------------------------------------------------------------------


class Row(NamedTuple):
    """Arguments of `Sender.row`, with the time in ms since 1970."""

    table: str
    symbols: dict[str, str]
    columns: dict[str, Any]
    time_ms: int


class SenderEncoder(OfficialEncoder):
    """A payload's data: a list of `Row`."""

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        schema = job.schema
        self._has_key = job.load.primary_key is PrimaryKey.CLIENT
        self._symbols = [column for column in schema.row if is_symbol(schema, column)]
        self._columns = [
            column
            for column in schema.row
            if column not in self._symbols and column.name != schema.time
        ]

    def make_requests(self, block: EventBlock) -> Sequence[list[Row]]:
        from questdb.ingress import TimestampMicros

        names = [column.name for column in self._symbols]
        texts = [
            list(map(str, values))
            for values in list_columns(self._symbols, block.row_columns, block.missing)
        ]
        fields = [column.name for column in self._columns]
        sent = {column.name: find_sent_values(column, block) for column in self._columns}
        values = list_columns(list(map(as_sent, self._columns)), sent, block.missing)
        for place, column in enumerate(self._columns):
            if column.type is ColumnType.TIMESTAMP_MS:
                values[place] = [
                    None if time is None else TimestampMicros(time * 1000) for time in values[place]
                ]
        if self._has_key:
            fields.append(KEY_COLUMN)
            values.append([key.decode() for key in client_keys(block).tolist()])
        rows = [
            Row(
                table,
                dict(zip(names, symbols, strict=True)),
                dict(zip(fields, row, strict=True)),
                at,
            )
            for table, symbols, row, at in zip(
                deal_in_turn(block, self.job.table_names),
                zip(*texts, strict=True),
                zip(*values, strict=True),
                block.columns[block.schema.time].tolist(),
                strict=True,
            )
        ]
        return [rows[start:stop] for start, stop in bounds(len(block), self.size)]


class OfficialQuestdbWriter(OfficialWriter[Connection]):
    """Sends payloads of `SenderEncoder` through the client's sender."""

    def make_encoder(self, module: AnyModule) -> SenderEncoder:
        return SenderEncoder(module.job)

    def make_client(self) -> Any:
        from questdb.ingress import Protocol, Sender, TlsCa

        options = self.connection.options
        url = urlsplit(options.endpoint[0])
        tls: dict[str, Any] = {}
        if url.scheme == "https":
            if options.client_cert is not None:
                raise OptionError(
                    "client=official can't send a client certificate: leave client_cert out"
                )
            tls = {"tls_verify": options.verify_certs, "tls_ca": TlsCa.OsRoots}
            if options.ca_certs is not None:
                tls |= {"tls_ca": TlsCa.PemFile, "tls_roots": options.find_file("ca_certs")}
        sender = Sender(
            Protocol.Https if tls else Protocol.Http,
            bracket(url.hostname or ""),
            url.port or options.DEFAULT_PORT,
            username=options.username,
            password=options.password,
            token=options.token,
            # A flush is a request; the loop retries, and counts it.
            auto_flush=False,
            retry_timeout=0,
            request_timeout=round(limit_wait(options.request_timeout_s) * 1000),
            **tls,
        )
        sender.establish()
        return sender

    def close_client(self, client: Any) -> None:
        client.close(flush=False)

    def insert(self, data: Sequence[Row]) -> None:
        from questdb.ingress import TimestampNanos

        sender = self.client
        for table, symbols, columns, time_ms in data:
            at = TimestampNanos(time_ms * 1_000_000)
            sender.row(table, symbols=symbols, columns=columns, at=at)
        sender.flush()

    def explain(self, error: Exception) -> Retryable | SimulatorError | None:
        from questdb.ingress import IngressError, IngressErrorCode

        if not isinstance(error, IngressError):
            return None
        # Another client sends its rows again.
        self.drop_client()
        text = one_line(error, 500)
        code = getattr(error, "code", None)
        if code in (IngressErrorCode.SocketError, IngressErrorCode.CouldNotResolveAddr):
            return connection_lost(text)
        if code is IngressErrorCode.ServerFlushError and _REFUSED not in text:
            return Retryable("unavailable", text)
        return SimulatorError(f"{self.connection.place} refused a request: {text}")
