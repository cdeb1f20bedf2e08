"""What collections take on disk, as ArangoDB's storage engine estimates it.

https://docs.arangodb.com/stable/develop/http-api/collections/#get-the-collection-statistics
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ...contract import MIB, Allocation, Storage
from ...errors import SimulatorError
from .._base.http import parse_body

if TYPE_CHECKING:
    from .server import Connection

_log = logging.getLogger(__name__)

_FLUSH = "/_admin/wal/flush?waitForSync=true&waitForCollector=true"
_COMPACT = "/_admin/compact"
_FORBIDDEN = 403
# A coordinator asks each shard's leader, and nobody else.
# https://docs.arangodb.com/stable/components/arangodb-server/options/#--rocksdbwrite-buffer-size
ALLOCATION = Allocation(
    unit_bytes=64 * MIB, cause="RocksDB writes files of 64 MiB, and merges them later"
)
_SOURCE = (
    "collection figures: RocksDB's estimates of documents and indexes (the primary one, too), compressed as"
    " they are; in a cluster of the shards' leaders, so of one copy; without the write-ahead log"
)
_NOT_FLUSHED = "; memtables could not be flushed and are in it, uncompressed"


def read_storage(connection: Connection, tables: Sequence[str], timeout_s: float) -> Storage:
    """The sum over the collections, after what is in memory has been written to files.

    Raises Retryable, or SimulatorError if there are no figures.
    """
    source = _SOURCE + ("" if _flush(connection, timeout_s) else _NOT_FLUSHED)
    found: list[Any] = [
        connection.ask(connection.database.collection(table).statistics) for table in tables
    ]
    documents = sum(int(figures["documents_size"]) for figures in found)
    indexes = sum(int(figures["indexes"]["size"]) for figures in found)
    return Storage(
        total_bytes=documents + indexes, data_bytes=documents, index_bytes=indexes, source=source
    )


def _flush(connection: Connection, timeout_s: float) -> bool:
    """Whether memtables were flushed: the figures would count them as large as they are in memory."""
    status, body = connection.http.put(_FLUSH, timeout_s)
    if status == 200:
        return True
    error = connection.http.interpret(status, parse_body(body))
    _log.warning("memtables could not be flushed: %s", error)
    return False


def compact_all(connection: Connection, timeout_s: float) -> None:
    """Compact all that the server has, and wait for it: of a collection alone, it would only be begun.

    Raises Retryable, or SimulatorError if the server doesn't let us.
    """
    status, body = connection.http.put(_COMPACT, timeout_s)
    if status == _FORBIDDEN:
        raise SimulatorError(
            "only superusers may compact ArangoDB, and no user is one; on a server without authentication"
            " everybody may"
        )
    if status != 200:
        raise connection.http.interpret(status, parse_body(body))
